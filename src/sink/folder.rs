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
            "parquet" => {
                Err(Error::Unsupported("this build writes no Parquet: build it with feature `parquet`".into()))
            }
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
        // A quarter waits; the open row group has three eighths, and its compression about as much again.
        let queue_bytes = self.memory_bytes / 4;
        let output = FolderOutput {
            target,
            options: self.options,
            roll_bytes: self.roll_bytes.max(1),
            rollover_interval: self.rollover_interval,
            #[cfg(feature = "parquet")]
            row_group_bytes: self.memory_bytes / 8 * 3,
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
    #[cfg(feature = "parquet")]
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
            FolderFormat::Json => Box::new(text(Box::<JsonEncoder>::default(), file)?),
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

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::path::Path;
    use std::sync::Arc;

    use arrow::array::{ArrayRef, AsArray, Int64Array, StringArray};
    use arrow::compute::concat_batches;
    use arrow::datatypes::Int64Type;

    use super::super::item_of;
    use super::*;

    fn rows(ids: std::ops::Range<i64>) -> RecordBatch {
        let name: ArrayRef = Arc::new(StringArray::from_iter_values(ids.clone().map(|id| format!("n{id}"))));
        let id: ArrayRef = Arc::new(Int64Array::from_iter_values(ids));
        RecordBatch::try_from_iter([("id", id), ("name", name)]).unwrap()
    }

    fn sink(format: FolderFormat, folder: &Path) -> FolderSinkBuilder {
        FolderSink::builder(format, folder.to_str().unwrap()).job("job")
    }

    async fn write(sink: &mut FolderSink, ids: std::ops::Range<i64>) {
        sink.write(&item_of(rows(ids))).await.unwrap();
    }

    async fn commit(sink: &mut FolderSink) {
        sink.commit(&Checkpoint::default()).await.unwrap();
    }

    fn visible(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| !name.starts_with(['.', '_']))
            .collect();
        names.sort();
        names
    }

    fn hidden(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with('.')).collect()
    }

    /// The ids of all visible rows, by the formats' own readers; so every visible file is whole.
    fn ids(format: FolderFormat, folder: &Path) -> Vec<i64> {
        let mut ids = Vec::new();
        for name in visible(folder) {
            let path = folder.join(name);
            let batches: Vec<RecordBatch> = match format {
                FolderFormat::Csv => {
                    let reader = arrow_csv::ReaderBuilder::new(rows(0..0).schema()).with_header(true);
                    reader.build(File::open(path).unwrap()).unwrap().map(Result::unwrap).collect()
                }
                FolderFormat::Json => {
                    let text = fs::read_to_string(path).unwrap();
                    let id = |line| serde_json::from_str::<serde_json::Value>(line).unwrap()["id"].as_i64().unwrap();
                    ids.extend(text.lines().map(id));
                    continue;
                }
                FolderFormat::Arrow => {
                    let file = File::open(path).unwrap();
                    arrow::ipc::reader::FileReader::try_new(file, None).unwrap().map(Result::unwrap).collect()
                }
                #[cfg(feature = "parquet")]
                FolderFormat::Parquet => {
                    let file = File::open(path).unwrap();
                    let reader =
                        ::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
                    reader.build().unwrap().map(Result::unwrap).collect()
                }
            };
            let all = concat_batches(&batches[0].schema(), &batches).unwrap();
            ids.extend(all.column(0).as_primitive::<Int64Type>().values());
        }
        ids
    }

    fn formats() -> Vec<FolderFormat> {
        vec![
            FolderFormat::Csv,
            FolderFormat::Json,
            FolderFormat::Arrow,
            #[cfg(feature = "parquet")]
            FolderFormat::Parquet,
        ]
    }

    #[tokio::test]
    async fn a_text_file_ends_with_the_record_that_fills_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut csv = sink(FolderFormat::Csv, dir.path()).roll_bytes(20).build().unwrap();
        write(&mut csv, 0..7).await;
        commit(&mut csv).await;
        assert_eq!(visible(dir.path()), ["part-00000.csv", "part-00001.csv", "part-00002.csv"]);
        let text = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        // "id,name\n" is 8 bytes, each record 5: the third one makes 23.
        assert_eq!(text("part-00000.csv"), "id,name\n0,n0\n1,n1\n2,n2\n");
        assert_eq!(text("part-00001.csv"), "id,name\n3,n3\n4,n4\n5,n5\n");
        assert_eq!(text("part-00002.csv"), "id,name\n6,n6\n");
        assert!(hidden(dir.path()).is_empty());
    }

    #[tokio::test]
    async fn every_format_rolls_and_loses_nothing() {
        for format in formats() {
            let dir = tempfile::tempdir().unwrap();
            let mut sink = sink(format, dir.path()).roll_bytes(30_000).build().unwrap();
            for batch in 0..10 {
                write(&mut sink, batch * 3000..(batch + 1) * 3000).await;
            }
            commit(&mut sink).await;
            assert!(visible(dir.path()).len() > 2, "{format}: {:?}", visible(dir.path()));
            assert_eq!(ids(format, dir.path()), (0..30_000).collect::<Vec<_>>(), "{format}");
        }
    }

    #[tokio::test]
    async fn a_drop_at_any_moment_leaves_whole_files_only() {
        for format in formats() {
            for batches_written in 0..12 {
                let dir = tempfile::tempdir().unwrap();
                let mut sink = sink(format, dir.path()).roll_bytes(10_000).build().unwrap();
                for batch in 0..batches_written {
                    write(&mut sink, batch * 1000..(batch + 1) * 1000).await;
                    if batch == 5 {
                        commit(&mut sink).await;
                    }
                }
                drop(sink);
                assert!(hidden(dir.path()).is_empty());
                let seen = ids(format, dir.path());
                assert_eq!(seen, (0..seen.len() as i64).collect::<Vec<_>>(), "{format}");
                assert!(batches_written <= 5 || seen.len() >= 6000, "{format}: what was committed stays");
            }
        }
    }

    #[tokio::test]
    async fn hidden_files_of_a_killed_run_are_removed_and_its_numbers_go_on() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("new/target");
        fs::create_dir(dir.path().join("new")).unwrap();
        let mut first = sink(FolderFormat::Json, &folder).build().unwrap();
        write(&mut first, 0..1).await;
        commit(&mut first).await;
        write(&mut first, 1..2).await;
        commit(&mut first).await;
        commit(&mut first).await;
        drop(first);
        assert_eq!(visible(&folder), ["part-00000.json", "part-00001.json"]);
        // Somebody takes the files away; a killed run had begun another one.
        fs::remove_file(folder.join("part-00000.json")).unwrap();
        fs::remove_file(folder.join("part-00001.json")).unwrap();
        fs::write(folder.join(".part-00002.json.tmp"), "{\"id\":").unwrap();

        let mut second = sink(FolderFormat::Json, &folder).build().unwrap();
        assert_eq!(second.recover().await.unwrap(), None);
        assert!(hidden(&folder).is_empty());
        write(&mut second, 2..3).await;
        commit(&mut second).await;
        assert_eq!(visible(&folder), ["part-00002.json"]);
        // A file that somebody else puts under the next name isn't overwritten.
        fs::write(folder.join("part-00003.json"), "theirs").unwrap();
        write(&mut second, 3..4).await;
        commit(&mut second).await;
        assert_eq!(visible(&folder), ["part-00002.json", "part-00003.json", "part-00004.json"]);
        assert_eq!(fs::read_to_string(folder.join("part-00003.json")).unwrap(), "theirs");
    }

    #[tokio::test]
    async fn a_second_copy_another_job_another_format_and_foreign_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("t");
        let mut first = sink(FolderFormat::Csv, &folder).build().unwrap();
        write(&mut first, 0..1).await;
        commit(&mut first).await;
        let locked = sink(FolderFormat::Csv, &folder).build().unwrap_err();
        assert!(matches!(locked, Error::Locked { .. }), "{locked}");
        drop(first);

        let other = sink(FolderFormat::Csv, &folder).job("other").build().unwrap_err();
        assert!(other.to_string().ends_with("it belongs to the job 'job', not to 'other'"), "{other}");
        let other = sink(FolderFormat::Json, &folder).build().unwrap_err();
        assert_eq!(other.to_string(), "the checkpoint doesn't fit: the format of the sink was csv, now json");
        sink(FolderFormat::Csv, &folder).build().unwrap();

        let foreign = dir.path().join("f");
        fs::create_dir(&foreign).unwrap();
        fs::write(foreign.join(".hidden"), "").unwrap();
        fs::write(foreign.join("_SUCCESS"), "").unwrap();
        fs::write(foreign.join("mine.csv"), "").unwrap();
        let refused = sink(FolderFormat::Csv, &foreign).build().unwrap_err();
        assert!(matches!(&refused, Error::Target { reason, .. } if reason.contains("mine.csv")), "{refused}");
        assert!(!foreign.join("_segue").exists(), "nothing is touched");
        fs::remove_file(foreign.join("mine.csv")).unwrap();
        sink(FolderFormat::Csv, &foreign).build().unwrap();

        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let refused = sink(FolderFormat::Csv, &file).build().unwrap_err();
        assert!(matches!(&refused, Error::Target { .. }), "{refused}");
        let url = FolderSink::builder(FolderFormat::Csv, "s3://bucket/x").build().unwrap_err();
        assert_eq!(url.to_string(), "s3://bucket/x: writing to object stores is not in this version");
        FolderSink::builder(FolderFormat::Csv, format!("file://{}/u", dir.path().display())).build().unwrap();
        assert!(dir.path().join("u/_segue/job.json").exists());
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_full_disk_is_an_error_with_the_path_and_nothing_is_seen() {
        for format in formats() {
            let dir = tempfile::tempdir().unwrap();
            let mut sink = sink(format, dir.path()).build().unwrap();
            sink.recover().await.unwrap();
            let hidden_name = dir.path().join(format!(".part-00000.{format}.tmp"));
            std::os::unix::fs::symlink("/dev/full", &hidden_name).unwrap();
            write(&mut sink, 0..10_000).await;
            let error = sink.commit(&Checkpoint::default()).await.unwrap_err();
            let Error::Output { target, source } = error else { panic!("{error}") };
            assert_eq!(target, hidden_name.display().to_string());
            let cause = source.downcast_ref::<std::io::Error>().unwrap();
            assert_eq!(cause.kind(), std::io::ErrorKind::StorageFull, "{format}");
            assert!(visible(dir.path()).is_empty() && hidden(dir.path()).is_empty(), "{format}");
        }
    }

    #[cfg(feature = "parquet")]
    #[tokio::test]
    async fn a_row_group_ends_by_rows_or_by_memory() {
        use ::parquet::file::reader::{FileReader, SerializedFileReader};

        let dir = tempfile::tempdir().unwrap();
        let options = ParquetOptions { row_group_rows: 5000, ..ParquetOptions::default() };
        for (folder, memory_bytes, expected) in [("rows", 64 << 20, 2), ("memory", 100_000, 3)] {
            let folder = dir.path().join(folder);
            let builder = sink(FolderFormat::Parquet, &folder).parquet(options.clone()).memory_bytes(memory_bytes);
            let mut sink = builder.build().unwrap();
            write(&mut sink, 0..10_000).await;
            commit(&mut sink).await;
            let reader = SerializedFileReader::new(File::open(folder.join("part-00000.parquet")).unwrap()).unwrap();
            let metadata = reader.metadata();
            assert!(metadata.num_row_groups() >= expected, "{} row groups", metadata.num_row_groups());
            let column = metadata.row_group(0).column(0);
            assert!(column.offset_index_offset().is_some() && column.column_index_offset().is_some());
            assert!(matches!(column.compression(), ::parquet::basic::Compression::ZSTD(_)));
        }
    }

    #[tokio::test]
    async fn a_file_that_is_old_is_closed_before_the_next_batch() {
        let dir = tempfile::tempdir().unwrap();
        let mut sink = sink(FolderFormat::Csv, dir.path()).rollover_interval(Duration::ZERO).build().unwrap();
        write(&mut sink, 0..1).await;
        write(&mut sink, 1..2).await;
        commit(&mut sink).await;
        assert_eq!(visible(dir.path()).len(), 2);
    }
}
