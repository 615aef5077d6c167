//! The fast way and the strict one agree on everything: rows, starts and faults, however the records are cut.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::compute::concat_batches;
use arrow::datatypes::Schema;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::JsonOptions;
use super::decoder::JsonPlan;
use super::twins::{Decoded, fast, fast_message, strict, strict_message};
use crate::format::{RecordDecoder, RecordFault, line_at};
use crate::schema::parse_schema;

const SCHEMA: &str = "i BIGINT, d DOUBLE, s STRING, t TIMESTAMP(3), b BOOLEAN, n DECIMAL(9,2), \
                      l ARRAY<INT>, r ROW<a INT, b STRING>, k INT NOT NULL";

fn schema() -> Arc<Schema> {
    Arc::new(parse_schema(SCHEMA).unwrap())
}

fn plan(options: JsonOptions) -> JsonPlan {
    let columns = schema().fields().iter().map(|field| (field.name().clone(), Arc::clone(field))).collect();
    JsonPlan::try_new(columns, &options).unwrap()
}

fn blanks() -> impl Strategy<Value = &'static str> {
    prop_oneof![12 => Just(""), 3 => Just(" "), 1 => Just("\t \r"), 1 => Just("  ")]
}

fn string() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-z ]{0,30}".prop_map(|text| format!("\"{text}\"")),
        2 => "\\PC{0,12}".prop_map(|text| serde_json::to_string(&text).unwrap()),
        2 => "(\\\\[\"/\\\\bfnrt]|\\\\u00e9|\\\\ud83d\\\\ude00|é|[a-z]{0,9}){0,6}".prop_map(|text| format!("\"{text}\"")),
        1 => "(\\\\[\"\\\\ux]|\\\\u[0-9d]{3,4}|[a-z]){0,4}".prop_map(|text| format!("\"{text}\"")),
    ]
}

fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "-?(0|[1-9][0-9]{0,20})",
        4 => "-?(0|[1-9][0-9]{0,6})\\.[0-9]{1,18}",
        2 => "-?(0|[1-9][0-9]{0,3})(\\.[0-9]{1,9})?[eE][+-]?[0-9]{1,3}",
        1 => "[-+.eE0-9]{1,9}",
    ]
}

fn value() -> impl Strategy<Value = String> {
    let scalar = prop_oneof![
        3 => number(),
        3 => string(),
        1 => select(vec!["null", "true", "false", "NaN", "nul", "tru", "\"NaN\"", ""]).prop_map(str::to_owned),
    ];
    scalar.prop_recursive(4, 12, 3, |inner| {
        let element =
            (blanks(), inner.clone(), blanks()).prop_map(|(before, value, after)| format!("{before}{value}{after}"));
        let member = (blanks(), select(vec!["a", "b", "x\\u0041", "é"]), blanks(), inner, blanks());
        let member = member.prop_map(|(a, key, b, value, c)| format!("{a}\"{key}\"{b}:{c}{value}"));
        prop_oneof![
            prop::collection::vec(element, 0..4).prop_map(|elements| format!("[{}]", elements.join(","))),
            prop::collection::vec(member, 0..4).prop_map(|members| format!("{{{}}}", members.join(","))),
        ]
    })
}

/// A value that the column takes, mostly.
fn value_of(key: &'static str) -> BoxedStrategy<String> {
    let good = match key {
        "i" => "-?(0|[1-9][0-9]{0,17})".boxed(),
        "k" => "0|-?[1-9][0-9]{0,8}".boxed(),
        "d" => "-?(0|[1-9][0-9]{0,6})(\\.[0-9]{1,18})?(e-?[0-9]{1,2})?".boxed(),
        "s" | "\\u0073" | "S" => string().boxed(),
        "t" => "\"20[0-9]{2}-0[1-9]-[0-2][0-9][ T][01][0-9]:[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?Z?\"".boxed(),
        "b" => select(vec!["true", "false", "null"]).prop_map(str::to_owned).boxed(),
        "n" => "-?(0|[1-9][0-9]{0,6})(\\.[0-9]{1,2})?".boxed(),
        "l" => "\\[([0-9]{1}(, ?[1-9]){0,3})?\\]".boxed(),
        "r" => "\\{(\"a\":[1-9](,\"b\" ?:\"[a-z]{0,3}\")?)?\\}".boxed(),
        _ => value().boxed(),
    };
    prop_oneof![100 => good, 2 => Just("null".to_owned()), 1 => value()].boxed()
}

/// How some records of a chunk are written: their keys, and the blanks between.
fn writing() -> impl Strategy<Value = (Vec<&'static str>, [&'static str; 5])> {
    let keys = vec![
        "i",
        "d",
        "s",
        "t",
        "b",
        "n",
        "l",
        "r",
        "k",
        "k",
        "\\u0073",
        "S",
        "other",
        "a long key, longer than others",
    ];
    let keys = prop_oneof![
        3 => Just(vec!["i", "d", "s", "t", "b", "n", "l", "r", "k"]),
        2 => Just(vec!["i", "d", "t", "k"]),
        2 => prop::collection::vec(select(keys.clone()), 1..9),
        1 => prop::sample::subsequence(keys, 0..10).prop_shuffle(),
    ];
    (keys, [blanks(), blanks(), blanks(), blanks(), blanks()])
}

fn record() -> impl Strategy<Value = String> {
    writing().prop_flat_map(written)
}

fn written(
    (keys, [open, before, after, comma, close]): (Vec<&'static str>, [&'static str; 5]),
) -> BoxedStrategy<String> {
    let values: Vec<_> = keys.iter().map(|key| value_of(key)).collect();
    values
        .prop_map(move |values| {
            let members = keys.iter().zip(values);
            let members: Vec<_> = members.map(|(key, value)| format!("\"{key}\"{before}:{after}{value}")).collect();
            format!("{open}{{{}{close}}}{open}", members.join(&format!("{comma},{comma}")))
        })
        .boxed()
}

/// Bytes changed, put in, or cut off.
fn mutated(mut record: Vec<u8>, how: u8, place: Index, byte: u8) -> Vec<u8> {
    if record.is_empty() {
        return record;
    }
    let at = place.index(record.len());
    match how {
        0 => record[at] = byte,
        1 => record.insert(at, byte),
        2 => drop(record.remove(at)),
        3 => record.truncate(at),
        _ => {}
    }
    record
}

fn any_byte() -> impl Strategy<Value = u8> {
    prop_oneof![select(b"{}[]:,\"\\\n\r\t 0-.eEu\x1f\x7f\xc3".to_vec()), any::<u8>()]
}

/// Records of a few writings, of which `num_bad` are bad, perhaps.
fn records(num_bad: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Vec<u8>>> {
    let of_few_writings = prop::collection::vec(writing(), 1..4).prop_flat_map(|writings| {
        let record = select(writings).prop_flat_map(written);
        prop::collection::vec(record, 1..12)
    });
    let bad = prop::collection::vec((any::<Index>(), 0..5u8, any::<Index>(), any_byte()), num_bad);
    (of_few_writings, bad).prop_map(|(records, bad)| {
        let mut records: Vec<_> = records.into_iter().map(String::into_bytes).collect();
        for (which, how, place, byte) in bad {
            let record = which.get_mut(&mut records);
            *record = mutated(std::mem::take(record), how, place, byte);
        }
        records
    })
}

fn options() -> impl Strategy<Value = JsonOptions> {
    (any::<bool>(), any::<bool>(), any::<bool>(), select(vec![0, 1, 2, 3, 64, 1000])).prop_map(
        |(missing, case_insensitive_names, coerce, max_depth)| JsonOptions {
            ignore_parse_errors: false,
            // Mostly off: nearly every chunk has a record without some key.
            fail_on_missing_field: missing && coerce,
            case_insensitive_names,
            coerce,
            max_depth,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn chunks_come_out_as_the_strict_decoder_has_them(
        records in records(0..3),
        end in select(vec!["\n", "\r\n"]),
        options in options(),
        max_faults in select(vec![1, 2, usize::MAX]),
    ) {
        let plan = plan(options);
        let chunk = records.join(end.as_bytes());
        prop_assert_eq!(fast(&plan, &chunk, max_faults), strict(&plan, &schema(), &chunk, max_faults));
        let ended = [&chunk, end.as_bytes()].concat();
        prop_assert_eq!(fast(&plan, &ended, max_faults), strict(&plan, &schema(), &ended, max_faults));
    }

    #[test]
    fn messages_come_out_as_the_strict_decoder_has_them(records in records(0..6), options in options()) {
        let plan = plan(options);
        for pair in records.windows(2) {
            prop_assert_eq!(fast_message(&plan, &pair[0], &pair[1]), strict_message(&plan, &schema(), &pair[1]));
        }
    }

    #[test]
    fn any_cut_at_record_ends_gives_the_same_rows(records in records(0..1), cuts in prop::collection::vec(any::<Index>(), 0..4)) {
        let plan = plan(JsonOptions::default());
        let chunk = records.join(&b'\n');
        let Decoded { rows: whole, starts, faults, .. } = fast(&plan, &chunk, usize::MAX);
        let mut ends: Vec<usize> = cuts.iter().map(|cut| line_at(&chunk, cut.index(chunk.len())).1).collect();
        ends.push(chunk.len());
        ends.sort_unstable();
        let (mut pieces, mut piece_starts, mut piece_faults, mut at) = (Vec::new(), Vec::new(), Vec::new(), 0);
        let mut one_decoder = plan.decoder(4).unwrap();
        for end in ends {
            let Decoded { rows: batch, starts, faults, .. } = fast(&plan, &chunk[at..end], usize::MAX);
            pieces.push(batch);
            piece_starts.extend(starts.iter().map(|start| start + at as u64));
            let moved = |fault: RecordFault| RecordFault { start: at + fault.start, end: at + fault.end, ..fault };
            piece_faults.extend(faults.into_iter().map(moved));
            one_decoder.decode(&chunk[..end], at, &mut Vec::new(), &mut |_| ControlFlow::Continue(()));
            at = end;
        }
        prop_assert_eq!(&concat_batches(&schema(), &pieces).unwrap(), &whole);
        prop_assert_eq!((piece_starts, piece_faults), (starts, faults));
        prop_assert_eq!(one_decoder.finish().unwrap(), whole);
    }

    #[test]
    fn one_record_again_and_again_is_what_it_is_once(record in record()) {
        let plan = plan(JsonOptions::default());
        let Decoded { rows: once, starts, .. } = strict(&plan, &schema(), record.as_bytes(), 1);
        if !starts.is_empty() {
            let chunk = [record.as_str(); 600].join("\n");
            let Decoded { rows: batch, starts, faults, .. } = fast(&plan, chunk.as_bytes(), 1);
            prop_assert_eq!((starts.len(), faults), (600, vec![]));
            for row in [0, 1, 255, 256, 257, 511, 512, 599] {
                prop_assert_eq!(&batch.slice(row, 1), &once);
            }
        }
    }

    /// Good records beside any others come out as if those weren't there.
    #[test]
    fn a_good_record_comes_out_the_same_beside_any_bytes(
        good in record(),
        bytes in prop::collection::vec(prop::collection::vec(any::<u8>().prop_filter("one line", |b| *b != b'\n'), 0..40), 0..6),
        torn in record(),
        cut in any::<Index>(),
    ) {
        let plan = plan(JsonOptions::default());
        let Decoded { rows: once, starts, .. } = strict(&plan, &schema(), good.as_bytes(), 1);
        if !starts.is_empty() {
            let mut lines: Vec<&[u8]> = Vec::new();
            let torn = &torn.as_bytes()[..cut.index(torn.len() + 1)];
            for bytes in &bytes {
                lines.extend([good.as_bytes(), bytes, torn]);
            }
            lines.push(good.as_bytes());
            let chunk = lines.join(&b'\n');
            let Decoded { rows: batch, starts, .. } = fast(&plan, &chunk, usize::MAX);
            let mut at = 0;
            for line in &lines {
                if *line == good.as_bytes() {
                    let row = starts.iter().position(|start| *start == at as u64).unwrap();
                    prop_assert_eq!(&batch.slice(row, 1), &once);
                }
                at += line.len() + 1;
            }
        }
    }
}
