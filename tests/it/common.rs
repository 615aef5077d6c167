//! What many tests need: small batches, and reading a chain to its end.

use std::io::Write;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::compute::concat_batches;
use arrow::datatypes::{Int64Type, SchemaRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use futures::StreamExt;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use segue::checkpoint::Checkpoint;
use segue::error::Error;
use segue::hybrid::{HybridSource, ReadOptions};
use segue::schema::parse_schema;
use segue::source::{MemorySource, Source};

/// `id BIGINT, name STRING`.
pub(crate) fn schema() -> SchemaRef {
    schema_of("id BIGINT, name STRING")
}

pub(crate) fn schema_of(text: &str) -> SchemaRef {
    Arc::new(parse_schema(text).unwrap())
}

/// Rows of [`schema`], one for each id; every fifth has no name.
pub(crate) fn ids(ids: impl IntoIterator<Item = i64>) -> RecordBatch {
    let ids: Vec<i64> = ids.into_iter().collect();
    let names: StringArray = ids.iter().map(|id| (id % 5 != 4).then(|| format!("n{id}"))).collect();
    RecordBatch::try_new(schema(), vec![Arc::new(Int64Array::from(ids)), Arc::new(names)]).unwrap()
}

/// A memory source of one split with the rows `range`, in batches of four.
pub(crate) fn memory(name: &str, range: std::ops::Range<i64>) -> MemorySource {
    let batches: Vec<i64> = range.collect();
    batches
        .chunks(4)
        .fold(MemorySource::builder(schema()).name(name), |source, chunk| source.batch("a", ids(chunk.to_vec())))
        .build()
}

pub(crate) fn chain_of(source: impl Source + 'static) -> HybridSource {
    HybridSource::builder().source(source).build().unwrap()
}

/// What reading to the end, or to an error, gave.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) batches: Vec<RecordBatch>,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) error: Option<Error>,
}

impl Read {
    pub(crate) fn num_rows(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// The values of the column `id`.
    pub(crate) fn ids(&self) -> Vec<i64> {
        self.batches.iter().flat_map(ids_in).collect()
    }

    /// Every row as text, its values joined by `|`.
    pub(crate) fn lines(&self) -> Vec<String> {
        let Some(first) = self.batches.first() else { return Vec::new() };
        lines(&concat_batches(&first.schema(), &self.batches).unwrap())
    }

    /// The rows, of a reading that should not have failed.
    pub(crate) fn whole(self) -> Self {
        assert!(self.error.is_none(), "reading failed: {:?}", self.error);
        self
    }
}

/// The values of the column `id`.
pub(crate) fn ids_in(batch: &RecordBatch) -> Vec<i64> {
    batch.column_by_name("id").unwrap().as_primitive::<Int64Type>().values().to_vec()
}

pub(crate) fn lines(batch: &RecordBatch) -> Vec<String> {
    let options = FormatOptions::default().with_null("null");
    let value = |column: &ArrayRef, row: usize| {
        if column.is_null(row) {
            return "null".to_owned();
        }
        ArrayFormatter::try_new(column, &options).unwrap().value(row).to_string()
    };
    let line = |row| batch.columns().iter().map(|column| value(column, row)).collect::<Vec<_>>().join("|");
    (0..batch.num_rows()).map(line).collect()
}

/// Reads from what was stored, or afresh.
pub(crate) async fn read(chain: &HybridSource, stored: Option<Checkpoint>, options: ReadOptions) -> Read {
    let from = chain.resolve(stored).await.unwrap();
    let mut stream = chain.open(from, options).unwrap();
    let (mut batches, mut error) = (Vec::new(), None);
    while let Some(item) = stream.next().await {
        match item {
            Ok(item) => batches.push(item.item.into_batch()),
            Err(e) => {
                assert!(error.replace(e).is_none(), "an error is the end");
            }
        }
    }
    Read { batches, checkpoint: stream.checkpoint().clone(), error }
}

pub(crate) async fn read_all(chain: &HybridSource) -> Read {
    read(chain, None, ReadOptions::default()).await.whole()
}

/// The error with its causes, on one line.
pub(crate) fn told(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

pub(crate) fn limit(rows: u64) -> ReadOptions {
    ReadOptions { limit: Some(rows), ..ReadOptions::default() }
}

/// The rows alone, for those who keep no checkpoint.
pub(crate) async fn batches(chain: &HybridSource) -> Vec<RecordBatch> {
    let from = chain.resolve(None).await.unwrap();
    let stream = chain.open(from, ReadOptions::default()).unwrap().into_batches();
    stream.map(Result::unwrap).collect().await
}

/// A temporary folder with the files named, folders made as needed.
pub(crate) fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    folder
}

pub(crate) fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn zstd(content: &[u8]) -> Vec<u8> {
    zstd::encode_all(content, 1).unwrap()
}

/// A Parquet file of `batches`, `group_rows` rows to a row group.
pub(crate) fn parquet_bytes(batches: &[RecordBatch], group_rows: usize) -> Vec<u8> {
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(group_rows)).build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batches[0].schema(), Some(properties)).unwrap();
    for batch in batches {
        writer.write(batch).unwrap();
    }
    writer.into_inner().unwrap()
}

/// One row of [`schema`] with a name.
pub(crate) fn named(name: &str) -> RecordBatch {
    RecordBatch::try_new(schema(), vec![Arc::new(Int64Array::from(vec![1])), Arc::new(StringArray::from(vec![name]))])
        .unwrap()
}
