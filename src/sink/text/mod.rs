//! Rows as bytes: CSV, JSON lines, a table for people, an Arrow stream.
//!
//! An encoder appends to a buffer that its caller reuses, and does no I/O. Text is encoded row by row,
//! so that a file can end exactly after the record that fills it.

mod csv;
mod json;
mod stream;
mod table;
mod values;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

pub(super) use csv::CsvEncoder;
pub(super) use json::JsonEncoder;
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
