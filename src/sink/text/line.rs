//! Text that is written already.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use super::values::TextColumn;
use super::{Encoder, RecordEncoder, lines};
use crate::error::Result;

/// Writes the text of the first column as it is.
#[derive(Debug, Default)]
pub(in crate::sink) struct LineEncoder;

impl Encoder for LineEncoder {
    fn begin(&mut self, _schema: &SchemaRef, _out: &mut Vec<u8>) -> Result<()> {
        Ok(())
    }

    fn rows(&mut self, batch: &RecordBatch, from: usize, full_bytes: usize, out: &mut Vec<u8>) -> Result<usize> {
        lines(self, batch, from, full_bytes, out)
    }

    fn end(&mut self, _out: &mut Vec<u8>) -> Result<()> {
        Ok(())
    }
}

impl RecordEncoder for LineEncoder {
    fn record(&self, columns: &[TextColumn], row: usize, out: &mut Vec<u8>) {
        if let Some(column) = columns.first() {
            column.write_text(row, out);
        }
    }
}
