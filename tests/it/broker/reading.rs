//! The source, through the library: starts, stops, transactions, holes, compression.

use std::time::Instant;

use segue::checkpoint::{Checkpoint, Splits};
use segue::format::Format;
use segue::hybrid::{HybridSource, HybridStream, ReadOptions};
use segue::kafka::{KafkaSource, KafkaSourceBuilder, PartitionOffsets, StartOffsets, StopOffsets};
use segue::testing::Suite;

use super::{BIDS, bid, bids, bootstrap, topic};
use crate::common::{Read, chain_of, ids_in, memory, read, read_all, schema, schema_of, told};
use crate::topic::{PATIENCE, Topic};

/// The topic, from its beginning, without an end.
pub(super) fn live(topic: &Topic) -> KafkaSourceBuilder {
    KafkaSource::builder(&topic.address().parse().unwrap()).name("live").format(Format::Csv).schema(schema_of(BIDS))
}

/// Reads to the end as it is now.
pub(super) async fn read_to_now(source: KafkaSourceBuilder) -> Read {
    read_all(&chain_of(source.stop(StopOffsets::Latest).build().unwrap())).await
}

fn offsets(text: &str) -> PartitionOffsets {
    text.parse().unwrap()
}

fn sorted(read: &Read) -> Vec<i64> {
    let mut ids = read.ids();
    ids.sort_unstable();
    ids
}

/// Where each partition of the last source stands.
pub(super) fn positions(checkpoint: &Checkpoint) -> Vec<u64> {
    match &checkpoint.sources.last().unwrap().splits {
        Splits::SideBySide(splits) => splits.values().map(|split| split.position).collect(),
        splits => panic!("{splits:?}"),
    }
}

/// Reads on until `num_rows` rows came.
pub(super) async fn take(stream: &mut HybridStream, num_rows: usize) -> Vec<i64> {
    let mut ids = Vec::new();
    while ids.len() < num_rows {
        let item = tokio::time::timeout(PATIENCE, stream.next()).await.expect("rows come").unwrap().unwrap();
        ids.extend(ids_in(&item.item.into_batch()));
    }
    ids
}

/// CASE 20: a partition without a message at the time or later, and an empty one, start at their ends.
#[tokio::test]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn a_start_is_where_it_was_asked_for() {
    let topic = topic("starts", 3).await;
    for id in 0..10 {
        topic.produce(0, None, Some(&bid(id)), Some(1_000 + 100 * id));
    }
    for id in 100..105 {
        topic.produce(1, None, Some(&bid(id)), Some(500));
    }
    let from = async |start: StartOffsets| {
        let read = read_to_now(live(&topic).start(start)).await;
        assert_eq!(positions(&read.checkpoint), [10, 5, 0]);
        assert!(read.checkpoint.is_done());
        sorted(&read)
    };
    let all: Vec<i64> = (0..10).chain(100..105).collect();
    assert_eq!(from(StartOffsets::Earliest).await, all);
    assert_eq!(from(StartOffsets::Latest).await, [0; 0]);
    assert_eq!(from(StartOffsets::Timestamp(0)).await, all);
    assert_eq!(from(StartOffsets::Timestamp(1_500)).await, [5, 6, 7, 8, 9]);
    assert_eq!(from(StartOffsets::Timestamp(1_501)).await, [6, 7, 8, 9]);
    assert_eq!(from(StartOffsets::Timestamp(4_000_000_000_000)).await, [0; 0]);
    let offsets = offsets("partition:0,offset:8;partition:1,offset:4;partition:2,offset:0");
    assert_eq!(from(offsets.into()).await, [8, 9, 104]);
}

#[tokio::test]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn a_stop_is_where_it_was_asked_for() {
    let topic = topic("stops", 2).await;
    for id in 0..10 {
        topic.produce(0, None, Some(&bid(id)), Some(1_000 + 100 * id));
    }
    topic.produce_values(bids(1, 100..105));
    let until = async |stop: StopOffsets| {
        let read = read_all(&chain_of(live(&topic).stop(stop).build().unwrap())).await;
        (sorted(&read), positions(&read.checkpoint))
    };
    let all: Vec<i64> = (0..10).chain(100..105).collect();
    assert_eq!(until(StopOffsets::Latest).await, (all, vec![10, 5]));
    assert_eq!(until(StopOffsets::Timestamp(1_300)).await, (vec![0, 1, 2], vec![3, 0]));
    let offsets = "partition:0,offset:1;partition:1,offset:2".parse().unwrap();
    assert_eq!(until(StopOffsets::At(offsets)).await, (vec![0, 100, 101], vec![1, 2]));
}

/// CASE 17: the last offset is a transaction marker, and no message ever has it.
#[tokio::test]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn a_bounded_read_ends_behind_transaction_markers() {
    let topic = topic("markers", 3).await;
    let writer = topic.writer(&[("transactional.id", topic.name())]);
    writer.init_transactions();
    writer.begin(bids(0, 1..=3));
    writer.commit();
    writer.begin(bids(0, 10..20).chain(bids(1, 20..30)));
    writer.abort();
    writer.begin(bids(2, 4..=5));
    writer.commit();
    assert_eq!(topic.end_offsets(), [15, 11, 3]);
    let read = read_to_now(live(&topic)).await;
    assert_eq!(sorted(&read), [1, 2, 3, 4, 5]);
    assert_eq!(positions(&read.checkpoint), topic.end_offsets());
    assert!(read.checkpoint.is_done());

    // Whoever wants to see what was aborted may.
    let read = read_to_now(live(&topic).property("isolation.level", "read_uncommitted")).await;
    assert_eq!(sorted(&read), (1..=5).chain(10..30).collect::<Vec<_>>());
    assert_eq!(positions(&read.checkpoint), topic.end_offsets());
}

/// The end, when only what is committed is read, is the last stable offset; an end of partition before the stop
/// is no end.
#[tokio::test]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn an_open_transaction_holds_back_what_stands_behind_it() {
    let topic = topic("open", 1).await;
    topic.produce_values(bids(0, [1]));
    let writer = topic.writer(&[("transactional.id", topic.name())]);
    writer.init_transactions();
    writer.begin(bids(0, [2]));
    topic.produce_values(bids(0, [3]));
    let before = read_to_now(live(&topic)).await;
    assert_eq!((before.ids(), positions(&before.checkpoint)), (vec![1], vec![1]));

    // A stop behind the open transaction is waited for.
    let stop = StopOffsets::At("partition:0,offset:4".parse().unwrap());
    let chain = chain_of(live(&topic).stop(stop).build().unwrap());
    let mut stream = chain.open(chain.resolve(None).await.unwrap(), ReadOptions::default()).unwrap();
    assert_eq!(take(&mut stream, 1).await, [1]);
    writer.commit();
    assert_eq!(take(&mut stream, 2).await, [2, 3]);
    while let Some(item) = tokio::time::timeout(PATIENCE, stream.next()).await.expect("it ends") {
        assert_eq!(item.unwrap().item.num_rows(), 0);
    }
    assert_eq!(positions(stream.checkpoint()), [4]);
    // What completed goes on to the new end.
    topic.produce_values(bids(0, [4]));
    let next = chain_of(live(&topic).stop(StopOffsets::Latest).build().unwrap());
    let after = read(&next, Some(stream.checkpoint().clone()), ReadOptions::default()).await.whole();
    assert_eq!(after.ids(), [4]);
}

/// CASE 31: tombstones at the end move the position, and so do partitions without any message end.
#[tokio::test]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn tombstones_at_the_end_and_empty_partitions_end_a_bounded_read() {
    let topic = topic("tombstones", 3).await;
    topic.produce(0, Some("a"), Some(&bid(1)), None);
    topic.produce(0, Some("a"), None, None);
    topic.produce(0, Some("b"), None, None);
    topic.produce(1, Some("c"), None, None);
    let read = read_to_now(live(&topic)).await;
    assert_eq!((read.ids(), positions(&read.checkpoint)), (vec![1], vec![3, 1, 0]));
    assert!(read.checkpoint.is_done());
}

#[tokio::test]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn every_compression_is_read() {
    const CODECS: [&str; 5] = ["gzip", "snappy", "lz4", "zstd", "none"];
    const ROWS: i64 = 2_000;
    let topic = topic("compression", CODECS.len() as i32).await;
    for (partition, codec) in CODECS.iter().enumerate() {
        // Waits for others, so that there is something to compress.
        let writer = topic.writer(&[("compression.codec", codec), ("linger.ms", "50")]);
        let first = partition as i64 * ROWS;
        writer.send_values(bids(partition as i32, first..first + ROWS));
        writer.flush();
    }
    let read = read_to_now(live(&topic)).await;
    assert_eq!(sorted(&read), (0..CODECS.len() as i64 * ROWS).collect::<Vec<_>>());
}

/// Retention has taken the first messages: the log's beginning is where it is now, and what is gone is an error.
#[tokio::test]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn what_the_log_has_forgotten_is_an_error_and_never_a_jump() {
    let topic = topic("retention", 1).await;
    topic.produce_values(bids(0, 0..10));
    let three = read(
        &chain_of(live(&topic).build().unwrap()),
        None,
        ReadOptions { limit: Some(3), batch_rows: 1, ..ReadOptions::default() },
    )
    .await
    .whole();
    assert_eq!(positions(&three.checkpoint), [3]);
    topic.delete_before(&[(0, 6)]).await;
    assert_eq!(read_to_now(live(&topic)).await.ids(), [6, 7, 8, 9]);
    let at = live(&topic).start(offsets("partition:0,offset:5").into()).build().unwrap();
    let error = told(&chain_of(at).resolve(None).await.unwrap_err());
    assert_eq!(error, format!("{}: offset 5 is wanted, and the log has 6 up to 10", topic.split(0)));
    let again = chain_of(live(&topic).build().unwrap());
    let error = told(&again.resolve(Some(three.checkpoint)).await.unwrap_err());
    assert_eq!(error, format!("{}: offset 3 is wanted, and the log has 6 up to 10", topic.split(0)));
}

/// Compaction leaves holes: offsets between two messages, and starts that no message has any more.
#[tokio::test]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn a_compacted_log_is_read_over_its_holes() {
    const KEYS: i64 = 5;
    let settings = [("cleanup.policy", "compact"), ("segment.ms", "1"), ("min.cleanable.dirty.ratio", "0.01")];
    let topic = Topic::create_with(&bootstrap(), "compacted", 1, &settings).await;
    // Every message is a segment of its own, and all but the last one are compacted sooner or later.
    for id in 0..30 {
        topic.produce(0, Some(&format!("k{}", id % KEYS)), Some(&bid(id)), None);
    }
    let began = Instant::now();
    let kept = loop {
        let kept: Vec<u64> = topic.read_back()[&0].iter().map(|message| message.offset).collect();
        if kept.len() <= 1 + KEYS as usize {
            break kept;
        }
        assert!(began.elapsed() < PATIENCE, "nothing is compacted: {kept:?}");
    };
    let kept: Vec<i64> = kept.into_iter().map(|offset| offset as i64).collect();
    let all = read_to_now(live(&topic)).await;
    assert_eq!((all.ids(), positions(&all.checkpoint)), (kept.clone(), vec![30]));
    let hole = kept[0] as u64 - 1;
    let start = StartOffsets::from(offsets(&format!("partition:0,offset:{hole}")));
    assert_eq!(read_to_now(live(&topic).start(start)).await.ids(), kept);
}

#[tokio::test]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn a_follower_misses_nothing_that_comes_after_the_end() {
    let topic = topic("follower", 2).await;
    let chain = chain_of(live(&topic).start(StartOffsets::Latest).build().unwrap());
    let mut stream = chain.open(chain.resolve(None).await.unwrap(), ReadOptions::default()).unwrap();
    for id in 0..50 {
        topic.produce_values(bids((id % 2) as i32, [id]));
        assert_eq!(take(&mut stream, 1).await, [id]);
    }
    assert_eq!(positions(stream.checkpoint()), [25, 25]);
}

/// Cut anywhere, also on tombstones, markers and what was aborted, and the rest is what was missing.
#[tokio::test]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn files_then_a_topic_with_holes_conform() {
    let topic = topic("conform", 1).await;
    let writer = topic.writer(&[("transactional.id", topic.name())]);
    writer.init_transactions();
    let rows = |ids: std::ops::Range<i64>| ids.map(|id| (0, format!("{id},n{id}")));
    topic.produce(0, Some("k"), None, None);
    writer.begin(rows(7..10));
    writer.commit();
    writer.begin(rows(90..95));
    writer.abort();
    topic.produce(0, Some("k"), None, None);
    topic.produce_values(rows(10..13));
    writer.begin(rows(13..15));
    writer.commit();
    // Else an end behind a marker is told half a second late, each time.
    let source = live(&topic).schema(schema()).property("fetch.wait.max.ms", "10").stop(StopOffsets::Latest);
    let source = source.build().unwrap();
    let chain = HybridSource::builder().source(memory("0", 0..7)).source(source).build().unwrap();
    assert_eq!(read_all(&chain).await.ids(), (0..15).collect::<Vec<_>>());
    let suite = Suite::new(chain).with_max_cuts(16);
    tokio::time::timeout(4 * PATIENCE, suite.run()).await.expect("the suite ends").unwrap();
}

/// Whoever read what isn't committed stands behind the last stable offset: the log has it, and it is waited for.
#[tokio::test]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn a_position_behind_the_last_stable_offset_is_none_out_of_range() {
    let topic = topic("uncommitted", 1).await;
    let writer = topic.writer(&[("transactional.id", topic.name())]);
    writer.init_transactions();
    writer.begin(bids(0, 0..5));
    assert_eq!(topic.end_offsets(), [0]);
    let uncommitted = live(&topic).property("isolation.level", "read_uncommitted").stop(StopOffsets::Latest);
    let five = read_all(&chain_of(uncommitted.build().unwrap())).await;
    assert_eq!((five.ids(), positions(&five.checkpoint)), (vec![0, 1, 2, 3, 4], vec![5]));
    let chain = chain_of(live(&topic).build().unwrap());
    let mut stream = chain.open(chain.resolve(Some(five.checkpoint)).await.unwrap(), ReadOptions::default()).unwrap();
    writer.commit();
    topic.produce_values(bids(0, 5..7));
    assert_eq!(take(&mut stream, 2).await, [5, 6]);
}
