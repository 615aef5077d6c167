//! Folders of whole files: CSV, JSON lines, Arrow, Parquet.
//!
//! A file is written under a hidden name, synced, and renamed: what can be seen is whole, at any
//! instant. See [`target`](super::target) for what lies in the folder.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::arrow_file::ArrowPart;
#[cfg(feature = "parquet")]
use super::parquet::{DEFAULT_PARQUET_MEMORY_BYTES, ParquetOptions, ParquetPart};
use super::part::{Part, TextPart};
use super::target::{Target, Unpublished, local_folder};
use super::text::{CsvEncoder, JsonEncoder};
use super::thread::{Call, OnDrop, Output, OutputThread};
use super::{Header, Sink};
use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};
use crate::source::ChainBatch;

/// A file that has reached so many bytes is closed: `sink.rolling-policy.file-size`.
pub const DEFAULT_ROLL_BYTES: u64 = 128 << 20;

/// Bytes that a sink of text or Arrow files holds, if nothing else is said: rows that wait for the disk.
pub const DEFAULT_FOLDER_MEMORY_BYTES: usize = 8 << 20;

/// The format of a folder's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FolderFormat {
    /// Text with commas (RFC 4180).
    Csv,
    /// One JSON object a line.
    Json,
    /// Arrow IPC files.
    Arrow,
    /// Parquet files.
    #[cfg(feature = "parquet")]
    Parquet,
}

impl FolderFormat {
    /// The name, which is the suffix of the files too.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Json => "json",
            Self::Arrow => "arrow",
            #[cfg(feature = "parquet")]
            Self::Parquet => "parquet",
        }
    }

    fn default_memory_bytes(self) -> usize {
        match self {
            #[cfg(feature = "parquet")]
            Self::Parquet => DEFAULT_PARQUET_MEMORY_BYTES,
            _ => DEFAULT_FOLDER_MEMORY_BYTES,
        }
    }
}

impl fmt::Display for FolderFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for FolderFormat {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "csv" => Ok(Self::Csv),
            "json" => Ok(Self::Json),
            "arrow" => Ok(Self::Arrow),
            #[cfg(feature = "parquet")]
            "parquet" => Ok(Self::Parquet),
            #[cfg(not(feature = "parquet"))]
            "parquet" => Err(Error::Unsupported("this build writes no Parquet: build it with feature `parquet`".into())),
            "delta" => Err(Error::Unsupported("writing delta is not in this version".into())),
            _ => Err(Error::option("sink.format", format!("'{text}' is none of csv, json, arrow, parquet"))),
        }
    }
}

/// Writes whole files into a local folder, on a thread of its own.
///
/// It keeps no checkpoint: rows are delivered at least once. A commit closes the open file; rows of a
/// file that was closed since the last commit come again after a kill.
#[derive(Debug)]
pub struct FolderSink {
    thread: OutputThread,
    reserved_bytes: usize,
}

/// Describes a [`FolderSink`].
#[derive(Clone, Debug)]
pub struct FolderSinkBuilder {
    target: String,
    job: String,
    roll_bytes: u64,
    options: PartOptions,
    rollover_interval: Option<Duration>,
    memory_bytes: usize,
}

/// What decides how a file is written.
#[derive(Clone, Debug)]
struct PartOptions {
    format: FolderFormat,
    header: Header,
    #[cfg(feature = "parquet")]
    parquet: ParquetOptions,
}

impl FolderSink {
    /// Begins a sink into the folder `target`: a path, or a `file://` URL.
    pub fn builder(format: FolderFormat, target: impl Into<String>) -> FolderSinkBuilder {
        FolderSinkBuilder {
            target: target.into(),
            job: String::new(),
            roll_bytes: DEFAULT_ROLL_BYTES,
            options: PartOptions {
                format,
                header: Header::Written,
                #[cfg(feature = "parquet")]
                parquet: ParquetOptions::default(),
            },
            rollover_interval: None,
            memory_bytes: format.default_memory_bytes(),
        }
    }
}

impl FolderSinkBuilder {
    /// Names the job: a folder that another one has written is refused.
    #[must_use]
    pub fn job(mut self, job: impl Into<String>) -> Self {
        self.job = job.into();
        self
    }

    /// Closes a file after the record with which it reaches `bytes`; [`DEFAULT_ROLL_BYTES`] without.
    /// Arrow and Parquet files end near it.
    #[must_use]
    pub fn roll_bytes(mut self, bytes: u64) -> Self {
        self.roll_bytes = bytes;
        self
    }

    /// Closes a file before the first batch that comes `interval` after it was begun.
    #[must_use]
    pub fn rollover_interval(mut self, interval: Duration) -> Self {
        self.rollover_interval = Some(interval);
        self
    }

    /// Says whether CSV files have a header; they do without.
    #[must_use]
    pub fn header(mut self, header: Header) -> Self {
        self.options.header = header;
        self
    }

    /// Sets how Parquet files are written.
    #[cfg(feature = "parquet")]
    #[must_use]
    pub fn parquet(mut self, options: ParquetOptions) -> Self {
        self.options.parquet = options;
        self
    }

    /// Bounds what the sink holds: rows that wait, and the open row group of a Parquet file.
    #[must_use]
    pub fn memory_bytes(mut self, bytes: usize) -> Self {
        self.memory_bytes = bytes;
        self
    }

    /// Claims the folder: makes it if it is missing, and writes down whose it is.
    ///
    /// # Errors
    /// [`Error::Target`] if it holds something that isn't this job's, [`Error::Locked`] if another copy
    /// of the job runs, [`Error::Incompatible`] if the job has written another format there,
    /// [`Error::Unsupported`] for a URL of an object store, [`Error::Io`] without the rights.
    pub fn build(self) -> Result<FolderSink> {
        let folder = local_folder(&self.target)?;
        let target = Target::claim(folder, &self.job, self.options.format.as_str())?;
        // A quarter waits; the row group has the greater part, and what its compression takes comes on top.
        let queue_bytes = self.memory_bytes / 4;
        let output = FolderOutput {
            target,
            options: self.options,
            roll_bytes: self.roll_bytes.max(1),
            rollover_interval: self.rollover_interval,
            row_group_bytes: self.memory_bytes / 8 * 5,
            open: None,
        };
        let thread = OutputThread::start(self.target, output, queue_bytes, OnDrop::Abandon)?;
        Ok(FolderSink { thread, reserved_bytes: self.memory_bytes })
    }
}

impl Sink for FolderSink {
    fn recover(&mut self) -> BoxFuture<'_, Result<Option<Checkpoint>>> {
        async {
            self.thread.call(Call::Recover).await?;
            Ok(None)
        }
        .boxed()
    }

    fn write<'a>(&'a mut self, batch: &'a ChainBatch) -> BoxFuture<'a, Result<()>> {
        self.thread.write(batch.item.batch()).boxed()
    }

    fn commit<'a>(&'a mut self, _checkpoint: &'a Checkpoint) -> BoxFuture<'a, Result<()>> {
        self.thread.call(Call::Commit).boxed()
    }

    fn close(&mut self) -> BoxFuture<'_, Result<()>> {
        self.thread.call(Call::Close).boxed()
    }

    fn reserved_bytes(&self) -> usize {
        self.reserved_bytes
    }
}

/// What the thread does.
struct FolderOutput {
    target: Target,
    options: PartOptions,
    roll_bytes: u64,
    rollover_interval: Option<Duration>,
    row_group_bytes: usize,
    open: Option<OpenPart>,
}

/// The file being written. The part goes before the name, so that a file is closed before it is removed.
struct OpenPart {
    part: Box<dyn Part>,
    unpublished: Unpublished,
    begun: Instant,
}

impl FolderOutput {
    fn begin(&self, schema: &SchemaRef) -> Result<OpenPart> {
        let (unpublished, file) = self.target.create()?;
        let path = unpublished.path().display().to_string();
        let text = |encoder, file| TextPart::try_new(path.clone(), file, encoder, schema);
        let part: Box<dyn Part> = match self.options.format {
            FolderFormat::Csv => Box::new(text(Box::new(CsvEncoder::new(self.options.header)), file)?),
            FolderFormat::Json => Box::new(text(Box::new(JsonEncoder::default()), file)?),
            FolderFormat::Arrow => Box::new(ArrowPart::try_new(path, file, schema)?),
            #[cfg(feature = "parquet")]
            FolderFormat::Parquet => {
                let options = &self.options.parquet;
                Box::new(ParquetPart::try_new(path, file, schema, options, self.row_group_bytes)?)
            }
        };
        Ok(OpenPart { part, unpublished, begun: Instant::now() })
    }

    fn publish(&mut self) -> Result<()> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let file = open.part.finish()?;
        self.target.publish(open.unpublished, file)
    }
}

impl Output for FolderOutput {
    fn recover(&mut self) -> Result<()> {
        self.target.remove_unpublished()
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let is_old = |open: &OpenPart| self.rollover_interval.is_some_and(|interval| open.begun.elapsed() >= interval);
        if self.open.as_ref().is_some_and(is_old) {
            self.publish()?;
        }
        let mut row = 0;
        while row < batch.num_rows() {
            let mut open = match self.open.take() {
                Some(open) => open,
                None => self.begin(batch.schema_ref())?,
            };
            row = open.part.write(batch, row, self.roll_bytes)?;
            let is_full = open.part.size_bytes() >= self.roll_bytes;
            self.open = Some(open);
            if is_full {
                self.publish()?;
            }
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        self.publish()
    }

    fn close(&mut self) -> Result<()> {
        // What was written since the last commit is read again by the next run.
        self.open = None;
        Ok(())
    }
}
