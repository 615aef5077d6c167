//! Raw text: a line is a record, a message is a record, in one column.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{RecordBatch, StringBuilder};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use super::{OnBadRecord, RecordDecoder, RecordFault, line_at, without_line_end};
use crate::error::{Error, Reason, Result};

/// The schema of raw records: `value STRING`.
pub(crate) fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("value", DataType::Utf8, true)]))
}

/// Decodes lines into the one column `value`.
#[derive(Debug, Default)]
pub(crate) struct RawDecoder {
    values: StringBuilder,
}

impl RawDecoder {
    /// Adds what stands in `record`, of which `line` is all but the line end.
    fn push(&mut self, line: &[u8], record: Range<usize>) -> Result<(), RecordFault> {
        let text = std::str::from_utf8(line).map_err(|e| invalid_utf8(record, line, &e))?;
        self.values.append_value(text);
        Ok(())
    }
}

impl RecordDecoder for RawDecoder {
    fn decode(&mut self, chunk: &[u8], mut at: usize, starts: &mut Vec<u64>, on_bad: &mut OnBadRecord<'_>) -> usize {
        while at < chunk.len() {
            let (line, next) = line_at(chunk, at);
            match self.push(line, at..next) {
                Ok(()) => starts.push(at as u64),
                Err(fault) => {
                    if on_bad(fault).is_break() {
                        return next;
                    }
                }
            }
            at = next;
        }
        at
    }

    fn decode_message(&mut self, message: &[u8]) -> Result<(), RecordFault> {
        self.push(without_line_end(message), 0..message.len())
    }

    fn finish(&mut self) -> Result<RecordBatch> {
        RecordBatch::try_new(schema(), vec![Arc::new(self.values.finish())])
            .map_err(|e| Error::Other { context: "raw records".into(), source: e.into() })
    }
}

/// Says where in a record, which begins with `bytes`, they stop being UTF-8.
pub(crate) fn invalid_utf8(record: Range<usize>, bytes: &[u8], error: &std::str::Utf8Error) -> RecordFault {
    let at = error.valid_up_to();
    let byte = bytes.get(at).copied().unwrap_or_default();
    RecordFault::new(record, Reason::Encoding, format!("invalid UTF-8: byte 0x{byte:02x} at byte {at} of the record"))
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;

    use super::*;
    use crate::format::DecodeStrictly;

    fn lines(chunk: &[u8]) -> (Vec<String>, Vec<u64>) {
        let (mut decoder, mut starts) = (RawDecoder::default(), Vec::new());
        decoder.decode_all(chunk, &mut starts).unwrap();
        let batch = decoder.finish().unwrap();
        (batch.column(0).as_string::<i32>().iter().map(|value| value.unwrap().to_owned()).collect(), starts)
    }

    #[test]
    fn a_line_is_a_record_whatever_is_in_it() {
        assert_eq!(
            lines(b"a\r\n\n\"b\n\rc"),
            (vec!["a".into(), String::new(), "\"b".into(), "\rc".into()], vec![0, 3, 4, 7])
        );
        assert_eq!(lines(b""), (vec![], vec![]));
    }

    #[test]
    fn a_message_is_a_record_whatever_is_in_it() {
        let mut decoder = RawDecoder::default();
        for message in [b"a\nb\r\n".as_slice(), b""] {
            decoder.decode_message(message).unwrap();
        }
        let batch = decoder.finish().unwrap();
        assert_eq!(batch.column(0).as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["a\nb", ""]);
    }

    #[test]
    fn invalid_utf8_is_a_bad_record() {
        let fault = RawDecoder::default().decode_all(b"ok\nx\xff\n", &mut Vec::new()).unwrap_err();
        assert_eq!((fault.start, fault.message.as_str()), (3, "invalid UTF-8: byte 0xff at byte 1 of the record"));
    }
}
