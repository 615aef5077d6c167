//! Rows as bytes: CSV, JSON lines, a table for people, an Arrow stream.
//!
//! An encoder appends to a buffer that its caller reuses, and does no I/O. Text is encoded row by row,
//! so that a file can end exactly after the record that fills it.

mod csv;
mod json;
#[cfg(feature = "kafka")]
mod line;
mod stream;
mod table;
mod values;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use self::values::TextColumn;

pub(super) use csv::CsvEncoder;
pub(super) use json::JsonEncoder;
#[cfg(feature = "kafka")]
pub(super) use line::LineEncoder;
pub(super) use stream::{ArrowStreamEncoder, NothingEncoder};
pub(super) use table::TableEncoder;

use crate::error::Result;

/// Turns rows into bytes.
pub(super) trait Encoder: Send {
    /// Appends what stands before the first row. Called once.
    ///
    /// # Errors
    /// [`Error::Schema`](crate::Error::Schema) for a type that can't be written.
    fn begin(&mut self, schema: &SchemaRef, out: &mut Vec<u8>) -> Result<()>;

    /// Appends the rows from `from` on, until `out` holds `full_bytes` or more; returns the row that
    /// follows. At least one row is appended, if there is one.
    ///
    /// # Errors
    /// [`Error::Schema`](crate::Error::Schema) for a value that can't be written.
    fn rows(&mut self, batch: &RecordBatch, from: usize, full_bytes: usize, out: &mut Vec<u8>) -> Result<usize>;

    /// Appends what stands after the last row.
    ///
    /// # Errors
    /// As [`Self::begin`].
    fn end(&mut self, out: &mut Vec<u8>) -> Result<()>;
}

/// Turns each row into a record of its own: a line of a file, or a message.
pub(super) trait RecordEncoder: Encoder {
    /// Appends row `row` of a batch whose columns were [unpacked](unpack), without a line end. The encoder
    /// must have begun.
    fn record(&self, columns: &[TextColumn], row: usize, out: &mut Vec<u8>);
}

/// The columns of a batch, ready to be written.
pub(super) fn unpack(batch: &RecordBatch) -> Result<Vec<TextColumn>> {
    let schema = batch.schema_ref();
    batch.columns().iter().zip(schema.fields()).map(|(array, field)| TextColumn::try_new(array, field)).collect()
}

/// [`Encoder::rows`] of encoders whose records are lines.
fn lines(
    encoder: &impl RecordEncoder,
    batch: &RecordBatch,
    from: usize,
    full_bytes: usize,
    out: &mut Vec<u8>,
) -> Result<usize> {
    let columns = unpack(batch)?;
    let mut row = from;
    while row < batch.num_rows() {
        encoder.record(&columns, row, out);
        out.push(b'\n');
        row += 1;
        if out.len() >= full_bytes {
            break;
        }
    }
    Ok(row)
}
