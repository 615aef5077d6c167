//! A topic read by segue, decoded to Arrow with positions, beside a bare loop over librdkafka's batch queue that only
//! counts bytes, under the same settings and on the same topic.
//!
//! ```text
//! tests/broker/run cargo bench --bench kafka          SEGUE_BENCH_ROWS=5000000 SEGUE_BENCH_ROUNDS=3
//! ```
#![expect(unsafe_code, reason = "the bare loop is what it is")]
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a bench ends where it fails")]

use std::ffi::CString;
use std::num::NonZeroU16;
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::bindings as rd;
use rdkafka::consumer::{BaseConsumer, Consumer};
use segue::format::Format;
use segue::hybrid::{HybridSource, ReadOptions};
use segue::kafka::{KafkaAddress, KafkaSource, StopOffsets};
use segue::pipeline::{self, CommitPolicy, CopyOptions, Stop};
use segue::schema::parse_schema;
use segue::sink::{KafkaSink, MessageFormat};
use segue::source::{DatagenSource, FieldKind};

const PARTITIONS: u16 = 4;

fn main() {
    let Ok(broker) = std::env::var("SEGUE_TEST_BROKER") else {
        println!("SEGUE_TEST_BROKER names no broker; run: tests/broker/run cargo bench --bench kafka");
        return;
    };
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let rows = number("SEGUE_BENCH_ROWS", 2_000_000);
    let rounds = number("SEGUE_BENCH_ROUNDS", 3);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    println!("{rows} bids in {PARTITIONS} partitions, messages/s, the best and the median of {rounds} rounds in turn");
    for format in [MessageFormat::Csv, MessageFormat::Json] {
        let address: KafkaAddress =
            format!("kafka://{broker}/bench-{}-{}", format.as_str(), std::process::id()).parse().unwrap();
        runtime.block_on(produce(&address, format, rows));
        let (mut bare, mut segue) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            bare.push(rate(rows, || count_bytes(&address, rows)));
            segue.push(rate(rows, || runtime.block_on(read(&address, format, rows))));
        }
        let (bare, segue) = (Rates::of(bare), Rates::of(segue));
        println!(
            "{:4}  bare loop {:>9.0} {:>9.0}   segue {:>9.0} {:>9.0}   ratio of medians {:.2}",
            format.as_str(),
            bare.best,
            bare.median,
            segue.best,
            segue.median,
            segue.median / bare.median
        );
    }
}

struct Rates {
    best: f64,
    median: f64,
}

impl Rates {
    fn of(mut rates: Vec<f64>) -> Self {
        rates.sort_by(f64::total_cmp);
        Self { best: rates[rates.len() - 1], median: rates[rates.len() / 2] }
    }
}

fn rate(rows: u64, work: impl FnOnce()) -> f64 {
    let began = Instant::now();
    work();
    rows as f64 / began.elapsed().as_secs_f64()
}

fn schema() -> arrow::datatypes::SchemaRef {
    Arc::new(parse_schema("id INT, bid_price DOUBLE, order_time TIMESTAMP(3)").unwrap())
}

async fn produce(address: &KafkaAddress, format: MessageFormat, rows: u64) {
    let bids = DatagenSource::builder(schema())
        .field("id", FieldKind::Sequence { start: 1, end: None })
        .num_rows(rows)
        .build()
        .unwrap();
    let chain = HybridSource::builder().source(bids).build().unwrap();
    let partitions = NonZeroU16::new(PARTITIONS).unwrap();
    let mut sink = KafkaSink::builder(address).format(format).partitions(partitions).build().unwrap();
    let options = CopyOptions { commit: CommitPolicy::copy(), ..CopyOptions::default() };
    pipeline::copy(&chain, &mut sink, None, options, &Stop::new()).await.unwrap();
}

async fn read(address: &KafkaAddress, format: MessageFormat, rows: u64) {
    let format = if format == MessageFormat::Csv { Format::Csv } else { Format::Json };
    let source = KafkaSource::builder(address).format(format).schema(schema()).stop(StopOffsets::Latest);
    let chain = HybridSource::builder().source(source.build().unwrap()).build().unwrap();
    let mut stream = chain.open(chain.resolve(None).await.unwrap(), ReadOptions::default()).unwrap();
    let mut seen = 0;
    while let Some(item) = stream.next().await {
        seen += item.unwrap().item.num_rows() as u64;
    }
    assert_eq!(seen, rows);
}

/// What a program that wants nothing but bytes would do.
fn count_bytes(address: &KafkaAddress, rows: u64) {
    // As `KafkaSource` sets them with the default memory of 256 MB.
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", address.bootstrap_servers())
        .set("enable.partition.eof", "true")
        .set("auto.offset.reset", "error")
        .set("check.crcs", "true")
        .set("queued.min.messages", "223696")
        .set("queued.max.messages.kbytes", "32768")
        .set("fetch.max.bytes", "8388608")
        .set("fetch.queue.backoff.ms", "10")
        .create()
        .unwrap();
    let client = consumer.client().native_ptr();
    let name = CString::new(address.topics[0].as_str()).unwrap();
    let (mut seen, mut bytes) = (0u64, 0usize);
    let mut buffer = vec![ptr::null_mut(); 10_000];
    // SAFETY: client, topic and queue live until the end of the block, and every message is destroyed once.
    unsafe {
        let queue = rd::rd_kafka_queue_new(client);
        let topic = rd::rd_kafka_topic_new(client, name.as_ptr(), ptr::null_mut());
        for partition in 0..i32::from(PARTITIONS) {
            rd::rd_kafka_consume_start_queue(topic, partition, 0, queue);
        }
        while seen < rows {
            let timeout = Duration::from_millis(100).as_millis() as i32;
            let count = rd::rd_kafka_consume_batch_queue(queue, timeout, buffer.as_mut_ptr(), buffer.len());
            for &message in &buffer[..count as usize] {
                if (*message).err == rd::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
                    seen += 1;
                    bytes += (*message).len;
                }
                rd::rd_kafka_message_destroy(message);
            }
        }
        rd::rd_kafka_topic_destroy(topic);
        rd::rd_kafka_queue_destroy(queue);
    }
    assert!(bytes > 0);
}
