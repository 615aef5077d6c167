//! Columns over the index, held against the scalar reference, on any bytes at all.
//!
//! The first bytes choose the options, and the rest is the text; so a fuzzer finds its way to each of them. Ordinary
//! tests replay what it found worth keeping.
#![expect(clippy::unwrap_used, reason = "it says what went wrong by panicking")]

use std::sync::Arc;

use super::columnar::Indexing;
use super::index::{Kernel, oracle};
use super::plan::{CsvColumn, CsvPlan};
use super::record::{Dialect, Scan};
use super::{CsvCutter, CsvOptions, OnFieldCount};
use crate::format::{RecordCutter, RecordDecoder, decode_each_message};
use crate::schema::parse_schema;

/// Schemas, which field each of their columns is, and how many fields there are.
const SHAPES: [(&str, &[usize], usize); 8] = [
    ("i INT, s STRING", &[0, 1], 2),
    ("s STRING", &[0], 1),
    ("i INT NOT NULL", &[0], 1),
    ("s STRING, d DOUBLE, i INT", &[2, 1, 0], 3),
    ("t STRING", &[1], 3),
    ("i BIGINT, s STRING", &[0, 0], 1),
    ("s STRING, i INT", &[0, 5], 2),
    ("n DECIMAL(5, 1), b BOOLEAN, d DATE, t TIMESTAMP(3), x BYTES", &[4, 0, 1, 2, 3], 5),
];

/// Both kernels of the index see what single bytes say.
pub(crate) fn check_index(input: &[u8]) {
    let [choice, step, data @ ..] = input else { return };
    let quote = [Some(b'"'), Some(b'\''), None, Some(b'a')][usize::from(*choice) % 4];
    let delimiter = [b',', b';', b'\t', 0][usize::from(*choice >> 2) % 4];
    let options = CsvOptions { quote, delimiter: Some(delimiter), ..CsvOptions::default() };
    oracle::check(&options.dialect(), data, 1 + usize::from(*step));
}

/// Records, cuts and messages come out as the reference has them.
pub(crate) fn check_records(input: &[u8]) {
    let [shape, kernel, dialect, counts, limit, data @ ..] = input else { return };
    let options = options_of(*dialect, *counts, *limit);
    let plan = plan_of(usize::from(*shape) % SHAPES.len(), &options);
    let kernel = [Kernel::Swar, Kernel::detect()][usize::from(*kernel) % 2];
    let window_bytes = [64, 128, 1 << 15][usize::from(*limit >> 4) % 3];
    let indexing = Indexing { kernel, window_bytes };

    let mut fast = plan.decoder(0).unwrap().with_indexing(indexing);
    let mut reference = plan.decoder(0).unwrap();
    let (mut starts, mut reference_starts) = (Vec::new(), Vec::new());
    let outcome = fast.decode(data, &mut starts).map(|()| fast.finish().unwrap());
    let expected = reference.decode_by_reference(data, &mut reference_starts).map(|()| reference.finish().unwrap());
    assert_eq!((outcome, starts), (expected, reference_starts));

    for part in [data, &data[..data.len() / 2]] {
        let cut = CsvCutter::new(plan.dialect.clone()).with_kernel(kernel).cut(part);
        assert_eq!(cut, cut_by_reference(&plan.dialect, part), "of {} bytes", part.len());
    }

    let (values, ends) = messages(data);
    let mut together = plan.decoder(0).unwrap().with_indexing(indexing);
    let mut one_by_one = plan.decoder(0).unwrap();
    let outcome = together.decode_messages(&values, &ends).map(|()| together.finish().unwrap());
    let expected = decode_each_message(&mut one_by_one, &values, &ends).map(|()| one_by_one.finish().unwrap());
    assert_eq!(outcome, expected);
}

fn options_of(dialect: u8, counts: u8, limit: u8) -> CsvOptions {
    let on = |bit: u8| counts >> bit & 1 == 1;
    let on_count = |bit: u8| if on(bit) { OnFieldCount::Lenient } else { OnFieldCount::Fail };
    CsvOptions {
        delimiter: [None, Some(b';')][usize::from(dialect & 1)],
        quote: [Some(b'"'), Some(b'"'), Some(b'\''), None][usize::from(dialect >> 1 & 3)],
        escape: (dialect >> 3 & 3 == 3).then_some(b'\\'),
        comment: (dialect >> 5 & 3 == 3).then_some(b'#'),
        missing_fields: on_count(0),
        extra_fields: on_count(1),
        null_literal: [None, Some("-"), Some("\""), Some("1")][usize::from(counts >> 2 & 3)].map(str::to_owned),
        decimal_rounding: on(4),
        max_record_bytes: [1 << 20, 1, 3, 8, 70, 150][usize::from(limit & 15) % 6],
        ..CsvOptions::default()
    }
}

fn plan_of(shape: usize, options: &CsvOptions) -> CsvPlan {
    let (schema, indexes, num_fields) = SHAPES[shape];
    let schema = parse_schema(schema).unwrap();
    let column = |(index, field): (&usize, &_)| CsvColumn { index: *index, field: Arc::clone(field) };
    CsvPlan::new(options, indexes.iter().zip(schema.fields()).map(column).collect(), num_fields)
}

/// Cuts by the reference alone.
pub(super) fn cut_by_reference(dialect: &Dialect, data: &[u8]) -> usize {
    let mut at = 0;
    while at < data.len() {
        match dialect.scan(data, at, false, &mut Vec::new()) {
            Scan::Record { next } | Scan::Blank { next } | Scan::Comment { next } | Scan::Broken { next, .. } => {
                at = next
            }
            Scan::Incomplete => break,
        }
    }
    at
}

/// What stands between bytes 0, each a message.
fn messages(data: &[u8]) -> (Vec<u8>, Vec<usize>) {
    let (mut values, mut ends) = (Vec::new(), Vec::new());
    for message in data.split(|byte| *byte == 0) {
        values.extend_from_slice(message);
        ends.push(values.len());
    }
    (values, ends)
}

#[cfg(test)]
mod tests {
    use crate::fuzzing::replay;

    #[test]
    fn what_the_fuzzer_kept_of_the_index_is_seen_alike() {
        replay("csv_index", super::check_index);
    }

    #[test]
    fn what_the_fuzzer_kept_of_csv_is_decoded_alike() {
        replay("csv", super::check_records);
    }
}
