//! Rows to a writer: standard output, a socket, a buffer.

use std::fmt;
use std::io::Write;
use std::str::FromStr;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::text::{ArrowStreamEncoder, CsvEncoder, Encoder, JsonEncoder, NothingEncoder, TableEncoder};
use super::thread::{Call, OnDrop, Output, OutputThread};
use super::{Header, Sink};
use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};
use crate::source::ChainBatch;

/// Bytes of rows that wait for a slow reader, if nothing else is said: a few batches.
pub const DEFAULT_WRITER_MEMORY_BYTES: usize = 8 << 20;

/// Encoded bytes are handed to the writer in pieces of about this size: far more than a pipe takes at
/// once, and nothing beside the memory bound.
const BUFFER_BYTES: usize = 256 << 10;

/// How rows are written to a stream of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamFormat {
    /// Text with commas (RFC 4180).
    Csv,
    /// One JSON object a line.
    Json,
    /// The Arrow IPC streaming format.
    Arrow,
    /// Columns side by side, for people.
    Table,
    /// Nothing: everything is decoded and dropped.
    None,
}

impl StreamFormat {
    /// The name, as an option has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Json => "json",
            Self::Arrow => "arrow",
            Self::Table => "table",
            Self::None => "none",
        }
    }
}

impl fmt::Display for StreamFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for StreamFormat {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        [Self::Csv, Self::Json, Self::Arrow, Self::Table, Self::None]
            .into_iter()
            .find(|format| format.as_str() == text)
            .ok_or_else(|| Error::option("output", format!("'{text}' is none of csv, json, arrow, table, none")))
    }
}

/// Writes rows to a writer, on a thread of its own.
///
/// Each batch is flushed when it is written, so live rows are seen at once. It keeps no checkpoint:
/// after a kill, rows written since the last commit may come again.
#[derive(Debug)]
pub struct WriterSink {
    thread: OutputThread,
    reserved_bytes: usize,
}

/// Describes a [`WriterSink`].
#[derive(Debug)]
pub struct WriterSinkBuilder {
    format: StreamFormat,
    schema: SchemaRef,
    target: String,
    header: Header,
    memory_bytes: usize,
}

impl WriterSink {
    /// Begins a sink of rows of `schema`, which must be the schema of the batches.
    pub fn builder(format: StreamFormat, schema: SchemaRef) -> WriterSinkBuilder {
        WriterSinkBuilder {
            format,
            schema,
            target: "stdout".into(),
            header: Header::Written,
            memory_bytes: DEFAULT_WRITER_MEMORY_BYTES,
        }
    }
}

impl WriterSinkBuilder {
    /// Names where the bytes go, for errors; `stdout` without.
    #[must_use]
    pub fn target(mut self, target: impl Into<String>) -> Self {
        self.target = target.into();
        self
    }

    /// Says whether CSV and table have a header; they do without.
    #[must_use]
    pub fn header(mut self, header: Header) -> Self {
        self.header = header;
        self
    }

    /// Bounds the rows that wait for a slow reader; [`DEFAULT_WRITER_MEMORY_BYTES`] without.
    #[must_use]
    pub fn memory_bytes(mut self, memory_bytes: usize) -> Self {
        self.memory_bytes = memory_bytes;
        self
    }

    /// Starts writing to `writer`.
    ///
    /// # Errors
    /// [`Error::Worker`] if the system gives no thread.
    pub fn build(self, writer: impl Write + Send + 'static) -> Result<WriterSink> {
        let encoder: Box<dyn Encoder> = match self.format {
            StreamFormat::Csv => Box::new(CsvEncoder::new(self.header)),
            StreamFormat::Json => Box::new(JsonEncoder::default()),
            StreamFormat::Arrow => Box::new(ArrowStreamEncoder::default()),
            StreamFormat::Table => Box::new(TableEncoder::new(self.header)),
            StreamFormat::None => Box::new(NothingEncoder),
        };
        let output = WriterOutput {
            target: self.target.clone(),
            schema: self.schema,
            encoder,
            has_begun: false,
            buffer: Vec::new(),
            writer,
        };
        let queue_bytes = self.memory_bytes.saturating_sub(BUFFER_BYTES);
        let thread = OutputThread::start(self.target, output, queue_bytes, OnDrop::Drain)?;
        Ok(WriterSink { thread, reserved_bytes: self.memory_bytes })
    }
}

impl Sink for WriterSink {
    fn recover(&mut self) -> BoxFuture<'_, Result<Option<Checkpoint>>> {
        async { Ok(None) }.boxed()
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
struct WriterOutput<W> {
    target: String,
    schema: SchemaRef,
    encoder: Box<dyn Encoder>,
    has_begun: bool,
    buffer: Vec<u8>,
    writer: W,
}

impl<W: Write> WriterOutput<W> {
    fn begin(&mut self) -> Result<()> {
        if !self.has_begun {
            self.has_begun = true;
            self.encoder.begin(&self.schema, &mut self.buffer)?;
        }
        Ok(())
    }

    fn write_buffer(&mut self) -> Result<()> {
        let written = self.writer.write_all(&self.buffer);
        self.buffer.clear();
        written.map_err(|e| self.failed(e))
    }

    fn flush(&mut self) -> Result<()> {
        self.write_buffer()?;
        self.writer.flush().map_err(|e| self.failed(e))
    }

    /// The cause stays an [`std::io::Error`]: a closed pipe isn't a fault to everybody.
    fn failed(&self, error: std::io::Error) -> Error {
        Error::Output { target: self.target.clone(), source: Box::new(error) }
    }
}

impl<W: Write + Send + 'static> Output for WriterOutput<W> {
    fn recover(&mut self) -> Result<()> {
        Ok(())
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.begin()?;
        let mut row = 0;
        while row < batch.num_rows() {
            row = self.encoder.rows(batch, row, BUFFER_BYTES, &mut self.buffer)?;
            if self.buffer.len() >= BUFFER_BYTES {
                self.write_buffer()?;
            }
        }
        self.flush()
    }

    fn commit(&mut self) -> Result<()> {
        self.begin()?;
        self.flush()
    }

    fn close(&mut self) -> Result<()> {
        self.begin()?;
        self.encoder.end(&mut self.buffer)?;
        self.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, ErrorKind};
    use std::sync::{Arc, Mutex};

    use arrow::array::{ArrayRef, Int64Array};
    use arrow::ipc::reader::StreamReader;

    use super::super::item_of;
    use super::*;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Shared {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Broken(ErrorKind);

    impl Write for Broken {
        fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn rows(ids: std::ops::Range<i64>) -> RecordBatch {
        let id: ArrayRef = Arc::new(Int64Array::from_iter_values(ids));
        RecordBatch::try_from_iter([("id", id)]).unwrap()
    }

    async fn written(format: StreamFormat, header: Header, batches: &[RecordBatch]) -> Vec<u8> {
        let out = Shared::default();
        let mut sink = WriterSink::builder(format, rows(0..0).schema()).header(header).build(out.clone()).unwrap();
        assert_eq!(sink.recover().await.unwrap(), None);
        for batch in batches {
            sink.write(&item_of(batch.clone())).await.unwrap();
        }
        sink.commit(&Checkpoint::default()).await.unwrap();
        sink.close().await.unwrap();
        out.0.lock().unwrap().clone()
    }

    #[tokio::test]
    async fn every_format_with_and_without_rows() {
        let batches = [rows(1..3), rows(3..4)];
        for (format, header, expected, empty) in [
            (StreamFormat::Csv, Header::Written, "id\n1\n2\n3\n", "id\n"),
            (StreamFormat::Csv, Header::Omitted, "1\n2\n3\n", ""),
            (StreamFormat::Json, Header::Written, "{\"id\":1}\n{\"id\":2}\n{\"id\":3}\n", ""),
            (StreamFormat::Table, Header::Written, "  id\n----\n   1\n   2\n   3\n", "  id\n----\n"),
            (StreamFormat::None, Header::Written, "", ""),
        ] {
            assert_eq!(String::from_utf8(written(format, header, &batches).await).unwrap(), expected, "{format}");
            assert_eq!(String::from_utf8(written(format, header, &[]).await).unwrap(), empty, "{format}");
        }
        let stream = written(StreamFormat::Arrow, Header::Written, &batches).await;
        let back: Vec<RecordBatch> =
            StreamReader::try_new(stream.as_slice(), None).unwrap().map(Result::unwrap).collect();
        assert_eq!(back, batches);
        let stream = written(StreamFormat::Arrow, Header::Written, &[]).await;
        assert_eq!(StreamReader::try_new(stream.as_slice(), None).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_batch_larger_than_the_buffer_comes_whole() {
        let text = written(StreamFormat::Csv, Header::Omitted, &[rows(0..100_000)]).await;
        let lines = String::from_utf8(text).unwrap();
        assert!(lines.lines().enumerate().all(|(index, line)| line == index.to_string()));
        assert_eq!(lines.lines().count(), 100_000);
    }

    #[tokio::test]
    async fn a_closed_pipe_and_a_full_disk_keep_their_cause() {
        for kind in [ErrorKind::BrokenPipe, ErrorKind::StorageFull] {
            let mut sink =
                WriterSink::builder(StreamFormat::Csv, rows(0..0).schema()).target("out").build(Broken(kind)).unwrap();
            sink.write(&item_of(rows(0..1))).await.unwrap();
            let error = sink.commit(&Checkpoint::default()).await.unwrap_err();
            let Error::Output { target, source } = error else { panic!("{error}") };
            assert_eq!(target, "out");
            assert_eq!(source.downcast_ref::<io::Error>().unwrap().kind(), kind);
        }
    }

    #[tokio::test]
    async fn what_was_written_is_seen_even_if_nobody_closes() {
        let out = Shared::default();
        let mut sink = WriterSink::builder(StreamFormat::Csv, rows(0..0).schema()).build(out.clone()).unwrap();
        for id in 0..20 {
            sink.write(&item_of(rows(id..id + 1))).await.unwrap();
        }
        drop(sink);
        assert_eq!(out.text().lines().count(), 21);
    }
}
