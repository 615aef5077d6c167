//! The fast way, held against the strict one, on any bytes at all.
//!
//! The first byte chooses the options, and the rest is the text; so a fuzzer finds its way to each of them. Ordinary
//! tests replay what it found worth keeping.
#![expect(clippy::unwrap_used, reason = "it says what went wrong by panicking")]

use std::ops::ControlFlow;
use std::sync::{Arc, LazyLock};

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::{FieldRef, Schema, SchemaRef};

use super::JsonOptions;
use super::decoder::JsonPlan;
use crate::error::Reason;
use crate::format::raw::invalid_utf8;
use crate::format::{LineCutter, RecordCutter, RecordDecoder, RecordFault, without_line_end};
use crate::schema::parse_schema;

static FIELDS: LazyLock<Vec<FieldRef>> = LazyLock::new(|| {
    let schema = "i BIGINT, d DOUBLE, s STRING, t TIMESTAMP(3), b BOOLEAN, n DECIMAL(9,2), l ARRAY<INT>, \
                      r ROW<a INT, b STRING>, m MAP<STRING, INT>, x BYTES, k INT NOT NULL";
    parse_schema(schema).unwrap().fields().to_vec()
});

/// Lines and messages come out as the strict decoder has them.
pub(crate) fn check_records(input: &[u8]) {
    let [choice, data @ ..] = input else { return };
    let on = |bit: u8| choice >> bit & 1 == 1;
    let options = JsonOptions {
        ignore_parse_errors: false,
        fail_on_missing_field: on(0) && on(1),
        case_insensitive_names: on(2),
        coerce: on(3),
        max_depth: [64, 1, 2, 3][usize::from(choice >> 4 & 3)],
    };
    // Without the column that may not be null most records are good.
    let mut fields = FIELDS.clone();
    if on(6) {
        fields.pop();
    }
    let schema: SchemaRef = Arc::new(Schema::new(fields.clone()));
    let columns = fields.iter().map(|field| (field.name().clone(), Arc::clone(field))).collect();
    let plan = JsonPlan::try_new(columns, &options).unwrap();

    let max_faults = if on(7) { 1 } else { usize::MAX };
    let expected = strict(&plan, &schema, data, max_faults);
    assert_eq!(fast(&plan, data, max_faults), expected);
    if max_faults == usize::MAX {
        let len = data.len() / 2;
        assert_eq!(fast_in_two(&plan, &schema, data, len), expected, "when byte {len} ends a piece");
    }
    // The second message is read with what the first one taught.
    let mut messages = data.splitn(2, |byte| *byte == 0);
    if let (Some(before), Some(message)) = (messages.next(), messages.next()) {
        assert_eq!(fast_message(&plan, before, message), strict_message(&plan, &schema, message));
    }
}

/// What a decoder makes of a chunk: rows and where they start, bad records, and where it stopped.
#[derive(Debug, PartialEq)]
pub(super) struct Decoded {
    pub(super) rows: RecordBatch,
    pub(super) starts: Vec<u64>,
    pub(super) faults: Vec<RecordFault>,
    pub(super) end: usize,
}

/// Decodes the fast way, up to so many bad records.
pub(super) fn fast(plan: &JsonPlan, chunk: &[u8], max_faults: usize) -> Decoded {
    let mut decoder = plan.decoder(4).unwrap();
    let (mut starts, mut faults) = (Vec::new(), Vec::new());
    let end = decoder.decode(chunk, 0, &mut starts, &mut |fault| {
        faults.push(fault);
        if faults.len() < max_faults { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    Decoded { rows: decoder.finish().unwrap(), starts, faults, end }
}

/// Decodes line by line, each by the strict decoder alone.
pub(super) fn strict(plan: &JsonPlan, schema: &SchemaRef, chunk: &[u8], max_faults: usize) -> Decoded {
    let mut decoder = plan.strict_decoder().unwrap();
    let (mut starts, mut faults, mut at) = (Vec::new(), Vec::new(), 0);
    while at < chunk.len() && faults.len() < max_faults {
        let line_end = memchr::memchr(b'\n', &chunk[at..]).map_or(chunk.len(), |len| at + len);
        let next = chunk.len().min(line_end + 1);
        let fault = match std::str::from_utf8(&chunk[at..line_end]) {
            Err(e) => Some(invalid_utf8(at..next, &chunk[at..], &e)),
            Ok(line) => match decoder.record(line, 0, line.len()) {
                Ok(is_row) => {
                    starts.extend(is_row.then_some(at as u64));
                    None
                }
                Err(fault) => Some(RecordFault { start: at, end: next, ..fault }),
            },
        };
        faults.extend(fault);
        at = next;
    }
    Decoded { rows: decoder.finish(Arc::clone(schema)).unwrap(), starts, faults, end: at }
}

/// Decodes a chunk as the end of a file whose bytes arrive in two pieces, of which the first has `len` bytes: what are
/// whole records then, and the rest.
pub(super) fn fast_in_two(plan: &JsonPlan, schema: &SchemaRef, chunk: &[u8], len: usize) -> Decoded {
    let cut = LineCutter.cut(&chunk[..len]);
    let (first, rest) = (fast(plan, &chunk[..cut], usize::MAX), fast(plan, &chunk[cut..], usize::MAX));
    let moved = |fault: RecordFault| RecordFault { start: cut + fault.start, end: cut + fault.end, ..fault };
    Decoded {
        rows: concat_batches(schema, [&first.rows, &rest.rows]).unwrap(),
        starts: first.starts.into_iter().chain(rest.starts.iter().map(|start| start + cut as u64)).collect(),
        faults: first.faults.into_iter().chain(rest.faults.into_iter().map(moved)).collect(),
        end: cut + rest.end,
    }
}

pub(super) fn fast_message(plan: &JsonPlan, before: &[u8], message: &[u8]) -> Result<RecordBatch, RecordFault> {
    let mut decoder = plan.decoder(4).unwrap();
    // What it learns from the message before must change nothing, nor must what was wrong with it.
    let has_row = decoder.decode_message(before).is_ok();
    assert_eq!(decoder.finish().unwrap().num_rows(), usize::from(has_row));
    decoder.decode_message(message)?;
    Ok(decoder.finish().unwrap())
}

pub(super) fn strict_message(plan: &JsonPlan, schema: &SchemaRef, message: &[u8]) -> Result<RecordBatch, RecordFault> {
    let message = without_line_end(message);
    let whole = 0..message.len();
    let text = std::str::from_utf8(message).map_err(|e| invalid_utf8(whole.clone(), message, &e))?;
    let mut decoder = plan.strict_decoder().unwrap();
    match decoder.record(text, 0, text.len())? {
        true => Ok(decoder.finish(Arc::clone(schema)).unwrap()),
        false => Err(RecordFault::new(whole, Reason::Message, "the message is empty")),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_the_fuzzer_kept_of_json_is_decoded_alike() {
        crate::fuzzing::replay("json", super::check_records);
    }
}
