//! Files to Arrow through the public stream, with one thread and with two, beside plain arrow-rs on one.
//!
//! ```sh
//! cargo bench --bench read                               # a million rows
//! SEGUE_BENCH_ROWS=10000000 cargo bench --bench read     # more of the same rows
//! ```
//!
//! The data is made anew from a seed: bids (int, double, timestamp, text), and texts in quotes with quotes and line
//! ends inside. Throughput is in bytes of the file as stored; everything is decoded in full and then dropped, and the
//! page cache is warm.
#![expect(clippy::expect_used, reason = "a bench that can't run says why by panicking")]

use std::fs::{self, File};
use std::hint::black_box;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use futures::StreamExt;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use segue::file::FileSource;
use segue::hybrid::{HybridSource, ReadOptions};
use segue::schema::parse_schema;
use segue::source::{DEFAULT_BATCH_ROWS, DatagenSource, FieldKind};
use tokio::runtime::Runtime;

const DEFAULT_ROWS: u64 = 1_000_000;

/// What is read, and what both sides are told about its columns, so that neither infers.
struct Input {
    name: &'static str,
    format: &'static str,
    path: PathBuf,
    schema: SchemaRef,
    num_rows: u64,
}

fn schema(text: &str) -> SchemaRef {
    Arc::new(parse_schema(text).expect("the schema is right"))
}

/// Makes all inputs.
fn inputs(runtime: &Runtime, folder: &Path) -> Vec<Input> {
    let num_rows =
        std::env::var("SEGUE_BENCH_ROWS").map_or(DEFAULT_ROWS, |rows| rows.parse().expect("a number of rows"));
    let bids = schema("auction BIGINT, price DOUBLE, bid_time TIMESTAMP(3), bidder STRING");
    let texts = schema("a STRING, b STRING, c STRING");
    let input = |name, format, schema: &SchemaRef, num_rows| Input {
        name,
        format,
        path: folder.join(format!("{name}.{format}")),
        schema: Arc::clone(schema),
        num_rows,
    };
    let inputs = vec![
        input("csv", "csv", &bids, num_rows),
        input("ndjson", "ndjson", &bids, num_rows),
        input("parquet", "parquet", &bids, num_rows),
        // A row has about four times the bytes of a bid.
        input("csv of quoted texts", "csv", &texts, num_rows / 4),
    ];
    write_bids(runtime, &bids, num_rows, [&inputs[0].path, &inputs[1].path, &inputs[2].path]);
    write_quoted_texts(&inputs[3]).expect("a file of quoted texts");
    inputs
}

/// Writes the same rows in every format.
fn write_bids(runtime: &Runtime, schema: &SchemaRef, num_rows: u64, [csv, json, parquet]: [&Path; 3]) {
    let source = DatagenSource::builder(Arc::clone(schema))
        .field("auction", FieldKind::Random { min: Some("0".into()), max: Some("100000".into()), length: None })
        .field("bidder", FieldKind::Random { min: None, max: None, length: Some(12) })
        .num_rows(num_rows)
        .build()
        .expect("the source is right");
    let file = |path: &Path| BufWriter::new(File::create(path).expect("a file"));
    let mut csv = arrow_csv::WriterBuilder::new().with_header(true).build(file(csv));
    let mut json = arrow_json::LineDelimitedWriter::new(file(json));
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(Default::default()))
        .set_max_row_group_row_count(Some(128 << 10))
        .build();
    let mut parquet =
        ArrowWriter::try_new(file(parquet), Arc::clone(schema), Some(properties)).expect("a Parquet file");
    runtime.block_on(async {
        let chain = HybridSource::builder().source(source).build().expect("a chain");
        let from = chain.resolve(None).await.expect("a start");
        let mut batches = chain.open(from, ReadOptions::default()).expect("a stream").into_batches();
        while let Some(batch) = batches.next().await {
            let batch = batch.expect("generated rows");
            csv.write(&batch).expect("CSV");
            json.write(&batch).expect("NDJSON");
            parquet.write(&batch).expect("Parquet");
        }
    });
    json.finish().expect("NDJSON");
    parquet.close().expect("Parquet");
}

/// Three texts of about 75 bytes a row: some with a quote in them, some with a line end.
fn write_quoted_texts(input: &Input) -> std::io::Result<()> {
    let mut file = BufWriter::new(File::create(&input.path)?);
    writeln!(file, "a,b,c")?;
    let mut state = 42u64;
    for _ in 0..input.num_rows {
        for end in [",", ",", "\n"] {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let middle = [" ", "\"\"", "\n", "\"\"quoted\"\""][(state >> 60) as usize % 4];
            write!(file, "\"{state:032x}{middle}{:040x}\"{end}", state >> 7)?;
        }
    }
    file.flush()
}

/// Reads a file through the public stream; returns the rows.
async fn segue_rows(input: &Input, num_threads: usize) -> u64 {
    let schema = || Arc::clone(&input.schema);
    let path = input.path.display().to_string();
    let source = FileSource::builder(path).schema(schema()).build().await.expect("a source");
    let chain = HybridSource::builder().source(source).schema(schema()).build().expect("a chain");
    let from = chain.resolve(None).await.expect("a start");
    let options = ReadOptions { num_threads, ..ReadOptions::default() };
    let mut stream = chain.open(from, options).expect("a stream");
    let mut num_rows = 0;
    while let Some(item) = stream.next().await {
        num_rows += black_box(item.expect("good rows")).item.num_rows() as u64;
    }
    num_rows
}

fn arrow_rows(input: &Input) -> u64 {
    let file = File::open(&input.path).expect("the file");
    let schema = || Arc::clone(&input.schema);
    let count = |batch: RecordBatch| black_box(batch).num_rows() as u64;
    match input.format {
        "csv" => arrow_csv::ReaderBuilder::new(schema())
            .with_header(true)
            .with_batch_size(DEFAULT_BATCH_ROWS)
            .build(file)
            .expect("a reader")
            .map(|batch| count(batch.expect("good rows")))
            .sum(),
        "ndjson" => arrow_json::ReaderBuilder::new(schema())
            .with_batch_size(DEFAULT_BATCH_ROWS)
            .build(BufReader::with_capacity(1 << 20, file))
            .expect("a reader")
            .map(|batch| count(batch.expect("good rows")))
            .sum(),
        _ => ParquetRecordBatchReaderBuilder::try_new(file)
            .expect("a Parquet file")
            .with_batch_size(DEFAULT_BATCH_ROWS)
            .build()
            .expect("a reader")
            .map(|batch| count(batch.expect("good rows")))
            .sum(),
    }
}

fn read(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let folder = tempfile::tempdir().expect("a temporary folder");
    for input in inputs(&runtime, folder.path()) {
        let mut group = criterion.benchmark_group(input.name);
        group.sample_size(10).sampling_mode(SamplingMode::Flat);
        group.throughput(Throughput::Bytes(fs::metadata(&input.path).expect("the file").len()));
        group.bench_function("arrow-rs, 1 thread", |bencher| {
            bencher.iter(|| assert_eq!(arrow_rows(&input), input.num_rows));
        });
        for num_threads in [1, 2] {
            group.bench_function(BenchmarkId::new("segue, threads", num_threads), |bencher| {
                bencher.iter(|| assert_eq!(runtime.block_on(segue_rows(&input, num_threads)), input.num_rows));
            });
        }
        group.finish();
    }
}

criterion_group!(benches, read);
criterion_main!(benches);
