//! Columns over the index, held against the scalar reference, on any bytes at all.
//!
//! The first bytes choose the options, and the rest is the text; so a fuzzer finds its way to each of them. Ordinary
//! tests replay what it found worth keeping.
#![expect(clippy::unwrap_used, reason = "it says what went wrong by panicking")]

use std::ops::ControlFlow;
use std::sync::{Arc, LazyLock};

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::Schema;

use super::chain::Chain;
use super::columnar::Indexing;
use super::decoder::CsvDecoder;
use super::index::{Kernel, oracle};
use super::plan::{CsvColumn, CsvPlan};
use super::record::{Dialect, Scan};
use super::{CsvCutter, CsvOptions, OnFieldCount};
use crate::format::{OnBadMessage, RecordCutter, RecordDecoder, RecordFault, decode_each_message, join_messages};
use crate::schema::parse_schema;

/// Columns, which field each of them is, and how many fields there are.
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
    let delimiter = [',', ';', '\t', '\0'][usize::from(*choice >> 2) % 4];
    let options = CsvOptions { quote, delimiter: Some(delimiter), ..CsvOptions::default() };
    oracle::check(&options.dialect(), data, 1 + usize::from(*step));
}

/// Records, cuts and messages come out as the reference has them.
pub(crate) fn check_records(input: &[u8]) {
    let [shape, choice, dialect, counts, limit, data @ ..] = input else { return };
    let options = options_of(*dialect, *counts, *limit);
    let plan = plan_of(usize::from(*shape) % SHAPES.len(), &options);
    let kernel = [Kernel::Swar, Kernel::detect()][usize::from(*choice) % 2];
    let window_bytes = [64, 128, 1 << 15][usize::from(*limit >> 4) % 3];
    let indexing = Indexing { kernel, window_bytes };

    let max_faults = if limit & 0x80 == 0 { usize::MAX } else { 1 };
    let expected = decode_by_record(&plan, data, max_faults);
    assert_eq!(decode_by_column(&plan, indexing, data, max_faults), expected);

    let places = [data.len(), data.len() / 2, usize::from(*choice) % (data.len() + 1)];
    for len in places {
        let cut = CsvCutter::new(plan.dialect.clone()).with_kernel(indexing.kernel).cut(&data[..len]);
        assert_eq!(cut, cut_by_record(&plan.dialect, &data[..len]), "of {len} bytes");
        if max_faults == usize::MAX {
            assert_eq!(decode_in_two(&plan, indexing, data, len), expected, "when byte {len} ends a piece");
        }
    }

    let (values, ends) = messages(data);
    let first = usize::from(*choice >> 1) % (ends.len() + 1);
    let together = plan.decoder(0).unwrap().with_indexing(indexing);
    let one_by_one = plan.decoder(0).unwrap();
    assert_eq!(
        decode_messages(together, CsvDecoder::decode_messages, &values, &ends, first, max_faults),
        decode_messages(one_by_one, decode_each_message, &values, &ends, first, max_faults)
    );
}

/// What a decoder makes of a chunk: rows and where they start, bad records, and where it stopped.
#[derive(Debug, PartialEq)]
pub(super) struct Decoded {
    pub(super) rows: RecordBatch,
    pub(super) starts: Vec<u64>,
    pub(super) faults: Vec<RecordFault>,
    pub(super) end: usize,
}

/// Decodes column by column, up to so many bad records.
pub(super) fn decode_by_column(plan: &CsvPlan, indexing: Indexing, chunk: &[u8], max_faults: usize) -> Decoded {
    let mut decoder = plan.decoder(0).unwrap().with_indexing(indexing);
    let (mut starts, mut faults) = (vec![7], Vec::new());
    let end = decoder.decode(chunk, 0, &mut starts, &mut collecting(&mut faults, max_faults));
    assert_eq!(starts.remove(0), 7, "what was there stays");
    Decoded { rows: decoder.finish().unwrap(), starts, faults, end }
}

/// Decodes record by record, by the reference alone.
pub(super) fn decode_by_record(plan: &CsvPlan, chunk: &[u8], max_faults: usize) -> Decoded {
    let mut decoder = plan.decoder(0).unwrap();
    let (mut starts, mut faults) = (Vec::new(), Vec::new());
    let end = decoder.decode_by_reference(chunk, &mut starts, &mut collecting(&mut faults, max_faults));
    Decoded { rows: decoder.finish().unwrap(), starts, faults, end }
}

/// Decodes a chunk as the end of a file whose bytes arrive in two pieces, of which the first has `len` bytes: what are
/// whole records then, and the rest.
pub(super) fn decode_in_two(plan: &CsvPlan, indexing: Indexing, chunk: &[u8], len: usize) -> Decoded {
    let cut = CsvCutter::new(plan.dialect.clone()).with_kernel(indexing.kernel).cut(&chunk[..len]);
    let first = decode_by_column(plan, indexing, &chunk[..cut], usize::MAX);
    let rest = decode_by_column(plan, indexing, &chunk[cut..], usize::MAX);
    let moved = |fault: RecordFault| RecordFault { start: cut + fault.start, end: cut + fault.end, ..fault };
    Decoded {
        rows: concat_batches(&plan.schema, [&first.rows, &rest.rows]).unwrap(),
        starts: first.starts.into_iter().chain(rest.starts.iter().map(|start| start + cut as u64)).collect(),
        faults: first.faults.into_iter().chain(rest.faults.into_iter().map(moved)).collect(),
        end: cut + rest.end,
    }
}

/// Collects faults, up to `max` of them.
fn collecting(faults: &mut Vec<RecordFault>, max: usize) -> impl FnMut(RecordFault) -> ControlFlow<()> {
    move |fault| {
        faults.push(fault);
        if faults.len() < max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

/// What a decoder makes of messages: rows, bad messages, and where it stopped.
pub(super) type DecodedMessages = (RecordBatch, Vec<(usize, RecordFault)>, usize);

pub(super) type DecodeMessages = fn(&mut CsvDecoder, &[u8], &[usize], usize, &mut OnBadMessage<'_>) -> usize;

/// Decodes messages from `first` on, up to so many bad ones.
pub(super) fn decode_messages(
    mut decoder: CsvDecoder,
    decode: DecodeMessages,
    values: &[u8],
    ends: &[usize],
    first: usize,
    max_faults: usize,
) -> DecodedMessages {
    let mut faults = Vec::new();
    let end = decode(&mut decoder, values, ends, first, &mut |index, fault| {
        faults.push((index, fault));
        if faults.len() < max_faults { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    (decoder.finish().unwrap(), faults, end)
}

fn options_of(dialect: u8, counts: u8, limit: u8) -> CsvOptions {
    let on = |bit: u8| counts >> bit & 1 == 1;
    let on_count = |bit: u8| if on(bit) { OnFieldCount::Lenient } else { OnFieldCount::Fail };
    CsvOptions {
        delimiter: [None, Some(if dialect & 0x80 == 0 { ';' } else { '§' })][usize::from(dialect & 1)],
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
    // Once for all inputs, of which there are many.
    static SCHEMAS: LazyLock<[Schema; SHAPES.len()]> =
        LazyLock::new(|| SHAPES.map(|(columns, ..)| parse_schema(columns).unwrap()));
    let (_, indexes, num_fields) = SHAPES[shape];
    let column = |(index, field): (&usize, &_)| CsvColumn { index: *index, field: Arc::clone(field) };
    CsvPlan::new(options, indexes.iter().zip(SCHEMAS[shape].fields()).map(column).collect(), num_fields)
}

/// Cuts by the reference alone, which scans each record as if it were the first.
pub(super) fn cut_by_record(dialect: &Dialect, data: &[u8]) -> usize {
    let mut at = 0;
    while at < data.len() {
        match dialect.scan(data, at, false, &mut Vec::new(), &mut Chain::default()) {
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
    join_messages(&data.split(|byte| *byte == 0).collect::<Vec<_>>())
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
