//! Text files, stopped after every record, and gone on with from there.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use segue::checkpoint::{Checkpoint, FileCheckpointStore};
use segue::file::FileSource;
use segue::format::CsvOptions;
use segue::hybrid::{HybridSource, ReadOptions};
use segue::schema::Provenance;
use segue::sink::{Sink, StreamFormat, WriterSink};
use segue::source::{BadRecords, ChainBatch, Reject};

use crate::common::{gzip, schema_of};
use crate::nasty::{self, Text};

const NUM_RECORDS: usize = 200;

/// What is cut at once when there is little memory.
const SMALLEST_CHUNK_BYTES: usize = 64 << 10;

/// A chain of one file, as a first start or a restart describes it.
async fn chain(path: &Path, text: &Text, schema: &str, stored: Option<&Checkpoint>) -> HybridSource {
    let options = CsvOptions { comment: text.has_comments.then_some(b'#'), ..CsvOptions::default() };
    let source = FileSource::builder(path.display().to_string()).schema(schema_of(schema)).csv(options);
    let source = match stored {
        Some(checkpoint) => source.stored(checkpoint.sources[0].clone()),
        None => source,
    };
    let source = source.build().await.unwrap();
    HybridSource::builder().source(source).provenance([Provenance::Position]).build().unwrap()
}

/// So little memory that a file is cut into several chunks, and so small batches that chunks are.
fn options(text: &Text, limit: Option<u64>) -> ReadOptions {
    let bad_records = if text.num_bad > 0 { BadRecords::Keep } else { BadRecords::Fail };
    ReadOptions { batch_rows: 7, memory_bytes: 1 << 20, num_threads: 2, limit, bad_records, ..ReadOptions::default() }
}

async fn read(chain: &HybridSource, stored: Option<Checkpoint>, options: ReadOptions) -> (Vec<ChainBatch>, Checkpoint) {
    let from = chain.resolve(stored).await.unwrap();
    let mut stream = chain.open(from, options).unwrap();
    let mut items = Vec::new();
    while let Some(item) = stream.next().await {
        items.push(item.unwrap());
    }
    let checkpoint = stream.checkpoint().clone();
    (items, checkpoint)
}

/// Bytes that a sink wrote.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The rows of `items` as CSV and as JSON, each with its position.
async fn printed(chain: &HybridSource, items: &[ChainBatch]) -> (String, String) {
    let mut printed = Vec::new();
    for format in [StreamFormat::Csv, StreamFormat::Json] {
        let written = Written::default();
        let mut sink = WriterSink::builder(format, chain.output_schema()).build(written.clone()).unwrap();
        for item in items {
            sink.write(item).await.unwrap();
        }
        sink.close().await.unwrap();
        printed.push(String::from_utf8(std::mem::take(&mut written.0.lock().unwrap())).unwrap());
    }
    let json = printed.pop().unwrap();
    (printed.pop().unwrap(), json)
}

fn positions(items: &[ChainBatch]) -> Vec<i64> {
    let of_item = |item: &ChainBatch| {
        item.item.batch().column_by_name("_position").unwrap().as_primitive::<Int64Type>().values().to_vec()
    };
    items.iter().flat_map(of_item).collect()
}

fn rejects(items: &[ChainBatch]) -> Vec<Reject> {
    items.iter().flat_map(|item| item.item.rejects()).cloned().collect()
}

/// Stops after every `step`th record, goes on from the checkpoint as a restart would, and demands the bytes of the
/// uncut reading.
async fn check_cuts(name: &str, text: &Text, schema: &str, step: usize) {
    assert!(text.bytes.len() > 3 * SMALLEST_CHUNK_BYTES, "{name}: {} bytes hold no edge of a chunk", text.bytes.len());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    let content = if name.ends_with(".gz") { gzip(&text.bytes) } else { text.bytes.clone() };
    fs::write(&path, content).unwrap();
    let first_start = chain(&path, text, schema, None).await;
    let (whole, _) = read(&first_start, None, options(text, None)).await;
    assert_eq!(positions(&whole), text.starts, "{name}: rows stand where their records start");
    assert_eq!(rejects(&whole).len(), text.num_bad, "{name}: bad records");
    let whole_printed = printed(&first_start, &whole).await;
    for cut in (0..=text.starts.len()).step_by(step) {
        let (mut items, checkpoint) = read(&first_start, None, options(text, Some(cut as u64))).await;
        assert_eq!(positions(&items), text.starts[..cut], "{name}: the first {cut} records");
        // What a restart has is the text of the checkpoint.
        let stored = folder.path().join("checkpoint");
        FileCheckpointStore::write(&stored, &checkpoint).unwrap();
        let checkpoint = FileCheckpointStore::read(&stored).unwrap().unwrap();
        let restart = chain(&path, text, schema, Some(&checkpoint)).await;
        let (rest, _) = read(&restart, Some(checkpoint), options(text, None)).await;
        assert_eq!(positions(&rest), text.starts[cut..], "{name}: what follows the first {cut} records");
        items.extend(rest);
        assert_eq!(rejects(&items), rejects(&whole), "{name}: bad records when cut after record {cut}");
        // Not `assert_eq`: nobody reads two files of that size.
        assert!(printed(&restart, &items).await == whole_printed, "{name}: other bytes when cut after record {cut}");
    }
}

#[tokio::test]
async fn csv_stopped_after_any_record_goes_on_with_the_next() {
    check_cuts("a.csv", &nasty::csv(NUM_RECORDS, false), nasty::CSV_SCHEMA, 1).await;
}

#[tokio::test]
async fn csv_with_comments_stopped_after_any_record_goes_on_with_the_next() {
    check_cuts("a.csv", &nasty::csv(NUM_RECORDS, true), nasty::CSV_SCHEMA, 1).await;
}

#[tokio::test]
async fn ndjson_stopped_after_any_record_goes_on_with_the_next() {
    check_cuts("a.ndjson", &nasty::ndjson(NUM_RECORDS), nasty::JSON_SCHEMA, 1).await;
}

#[tokio::test]
async fn text_among_bad_records_stopped_after_a_record_goes_on_with_the_next() {
    let csv = nasty::csv(NUM_RECORDS, true).with_bad(&nasty::BAD_CSV);
    check_cuts("a.csv", &csv, nasty::CSV_SCHEMA, 3).await;
    let ndjson = nasty::ndjson(NUM_RECORDS).with_bad(&nasty::BAD_NDJSON);
    check_cuts("a.ndjson", &ndjson, nasty::JSON_SCHEMA, 3).await;
}

#[tokio::test]
async fn compressed_text_stopped_after_a_record_goes_on_with_the_next() {
    check_cuts("a.csv.gz", &nasty::csv(NUM_RECORDS, false), nasty::CSV_SCHEMA, 7).await;
    check_cuts("a.ndjson.gz", &nasty::ndjson(NUM_RECORDS), nasty::JSON_SCHEMA, 7).await;
}
