//! CSV (RFC 4180): commas, `\n`, quotes only where they are needed.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use super::values::{TextColumn, check_type};
use super::{Encoder, RecordEncoder, lines};
use crate::error::Result;
use crate::sink::Header;

/// Writes CSV.
#[derive(Debug)]
pub(in crate::sink) struct CsvEncoder {
    header: Header,
}

impl CsvEncoder {
    pub(in crate::sink) fn new(header: Header) -> Self {
        Self { header }
    }
}

impl Encoder for CsvEncoder {
    fn begin(&mut self, schema: &SchemaRef, out: &mut Vec<u8>) -> Result<()> {
        schema.fields().iter().try_for_each(|field| check_type(field))?;
        if self.header == Header::Omitted || schema.fields().is_empty() {
            return Ok(());
        }
        for (index, field) in schema.fields().iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            let start = out.len();
            out.extend_from_slice(field.name().as_bytes());
            quote_if_needed(start, out);
        }
        out.push(b'\n');
        Ok(())
    }

    fn rows(&mut self, batch: &RecordBatch, from: usize, full_bytes: usize, out: &mut Vec<u8>) -> Result<usize> {
        lines(self, batch, from, full_bytes, out)
    }

    fn end(&mut self, _out: &mut Vec<u8>) -> Result<()> {
        Ok(())
    }
}

impl RecordEncoder for CsvEncoder {
    fn record(&self, columns: &[TextColumn], row: usize, out: &mut Vec<u8>) {
        for (index, column) in columns.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            if column.is_null(row) {
                continue;
            }
            let start = out.len();
            column.write_text(row, out);
            if column.is_free_text() || out.len() == start {
                quote_if_needed(start, out);
            }
        }
    }
}

/// Puts what was appended since `start` in quotes if it would read back as something else without:
/// an empty text would be a null, or it holds a delimiter, a quote or a line end.
fn quote_if_needed(start: usize, out: &mut Vec<u8>) {
    let value = &out[start..];
    if !value.is_empty() && !value.iter().any(|byte| matches!(byte, b',' | b'"' | b'\n' | b'\r')) {
        return;
    }
    let num_quotes = value.iter().filter(|&&byte| byte == b'"').count();
    let end = out.len();
    let quoted_end = end + num_quotes + 2;
    out.resize(quoted_end, b'"');
    // Moves from the right to the left, so that nothing is overwritten before it is moved.
    let mut to = quoted_end - 1;
    for at in (start..end).rev() {
        to -= 1;
        out[to] = out[at];
        if out[at] == b'"' {
            to -= 1;
            out[to] = b'"';
        }
    }
    out[start] = b'"';
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, StringArray};
    use arrow::datatypes::Schema;
    use proptest::prelude::*;

    use super::super::values::tests::every_type;
    use super::*;

    fn csv(batch: &RecordBatch, header: Header) -> String {
        let mut encoder = CsvEncoder::new(header);
        let mut out = Vec::new();
        encoder.begin(&batch.schema(), &mut out).unwrap();
        assert_eq!(encoder.rows(batch, 0, usize::MAX, &mut out).unwrap(), batch.num_rows());
        encoder.end(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_type_as_csv() {
        let expected = include_str!("golden.csv");
        assert_eq!(csv(&every_type(), Header::Written), expected);
    }

    #[test]
    fn quotes_stand_only_where_they_are_needed() {
        let text: ArrayRef = Arc::new(StringArray::from(vec![
            Some("plain text"),
            Some("6\" nail"),
            Some("a,b"),
            Some("two\nlines"),
            Some("cr\r"),
            Some(""),
            None,
            Some("\"\""),
            Some(" padded "),
        ]));
        let id: ArrayRef = Arc::new(Int64Array::from_iter_values(0..9));
        let batch = RecordBatch::try_from_iter_with_nullable([("odd \"name\"", text, true), ("", id, false)]).unwrap();
        assert_eq!(
            csv(&batch, Header::Written),
            "\"odd \"\"name\"\"\",\"\"\nplain text,0\n\"6\"\" nail\",1\n\"a,b\",2\n\"two\nlines\",3\n\"cr\r\",4\n\"\",5\n,6\n\"\"\"\"\"\",7\n padded ,8\n"
        );
    }

    #[test]
    fn the_header_stands_also_above_no_rows_and_can_be_left_out() {
        let batch = every_type().slice(0, 0);
        assert_eq!(csv(&batch, Header::Written).lines().count(), 1);
        assert_eq!(csv(&batch, Header::Omitted), "");
    }

    #[test]
    fn rows_end_with_the_record_that_fills_the_buffer() {
        let id: ArrayRef = Arc::new(Int64Array::from_iter_values(10..20));
        let batch = RecordBatch::try_from_iter([("id", id)]).unwrap();
        let mut encoder = CsvEncoder::new(Header::Omitted);
        let mut out = Vec::new();
        assert_eq!(encoder.rows(&batch, 2, 7, &mut out).unwrap(), 5);
        assert_eq!(out, b"12\n13\n14\n");
        assert_eq!(encoder.rows(&batch, 5, 0, &mut out).unwrap(), 6, "at least one row");
    }

    proptest! {
        #[test]
        fn text_reads_back(values in prop::collection::vec(prop::option::of("[a,\"\r\n ü]{0,6}"), 1..20)) {
            let text: ArrayRef = Arc::new(StringArray::from(values.clone()));
            let id: ArrayRef = Arc::new(Int64Array::from_iter_values(0..values.len() as i64));
            let batch = RecordBatch::try_from_iter_with_nullable([("id", id, false), ("t", text, true)]).unwrap();
            let written = csv(&batch, Header::Written);
            // arrow-csv can't tell a quoted empty field from a null.
            let expected: Vec<Option<String>> = values.into_iter().map(|value| value.filter(|text| !text.is_empty())).collect();
            let schema: Arc<Schema> = batch.schema();
            let reader = arrow_csv::ReaderBuilder::new(schema).with_header(true).build(written.as_bytes()).unwrap();
            let mut back = Vec::new();
            for batch in reader {
                let batch = batch.unwrap();
                let column = batch.column(1).as_any().downcast_ref::<StringArray>().unwrap().clone();
                back.extend(column.iter().map(|text| text.filter(|text| !text.is_empty()).map(str::to_owned)));
            }
            prop_assert_eq!(back, expected);
        }
    }
}
