//! Topics, on librdkafka's embedded broker: what the logic does without a real one.

use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer};
use segue::checkpoint::Checkpoint;
use segue::format::Format;
use segue::hybrid::{HybridSource, HybridStream, ReadOptions};
use segue::kafka::{
    KafkaAddress, KafkaSource, KafkaSourceBuilder, OnGap, PartitionOffsets, StartOffsets, StopOffsets, Tombstones,
};
use segue::schema::{ColumnRule, Mapping, Provenance};
use segue::testing::Suite;

use crate::common::{Read, chain_of, lines, memory, read, read_all, schema, schema_of, told};
use crate::topic::Topic;

/// A cluster of one broker with a topic of bids.
struct Bids {
    _cluster: MockCluster<'static, DefaultProducerContext>,
    topic: Topic,
}

impl Bids {
    fn new(partitions: i32) -> Self {
        let cluster = MockCluster::new(1).unwrap();
        // Alone in its cluster, it needs no name of its own.
        cluster.create_topic("bids", partitions, 1).unwrap();
        let topic = Topic::of(&cluster.bootstrap_servers(), "bids".into(), partitions);
        Self { _cluster: cluster, topic }
    }

    fn source(&self) -> KafkaSourceBuilder {
        KafkaSource::builder(&self.topic.address().parse().unwrap()).name("live").format(Format::Csv).schema(schema())
    }

    /// Sends and waits until the broker has them.
    fn produce(&self, partition: i32, values: impl IntoIterator<Item = impl Into<String>>) {
        self.topic.produce_values(values.into_iter().map(|value| (partition, value.into())));
    }
}

fn values(ids: std::ops::Range<i64>) -> impl Iterator<Item = String> {
    ids.map(|id| if id % 5 == 4 { format!("{id},") } else { format!("{id},n{id}") })
}

fn offsets(text: &str) -> PartitionOffsets {
    text.parse().unwrap()
}

fn all(range: std::ops::Range<i64>) -> Vec<i64> {
    range.collect()
}

#[tokio::test]
async fn a_bounded_topic_conforms() {
    let bids = Bids::new(1);
    bids.produce(0, values(0..30));
    let chain = chain_of(bids.source().stop(StopOffsets::Latest).build().unwrap());
    Suite::new(chain).with_max_cuts(31).run().await.unwrap();
}

#[tokio::test]
async fn files_then_a_topic_conform() {
    let bids = Bids::new(1);
    bids.produce(0, values(7..20));
    let live = bids.source().stop(StopOffsets::Latest).build().unwrap();
    let chain = HybridSource::builder().source(memory("0", 0..7)).source(live).build().unwrap();
    assert_eq!(read_all(&chain).await.ids(), all(0..20));
    Suite::new(chain).with_max_cuts(20).run().await.unwrap();
}

#[tokio::test]
async fn partitions_are_read_side_by_side_each_in_order() {
    let bids = Bids::new(3);
    for partition in 0..3 {
        let first = i64::from(partition) * 100_000;
        bids.produce(partition, values(first..first + 20_000));
    }
    let source = bids.source().stop(StopOffsets::Latest).build().unwrap();
    let chain = HybridSource::builder()
        .source(source)
        .provenance([Provenance::Partition, Provenance::Offset, Provenance::Split])
        .build()
        .unwrap();
    let read = read(&chain, None, ReadOptions { batch_rows: 1000, ..ReadOptions::default() }).await.whole();
    let mut next = [0; 3];
    for line in read.lines() {
        let fields: Vec<&str> = line.split('|').collect();
        let (id, partition, offset): (i64, usize, i64) =
            (fields[0].parse().unwrap(), fields[2].parse().unwrap(), fields[3].parse().unwrap());
        assert_eq!((offset, id), (next[partition], partition as i64 * 100_000 + offset));
        assert_eq!(fields[4], format!("bids/{partition}"));
        next[partition] += 1;
    }
    assert_eq!(next, [20_000; 3]);
    assert!(read.batches.iter().all(|batch| batch.num_rows() <= 1000));
}

/// CASE 31: every offset moves the position, also those without a value.
#[tokio::test]
async fn tombstones_are_skipped_and_move_the_position() {
    let bids = Bids::new(1);
    for value in [None, Some("1,a"), None, Some("2,b"), None, None] {
        bids.topic.produce(0, None, value, None);
    }
    let chain = chain_of(bids.source().stop(StopOffsets::Latest).build().unwrap());
    let read = read_all(&chain).await;
    assert_eq!(read.ids(), [1, 2]);
    assert!(read.checkpoint.is_done());
    assert_eq!(position(&read.checkpoint, "bids/0"), 6);
}

/// CASE 15: a null value never raises by itself, and never stops the position.
#[tokio::test]
async fn tombstones_as_rows_of_nulls_conform_and_have_their_key_and_offset() {
    let bids = Bids::new(1);
    for (key, value) in [("a", None), ("b", Some("1,x")), ("c", None), ("d", None), ("e", Some("2,y")), ("f", None)] {
        bids.topic.produce(0, Some(key), value, None);
    }
    let source = || bids.source().stop(StopOffsets::Latest).tombstones(Tombstones::NullRow).build().unwrap();
    let columns = [Provenance::Offset, Provenance::Key];
    let chain = HybridSource::builder().source(source()).provenance(columns).build().unwrap();
    let read = read_all(&chain).await;
    assert_eq!(
        read.lines(),
        ["null|null|0|61", "1|x|1|62", "null|null|2|63", "null|null|3|64", "2|y|4|65", "null|null|5|66"]
    );
    assert_eq!(position(&read.checkpoint, "bids/0"), 6);
    Suite::new(chain_of(source())).with_max_cuts(8).run().await.unwrap();

    // Where nothing of the values is wanted, too.
    let options = ReadOptions { projection: Some(Vec::new()), ..ReadOptions::default() };
    let rows = self::read(&chain, None, options).await.whole().lines();
    assert_eq!(rows, ["0|61", "1|62", "2|63", "3|64", "4|65", "5|66"]);
}

#[tokio::test]
async fn tombstones_of_any_type_and_format_are_null_rows() {
    let columns = "a INT, b DOUBLE, c DECIMAL(9,2), d BOOLEAN, e STRING, f BYTES, g DATE, h TIME(3), i TIMESTAMP(3)";
    let json_columns = format!("{columns}, j ARRAY<INT>, k ROW<x INT, y STRING>");
    let formats =
        [(Format::Csv, columns, 9), (Format::Json, json_columns.as_str(), 11), (Format::Raw, "value STRING", 1)];
    let bids = Bids::new(1);
    // Nothing else, so that there is no row with a value.
    bids.topic.produce(0, Some("k"), None, None);
    bids.topic.produce(0, Some("k"), None, None);
    for (format, columns, num_columns) in formats {
        let source = KafkaSource::builder(&bids.topic.address().parse().unwrap()).format(format);
        let source = source.schema(schema_of(columns)).stop(StopOffsets::Latest).tombstones(Tombstones::NullRow);
        let rows = read_all(&chain_of(source.build().unwrap())).await.lines();
        assert_eq!(rows, vec![vec!["null"; num_columns].join("|"); 2], "{format}");
    }
}

/// A mapping's constants stand in every row of the source, and defaults in place of every null.
#[tokio::test]
async fn constants_and_defaults_stand_in_the_rows_of_tombstones() {
    let bids = Bids::new(1);
    bids.topic.produce(0, None, None, None);
    let mut mapping = Mapping::default();
    mapping.columns.insert("id".into(), ColumnRule { default: Some("7".into()), ..ColumnRule::default() });
    mapping.columns.insert("name".into(), ColumnRule { constant: Some("n".into()), ..ColumnRule::default() });
    let not_null = schema_of("id BIGINT NOT NULL, name STRING NOT NULL");
    let source =
        bids.source().schema(not_null).mapping(mapping).stop(StopOffsets::Latest).tombstones(Tombstones::NullRow);
    assert_eq!(read_all(&chain_of(source.build().unwrap())).await.lines(), ["7|n"]);
}

fn position(checkpoint: &Checkpoint, split: &str) -> u64 {
    match &checkpoint.sources.last().unwrap().splits {
        segue::checkpoint::Splits::SideBySide(splits) => splits[&split.into()].position,
        splits => panic!("{splits:?}"),
    }
}

#[tokio::test]
async fn a_start_is_where_it_was_asked_for() {
    let bids = Bids::new(2);
    bids.produce(0, values(0..10));
    bids.produce(1, values(100..110));
    let read_from = async |start: StartOffsets| {
        let mut ids =
            read_all(&chain_of(bids.source().start(start).stop(StopOffsets::Latest).build().unwrap())).await.ids();
        ids.sort_unstable();
        ids
    };
    assert_eq!(read_from(StartOffsets::Earliest).await.len(), 20);
    assert_eq!(read_from(StartOffsets::Latest).await, Vec::<i64>::new());
    let at = StartOffsets::from(offsets("partition:0,offset:8;partition:1,offset:10"));
    assert_eq!(read_from(at).await, [8, 9]);
}

#[tokio::test]
async fn a_stop_is_where_it_was_asked_for() {
    let bids = Bids::new(2);
    bids.produce(0, values(0..10));
    bids.produce(1, values(100..110));
    let stop = StopOffsets::At(offsets("partition:0,offset:2;partition:1,offset:0"));
    let read = read_all(&chain_of(bids.source().stop(stop).build().unwrap())).await;
    assert_eq!(read.ids(), [0, 1]);
    assert_eq!((position(&read.checkpoint, "bids/0"), position(&read.checkpoint, "bids/1")), (2, 0));
}

/// CASE 19: what comes between a start at the end and the first row isn't lost, however often the job starts.
#[tokio::test]
async fn a_latest_start_is_pinned_at_the_first_start() {
    let bids = Bids::new(1);
    bids.produce(0, values(0..5));
    let source = || bids.source().start(StartOffsets::Latest);
    let chain = chain_of(source().build().unwrap());
    let pinned = chain.resolve(None).await.unwrap();
    bids.produce(0, values(5..9));
    let again = chain.resolve(Some(pinned.clone())).await.unwrap();
    assert_eq!(position(&again, "bids/0"), 5);
    let bounded = chain_of(source().stop(StopOffsets::Latest).build().unwrap());
    let read = read(&bounded, Some(pinned), ReadOptions::default()).await.whole();
    assert_eq!(read.ids(), all(5..9));
}

#[tokio::test]
async fn a_completed_job_goes_on_to_a_new_end_and_an_unfinished_one_keeps_its_own() {
    let bids = Bids::new(1);
    bids.produce(0, values(0..5));
    let chain = chain_of(bids.source().stop(StopOffsets::Latest).build().unwrap());
    let pinned = chain.resolve(None).await.unwrap();
    bids.produce(0, values(5..9));
    let first = read(&chain, Some(pinned), ReadOptions::default()).await.whole();
    assert_eq!(first.ids(), all(0..5));
    let second = read(&chain, Some(first.checkpoint), ReadOptions::default()).await.whole();
    assert_eq!(second.ids(), all(5..9));

    // It can become an endless one.
    bids.produce(0, values(9..12));
    let endless = chain_of(bids.source().build().unwrap());
    let options = ReadOptions { limit: Some(3), ..ReadOptions::default() };
    assert_eq!(read(&endless, Some(second.checkpoint), options).await.whole().ids(), all(9..12));
}

/// A paused reader, whose client has seen the end of the partition in between, misses nothing.
#[tokio::test]
async fn messages_that_come_after_an_end_under_back_pressure_all_arrive() {
    let bids = Bids::new(1);
    bids.produce(0, values(0..2000));
    let chain = chain_of(bids.source().build().unwrap());
    let options = ReadOptions { batch_rows: 10, num_threads: 1, memory_bytes: 1 << 20, ..ReadOptions::default() };
    let mut stream = chain.open(chain.resolve(None).await.unwrap(), options).unwrap();
    let mut seen = Vec::new();
    for round in 0..20 {
        seen.extend(take(&mut stream, 50).await);
        // The window is full, and the queue behind it.
        let first = 2000 + round * 300;
        bids.produce(0, values(first..first + 300));
    }
    seen.extend(take(&mut stream, 8000 - seen.len()).await);
    assert_eq!(seen, all(0..8000));
}

/// Reads on until at least `rows` rows came.
async fn take(stream: &mut HybridStream, rows: usize) -> Vec<i64> {
    let mut seen = Vec::new();
    while seen.len() < rows {
        let item = tokio::time::timeout(Duration::from_secs(20), stream.next()).await.expect("rows come");
        let batch = item.unwrap().unwrap().item.into_batch();
        seen.extend(lines(&batch).iter().map(|line| line.split('|').next().unwrap().parse::<i64>().unwrap()));
    }
    seen
}

async fn fault(source: KafkaSourceBuilder) -> String {
    let chain = chain_of(source.build().unwrap());
    match chain.resolve(None).await {
        Err(error) => told(&error),
        Ok(_) => read(&chain, None, ReadOptions::default()).await.error.map_or_else(|| "no fault".into(), |e| told(&e)),
    }
}

#[tokio::test]
async fn offsets_outside_the_log_are_an_error_before_anything_is_read() {
    let bids = Bids::new(2);
    bids.produce(0, values(0..5));
    let at = |text| bids.source().start(StartOffsets::from(offsets(text))).stop(StopOffsets::Latest);
    assert_eq!(
        fault(at("partition:0,offset:6;partition:1,offset:0")).await,
        "bids/0: offset 6 is wanted, and the log has 0 up to 5"
    );
    assert_eq!(
        fault(at("partition:0,offset:5")).await,
        "option 'scan.startup.specific-offsets': it names no offset for partition 1 of bids"
    );
    assert_eq!(
        fault(at("partition:0,offset:5;partition:1,offset:0;partition:7,offset:0")).await,
        "option 'scan.startup.specific-offsets': bids has no partition 7; it has 2 of them"
    );
    // A plan tells it instead.
    let plan = at("partition:0,offset:6;partition:1,offset:0").on_gap(OnGap::Tell).build().unwrap();
    assert_eq!(position(&chain_of(plan).resolve(None).await.unwrap(), "bids/0"), 6);
}

#[tokio::test]
async fn a_topic_that_is_not_there_names_similar_ones() {
    let bids = Bids::new(1);
    let address = format!("kafka://{}/bidz", bids.topic.bootstrap()).parse().unwrap();
    let error = fault(KafkaSource::builder(&address)).await;
    assert!(error.ends_with(": there is no topic bidz; there is bids"), "{error}");
}

#[tokio::test]
async fn no_broker_is_an_error_that_says_where_it_tried() {
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("kafka://127.0.0.1:{port}/bids").parse().unwrap();
    let error = fault(KafkaSource::builder(&address)).await;
    assert!(error.starts_with(&format!("127.0.0.1:{port}: cannot reach the cluster: ")), "{error}");
    assert!(error.contains("Connection refused"), "{error}");
}

/// CASES 25 and 30: one message is one record, and a bad one harms nobody else.
#[tokio::test]
async fn a_bad_message_is_an_error_with_its_place_and_those_before_it_arrive() {
    for (format, good, bad, why) in [
        (Format::Csv, "1,a", "x7,b", "column id: 'x7' is not a BIGINT"),
        (Format::Csv, "1,a", "2,\"b", ""),
        (Format::Csv, "1,a", "2,b\n3,c", ""),
        (Format::Csv, "1,a", "", ""),
        (Format::Csv, "1,a", "2", ""),
        (Format::Json, r#"{"id":1}"#, r#"{"id":2"#, ""),
        (Format::Json, r#"{"id":1}"#, r#"{"id":2}{"id":3}"#, ""),
        (Format::Json, r#"{"id":1}"#, r#"[{"id":2}]"#, ""),
        (Format::Json, r#"{"id":1}"#, "", ""),
        (Format::Json, r#"{"id":1}"#, r#"{"id":"x"}"#, "column id: "),
    ] {
        let bids = Bids::new(1);
        bids.produce(0, [good, good, bad, good]);
        let source = bids.source().format(format).stop(StopOffsets::Latest).build().unwrap();
        let Read { batches, error, checkpoint } = read(&chain_of(source), None, ReadOptions::default()).await;
        let error = told(&error.unwrap_or_else(|| panic!("{bad:?} is bad")));
        assert!(error.starts_with("bids/0 offset 2"), "{bad:?}: {error}");
        assert!(error.contains(why), "{bad:?}: {error}");
        assert_eq!(batches.iter().map(|batch| batch.num_rows()).sum::<usize>(), 2, "{bad:?}");
        assert_eq!(position(&checkpoint, "bids/0"), 2);
    }
}

#[tokio::test]
async fn large_messages_pass_within_a_small_memory() {
    let bids = Bids::new(1);
    let text = "x".repeat(900_000);
    for id in 0..4 {
        bids.produce(0, [format!("{id},{text}")]);
    }
    let chain = chain_of(bids.source().stop(StopOffsets::Latest).build().unwrap());
    let options = ReadOptions { memory_bytes: 1 << 20, ..ReadOptions::default() };
    assert_eq!(read(&chain, None, options).await.whole().ids(), all(0..4));
}

#[tokio::test]
async fn a_message_has_its_provenance() {
    let bids = Bids::new(1);
    let headers = rdkafka::message::OwnedHeaders::new()
        .insert(rdkafka::message::Header { key: "a", value: Some("1") })
        .insert(rdkafka::message::Header::<&str> { key: "a", value: None });
    let record = BaseRecord::to("bids").key("k").payload("1,a").timestamp(1_700_000_000_123).headers(headers);
    let producer: BaseProducer = ClientConfig::new().set("bootstrap.servers", bids.topic.bootstrap()).create().unwrap();
    producer.send(record).map_err(|(e, _)| e).unwrap();
    producer.flush(Duration::from_secs(10)).unwrap();
    bids.produce(0, ["2,b"]);
    let source = bids.source().stop(StopOffsets::Latest).build().unwrap();
    let columns = [
        Provenance::Source,
        Provenance::Phase,
        Provenance::Split,
        Provenance::Position,
        Provenance::Path,
        Provenance::Topic,
        Provenance::Partition,
        Provenance::Offset,
        Provenance::Key,
        Provenance::Headers,
        Provenance::Timestamp,
    ];
    let chain = HybridSource::builder().source(source).provenance(columns).build().unwrap();
    let lines = read_all(&chain).await.lines();
    assert_eq!(
        lines[0],
        "1|a|live|unbounded|bids/0|0|null|bids|0|0|6b|[{key: a, value: 31}, {key: a, value: null}]|2023-11-14T22:13:20.123Z"
    );
    assert!(lines[1].starts_with("2|b|live|unbounded|bids/0|1|null|bids|0|1|null|[]|"), "{}", lines[1]);
}

/// Dropped streams leave no thread behind, nor the client's.
#[tokio::test]
async fn a_hundred_streams_that_were_dropped_leave_no_thread() {
    let bids = Bids::new(1);
    bids.produce(0, values(0..100));
    let chain = chain_of(bids.source().build().unwrap());
    let pinned = chain.resolve(None).await.unwrap();
    let open = async || {
        let options = ReadOptions { num_threads: 1, ..ReadOptions::default() };
        let mut stream = chain.open(pinned.clone(), options).unwrap();
        assert_eq!(take(&mut stream, 100).await.len(), 100);
    };
    open().await;
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    let num_threads = || {
        std::fs::read_dir("/proc/self/task")
            .unwrap()
            .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
            .filter(|name| name.starts_with("segue-kafka"))
            .count()
    };
    for _ in 0..100 {
        open().await;
    }
    // Other tests have streams of their own; those of this one end soon.
    while num_threads() > 40 {
        assert!(std::time::Instant::now() < deadline, "{} threads are left", num_threads());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn what_no_message_can_be_is_refused_when_the_source_is_built() {
    let address: KafkaAddress = "kafka://localhost/bids".parse().unwrap();
    let told = |builder: KafkaSourceBuilder| builder.build().unwrap_err().to_string();
    assert!(told(KafkaSource::builder(&address).format(Format::Parquet)).contains("messages can't be parquet"));
    assert!(told(KafkaSource::builder(&address).format(Format::Csv)).contains("give a schema"));
    assert!(told(KafkaSource::builder(&address).property("group.instance.id", "x")).contains("it can't be set"));
    let source = KafkaSource::builder(&address).secret_property("client.id", "geheim").build().unwrap();
    assert!(!format!("{source:?}").contains("geheim"));
}

/// A source before the last must have an end, and the error names the option.
#[test]
fn an_endless_topic_before_the_last_is_refused() {
    let address: KafkaAddress = "kafka://localhost/bids".parse().unwrap();
    let source = KafkaSource::builder(&address).name("k").format(Format::Csv).schema(schema()).build().unwrap();
    let error = HybridSource::builder().source(source).source(memory("m", 0..1)).build().unwrap_err().to_string();
    assert!(error.contains("scan.bounded.mode is unbounded"), "{error}");
}

/// A log that ends before what was read of it is another log, also for a job that wants nothing more of it.
#[tokio::test]
async fn a_topic_that_is_shorter_than_what_was_read_of_it_is_an_error_also_for_a_completed_job() {
    let bids = Bids::new(1);
    bids.produce(0, values(0..5));
    let chain = chain_of(bids.source().stop(StopOffsets::Latest).build().unwrap());
    let done = read(&chain, None, ReadOptions::default()).await.whole().checkpoint;
    assert!(done.is_done());
    // The same topic, made anew in another cluster.
    let shorter = Bids::new(1);
    shorter.produce(0, values(0..3));
    let again = chain_of(shorter.source().stop(StopOffsets::Latest).build().unwrap());
    let error = again.resolve(Some(done)).await.unwrap_err();
    assert_eq!(error.to_string(), "bids/0: offset 5 is wanted, and the log has 0 up to 3");
}

#[tokio::test]
async fn any_memory_can_be_given() {
    let bids = Bids::new(1);
    bids.produce(0, values(0..5));
    let chain = chain_of(bids.source().stop(StopOffsets::Latest).build().unwrap());
    for memory_bytes in [1, 1 << 20, 17 << 30, 1 << 40] {
        let options = ReadOptions { memory_bytes, ..ReadOptions::default() };
        assert_eq!(read(&chain, None, options).await.whole().ids(), all(0..5), "{memory_bytes}");
    }
}
