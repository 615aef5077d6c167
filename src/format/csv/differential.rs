//! Generated records by the million: columns over the index, the scalar reference and arrow-csv make the same of them.
//!
//! A batch is a thousand records of one schema and one set of options. arrow-csv gets the very same bytes where it has
//! the options; else the same values as plain CSV: without comments and blank lines, bad records, fields that nobody
//! reads, and with an empty field for each null. So it stands beside every option.

mod batch;

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;

use self::batch::{Batch, Written};
use super::columnar::Indexing;
use super::index::Kernel;
use super::plan::CsvPlan;
use super::twins::{decode_by_column, decode_by_record, decode_in_two};
use crate::format::differential::values::Kind;
use crate::format::differential::{Noise, Run, check_batches};

/// Records of a batch, at most.
const BATCH_RECORDS: usize = 2_000;

/// How long a piece is that is cut at each of its bytes.
const PIECE_BYTES: usize = 300;

/// What arrow-csv makes of the good records.
fn decode_by_arrow(batch: &Batch, written: &Written) -> RecordBatch {
    let fields: Vec<_> = batch.columns.iter().map(Kind::field_for_others).collect();
    let builder = arrow_csv::ReaderBuilder::new(Arc::new(Schema::new(fields)));
    let mut builder = builder.with_batch_size(written.starts.len() + 1);
    let mut bytes = &written.canonical;
    if batch.is_plain {
        bytes = &written.bytes;
        builder = builder.with_delimiter(batch.delimiter() as u8).with_quote(batch.options.quote.unwrap_or(b'"'));
        if let Some(escape) = batch.options.escape {
            builder = builder.with_escape(escape);
        }
        if let Some(comment) = batch.options.comment {
            builder = builder.with_comment(comment);
        }
    }
    let mut decoder = builder.build_decoder();
    let mut at = 0;
    loop {
        // No bytes at last: the end.
        let num_bytes = decoder.decode(&bytes[at..]).unwrap();
        if num_bytes == 0 {
            break;
        }
        at += num_bytes;
    }
    assert_eq!(at, bytes.len());
    decoder.flush().unwrap().unwrap()
}

/// Cuts a chunk at each of its bytes as a file is cut whose bytes arrive in two pieces, and decodes both parts.
fn check_every_cut(plan: &CsvPlan, indexing: Indexing, chunk: &[u8], place: &str) {
    let whole = decode_by_record(plan, chunk, usize::MAX);
    for len in 0..=chunk.len() {
        let pieces = decode_in_two(plan, indexing, chunk, len);
        assert!(
            pieces == whole,
            "{place}: when byte {len} ends a piece of {:?}: {:?} instead of {:?}, {:?}",
            String::from_utf8_lossy(chunk),
            (&pieces.starts, &pieces.faults),
            (&whole.starts, &whole.faults),
            plan.dialect
        );
    }
}

/// Some records in the middle.
fn piece<'a>(noise: &mut Noise, written: &Written, bytes: &'a [u8]) -> &'a [u8] {
    let start = written.starts.get(noise.below(written.starts.len().max(1))).map_or(0, |start| *start as usize);
    let start = start.min(bytes.len());
    &bytes[start..bytes.len().min(start + noise.below(PIECE_BYTES))]
}

fn check_batch(run: &mut Run, mut noise: Noise) {
    let batch = Batch::new(&mut noise);
    let num_records = 1 + noise.below(BATCH_RECORDS);
    let written = batch.write(&mut noise, num_records);
    let kernel = noise.pick(&[Kernel::detect(), Kernel::detect(), Kernel::Swar]);
    let indexing = Indexing { kernel, window_bytes: noise.pick(&[64, 1 << 10, 1 << 15, 1 << 15]) };
    let place = run.place();
    let plan = batch.plan();

    let ours = decode_by_column(&plan, indexing, &written.bytes, usize::MAX);
    let unexpected = ours.faults.iter().find(|fault| !written.bad_starts.contains(&fault.start));
    assert!(unexpected.is_none(), "{place}: a good record is refused: {unexpected:?}, {:?}", batch.options);
    assert!(ours.starts == written.starts, "{place}: a bad record is taken, or records start elsewhere");
    assert!(decode_by_record(&plan, &written.bytes, usize::MAX) == ours, "{place}: the reference differs");
    if !written.starts.is_empty() {
        check_batches(&ours.rows, &decode_by_arrow(&batch, &written), batch.options.bytes_format, true, &place);
    }
    check_every_cut(&plan, indexing, piece(&mut noise, &written, &written.bytes), &place);

    // Where nobody knows what is right, both ways have to agree.
    let mut plan = plan;
    plan.dialect.max_record_bytes = noise.pick(&[60, 200, 1 << 20]);
    let bytes = noise.mutated(&written.bytes, b"\"\"\"',\n\r;\\#-\xff\xc3 1a\0");
    let expected = decode_by_record(&plan, &bytes, usize::MAX);
    assert!(
        decode_by_column(&plan, indexing, &bytes, usize::MAX) == expected,
        "{place}: the reference differs on mutated records"
    );
    check_every_cut(&plan, indexing, piece(&mut noise, &written, &bytes), &place);
    count(run, &batch, &written, num_records);
    run.count("records of mutated bytes, good", expected.starts.len());
    run.count("records of mutated bytes, bad", expected.faults.len());
}

fn count(run: &mut Run, batch: &Batch, written: &Written, num_records: usize) {
    run.add_records(num_records);
    for kind in &batch.columns {
        run.count(format!("values of {}", kind.sql), num_records);
    }
    let options = &batch.options;
    let shown = |byte: Option<u8>| byte.map_or("none".to_owned(), |byte| format!("{:?}", char::from(byte)));
    run.count(format!("records with delimiter {:?}", batch.delimiter()), num_records);
    run.count(format!("records with timestamp format {:?}", batch.timestamp_format.unwrap_or("ISO 8601")), num_records);
    run.count(format!("records with quote {}", shown(options.quote)), num_records);
    run.count(format!("records with escape {}", shown(options.escape)), num_records);
    run.count(format!("records with comments {}", shown(options.comment)), num_records);
    run.count(format!("records with null literal {}", options.null_literal.as_deref().unwrap_or("none")), num_records);
    run.count(format!("records with missing fields {:?}", options.missing_fields), num_records);
    run.count(format!("records with extra fields {:?}", options.extra_fields), num_records);
    run.count(format!("records with decimal rounding {}", options.decimal_rounding), num_records);
    run.count(format!("records with bytes as {:?}", options.bytes_format), num_records);
    run.count("records that are bad", written.bad_starts.len());
    let by_arrow = if batch.is_plain { "the same bytes" } else { "as plain CSV" };
    run.count(format!("records that arrow-csv read too, {by_arrow}"), written.starts.len());
}

fn run(mut run: Run) {
    while let Some(noise) = run.next_batch() {
        check_batch(&mut run, noise);
    }
    run.print("CSV");
}

#[test]
fn some_thousand_records_are_read_alike_by_all() {
    run(Run::new(7, 6_000));
}

#[test]
#[ignore = "millions of records"]
fn differential_csv() {
    run(Run::from_environment(10_000_000));
}
