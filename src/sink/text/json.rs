//! JSON lines: one object a line, columns in the schema's order, nulls written.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use super::values::{TextColumn, check_type, push_json_string};
use super::{Encoder, RecordEncoder, lines};
use crate::error::Result;

/// Writes JSON lines.
#[derive(Debug, Default)]
pub(in crate::sink) struct JsonEncoder {
    /// What stands before each value: `{"a":`, `,"b":`.
    keys: Vec<Vec<u8>>,
}

impl Encoder for JsonEncoder {
    fn begin(&mut self, schema: &SchemaRef, _out: &mut Vec<u8>) -> Result<()> {
        schema.fields().iter().try_for_each(|field| check_type(field))?;
        self.keys = schema
            .fields()
            .iter()
            .enumerate()
            .map(|(index, field)| {
                let mut key = vec![if index == 0 { b'{' } else { b',' }];
                push_json_string(field.name(), &mut key);
                key.push(b':');
                key
            })
            .collect();
        Ok(())
    }

    fn rows(&mut self, batch: &RecordBatch, from: usize, full_bytes: usize, out: &mut Vec<u8>) -> Result<usize> {
        lines(self, batch, from, full_bytes, out)
    }

    fn end(&mut self, _out: &mut Vec<u8>) -> Result<()> {
        Ok(())
    }
}

impl RecordEncoder for JsonEncoder {
    fn record(&self, columns: &[TextColumn], row: usize, out: &mut Vec<u8>) {
        for (key, column) in self.keys.iter().zip(columns) {
            out.extend_from_slice(key);
            column.write_json(row, out);
        }
        if columns.is_empty() {
            out.push(b'{');
        }
        out.push(b'}');
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{RecordBatch, RecordBatchOptions};
    use arrow::datatypes::Schema;
    use serde_json::Value;

    use super::super::values::tests::every_type;
    use super::*;

    fn json(batch: &RecordBatch) -> String {
        let mut encoder = JsonEncoder::default();
        let mut out = Vec::new();
        encoder.begin(&batch.schema(), &mut out).unwrap();
        assert_eq!(encoder.rows(batch, 0, usize::MAX, &mut out).unwrap(), batch.num_rows());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_type_as_json() {
        let written = json(&every_type());
        assert_eq!(written, include_str!("golden.json"));
        for line in written.lines() {
            let object: Value = serde_json::from_str(line).unwrap();
            let names: Vec<&String> = object.as_object().unwrap().keys().collect();
            let schema = every_type().schema();
            assert_eq!(names, schema.fields().iter().map(|field| field.name()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn rows_without_columns_are_empty_objects() {
        let options = RecordBatchOptions::new().with_row_count(Some(2));
        let batch = RecordBatch::try_new_with_options(Schema::empty().into(), vec![], &options).unwrap();
        assert_eq!(json(&batch), "{}\n{}\n");
    }
}
