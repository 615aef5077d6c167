//! What messages may be, and what is seen of them: without a value, with headers, with the broker's own time.

use std::time::{SystemTime, UNIX_EPOCH};

use rdkafka::ClientConfig;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use segue::format::Format;
use segue::hybrid::HybridSource;
use segue::kafka::{KafkaSource, StopOffsets, Tombstones};
use segue::schema::Provenance;
use segue::testing::Suite;

use super::{bootstrap, topic};
use crate::common::{chain_of, read_all, schema};
use crate::topic::{PATIENCE, Topic};

fn source(topic: &Topic, tombstones: Tombstones) -> KafkaSource {
    let builder = KafkaSource::builder(&topic.address().parse().unwrap()).format(Format::Csv).schema(schema());
    builder.stop(StopOffsets::Latest).tombstones(tombstones).build().unwrap()
}

/// CASES 15 and 31, with compaction's own kind of message and a marker behind the last.
#[tokio::test]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn tombstones_as_rows_conform_between_markers_and_end_a_bounded_read() {
    let topic = topic("null-rows", 1).await;
    let writer = topic.writer(&[("transactional.id", topic.name())]);
    topic.produce(0, Some("a"), Some("0,n0"), None);
    topic.produce(0, Some("a"), None, None);
    writer.init_transactions();
    writer.begin([(0, "3,n3".to_owned())]);
    writer.commit();
    topic.produce(0, Some("b"), None, None);
    writer.begin([(0, "5,n5".to_owned())]);
    writer.abort();
    let chain = |tombstones| {
        let columns = [Provenance::Offset, Provenance::Key];
        HybridSource::builder().source(source(&topic, tombstones)).provenance(columns).build().unwrap()
    };
    let read = read_all(&chain(Tombstones::NullRow)).await;
    assert_eq!(read.lines(), ["0|n0|0|61", "null|null|1|61", "3|n3|2|null", "null|null|4|62"]);
    assert!(read.checkpoint.is_done());
    assert_eq!(read_all(&chain(Tombstones::Skip)).await.lines(), ["0|n0|0|61", "3|n3|2|null"]);
    let suite = Suite::new(chain_of(source(&topic, Tombstones::NullRow))).with_max_cuts(5);
    tokio::time::timeout(2 * PATIENCE, suite.run()).await.expect("the suite ends").unwrap();
}

#[tokio::test]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn headers_keep_their_order_duplicates_and_nulls() {
    let topic = topic("headers", 1).await;
    let header = |key, value| Header::<&[u8]> { key, value };
    let headers = OwnedHeaders::new()
        .insert(header("a", Some(b"1")))
        .insert(header("b", None))
        .insert(header("a", Some(b"\xff")))
        .insert(header("", Some(b"")))
        .insert(header("a", None));
    let producer: BaseProducer = ClientConfig::new().set("bootstrap.servers", topic.bootstrap()).create().unwrap();
    let send = |record: BaseRecord<'_, str, str>| producer.send(record).map_err(|(error, _)| error).unwrap();
    send(BaseRecord::to(topic.name()).partition(0).payload("1,a").headers(headers));
    producer.flush(PATIENCE).unwrap();
    topic.produce_values([(0, "2,b".to_owned())]);
    let live = source(&topic, Tombstones::Skip);
    let chain = HybridSource::builder().source(live).provenance([Provenance::Headers]).build().unwrap();
    let of_first =
        "[{key: a, value: 31}, {key: b, value: null}, {key: a, value: ff}, {key: , value: }, {key: a, value: null}]";
    assert_eq!(read_all(&chain).await.lines(), [format!("1|a|{of_first}"), "2|b|[]".to_owned()]);
}

/// `_timestamp` is the topic's own idea of time: the producer's, or the broker's when it appends.
#[tokio::test]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn timestamps_are_the_messages_or_the_brokers_as_the_topic_has_them() {
    let settings = [("message.timestamp.type", "LogAppendTime")];
    let appended = Topic::create_with(&bootstrap(), "append-time", 1, &settings).await;
    let created = topic("create-time", 1).await;
    let before = now_ms();
    for topic in [&appended, &created] {
        topic.produce(0, None, Some("1,a"), Some(1_000));
    }
    let after = now_ms();
    let timestamp = async |topic: &Topic| {
        let live = source(topic, Tombstones::Skip);
        let chain = HybridSource::builder().source(live).provenance([Provenance::Timestamp]).build().unwrap();
        let line = read_all(&chain).await.lines().remove(0);
        let text = line.rsplit('|').next().unwrap().to_owned();
        chrono::DateTime::parse_from_rfc3339(&text).unwrap().timestamp_millis()
    };
    assert_eq!(timestamp(&created).await, 1_000);
    let at_broker = timestamp(&appended).await;
    assert!((before..=after).contains(&at_broker), "{before} {at_broker} {after}");
}

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}
