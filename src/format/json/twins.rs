//! The fast way, held against the strict one, on any bytes at all.
//!
//! The first byte chooses the options, and the rest is the text; so a fuzzer finds its way to each of them. Ordinary
//! tests replay what it found worth keeping.
#![expect(clippy::unwrap_used, reason = "it says what went wrong by panicking")]

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};

use super::JsonOptions;
use super::decoder::{JsonPlan, valid_records};
use crate::format::{RecordDecoder, RecordFault, without_line_end};
use crate::schema::parse_schema;

const SCHEMA: &str = "i BIGINT, d DOUBLE, s STRING, t TIMESTAMP(3), b BOOLEAN, n DECIMAL(9,2), l ARRAY<INT>, \
                      r ROW<a INT, b STRING>, m MAP<STRING, INT>, x BYTES, k INT NOT NULL";

/// Lines and messages come out as the strict decoder has them.
pub(crate) fn check_records(input: &[u8]) {
    let [choice, data @ ..] = input else { return };
    let on = |bit: u8| choice >> bit & 1 == 1;
    let options = JsonOptions {
        fail_on_missing_field: on(0) && on(1),
        case_insensitive_names: on(2),
        coerce: on(3),
        max_depth: [64, 1, 2, 3][usize::from(choice >> 4 & 3)],
    };
    // Without the column that may not be null most records are good.
    let mut fields = parse_schema(SCHEMA).unwrap().fields().to_vec();
    if on(6) {
        fields.pop();
    }
    let schema: SchemaRef = Arc::new(Schema::new(fields.clone()));
    let columns = fields.iter().map(|field| (field.name().clone(), Arc::clone(field))).collect();
    let plan = JsonPlan::try_new(columns, &options).unwrap();

    assert_eq!(fast(&plan, data), strict(&plan, &schema, data));
    // The second message is read with what the first one taught.
    let mut messages = data.splitn(2, |byte| *byte == 0);
    if let (Some(before), Some(message)) = (messages.next(), messages.next()) {
        match (fast_message(&plan, before, message), strict_message(&plan, &schema, message)) {
            (Err(fault), None) => assert!(fault.message.starts_with("invalid UTF-8"), "{fault:?}"),
            (outcome, expected) => assert_eq!(Some(outcome), expected),
        }
    }
}

type Decoded = Result<(RecordBatch, Vec<u64>), RecordFault>;

pub(super) fn fast(plan: &JsonPlan, chunk: &[u8]) -> Decoded {
    let mut decoder = plan.decoder(4).unwrap();
    let mut starts = Vec::new();
    decoder.decode(chunk, &mut starts)?;
    Ok((decoder.finish().unwrap(), starts))
}

pub(super) fn strict(plan: &JsonPlan, schema: &SchemaRef, chunk: &[u8]) -> Decoded {
    let (text, fault) = valid_records(chunk);
    let mut decoder = plan.strict_decoder().unwrap();
    let (mut starts, mut at) = (Vec::new(), 0);
    while at < text.len() {
        let end = text[at..].find('\n').map_or(text.len(), |len| at + len);
        if decoder.record(text, at, end)? {
            starts.push(at as u64);
        }
        at = end + 1;
    }
    match fault {
        Some(fault) => Err(fault),
        None => Ok((decoder.finish(Arc::clone(schema)), starts)),
    }
}

pub(super) fn fast_message(plan: &JsonPlan, before: &[u8], message: &[u8]) -> Result<RecordBatch, RecordFault> {
    let mut decoder = plan.decoder(4).unwrap();
    // What it learns from the message before must change nothing.
    if decoder.decode_message(before).is_err() {
        decoder = plan.decoder(4).unwrap();
    }
    decoder.finish().unwrap();
    decoder.decode_message(message)?;
    Ok(decoder.finish().unwrap())
}

/// `None` if it isn't UTF-8.
pub(super) fn strict_message(
    plan: &JsonPlan,
    schema: &SchemaRef,
    message: &[u8],
) -> Option<Result<RecordBatch, RecordFault>> {
    let text = std::str::from_utf8(without_line_end(message)).ok()?;
    let mut decoder = plan.strict_decoder().unwrap();
    Some(decoder.record(text, 0, text.len()).and_then(|has_record| match has_record {
        true => Ok(decoder.finish(Arc::clone(schema))),
        false => Err(RecordFault::new(0, "the message is empty")),
    }))
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_the_fuzzer_kept_of_json_is_decoded_alike() {
        crate::fuzzing::replay("json", super::check_records);
    }
}
