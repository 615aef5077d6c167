//! Whatever the bytes and the options: columns over the index and the scalar reference say the same.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::AsArray;
use proptest::prelude::*;
use proptest::sample::select;

use super::columnar::Indexing;
use super::decoder::CsvDecoder;
use super::index::Kernel;
use super::plan::{CsvColumn, CsvPlan};
use super::twins::{Decoded, cut_by_record, decode_by_column, decode_by_record, decode_in_two, decode_messages};
use super::{CsvCutter, CsvOptions, OnFieldCount};
use crate::format::{RecordCutter, RecordDecoder, decode_each_message, join_messages};
use crate::schema::parse_schema;

fn kernels() -> impl Strategy<Value = Kernel> {
    select(vec![Kernel::Swar, Kernel::detect()])
}

fn options() -> impl Strategy<Value = CsvOptions> {
    let lenient = || prop_oneof![4 => Just(OnFieldCount::Fail), 1 => Just(OnFieldCount::Lenient)];
    let bytes = (
        select(vec![None, Some(','), Some(';'), Some('é')]),
        select(vec![Some(b'"'), Some(b'"'), Some(b'\''), None]),
        prop_oneof![8 => Just(None), 1 => Just(Some(b'\\'))],
        prop_oneof![8 => Just(None), 1 => Just(Some(b'#'))],
    );
    let nulls = prop_oneof![2 => Just(None), 1 => Just(Some("-".to_owned())), 1 => Just(Some("\"".to_owned()))];
    (bytes, nulls, lenient(), lenient(), select(vec![1usize, 3, 8, 70, 150, 1 << 20])).prop_map(
        |((delimiter, quote, escape, comment), null_literal, missing_fields, extra_fields, max_record_bytes)| {
            CsvOptions {
                delimiter,
                quote,
                escape,
                comment,
                null_literal,
                missing_fields,
                extra_fields,
                max_record_bytes,
                ..CsvOptions::default()
            }
        },
    )
}

/// A schema, which field each of its columns is, and how many fields there are.
type Shape = (&'static str, Vec<usize>, usize);

fn shapes() -> impl Strategy<Value = Shape> {
    select(vec![
        ("i INT, s STRING", vec![0, 1], 2),
        ("s STRING, t STRING", vec![0, 1], 2),
        ("s STRING", vec![0], 1),
        ("i INT", vec![0], 1),
        ("s STRING, t STRING NOT NULL, u STRING", vec![2, 1, 0], 3),
        ("s STRING, d DOUBLE, i INT", vec![2, 1, 0], 3),
        ("i INT NOT NULL, j INT", vec![0, 2], 3),
        ("t STRING", vec![1], 3),
        ("i BIGINT, s STRING", vec![0, 0], 1),
        ("s STRING, i INT", vec![0, 5], 2),
        ("n DECIMAL(5, 1), s STRING", vec![4, 0], 5),
    ])
}

fn plan((schema, indexes, num_fields): &Shape, options: &CsvOptions) -> CsvPlan {
    let schema = parse_schema(schema).unwrap();
    let column = |(index, field)| CsvColumn { index, field: Arc::clone(field) };
    CsvPlan::new(options, indexes.iter().copied().zip(schema.fields()).map(column).collect(), *num_fields)
}

/// Pieces of CSV that don't go together.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        6 => select(vec![",", ",", "\n", "\"", "\"\"", "\r\n", "\r", ";", "'", "\\", "#", "-", "\n\n"]),
        4 => select(vec!["1", "22", "a", "é", " ", "6\" nail", "\"q\"", "\"a,b\"", "\"x\ny\"", "\"\"\"\"", "\"1\"", "-,-"]),
        1 => select(vec!["0000000000000000000000000000000000000000000000000000000000000007", "2024-02-29", "1.5"]),
    ];
    let bad = select(vec![b"\xff".to_vec(), b"\xc3".to_vec(), b"\xe2\x82".to_vec()]);
    let piece = prop_oneof![60 => piece.prop_map(|text| text.as_bytes().to_vec()), 1 => bad];
    prop::collection::vec(piece, 0..80).prop_map(|pieces| pieces.concat())
}

/// Records of so many fields as they should be, with a few bytes changed.
fn almost_regular(num_fields: usize) -> impl Strategy<Value = Vec<u8>> {
    let number = prop_oneof![4 => "[0-9]{0,4}", 1 => "\"[0-9]{0,3}\"", 1 => Just("-".to_owned())];
    let text = prop_oneof![
        4 => "[a-zé\r-]{0,12}",
        3 => "\"([a-z,\n1]|\"\"|\r){0,40}\"",
        1 => "[a-z]{60,70}",
        1 => Just("6\" nail".to_owned()),
    ];
    let field = prop_oneof![1 => number.clone(), 1 => text];
    let line_end = prop_oneof![12 => Just("\n"), 4 => Just("\r\n"), 1 => Just("\n\n"), 1 => Just("\n\r\n")];
    let record = |field: BoxedStrategy<String>| {
        (prop::collection::vec(field, num_fields), line_end).prop_map(|(fields, end)| fields.join(",") + end)
    };
    let records = prop_oneof![
        prop::collection::vec(record.clone()(number.boxed()), 0..30),
        prop::collection::vec(record(field.boxed()), 0..30),
    ];
    let change = (any::<prop::sample::Index>(), select(b"\"\",\n\r1a;\xff".to_vec()));
    let changes = prop_oneof![2 => Just(vec![]), 1 => prop::collection::vec(change, 0..3)];
    (records, changes, any::<bool>()).prop_map(|(records, changes, has_last_end)| {
        let mut table = records.concat().into_bytes();
        for (at, byte) in changes {
            if !table.is_empty() {
                let at = at.index(table.len());
                table[at] = byte;
            }
        }
        if !has_last_end {
            table.pop();
        }
        table
    })
}

fn chunks(num_fields: usize) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![1 => hostile(), 3 => almost_regular(num_fields)]
}

/// A shape, and a chunk that may have it.
fn cases() -> impl Strategy<Value = (Shape, Vec<u8>)> {
    shapes().prop_flat_map(|shape| {
        let num_fields = prop_oneof![5 => Just(shape.2), 1 => 1usize..5];
        (Just(shape), num_fields.prop_flat_map(chunks))
    })
}

#[test]
fn what_follows_a_record_for_the_reference_is_decoded_as_by_the_reference() {
    let plan = plan(&("s STRING", vec![0], 1), &CsvOptions::default());
    for chunk in ["", "\r", "6\"", "6\"\n", "a\n6\"\n\"b\n\"\n6\"\n\nc", "\"a\"\r\n\"b\"", "\"a\"\r"] {
        let chunk = chunk.as_bytes();
        let expected = decode_by_record(&plan, chunk, 1);
        assert_eq!(decode_by_column(&plan, Indexing::detect(), chunk, 1), expected, "{chunk:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn chunks_decode_as_by_the_reference(
        (shape, chunk) in cases(),
        options in options(),
        kernel in kernels(),
        window_bytes in select(vec![64usize, 128, 1 << 15]),
        max_faults in select(vec![1, 2, usize::MAX]),
    ) {
        let plan = plan(&shape, &options);
        let indexing = Indexing { kernel, window_bytes };
        let by_column = decode_by_column(&plan, indexing, &chunk, max_faults);
        prop_assert_eq!(by_column, decode_by_record(&plan, &chunk, max_faults));
    }

    /// One decoder that stops at bad records and goes on behind them, chunk after chunk, knows of the last chunk only.
    #[test]
    fn a_decoder_that_stops_again_and_again_decodes_the_same(
        (shape, chunk) in cases(),
        other in chunks(2),
        options in options(),
        stops_after in 1usize..4,
    ) {
        let plan = plan(&shape, &options);
        let mut decoder = plan.decoder(0).unwrap();
        for chunk in [&other, &chunk] {
            let (mut at, mut starts, mut faults) = (0, Vec::new(), Vec::new());
            while at < chunk.len() {
                let num_faults = faults.len();
                at = decoder.decode(chunk, at, &mut starts, &mut |fault| {
                    faults.push(fault);
                    match faults.len() - num_faults < stops_after {
                        true => ControlFlow::Continue(()),
                        false => ControlFlow::Break(()),
                    }
                });
            }
            let decoded = Decoded { rows: decoder.finish().unwrap(), starts, faults, end: at };
            prop_assert_eq!(decoded, decode_by_record(&plan, chunk, usize::MAX));
        }
    }

    /// Whatever stands between fields, they are the same: a delimiter of several bytes is only known to the reference,
    /// and one of a single byte to the index, too.
    #[test]
    fn a_delimiter_of_several_bytes_does_what_a_comma_does(
        chunk in chunks(2),
        quote in select(vec![Some(b'"'), None]),
        escape in prop_oneof![4 => Just(None), 1 => Just(Some(b'\\'))],
        delimiter in select(vec!['§', '｜', '😀']),
    ) {
        let cells = |delimiter: char, chunk: &[u8]| {
            let options = CsvOptions { delimiter: Some(delimiter), quote, escape, ..CsvOptions::default() };
            let shape = ("s STRING, t STRING", vec![0, 1], 2);
            let decoded = decode_by_column(&plan(&shape, &options), Indexing::detect(), chunk, usize::MAX);
            let Decoded { rows, starts, faults, .. } = decoded;
            let cells = rows.columns().iter().flat_map(|column| column.as_string::<i32>().iter().flatten());
            let cells: Vec<String> = cells.map(|cell| cell.replace(delimiter, ",")).collect();
            let reasons: Vec<_> = faults.into_iter().map(|fault| fault.reason).collect();
            (cells, starts.len(), reasons)
        };
        let between_commas: Vec<&[u8]> = chunk.split(|byte| *byte == b',').collect();
        let rewritten = between_commas.join(delimiter.to_string().as_bytes());
        prop_assert_eq!(cells(delimiter, &rewritten), cells(',', &chunk));
    }

    #[test]
    fn messages_decode_as_one_by_one(
        messages in prop::collection::vec(
            prop_oneof![
                3 => "[0-9]{0,3},[a-z]{0,9}\r?\n?".prop_map(String::into_bytes),
                2 => "(\"[0-9,\n]{0,9}\"|[0-9]{0,3}),\"(a|\"\"|\n){0,9}\"\r?\n?".prop_map(String::into_bytes),
                1 => hostile().prop_map(|mut message| { message.truncate(20); message }),
            ],
            0..12,
        ),
        shape in shapes(),
        options in options(),
        charset in select(vec!["utf-8", "utf-8", "windows-1252", "utf-16le", "shift_jis"]),
        kernel in kernels(),
        first in any::<prop::sample::Index>(),
        max_faults in select(vec![1, 2, usize::MAX]),
    ) {
        let plan = plan(&shape, &CsvOptions { charset: charset.parse().unwrap(), ..options });
        let first = first.index(messages.len() + 1);
        let messages: Vec<Vec<u8>> = match charset {
            // Here and there one is cut in the middle of a character.
            "utf-16le" => messages.iter().map(|message| {
                let units = message.iter().flat_map(|byte| [*byte, 0]);
                units.take(if message.len() == 7 { 13 } else { usize::MAX }).collect()
            }).collect(),
            _ => messages,
        };
        let (values, ends) = join_messages(&messages);
        let by_column = plan.decoder(0).unwrap().with_indexing(Indexing { kernel, window_bytes: 64 });
        prop_assert_eq!(
            decode_messages(by_column, CsvDecoder::decode_messages, &values, &ends, first, max_faults),
            decode_messages(plan.decoder(0).unwrap(), decode_each_message, &values, &ends, first, max_faults)
        );
    }

    #[test]
    fn every_prefix_is_cut_as_by_the_reference(data in (1usize..4).prop_flat_map(chunks), options in options(), kernel in kernels()) {
        let dialect = options.dialect();
        for len in 0..=data.len() {
            let mut cutter = CsvCutter::new(dialect.clone()).with_kernel(kernel);
            prop_assert_eq!(cutter.cut(&data[..len]), cut_by_record(&dialect, &data[..len]), "of {} bytes", len);
        }
    }

    #[test]
    fn pieces_decode_as_the_whole((shape, mut chunk) in cases(), options in options(), kernel in kernels()) {
        chunk.truncate(80);
        let plan = plan(&shape, &options);
        let indexing = Indexing { kernel, window_bytes: 64 };
        let whole = decode_by_record(&plan, &chunk, usize::MAX);
        for len in 0..=chunk.len() {
            prop_assert_eq!(&decode_in_two(&plan, indexing, &chunk, len), &whole, "byte {} ends a piece", len);
        }
    }

    /// Good messages beside any others come out as if those weren't there.
    #[test]
    fn a_good_message_comes_out_the_same_beside_any_bytes(
        messages in prop::collection::vec(
            prop_oneof![
                3 => "[0-9]{1,3},[a-z]{0,9}".prop_map(|good| (true, good.into_bytes())),
                2 => hostile().prop_map(|mut bytes| { bytes.truncate(30); (false, bytes) }),
                1 => prop::collection::vec(any::<u8>(), 0..12).prop_map(|bytes| (false, bytes)),
            ],
            1..20,
        ),
    ) {
        let plan = plan(&("i INT, s STRING", vec![0, 1], 2), &CsvOptions::default());
        let rows = |messages: &[Vec<u8>]| {
            let (values, ends) = join_messages(messages);
            let decode = CsvDecoder::decode_messages;
            decode_messages(plan.decoder(0).unwrap(), decode, &values, &ends, 0, usize::MAX)
        };
        let all: Vec<Vec<u8>> = messages.iter().map(|(_, bytes)| bytes.clone()).collect();
        let (batch, faults, _) = rows(&all);
        let mut row = 0;
        for (index, (is_good, bytes)) in messages.iter().enumerate() {
            let is_bad = faults.iter().any(|(bad, _)| *bad == index);
            prop_assert!(!(*is_good && is_bad), "{:?}", faults);
            if *is_good {
                prop_assert_eq!(batch.slice(row, 1), rows(std::slice::from_ref(bytes)).0);
            }
            row += usize::from(!is_bad);
        }
        prop_assert_eq!(batch.num_rows(), row);
    }

    /// A bad line of a file changes no good one, also if its quotes are broken: only quotes that are well-formed reach
    /// over line ends, and here none is left open.
    #[test]
    fn a_good_line_comes_out_the_same_beside_any_bad_ones(
        lines in prop::collection::vec(
            prop_oneof![
                3 => "[0-9]{1,3},[a-z]{0,9}".prop_map(|good| (true, good.into_bytes())),
                1 => "[0-9]{1,3},\"([a-z,]|\"\"){0,9}\"".prop_map(|good| (true, good.into_bytes())),
                2 => "[a-z,]{0,20}".prop_map(|bad| (false, format!("x{bad}").into_bytes())),
                1 => "[a-z][a-z\"]{0,9}(,[a-z][a-z\"]{0,9}){0,3}".prop_map(|bad| (false, bad.into_bytes())),
                1 => "\"[a-z,]{0,9}\"[a-z]{1,3}[,a-z]{0,9}".prop_map(|bad| (false, bad.into_bytes())),
                1 => prop::collection::vec(0x80u8.., 1..12).prop_map(|bad| (false, bad)),
            ],
            1..40,
        ),
        line_end in select(vec!["\n", "\r\n"]),
        window_bytes in select(vec![64usize, 1 << 15]),
    ) {
        let plan = plan(&("i INT, s STRING", vec![0, 1], 2), &CsvOptions::default());
        let indexing = Indexing { kernel: Kernel::detect(), window_bytes };
        let chunk: Vec<u8> = lines.iter().flat_map(|(_, line)| [line, line_end.as_bytes()].concat()).collect();
        let Decoded { rows, starts, faults, end } = decode_by_column(&plan, indexing, &chunk, usize::MAX);
        prop_assert_eq!(end, chunk.len());
        prop_assert_eq!(faults.len(), lines.iter().filter(|(is_good, _)| !is_good).count());
        let (mut at, mut row) = (0, 0);
        for (is_good, line) in &lines {
            if *is_good {
                prop_assert_eq!(starts[row], at as u64);
                prop_assert_eq!(rows.slice(row, 1), decode_by_column(&plan, indexing, line, 1).rows);
                row += 1;
            }
            at += line.len() + line_end.len();
        }
    }
}
