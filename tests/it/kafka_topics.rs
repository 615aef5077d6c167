//! Several topics, patterns, groups and defaults, on librdkafka's embedded broker.

use std::time::{Duration, Instant};

use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::{Offset, TopicPartitionList};
use segue::checkpoint::Splits;
use segue::format::Format;
use segue::hybrid::ReadOptions;
use segue::kafka::{DefaultStart, KafkaSource, KafkaSourceBuilder, StartOffsets, StopOffsets};
use segue::source::Source;
use serde_json::json;

use crate::common::{chain_of, read, read_all, schema, told};
use crate::topic::{PATIENCE, Topic};

struct Cluster(MockCluster<'static, DefaultProducerContext>);

impl Cluster {
    fn new() -> Self {
        Self(MockCluster::new(1).unwrap())
    }

    fn topic(&self, name: &str, num_partitions: i32) -> Topic {
        self.0.create_topic(name, num_partitions, 1).unwrap();
        Topic::of(&self.0.bootstrap_servers(), name.into(), num_partitions)
    }

    fn source(&self, topics: &str) -> KafkaSourceBuilder {
        let address = format!("kafka://{}{topics}", self.0.bootstrap_servers());
        KafkaSource::builder(&address.parse().unwrap()).name("live").format(Format::Csv).schema(schema())
    }

    /// A plain consumer of the group `g`.
    fn member(&self) -> BaseConsumer {
        ClientConfig::new().set("bootstrap.servers", self.0.bootstrap_servers()).set("group.id", "g").create().unwrap()
    }
}

fn produce(topic: &Topic, partition: i32, ids: std::ops::Range<i64>) {
    topic.produce_values(ids.map(|id| (partition, format!("{id},n"))));
}

async fn sorted(source: KafkaSourceBuilder) -> Vec<i64> {
    let mut ids = read_all(&chain_of(source.stop(StopOffsets::Latest).build().unwrap())).await.ids();
    ids.sort_unstable();
    ids
}

#[tokio::test]
async fn topics_are_named_or_taken_by_a_pattern() {
    let cluster = Cluster::new();
    let (bids, asks, other) = (cluster.topic("bids", 2), cluster.topic("asks", 1), cluster.topic("my-bids", 1));
    produce(&bids, 0, 0..2);
    produce(&bids, 1, 2..4);
    produce(&asks, 0, 10..12);
    produce(&other, 0, 20..22);
    assert_eq!(sorted(cluster.source("/bids,asks")).await, [0, 1, 2, 3, 10, 11]);
    assert_eq!(sorted(cluster.source("").topic_pattern("bids|asks")).await, [0, 1, 2, 3, 10, 11]);
    assert_eq!(sorted(cluster.source("").topic_pattern(".*")).await, [0, 1, 2, 3, 10, 11, 20, 21]);
    let none = cluster.source("").topic_pattern("b").build().unwrap();
    let error = told(&chain_of(none).resolve(None).await.unwrap_err());
    assert!(error.ends_with(": no topic matches b; there are 3 others"), "{error}");
}

/// CASE 18: it is read from its beginning, though the start was the end.
#[tokio::test]
async fn a_topic_that_is_made_later_is_found_and_another_time_taken_up_at_the_next_start() {
    let cluster = Cluster::new();
    let first = cluster.topic("bids-1", 1);
    produce(&first, 0, 0..3);
    let source = cluster.source("").topic_pattern("bids-[0-9]").start(StartOffsets::Latest);
    let chain = chain_of(source.clone().discovery_interval(Duration::from_millis(50)).build().unwrap());
    let mut stream = chain.open(chain.resolve(None).await.unwrap(), ReadOptions::default()).unwrap();
    let second = cluster.topic("bids-2", 2);
    produce(&second, 1, 10..13);
    let mut ids = Vec::new();
    while ids.len() < 3 {
        let item = tokio::time::timeout(PATIENCE, stream.next()).await.unwrap().unwrap().unwrap().item;
        let column = item.batch().column(0);
        ids.extend(arrow::array::AsArray::as_primitive::<arrow::datatypes::Int64Type>(column).values().to_vec());
    }
    assert_eq!(ids, [10, 11, 12]);
    let checkpoint = stream.checkpoint().clone();
    drop(stream);

    produce(&cluster.topic("bids-3", 1), 0, 20..22);
    produce(&second, 1, 13..14);
    let never = source.discovery_interval(Duration::ZERO).stop(StopOffsets::Latest).build().unwrap();
    let mut ids = read(&chain_of(never), Some(checkpoint), ReadOptions::default()).await.whole().ids();
    ids.sort_unstable();
    assert_eq!(ids, [13, 20, 21]);
}

/// CASE 21: a partition that isn't named begins at the default, or is an error.
#[tokio::test]
async fn a_partition_that_the_offsets_leave_out_begins_at_the_default() {
    let cluster = Cluster::new();
    let bids = cluster.topic("bids", 2);
    produce(&bids, 0, 0..3);
    produce(&bids, 1, 10..13);
    let at = |default| {
        let offsets = "partition:1,offset:2".parse().unwrap();
        cluster.source("/bids").start(StartOffsets::At { offsets, default })
    };
    assert_eq!(sorted(at(Some(DefaultStart::Earliest))).await, [0, 1, 2, 12]);
    assert_eq!(sorted(at(Some(DefaultStart::Latest))).await, [12]);
    let error = told(&chain_of(at(None).build().unwrap()).resolve(None).await.unwrap_err());
    assert_eq!(error, "option 'scan.startup.specific-offsets': it names no offset for partition 0 of bids");
}

#[tokio::test]
async fn a_group_begins_where_it_has_committed_and_is_told_how_far_the_job_is() {
    let cluster = Cluster::new();
    let bids = cluster.topic("bids", 2);
    produce(&bids, 0, 0..5);
    produce(&bids, 1, 10..13);
    let mut list = TopicPartitionList::new();
    list.add_partition_offset("bids", 0, Offset::Offset(3)).unwrap();
    cluster.member().commit(&list, CommitMode::Sync).unwrap();
    let source = |default| {
        let start = StartOffsets::Group { default };
        cluster.source("/bids").property("group.id", "g").start(start).stop(StopOffsets::Latest)
    };
    let error = told(&chain_of(source(None).build().unwrap()).resolve(None).await.unwrap_err());
    assert!(error.contains("group g has committed nothing of bids/1"), "{error}");
    let built = source(Some(DefaultStart::Earliest)).build().unwrap();
    let all = read_all(&chain_of(built.clone())).await;
    let mut ids = all.ids();
    ids.sort_unstable();
    assert_eq!(ids, [3, 4, 10, 11, 12]);
    let state = &all.checkpoint.sources[0];
    built.committed(state);
    let began = Instant::now();
    let asked = || {
        let mut list = TopicPartitionList::new();
        list.add_partition_range("bids", 0, 1);
        let committed = cluster.member().committed_offsets(list, PATIENCE).unwrap();
        committed.elements().iter().map(|element| element.offset()).collect::<Vec<_>>()
    };
    while asked() != [Offset::Offset(5), Offset::Offset(3)] {
        assert!(began.elapsed() < PATIENCE, "{:?}", asked());
    }
}

/// They guard the position: one that can't be read must not pass for none.
#[tokio::test]
async fn damaged_guards_of_a_position_are_an_error() {
    let cluster = Cluster::new();
    let bids = cluster.topic("bids", 1);
    produce(&bids, 0, 0..3);
    let chain = chain_of(cluster.source("/bids").stop(StopOffsets::Latest).build().unwrap());
    let checkpoint = read_all(&chain).await.checkpoint;
    for (key, value) in [("topic_id", json!(7)), ("leader_epoch", json!("x")), ("leader_epoch", json!(1_u64 << 40))] {
        let mut damaged = checkpoint.clone();
        let Splits::SideBySide(splits) = &mut damaged.sources[0].splits else { panic!("{damaged:?}") };
        splits.values_mut().next().unwrap().identity.other.insert(key.into(), value);
        let error = told(&chain.resolve(Some(damaged)).await.unwrap_err());
        assert_eq!(error, format!("split bids/0: its {key} in the checkpoint is damaged"));
    }
}

#[test]
fn what_does_not_go_together_is_refused() {
    let cluster = Cluster::new();
    for (source, fault) in [
        (cluster.source(""), "option 'topic': no topic is named; write kafka://HOST/TOPIC, or set topic-pattern"),
        (cluster.source("/a").topic_pattern("b"), "option 'topic-pattern': the topics are named already: a"),
        (cluster.source("").topic_pattern("("), "option 'topic-pattern': it is no regular expression: unclosed group"),
        (
            cluster.source("/a").start(StartOffsets::Group { default: None }),
            "option 'scan.startup.mode': group-offsets needs properties.group.id beside it",
        ),
    ] {
        assert_eq!(source.build().unwrap_err().to_string(), fault);
    }
}
