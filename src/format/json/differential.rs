//! Generated records by the million: the fast way, the strict one and arrow-json make the same of them.
//!
//! A batch is a thousand records of one schema and one set of options. arrow-json gets the very same bytes where it
//! reads them as we do; else the same values, one plain object a line. So it stands beside every option, and beside what
//! it reads otherwise: of a key that stands twice it takes the first value, a key of another case is another key, it
//! reads a float as an integer, and a string as a number, without being asked.

mod batch;

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};

use self::batch::{Batch, Column, Shape, Written};
use super::JsonOptions;
use super::decoder::JsonPlan;
use super::twins::{fast, fast_in_two, strict};
use crate::format::differential::{Noise, Run, check_batches};
use crate::schema::BytesFormat;

/// Records of a batch, at most.
const BATCH_RECORDS: usize = 2_000;

/// How long a piece is that is cut at each of its bytes.
const PIECE_BYTES: usize = 400;

/// What arrow-json makes of the good records.
fn decode_by_arrow(batch: &Batch, written: &Written) -> RecordBatch {
    let field = |column: &Column| match &column.shape {
        Shape::Scalar(kind) => kind.field_for_others().as_ref().clone().with_name(column.field.name()),
        _ => column.field.clone(),
    };
    let schema = Arc::new(Schema::new(batch.columns.iter().map(field).collect::<Vec<_>>()));
    let builder = arrow_json::ReaderBuilder::new(schema).with_batch_size(written.starts.len() + 1);
    let bytes = if batch.is_plain { &written.bytes } else { written.canonical.as_bytes() };
    let mut decoder = builder.build_decoder().unwrap();
    assert_eq!(decoder.decode(bytes).unwrap(), bytes.len());
    decoder.flush().unwrap().unwrap()
}

/// Cuts a chunk at each of its bytes as a file is cut whose bytes arrive in two pieces, and decodes both parts.
fn check_every_cut(plan: &JsonPlan, schema: &SchemaRef, chunk: &[u8], place: &str) {
    let whole = strict(plan, schema, chunk, usize::MAX);
    for len in 0..=chunk.len() {
        let pieces = fast_in_two(plan, schema, chunk, len);
        assert!(
            pieces == whole,
            "{place}: when byte {len} ends a piece of {:?}: {:?} instead of {:?}",
            String::from_utf8_lossy(chunk),
            (&pieces.starts, &pieces.faults),
            (&whole.starts, &whole.faults)
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
    let place = run.place();
    let (plan, schema) = (batch.plan(), batch.schema());

    let ours = fast(&plan, &written.bytes, usize::MAX);
    let unexpected = ours.faults.iter().find(|fault| !written.bad_starts.contains(&fault.start));
    assert!(unexpected.is_none(), "{place}: a good record is refused: {unexpected:?}, {:?}", batch.options);
    assert!(ours.starts == written.starts, "{place}: a bad record is taken, or records start elsewhere");
    assert!(strict(&plan, &schema, &written.bytes, usize::MAX) == ours, "{place}: the strict decoder differs");
    if !written.starts.is_empty() {
        check_batches(&ours.rows, &decode_by_arrow(&batch, &written), BytesFormat::Base64, false, &place);
    }
    check_every_cut(&plan, &schema, piece(&mut noise, &written, &written.bytes), &place);

    // Where nobody knows what is right, both ways have to agree.
    let bytes = noise.mutated(&written.bytes, b"{}[]:,\"\\\n\r\t 0-.eEu\x1f\x7f\xc3");
    let expected = strict(&plan, &schema, &bytes, usize::MAX);
    let ours = fast(&plan, &bytes, usize::MAX);
    assert!(ours == expected, "{place}: the strict decoder differs on mutated records");
    check_every_cut(&plan, &schema, piece(&mut noise, &written, &bytes), &place);
    count(run, &batch, &written, num_records);
    run.count("records of mutated bytes, good", expected.starts.len());
    run.count("records of mutated bytes, bad", expected.faults.len());
}

fn count(run: &mut Run, batch: &Batch, written: &Written, num_records: usize) {
    run.add_records(num_records);
    for column in &batch.columns {
        run.count(format!("values of {}", column.sql), num_records);
    }
    let JsonOptions { fail_on_missing_field, case_insensitive_names, coerce, max_depth, .. } = batch.options;
    run.count(format!("records with fail-on-missing-field {fail_on_missing_field}"), num_records);
    run.count(format!("records with case-insensitive-names {case_insensitive_names}"), num_records);
    run.count(format!("records with coerce {coerce}"), num_records);
    run.count(format!("records with max-depth {max_depth}"), num_records);
    run.count("records that are bad", written.bad_starts.len());
    let by_arrow = if batch.is_plain { "the same bytes" } else { "as plain objects" };
    run.count(format!("records that arrow-json read too, {by_arrow}"), written.starts.len());
}

fn run(mut run: Run) {
    while let Some(noise) = run.next_batch() {
        check_batch(&mut run, noise);
    }
    run.print("JSON");
}

#[test]
fn some_thousand_records_are_read_alike_by_all() {
    run(Run::new(7, 6_000));
}

#[test]
#[ignore = "millions of records"]
fn differential_json() {
    run(Run::from_environment(10_000_000));
}
