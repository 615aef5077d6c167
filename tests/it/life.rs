//! Following a topic while somebody watches, and how soon it ends: whatever the brokers do, and whatever the reader
//! does. How long an end took is printed; it is to be well under a second.
#![expect(clippy::print_stdout, reason = "a bound that would fail on a slow machine is no test")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use segue::budget::Budget;
use segue::checkpoint::SourceState;
use segue::format::Format;
use segue::hybrid::ReadOptions;
use segue::kafka::{KafkaSource, KafkaSourceBuilder};
use segue::progress::{FetchGauges, Progress, Snapshot};
use segue::source::{ReadRequest, Source, SourceStream};

use crate::cli::{command, dir, fails};
use crate::common::{chain_of, schema};
use crate::topic::{PATIENCE, Topic};

/// A thread that isn't gone by then hangs.
const TO_END: Duration = Duration::from_secs(10);

fn source(topic: &Topic) -> KafkaSourceBuilder {
    KafkaSource::builder(&topic.address().parse().unwrap()).name("live").format(Format::Csv).schema(schema())
}

fn mock(num_partitions: i32) -> (MockCluster<'static, DefaultProducerContext>, Topic) {
    let cluster = MockCluster::new(1).unwrap();
    let topic = Topic::mock(&cluster, "bids", num_partitions);
    (cluster, topic)
}

/// A stream, and what its polling thread holds until it and its client are gone.
struct Life {
    stream: SourceStream,
    held: Arc<FetchGauges>,
}

impl Life {
    fn begin(source: &KafkaSource, state: &SourceState, memory_bytes: usize) -> Self {
        let held = Arc::<FetchGauges>::default();
        let mut request = ReadRequest::new(schema()).unwrap();
        request.budget = Budget::new(memory_bytes);
        request.gauges = Some(Arc::clone(&held));
        Self { stream: source.open(state, request).unwrap(), held }
    }

    /// Drops the stream and waits until nothing of it is left.
    async fn end(self, what: &str) {
        let Self { stream, held } = self;
        let began = Instant::now();
        drop(stream);
        while Arc::strong_count(&held) > 1 {
            assert!(began.elapsed() < TO_END, "{what}: the thread is still there");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        println!("{what}: gone after {:?}", began.elapsed());
    }
}

/// What a follower of this topic leaves behind when it is dropped: nothing, whatever it was doing.
async fn check_ends(topic: &Topic) {
    const MEMORY: usize = 64 << 20;
    let live = source(topic).build().unwrap();
    let state = live.resolve(None, None).await.unwrap();
    Life::begin(&live, &state, MEMORY).end("connecting").await;

    topic.produce_values((0..10).map(|id| (0, format!("{id},n{id}"))));
    let mut idle = Life::begin(&live, &state, MEMORY);
    assert!(idle.stream.next().await.unwrap().is_ok());
    idle.end("idle").await;

    // More than fits: librdkafka's queue is full, and the thread waits for the reader, who takes nothing.
    let long = "x".repeat(1000);
    topic.produce_values((0..4000).map(|id| (0, format!("{id},{long}"))));
    let mut paused = Life::begin(&live, &state, 1 << 20);
    assert!(paused.stream.next().await.unwrap().is_ok());
    paused.end("paused").await;
    let untouched = Life::begin(&live, &state, 1 << 20);
    tokio::time::sleep(Duration::from_millis(200)).await;
    untouched.end("never read").await;
}

#[tokio::test]
async fn a_dropped_follower_is_gone_soon_whatever_it_was_doing() {
    check_ends(&mock(2).1).await;
}

#[tokio::test]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn a_dropped_follower_of_a_real_broker_is_gone_soon_whatever_it_was_doing() {
    check_ends(&crate::broker::topic("ends", 2).await).await;
}

#[tokio::test]
async fn a_dropped_follower_is_gone_soon_though_its_broker_is_down() {
    let (cluster, topic) = mock(2);
    topic.produce_values((0..10).map(|id| (0, format!("{id},n{id}"))));
    let live = source(&topic).build().unwrap();
    let state = live.resolve(None, None).await.unwrap();
    let mut follower = Life::begin(&live, &state, 64 << 20);
    assert!(follower.stream.next().await.unwrap().is_ok());
    cluster.broker_down(1).unwrap();
    // So long that it has asked for its topics, and had no answer.
    let silence = tokio::time::timeout(Duration::from_secs(6), follower.stream.next()).await;
    assert!(silence.is_err(), "{silence:?}");
    follower.end("broker down").await;
    // One that never found a broker.
    drop(cluster);
    let lost = Life::begin(&live, &state, 64 << 20);
    tokio::time::sleep(Duration::from_millis(200)).await;
    lost.end("no broker").await;
}

/// A library's own loop sees where each partition stands, and what is fetched ahead of it.
#[tokio::test]
async fn progress_tells_position_lag_rows_and_fetch_queue_of_every_partition() {
    let (_cluster, topic) = mock(2);
    topic.produce_values((0..100).map(|id| (0, format!("{id},n{id}"))));
    topic.produce_values((0..4).map(|id| (1, format!("{id},n{id}"))));
    let chain = chain_of(source(&topic).property("statistics.interval.ms", "20").build().unwrap());
    let progress = Arc::new(Progress::new(["live"]));
    let options =
        ReadOptions { memory_bytes: 1 << 20, progress: Some(Arc::clone(&progress)), ..ReadOptions::default() };
    let mut stream = chain.open(chain.resolve(None).await.unwrap(), options).unwrap();
    // The first statistics may come before the client knows its partitions.
    let is_told = |snapshot: &Snapshot| snapshot.sources[0].partitions.iter().all(|p| p.fetched == Some(0));
    let caught_up = |snapshot: &Snapshot| snapshot.rows() == 104 && is_told(snapshot);
    let began = Instant::now();
    while !caught_up(&progress.snapshot()) {
        assert!(began.elapsed() < PATIENCE, "{:?}", progress.snapshot());
        // Nothing more comes; what is told between items is waited for.
        if let Ok(item) = tokio::time::timeout(Duration::from_millis(20), stream.next()).await {
            item.unwrap().unwrap();
        }
    }
    let source = &progress.snapshot().sources[0];
    let shown: Vec<_> = source.partitions.iter().map(|p| (p.position, p.end, p.lag, p.rows, p.fetched)).collect();
    assert_eq!(shown, [(100, Some(100), Some(0), 100, Some(0)), (4, Some(4), Some(0), 4, Some(0))]);
    assert_eq!(source.fetch_queue.unwrap().messages, 0);

    // Nobody takes what comes now, and it is more than is taken out of the queue in advance.
    let long = "x".repeat(1000);
    topic.produce_values((0..4000).map(|id| (0, format!("{id},{long}"))));
    let waits = |snapshot: &Snapshot| {
        let (source, queue) = (&snapshot.sources[0], snapshot.sources[0].fetch_queue.unwrap());
        let is_filled = queue.messages > 0 && queue.bytes > 1000 && source.partitions[0].fetched > Some(0);
        is_filled && snapshot.lag > Some(0) && source.partitions[1].fetched == Some(0)
    };
    while !waits(&progress.snapshot()) {
        assert!(began.elapsed() < PATIENCE, "{:?}", progress.snapshot());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(progress.snapshot().rows(), 104);
    let behind = progress.snapshot().sources[0].furthest_behind().map(|partition| partition.split.to_string());
    assert_eq!(behind, Some(topic.split(0)));
}

/// A run of the program that serves metrics, and ends with the test at the latest.
struct Watched {
    child: Child,
    address: String,
    _folder: tempfile::TempDir,
}

impl Watched {
    fn start(args: &[&str]) -> Self {
        let folder = dir(&[]);
        let mut child = command(folder.path(), args)
            .args(["--schema", "id BIGINT, name STRING", "--format", "csv", "--metrics-addr", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let mut lines = stderr.lines().map(Result::unwrap);
        let told = lines.find_map(|line| line.strip_prefix("metrics: http://").map(str::to_owned)).unwrap();
        let address = told.strip_suffix("/metrics").unwrap().to_owned();
        Self { child, address, _folder: folder }
    }

    /// The value of each series.
    fn scrape(&self) -> Vec<(String, f64)> {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: segue\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        let series = body.lines().filter(|line| !line.starts_with('#')).map(|line| line.rsplit_once(' ').unwrap());
        series.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect()
    }

    /// Scrapes until a series has this value.
    fn wait_for(&self, series: &str, value: f64) -> Vec<(String, f64)> {
        let began = Instant::now();
        loop {
            let scraped = self.scrape();
            if scraped.iter().any(|(name, is)| name == series && *is == value) {
                return scraped;
            }
            assert!(began.elapsed() < PATIENCE, "{series} isn't {value}: {scraped:#?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Asks it to end, and gives its exit status.
    fn terminate(mut self, what: &str) -> Option<i32> {
        let began = Instant::now();
        Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                println!("{what}: ended after {:?}", began.elapsed());
                return status.code();
            }
            assert!(began.elapsed() < TO_END, "{what}: it doesn't end");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_scrape_tells_what_a_follower_does() {
    let (_cluster, topic) = mock(2);
    topic.produce_values((0..30).map(|id| (0, format!("{id},n{id}"))));
    topic.produce_values([(1, "x,bad".to_owned())]);
    let statistics = "properties.statistics.interval.ms=20";
    let args = ["read", &topic.address(), "--output", "none", "--on-error", "skip", "-o", statistics];
    let watched = Watched::start(&args);
    watched.wait_for("segue_rejected_total{source=\"0\",reason=\"type\"}", 1.0);
    let split = |name: &str, partition| format!("{name}{{source=\"0\",split=\"{}\"}}", topic.split(partition));
    watched.wait_for(&split("segue_fetched_offsets", 0), 0.0);
    watched.wait_for(&split("segue_fetched_offsets", 1), 0.0);
    let scraped = watched.wait_for(&split("segue_position", 0), 30.0);
    let value = |name: &str| {
        let found = scraped.iter().find(|(series, _)| series == name);
        found.unwrap_or_else(|| panic!("no {name}: {scraped:#?}")).1
    };
    assert_eq!(value("segue_rows_total{source=\"0\"}"), 30.0);
    for (name, of_first, of_second) in [
        ("segue_split_rows_total", 30.0, 0.0),
        ("segue_position", 30.0, 1.0),
        ("segue_end_offset", 30.0, 1.0),
        ("segue_lag", 0.0, 0.0),
        ("segue_fetched_offsets", 0.0, 0.0),
    ] {
        assert_eq!((value(&split(name, 0)), value(&split(name, 1))), (of_first, of_second), "{name}");
    }
    assert_eq!(value("segue_source_active{source=\"0\"}"), 1.0);
    assert_eq!(value("segue_source_done{source=\"0\"}"), 0.0);
    assert_eq!(value("segue_fetch_queue_bytes{source=\"0\"}"), 0.0);
    assert_eq!(value("segue_commits_total"), 1.0);
    assert!(value("segue_last_commit_timestamp_seconds") >= value("process_start_time_seconds"));
    assert!(value("process_resident_memory_bytes") > 1e6);
    assert_eq!(value(&format!("segue_build_info{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"))), 1.0);
    // Nothing but that: no series comes twice, and none is told of without being listed here or in the README.
    let readme = include_str!("../../README.md");
    for (series, _) in &scraped {
        let name = series.split('{').next().unwrap();
        assert!(
            readme.contains(&format!("`{name}`")) || readme.contains(&format!("`{name}{{")),
            "{name} isn't documented"
        );
        assert_eq!(scraped.iter().filter(|(other, _)| other == series).count(), 1, "{series}");
    }
    assert_eq!(watched.terminate("a follower"), Some(0));
}

/// However many files there are, none has a series of its own.
#[test]
fn a_scrape_tells_how_far_files_are_in_a_few_series() {
    const FILES: usize = 300;
    let content = "1,n1\n".repeat(2_000);
    let names: Vec<String> = (0..FILES).map(|index| format!("{index}.csv")).collect();
    let files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), content.as_str())).collect();
    let history = dir(&files);
    // Nobody reads its stdout, so it stands still when that is full.
    let watched = Watched::start(&["read", &history.path().display().to_string(), "--output", "csv"]);
    let scraped = watched.wait_for("segue_files{source=\"0\"}", FILES as f64);
    let series =
        |name: &str| scraped.iter().find(|(series, _)| *series == format!("{name}{{source=\"0\"}}")).unwrap().1;
    let size = (FILES * content.len()) as f64;
    assert_eq!(series("segue_size_bytes"), size);
    assert!(series("segue_done_bytes") < size && series("segue_files_done") < FILES as f64);
    assert_eq!((series("segue_source_active"), series("segue_source_done")), (1.0, 0.0));
    assert!(scraped.len() < 20, "{scraped:#?}");
}

#[test]
fn a_signal_ends_a_follower_whose_broker_is_down_and_one_that_never_found_it() {
    let (cluster, topic) = mock(1);
    topic.produce_values([(0, "1,n1".to_owned())]);
    let watched = Watched::start(&["read", &topic.address(), "--output", "none"]);
    watched.wait_for("segue_rows_total{source=\"0\"}", 1.0);
    cluster.broker_down(1).unwrap();
    assert_eq!(watched.terminate("broker down"), Some(0));
    let watched = Watched::start(&["read", &topic.address(), "--output", "none"]);
    watched.scrape();
    assert_eq!(watched.terminate("connecting"), Some(0));
}

#[test]
fn an_address_for_metrics_that_can_not_be_is_told_before_the_job_begins() {
    let dir = dir(&[("a.csv", "id\n1\n")]);
    fails(
        &dir,
        &["read", "a.csv", "--metrics-addr", "9090"],
        2,
        "error: invalid value '9090' for '--metrics-addr <HOST:PORT>': '9090' is not HOST:PORT, such as 127.0.0.1:9090 or [::1]:9090\n\
         hint: `segue help COMMAND` shows what a command takes\n",
    );
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let args = ["copy", "a.csv", "--schema", "id INT", "--to", "csv:out", "--metrics-addr", &address];
    fails(
        &dir,
        &args,
        1,
        &format!("error: --metrics-addr {address}: cannot listen: Address already in use (os error 98)\n"),
    );
    assert!(!dir.path().join("out").exists());
}
