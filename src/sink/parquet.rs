//! Parquet files: row groups of bounded memory, with column and offset index.

use std::fs::File;
use std::str::FromStr;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};

use super::arrow_bytes;
use super::part::{Part, failed, slice_rows};
use crate::error::{Error, Result};

/// Rows of a row group, at most: a million, as most writers have it. Memory ends it earlier with wide rows.
pub const DEFAULT_ROW_GROUP_ROWS: usize = 1 << 20;

/// Bytes that a Parquet sink holds, if nothing else is said: the open row group, and rows that wait.
pub const DEFAULT_PARQUET_MEMORY_BYTES: usize = 64 << 20;

/// The memory that is looked at is looked at after so many rows at most.
const MAX_SLICE_ROWS: usize = 1024;

/// How Parquet files are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParquetOptions {
    /// How pages are compressed; zstd by default.
    pub compression: ParquetCompression,
    /// Rows of a row group, at most; [`DEFAULT_ROW_GROUP_ROWS`] by default.
    pub row_group_rows: usize,
}

impl Default for ParquetOptions {
    fn default() -> Self {
        Self { compression: ParquetCompression::default(), row_group_rows: DEFAULT_ROW_GROUP_ROWS }
    }
}

/// How pages are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ParquetCompression {
    /// Not at all.
    Uncompressed,
    /// Fast, little.
    Snappy,
    /// Fast, little; the framing that Parquet calls LZ4_RAW.
    Lz4,
    /// Slow, read everywhere.
    Gzip,
    /// Fast and small: the default.
    #[default]
    Zstd,
}

impl FromStr for ParquetCompression {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Ok(match text.to_ascii_lowercase().as_str() {
            "none" | "uncompressed" => Self::Uncompressed,
            "snappy" => Self::Snappy,
            "lz4" => Self::Lz4,
            "gzip" => Self::Gzip,
            "zstd" => Self::Zstd,
            _ => {
                let reason = format!("'{text}' is none of zstd, snappy, lz4, gzip, uncompressed");
                return Err(Error::option("sink.parquet.compression", reason));
            }
        })
    }
}

impl ParquetOptions {
    fn properties(&self) -> WriterProperties {
        let compression = match self.compression {
            ParquetCompression::Uncompressed => Compression::UNCOMPRESSED,
            ParquetCompression::Snappy => Compression::SNAPPY,
            ParquetCompression::Lz4 => Compression::LZ4_RAW,
            ParquetCompression::Gzip => Compression::GZIP(parquet::basic::GzipLevel::default()),
            ParquetCompression::Zstd => Compression::ZSTD(ZstdLevel::default()),
        };
        WriterProperties::builder()
            .set_created_by(format!("segue {}", env!("CARGO_PKG_VERSION")))
            .set_compression(compression)
            .set_max_row_group_row_count(Some(self.row_group_rows.max(1)))
            // Column index and offset index: readers skip pages, and resume at a row without reading the rest.
            .set_statistics_enabled(EnabledStatistics::Page)
            .set_offset_index_disabled(false)
            .build()
    }
}

/// A Parquet file. Its open row group is in memory until it is flushed.
pub(super) struct ParquetPart {
    path: String,
    writer: ArrowWriter<File>,
    row_group_bytes: usize,
}

impl ParquetPart {
    pub(super) fn try_new(
        path: String,
        file: File,
        schema: &SchemaRef,
        options: &ParquetOptions,
        row_group_bytes: usize,
    ) -> Result<Self> {
        let writer = ArrowWriter::try_new(file, SchemaRef::clone(schema), Some(options.properties()))
            .map_err(|e| parquet_failed(&path, e))?;
        Ok(Self { path, writer, row_group_bytes })
    }
}

impl Part for ParquetPart {
    fn write(&mut self, batch: &RecordBatch, from: usize, full_bytes: u64) -> Result<usize> {
        let batch_bytes = arrow_bytes(batch);
        let mut row = from;
        loop {
            let left_bytes = full_bytes.saturating_sub(self.size_bytes());
            let num_rows = slice_rows(batch, row, left_bytes, batch_bytes).min(MAX_SLICE_ROWS);
            let mut written = self.writer.write(&batch.slice(row, num_rows));
            if written.is_ok() && self.writer.memory_size() >= self.row_group_bytes {
                written = self.writer.flush();
            }
            written.map_err(|e| parquet_failed(&self.path, e))?;
            row += num_rows;
            if row == batch.num_rows() || self.size_bytes() >= full_bytes {
                return Ok(row);
            }
        }
    }

    fn size_bytes(&self) -> u64 {
        (self.writer.bytes_written() + self.writer.in_progress_size()) as u64
    }

    fn finish(self: Box<Self>) -> Result<File> {
        let Self { path, writer, .. } = *self;
        writer.into_inner().map_err(|e| parquet_failed(&path, e))
    }
}

fn parquet_failed(path: &str, error: ParquetError) -> Error {
    match error {
        ParquetError::External(cause) => failed(path, cause),
        other => failed(path, Box::new(other)),
    }
}
