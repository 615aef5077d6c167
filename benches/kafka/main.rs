//! A topic read by segue, decoded to Arrow with positions, beside a bare loop over librdkafka's batch queue that only
//! counts bytes, under the same settings and on the same topic.
//!
//! ```text
//! tests/broker/run cargo bench --bench kafka                  both in turn: SEGUE_BENCH_ROWS=5000000 SEGUE_BENCH_ROUNDS=3
//! tests/broker/run cargo bench --bench kafka -- latency 20    from producing to a batch, 20 s at 1000 messages/s
//! tests/broker/run cargo bench --bench kafka -- idle 20       CPU of following 64 silent partitions for 20 s
//! ```
//!
//! Each measurement is a process of its own, which benches/compare asks as well:
//! `make TOPIC FORMAT ROWS`, `bare TOPIC FORMAT ROWS`, `segue TOPIC FORMAT ROWS`. All of them keep freed memory as the
//! `segue` program does (`src/cli/memory.rs`): without, a tenth of the CPU time goes into clearing pages again and again.
#![expect(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a bench ends where it fails")]

mod bare;
mod heap;
mod idle;
mod latency;

use std::env;
use std::fs;
use std::num::NonZeroU16;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use segue::format::Format;
use segue::hybrid::{HybridSource, ReadOptions};
use segue::kafka::{KafkaAddress, KafkaSource, StopOffsets};
use segue::pipeline::{self, CommitPolicy, CopyOptions, Stop};
use segue::schema::parse_schema;
use segue::sink::{KafkaSink, MessageFormat};
use segue::source::{DatagenSource, FieldKind};
use tokio::runtime::Runtime;

const PARTITIONS: u16 = 4;

fn main() {
    let Ok(broker) = env::var("SEGUE_TEST_BROKER") else {
        println!("SEGUE_TEST_BROKER names no broker; run: tests/broker/run cargo bench --bench kafka");
        return;
    };
    heap::set_up();
    // Cargo adds a word of its own.
    let words: Vec<String> = env::args().skip(1).filter(|word| word != "--bench").collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    match words[..] {
        [] => pairs(),
        ["latency", seconds] => {
            let topic = Topic::new(&broker, &format!("bench-latency-{}", std::process::id()), "csv", "0");
            runtime.block_on(latency::run(&topic.address, seconds.parse().unwrap()));
        }
        ["idle", seconds] => {
            let topic = Topic::new(&broker, &format!("bench-idle-{}", std::process::id()), "csv", "0");
            runtime.block_on(idle::run(&topic.address, seconds.parse().unwrap()));
        }
        [what @ ("make" | "bare" | "segue"), name, format, rows] => {
            let topic = Topic::new(&broker, name, format, rows);
            let began = Instant::now();
            match what {
                "make" => runtime.block_on(topic.produce()),
                "bare" => bare::count_bytes(&topic.address, topic.rows),
                _ => topic.read(&runtime),
            }
            let seconds = began.elapsed().as_secs_f64();
            println!(r#"{{"rows":{rows},"seconds":{seconds:.3},"cpu_seconds":{:.2}}}"#, cpu_seconds());
        }
        _ => panic!("nothing, or `latency|idle SECONDS`, or `make|bare|segue TOPIC FORMAT ROWS`"),
    }
}

/// Both in turn, for each format.
fn pairs() {
    let number = |name: &str, default: u64| env::var(name).map_or(default, |text| text.parse().unwrap());
    let rows = number("SEGUE_BENCH_ROWS", 2_000_000).to_string();
    let rounds = number("SEGUE_BENCH_ROUNDS", 3);
    println!(
        "{rows} bids in {PARTITIONS} partitions, {rounds} rounds in turn: messages/s (the best, the median), CPU seconds (the median)"
    );
    for format in ["csv", "json"] {
        let topic = format!("bench-{format}-{}", std::process::id());
        ask("make", &topic, format, &rows);
        let (mut bare, mut segue) = (Measured::default(), Measured::default());
        for _ in 0..rounds {
            bare.push(&ask("bare", &topic, format, &rows));
            segue.push(&ask("segue", &topic, format, &rows));
        }
        for (name, measured) in [("bare loop", &mut bare), ("segue", &mut segue)] {
            let (best, median, cpu_seconds) = measured.summary();
            println!("{format:4}  {name:9}  {best:>9.0} {median:>9.0}  {cpu_seconds:6.2} s");
        }
        println!("{format:4}  ratio of medians {:.2}", segue.summary().1 / bare.summary().1);
    }
}

#[derive(Default)]
struct Measured {
    rates: Vec<f64>,
    cpu_seconds: Vec<f64>,
}

impl Measured {
    fn push(&mut self, answer: &serde_json::Value) {
        let number = |key: &str| answer[key].as_f64().unwrap();
        self.rates.push(number("rows") / number("seconds"));
        self.cpu_seconds.push(number("cpu_seconds"));
    }

    /// The best and the median rate, and the median of CPU seconds.
    fn summary(&mut self) -> (f64, f64, f64) {
        self.rates.sort_by(f64::total_cmp);
        self.cpu_seconds.sort_by(f64::total_cmp);
        let middle = self.rates.len() / 2;
        (self.rates[self.rates.len() - 1], self.rates[middle], self.cpu_seconds[middle])
    }
}

/// What a process of its own says.
fn ask(what: &str, topic: &str, format: &str, rows: &str) -> serde_json::Value {
    let output = Command::new(env::current_exe().unwrap()).args([what, topic, format, rows]).output().unwrap();
    assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// User and system time of this process so far, by Linux's clock of 100 ticks a second; 0 elsewhere.
fn cpu_seconds() -> f64 {
    let Ok(stat) = fs::read_to_string("/proc/self/stat") else { return 0.0 };
    // The name, in parentheses, may hold blanks.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks = |index: usize| fields[index].parse::<f64>().unwrap();
    (ticks(11) + ticks(12)) / 100.0
}

/// Makes a topic at `address`.
async fn make_topic(address: &KafkaAddress, partitions: u16) {
    let admin: AdminClient<_> =
        ClientConfig::new().set("bootstrap.servers", address.bootstrap_servers()).create().unwrap();
    let topic = NewTopic::new(&address.topics[0], i32::from(partitions), TopicReplication::Fixed(1));
    admin.create_topics(&[topic], &AdminOptions::new()).await.unwrap();
}

struct Topic {
    address: KafkaAddress,
    format: MessageFormat,
    rows: u64,
}

impl Topic {
    fn new(broker: &str, name: &str, format: &str, rows: &str) -> Self {
        let format = match format {
            "csv" => MessageFormat::Csv,
            "json" => MessageFormat::Json,
            _ => panic!("csv or json, not {format}"),
        };
        Self { address: format!("kafka://{broker}/{name}").parse().unwrap(), format, rows: rows.parse().unwrap() }
    }

    fn schema() -> arrow::datatypes::SchemaRef {
        Arc::new(parse_schema("id INT, bid_price DOUBLE, order_time TIMESTAMP(3)").unwrap())
    }

    /// Writes bids of 56 bytes in CSV, 90 in JSON: ids of up to ten digits, prices with all digits of a DOUBLE.
    async fn produce(&self) {
        let between = |min: &str, max: Option<&str>| FieldKind::Random {
            min: Some(min.into()),
            max: max.map(Into::into),
            length: None,
        };
        let bids = DatagenSource::builder(Self::schema())
            .field("id", between("0", None))
            .field("bid_price", between("1", Some("1e15")))
            .num_rows(self.rows)
            .build()
            .unwrap();
        let chain = HybridSource::builder().source(bids).build().unwrap();
        let partitions = NonZeroU16::new(PARTITIONS).unwrap();
        let mut sink = KafkaSink::builder(&self.address).format(self.format).partitions(partitions).build().unwrap();
        let options = CopyOptions { commit: CommitPolicy::copy(), ..CopyOptions::default() };
        pipeline::copy(&chain, &mut sink, None, options, &Stop::new()).await.unwrap();
    }

    fn read(&self, runtime: &Runtime) {
        let format = if self.format == MessageFormat::Csv { Format::Csv } else { Format::Json };
        let source = KafkaSource::builder(&self.address).format(format).schema(Self::schema());
        let source = source.stop(StopOffsets::Latest).build().unwrap();
        let chain = HybridSource::builder().source(source).build().unwrap();
        let seen = runtime.block_on(async {
            let mut stream = chain.open(chain.resolve(None).await.unwrap(), ReadOptions::default()).unwrap();
            let mut seen = 0;
            while let Some(item) = stream.next().await {
                seen += item.unwrap().item.num_rows() as u64;
            }
            seen
        });
        assert_eq!(seen, self.rows);
    }
}
