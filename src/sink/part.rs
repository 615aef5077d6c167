//! One file being written, whatever its format.

use std::fs::File;
use std::io::{self, Write};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use super::text::Encoder;
use crate::error::{Cause, Error, Result};

/// Encoded text is handed to the file in pieces of this size.
const BUFFER_BYTES: usize = 256 << 10;

/// A slice of a batch that goes into a column format has at least so many rows: fewer cost more than
/// a file that is a little longer than asked for.
const MIN_SLICE_ROWS: usize = 256;

/// A file that takes rows until it is as large as asked for.
pub(super) trait Part: Send {
    /// Takes the rows from `from` on until the file has `full_bytes`; returns the row that follows.
    fn write(&mut self, batch: &RecordBatch, from: usize, full_bytes: u64) -> Result<usize>;

    /// How large the file is, or will be if it is finished now.
    fn size_bytes(&self) -> u64;

    /// Writes what is missing to a whole file, and gives back the file to be synced.
    fn finish(self: Box<Self>) -> Result<File>;
}

/// A writer into a file that knows how much it has written, and says which file can't be written.
#[derive(Debug)]
pub(super) struct CountingFile {
    file: File,
    written_bytes: u64,
}

impl CountingFile {
    pub(super) fn new(file: File) -> Self {
        Self { file, written_bytes: 0 }
    }

    pub(super) fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    pub(super) fn into_file(self) -> File {
        self.file
    }
}

impl Write for CountingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.written_bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// A file of text: it ends exactly with the record that fills it.
pub(super) struct TextPart {
    path: String,
    encoder: Box<dyn Encoder>,
    buffer: Vec<u8>,
    file: CountingFile,
}

impl TextPart {
    pub(super) fn try_new(path: String, file: File, mut encoder: Box<dyn Encoder>, schema: &SchemaRef) -> Result<Self> {
        let mut buffer = Vec::new();
        encoder.begin(schema, &mut buffer)?;
        Ok(Self { path, encoder, buffer, file: CountingFile::new(file) })
    }

    fn write_buffer(&mut self) -> Result<()> {
        let written = self.file.write_all(&self.buffer);
        self.buffer.clear();
        written.map_err(|e| failed(&self.path, Box::new(e)))
    }
}

impl Part for TextPart {
    fn write(&mut self, batch: &RecordBatch, from: usize, full_bytes: u64) -> Result<usize> {
        let mut row = from;
        loop {
            let left_bytes = full_bytes.saturating_sub(self.file.written_bytes());
            let until_bytes = usize::try_from(left_bytes).unwrap_or(usize::MAX).min(BUFFER_BYTES);
            row = self.encoder.rows(batch, row, until_bytes, &mut self.buffer)?;
            if self.buffer.len() >= BUFFER_BYTES {
                self.write_buffer()?;
            }
            if row == batch.num_rows() || self.size_bytes() >= full_bytes {
                return Ok(row);
            }
        }
    }

    fn size_bytes(&self) -> u64 {
        self.file.written_bytes() + self.buffer.len() as u64
    }

    fn finish(mut self: Box<Self>) -> Result<File> {
        self.encoder.end(&mut self.buffer)?;
        self.write_buffer()?;
        Ok(self.file.into_file())
    }
}

/// Rows of a batch from `from` on that about fill `left_bytes`, by their size in memory.
pub(super) fn slice_rows(batch: &RecordBatch, from: usize, left_bytes: u64, batch_bytes: usize) -> usize {
    let row_bytes = (batch_bytes / batch.num_rows().max(1)).max(1) as u64;
    let rows = usize::try_from(left_bytes.div_ceil(row_bytes)).unwrap_or(usize::MAX);
    rows.max(MIN_SLICE_ROWS).min(batch.num_rows() - from)
}

pub(super) fn failed(path: &str, source: Cause) -> Error {
    Error::Output { target: path.to_owned(), source }
}
