//! Rows into a topic, on an embedded broker, read back by a plain client.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use segue::checkpoint::{Advance, Checkpoint, RowPositions};
use segue::error::Error;
use segue::kafka::KafkaAddress;
use segue::sink::{KafkaSink, KafkaSinkBuilder, MessageFormat, Sink};
use segue::source::{ChainBatch, SourceBatch};

use crate::common::{ids, named, told};

/// How long a test waits for what must come; reached only if it never comes.
const DEADLINE: Duration = Duration::from_secs(60);

/// An embedded broker.
struct Broker {
    cluster: MockCluster<'static, DefaultProducerContext>,
}

impl Broker {
    fn start() -> Self {
        Self { cluster: MockCluster::new(1).unwrap() }
    }

    /// With the topic `t` of so many partitions.
    fn with_topic(partitions: i32) -> Self {
        let broker = Self::start();
        broker.cluster.create_topic("t", partitions, 1).unwrap();
        broker
    }

    fn url(&self) -> String {
        format!("kafka://{}/t", self.cluster.bootstrap_servers())
    }

    fn sink(&self) -> KafkaSinkBuilder {
        let address: KafkaAddress = self.url().parse().unwrap();
        KafkaSink::builder(&address)
    }

    fn consumer(&self) -> BaseConsumer {
        ClientConfig::new()
            .set("bootstrap.servers", self.cluster.bootstrap_servers())
            .set("group.id", "test")
            .set("enable.partition.eof", "true")
            .create()
            .unwrap()
    }

    /// Every value of the topic, by partition, in order.
    fn values(&self) -> BTreeMap<i32, Vec<String>> {
        let consumer = self.consumer();
        let metadata = consumer.fetch_metadata(Some("t"), DEADLINE).unwrap();
        let mut values: BTreeMap<i32, Vec<String>> =
            metadata.topics()[0].partitions().iter().map(|partition| (partition.id(), Vec::new())).collect();
        read_from_the_beginning(&consumer, values.keys().copied());
        let began = Instant::now();
        let mut ended = 0;
        while ended < values.len() {
            assert!(began.elapsed() < DEADLINE, "only {ended} partitions were read");
            match consumer.poll(Duration::from_millis(100)) {
                None => {}
                Some(Err(KafkaError::PartitionEOF(_))) => ended += 1,
                Some(message) => {
                    let message = message.unwrap();
                    assert_eq!(message.key(), None);
                    let value = String::from_utf8(message.payload().unwrap().to_vec()).unwrap();
                    values.get_mut(&message.partition()).unwrap().push(value);
                }
            }
        }
        values
    }

    /// The values of a topic of one partition.
    fn lines(&self) -> Vec<String> {
        let mut values = self.values();
        assert_eq!(values.len(), 1, "it has one partition");
        values.remove(&0).unwrap()
    }
}

fn read_from_the_beginning(consumer: &BaseConsumer, partitions: impl Iterator<Item = i32>) {
    let mut assignment = TopicPartitionList::new();
    for partition in partitions {
        assignment.add_partition_offset("t", partition, Offset::Beginning).unwrap();
    }
    consumer.assign(&assignment).unwrap();
}

fn item(batch: RecordBatch) -> ChainBatch {
    let num_rows = batch.num_rows();
    let advance = Advance::new("a".into(), 0, num_rows as u64);
    let rows = RowPositions::consecutive(0, num_rows);
    ChainBatch { source: 0, item: SourceBatch::try_new(batch, rows, vec![advance]).unwrap() }
}

async fn write(sink: &mut KafkaSink, range: std::ops::Range<i64>) -> Result<(), Error> {
    sink.write(&item(ids(range))).await
}

async fn commit(sink: &mut KafkaSink) -> Result<(), Error> {
    sink.commit(&Checkpoint::default()).await
}

/// As CSV, what [`ids`] makes.
fn csv(ids: impl IntoIterator<Item = i64>) -> Vec<String> {
    ids.into_iter().map(|id| if id % 5 == 4 { format!("{id},") } else { format!("{id},n{id}") }).collect()
}

#[tokio::test]
async fn rows_arrive_once_each_and_in_order() {
    let broker = Broker::with_topic(1);
    let mut sink = broker.sink().build().unwrap();
    assert_eq!(sink.recover().await.unwrap(), None);
    commit(&mut sink).await.unwrap();
    for batch in 0..20 {
        write(&mut sink, batch * 1000..(batch + 1) * 1000).await.unwrap();
    }
    commit(&mut sink).await.unwrap();
    assert_eq!(broker.lines(), csv(0..20_000), "a commit returns when every row has arrived");
    write(&mut sink, 20_000..20_001).await.unwrap();
    sink.close().await.unwrap();
    assert_eq!(broker.lines().len(), 20_001, "what wasn't committed reaches those who read along");
}

#[tokio::test]
async fn json_values_are_objects_without_a_line_end() {
    let broker = Broker::with_topic(1);
    let mut sink = broker.sink().format(MessageFormat::Json).build().unwrap();
    write(&mut sink, 3..5).await.unwrap();
    commit(&mut sink).await.unwrap();
    assert_eq!(broker.lines(), [r#"{"id":3,"name":"n3"}"#, r#"{"id":4,"name":null}"#]);
}

#[tokio::test]
async fn rows_keep_their_order_in_each_of_several_partitions() {
    let broker = Broker::with_topic(3);
    // One batch of messages may take all that a test writes; without lingering there are several.
    let mut sink = broker.sink().property("sticky.partitioning.linger.ms", "0").build().unwrap();
    for batch in 0..10 {
        write(&mut sink, batch * 100..(batch + 1) * 100).await.unwrap();
    }
    commit(&mut sink).await.unwrap();
    let values = broker.values();
    let id = |value: &String| value.split(',').next().unwrap().parse::<i64>().unwrap();
    let mut all: Vec<i64> = Vec::new();
    for (partition, values) in &values {
        let ids: Vec<i64> = values.iter().map(id).collect();
        assert!(!ids.is_empty() && ids.is_sorted(), "partition {partition}: {ids:?}");
        all.extend(ids);
    }
    all.sort_unstable();
    assert_eq!(all, (0..1000).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_topic_that_is_not_there_is_made() {
    let broker = Broker::start();
    let mut sink = broker.sink().partitions(NonZeroU16::new(2).unwrap()).build().unwrap();
    sink.recover().await.unwrap();
    write(&mut sink, 0..10).await.unwrap();
    commit(&mut sink).await.unwrap();
    // The embedded broker can't be told how many partitions to make.
    assert_eq!(broker.values().into_values().flatten().count(), 10);
}

#[tokio::test]
async fn a_full_queue_makes_the_writer_wait_and_drops_nothing() {
    let broker = Broker::with_topic(1);
    broker.cluster.broker_round_trip_time(1, Duration::from_millis(20)).unwrap();
    // An eighth of it is for values: 2 kB, some hundred rows.
    let mut sink = broker.sink().memory_bytes(8 << 10).build().unwrap();
    assert_eq!(sink.reserved_bytes(), 8 << 10);
    write(&mut sink, 0..2000).await.unwrap();
    commit(&mut sink).await.unwrap();
    assert_eq!(broker.lines(), csv(0..2000));
}

#[tokio::test]
async fn what_fails_for_a_moment_is_sent_again_without_a_repeat() {
    let broker = Broker::with_topic(1);
    let mut sink = broker.sink().property("retry.backoff.ms", "1").build().unwrap();
    sink.recover().await.unwrap();
    let not_leader = RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION;
    let lost = RDKafkaRespErr::RD_KAFKA_RESP_ERR__TRANSPORT;
    broker.cluster.request_errors(RDKafkaApiKey::Produce, &[not_leader, lost, not_leader]);
    for batch in 0..10 {
        write(&mut sink, batch * 100..(batch + 1) * 100).await.unwrap();
    }
    commit(&mut sink).await.unwrap();
    assert_eq!(broker.lines(), csv(0..1000));
}

#[tokio::test]
async fn a_row_that_is_refused_is_an_error_and_the_sink_is_of_no_further_use() {
    let broker = Broker::with_topic(1);
    let mut sink = broker.sink().build().unwrap();
    sink.recover().await.unwrap();
    let refused = RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
    broker.cluster.request_errors(RDKafkaApiKey::Produce, &[refused; 8]);
    write(&mut sink, 7..8).await.unwrap();
    let error = commit(&mut sink).await.unwrap_err();
    assert!(matches!(error, Error::Output { .. }), "{error:?}");
    assert_eq!(
        told(&error),
        format!(
            "{}: cannot write: partition 0: a row of 4 bytes was not delivered: \
             TopicAuthorizationFailed (Broker: Topic authorization failed)",
            broker.url()
        )
    );
    broker.cluster.clear_request_errors(RDKafkaApiKey::Produce);
    write(&mut sink, 8..9).await.unwrap_err();
    commit(&mut sink).await.unwrap_err();
    drop(sink);
    assert!(broker.lines().is_empty());
}

#[tokio::test]
async fn a_row_too_large_for_a_message_or_for_the_memory_names_its_size() {
    let broker = Broker::with_topic(1);
    let mut sink = broker.sink().property("message.max.bytes", "1000").build().unwrap();
    let large = item(named(&"x".repeat(3000)));
    sink.write(&large).await.unwrap();
    let error = commit(&mut sink).await.unwrap_err();
    assert!(matches!(error, Error::Output { .. }), "{error:?}");
    assert_eq!(
        told(&error),
        format!(
            "{}: cannot write: a row of 3002 bytes is too large for a message; \
             sink.properties.message.max.bytes allows 1000",
            broker.url()
        )
    );

    let mut sink = broker.sink().memory_bytes(8 << 10).build().unwrap();
    sink.write(&large).await.unwrap();
    let error = commit(&mut sink).await.unwrap_err();
    let Error::Memory { needed_bytes, allowed_bytes, .. } = error else { panic!("{error:?}") };
    assert_eq!((needed_bytes, allowed_bytes), (3002, 2048));
}

#[tokio::test]
async fn a_drop_ends_the_thread_though_no_broker_answers() {
    let broker = Broker::with_topic(1);
    let mut sink = broker.sink().memory_bytes(8 << 10).build().unwrap();
    sink.recover().await.unwrap();
    broker.cluster.broker_down(1).unwrap();
    // Far more than fits: the thread waits for room, which there never will be.
    write(&mut sink, 0..2000).await.unwrap();
    drop(sink);
    broker.cluster.broker_up(1).unwrap();
    assert!(broker.lines().len() < 2000);
}

#[tokio::test]
async fn a_broker_that_is_not_there_is_told_with_its_address() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let address: KafkaAddress = format!("kafka://{closed}/t").parse().unwrap();
    let mut sink = KafkaSink::builder(&address).build().unwrap();
    let error = sink.recover().await.unwrap_err();
    assert!(matches!(error, Error::Kafka { .. }), "{error:?}");
    let told = told(&error);
    assert!(told.starts_with(&format!("kafka://{closed}/t: cannot reach a broker: {closed}/bootstrap: ")), "{told}");
    assert!(told.contains("Connection refused"), "{told}");
}

#[test]
fn settings_that_delivery_relies_on_and_several_topics_are_refused() {
    let address: KafkaAddress = "kafka://h/t".parse().unwrap();
    for (key, value, why) in [
        ("acks", "1", "it can't be set: a row is safe when every replica in sync has it"),
        ("enable.idempotence", "false", "it can't be set: rows are neither repeated nor overtaken"),
        ("sasl.jaas.config", "x", "librdkafka has sasl.username and sasl.password"),
        ("linger.mss", "1", "No such configuration property"),
    ] {
        let error = KafkaSink::builder(&address).secret_property(key, value).check().unwrap_err();
        let Error::InvalidOption { key: told_key, reason } = error else { panic!("{error:?}") };
        assert_eq!(told_key, format!("sink.properties.{key}"));
        assert!(reason.contains(why) || key == "linger.mss", "{reason}");
    }
    let several: KafkaAddress = "kafka://h/a,b".parse().unwrap();
    let error = KafkaSink::builder(&several).build().unwrap_err();
    assert_eq!(error.to_string(), "option 'kafka://h:9092/a,b': it names several topics, and rows go into one");
    let settings = format!("{:?}", KafkaSink::builder(&address).secret_property("client.rack", "geheim"));
    assert!(!settings.contains("geheim"), "{settings}");
}
