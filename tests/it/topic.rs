//! Topics for tests, on the mock cluster and on a real broker: made, written, read back.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer, ProducerContext};
use rdkafka::{ClientContext, Offset, TopicPartitionList};

/// Nothing on one machine takes longer, unless it hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A topic that belongs to one test.
#[derive(Debug)]
pub(crate) struct Topic {
    bootstrap: String,
    name: String,
    num_partitions: i32,
    writer: Writer,
}

/// A message as a plain consumer sees it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) offset: u64,
    pub(crate) key: Option<String>,
    pub(crate) value: Option<String>,
    pub(crate) timestamp: Option<i64>,
}

impl Topic {
    /// Makes a topic on a real broker. Its name begins with `name`, and no other topic has it.
    pub(crate) async fn create(bootstrap: &str, name: &str, num_partitions: i32) -> Self {
        Self::create_with(bootstrap, name, num_partitions, &[]).await
    }

    /// As [`Self::create`], with settings of the topic.
    pub(crate) async fn create_with(
        bootstrap: &str,
        name: &str,
        num_partitions: i32,
        settings: &[(&str, &str)],
    ) -> Self {
        let topic = Self::of(bootstrap, unique(name), num_partitions);
        topic.make(TopicReplication::Fixed(1), settings).await;
        topic
    }

    /// As [`Self::create_with`], with the nodes that hold each partition, its first leader first.
    pub(crate) async fn create_on(bootstrap: &str, name: &str, replicas: &[&[i32]], settings: &[(&str, &str)]) -> Self {
        let topic = Self::of(bootstrap, unique(name), replicas.len() as i32);
        topic.make(TopicReplication::Variable(replicas), settings).await;
        topic
    }

    async fn make(&self, replication: TopicReplication<'_>, settings: &[(&str, &str)]) {
        let admin: AdminClient<DefaultClientContext> = config(&self.bootstrap).create().unwrap();
        let topic = NewTopic::new(&self.name, self.num_partitions, replication);
        let topic = settings.iter().fold(topic, |topic, (key, value)| topic.set(key, value));
        for made in admin.create_topics([&topic], &AdminOptions::new()).await.unwrap() {
            made.unwrap_or_else(|(name, code)| panic!("topic {name} can't be made: {code}"));
        }
        self.wait_for_leaders();
    }

    /// Makes a topic of just this name on a real broker; `None` if there is one.
    pub(crate) async fn try_create(bootstrap: &str, name: &str, num_partitions: i32) -> Option<Self> {
        let admin: AdminClient<DefaultClientContext> = config(bootstrap).create().unwrap();
        let topic = NewTopic::new(name, num_partitions, TopicReplication::Fixed(1));
        match admin.create_topics([&topic], &AdminOptions::new()).await.unwrap().remove(0) {
            Ok(_) => {}
            Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => return None,
            Err((name, code)) => panic!("topic {name} can't be made: {code}"),
        }
        let topic = Self::of(bootstrap, name.to_owned(), num_partitions);
        topic.wait_for_leaders();
        Some(topic)
    }

    /// Makes a topic on the mock cluster. Its name begins with `name`, and no other topic has it.
    pub(crate) fn mock(cluster: &MockCluster<'_, DefaultProducerContext>, name: &str, num_partitions: i32) -> Self {
        let name = unique(name);
        cluster.create_topic(&name, num_partitions, 1).unwrap();
        Self::of(&cluster.bootstrap_servers(), name, num_partitions)
    }

    /// A topic of that name, made or not yet.
    pub(crate) fn of(bootstrap: &str, name: String, num_partitions: i32) -> Self {
        let writer = Writer::new(bootstrap, &name, &[]);
        Self { bootstrap: bootstrap.to_owned(), name, num_partitions, writer }
    }

    /// A broker says that a topic is made before it has told itself who leads its partitions.
    pub(crate) fn wait_for_leaders(&self) {
        let began = Instant::now();
        loop {
            let metadata = self.writer.producer.client().fetch_metadata(Some(&self.name), PATIENCE).unwrap();
            let partitions = metadata.topics()[0].partitions();
            if partitions.len() == self.num_partitions as usize && partitions.iter().all(|p| p.leader() >= 0) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "topic {} has no leaders", self.name);
        }
    }

    pub(crate) fn num_partitions(&self) -> i32 {
        self.num_partitions
    }

    /// Waits until this node leads a partition.
    pub(crate) fn wait_for_leader(&self, partition: i32, node: i32) {
        let began = Instant::now();
        loop {
            // While nodes come and go, the one asked may be gone.
            let metadata = self.writer.producer.client().fetch_metadata(Some(&self.name), Duration::from_secs(1));
            let leader = metadata.ok().and_then(|metadata| {
                let partitions = metadata.topics().first()?.partitions();
                Some(partitions.iter().find(|found| found.id() == partition)?.leader())
            });
            if leader == Some(node) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{}: node {node} doesn't lead, {leader:?} does", self.split(partition));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// As the command line takes it.
    pub(crate) fn address(&self) -> String {
        format!("kafka://{}/{}", self.bootstrap, self.name)
    }

    /// The split of a partition, as checkpoints and `_split` call it.
    pub(crate) fn split(&self, partition: i32) -> String {
        format!("{}/{partition}", self.name)
    }

    /// Writes one value of bytes that may be no text, and waits until the broker has it.
    pub(crate) fn produce_bytes(&self, partition: i32, value: &[u8]) {
        self.writer.send_bytes(partition, None, Some(value), None);
        self.writer.flush();
    }

    /// Writes one message and waits until the broker has it. Without a value it is a tombstone.
    pub(crate) fn produce(&self, partition: i32, key: Option<&str>, value: Option<&str>, timestamp: Option<i64>) {
        self.writer.send(partition, key, value, timestamp);
        self.writer.flush();
    }

    /// Writes values without keys, and waits until the broker has them.
    pub(crate) fn produce_values(&self, messages: impl IntoIterator<Item = (i32, String)>) {
        self.writer.send_values(messages);
        self.writer.flush();
    }

    /// Another producer for this topic, with settings of its own.
    pub(crate) fn writer(&self, settings: &[(&str, &str)]) -> Writer {
        Writer::new(&self.bootstrap, &self.name, settings)
    }

    /// Forgets what stands before these offsets, as retention does.
    pub(crate) async fn delete_before(&self, offsets: &[(i32, i64)]) {
        let admin: AdminClient<DefaultClientContext> = config(&self.bootstrap).create().unwrap();
        let mut list = TopicPartitionList::new();
        for (partition, offset) in offsets {
            list.add_partition_offset(&self.name, *partition, Offset::Offset(*offset)).unwrap();
        }
        admin.delete_records(&list, &AdminOptions::new()).await.unwrap();
    }

    /// Where each partition ends, exclusive: at its last stable offset, as readers of what is committed see it.
    pub(crate) fn end_offsets(&self) -> Vec<u64> {
        let client = self.writer.producer.client();
        let end = |partition| client.fetch_watermarks(&self.name, partition, PATIENCE).unwrap().1 as u64;
        (0..self.num_partitions).map(end).collect()
    }

    /// All that is committed, by partition, read with a plain consumer.
    pub(crate) fn read_back(&self) -> BTreeMap<i32, Vec<Seen>> {
        let consumer: BaseConsumer = config(&self.bootstrap)
            // Assigning wants one, though nobody joins it.
            .set("group.id", &self.name)
            .set("enable.auto.commit", "false")
            .set("enable.partition.eof", "true")
            .set("isolation.level", "read_committed")
            .create()
            .unwrap();
        let mut list = TopicPartitionList::new();
        for partition in 0..self.num_partitions {
            list.add_partition_offset(&self.name, partition, Offset::Beginning).unwrap();
        }
        consumer.assign(&list).unwrap();
        let mut seen: BTreeMap<i32, Vec<Seen>> = (0..self.num_partitions).map(|p| (p, Vec::new())).collect();
        let mut num_open = self.num_partitions;
        while num_open > 0 {
            match consumer.poll(PATIENCE) {
                Some(Ok(message)) => seen.entry(message.partition()).or_default().push(Seen {
                    offset: message.offset() as u64,
                    key: message.key().map(text),
                    value: message.payload().map(text),
                    timestamp: message.timestamp().to_millis(),
                }),
                Some(Err(KafkaError::PartitionEOF(_))) => num_open -= 1,
                Some(Err(error)) => panic!("{}: {error}", self.name),
                None => panic!("{}: the broker says nothing", self.name),
            }
        }
        seen
    }
}

/// Writes messages into a topic. What can't be delivered fails the test, at the latest in [`Self::flush`].
pub(crate) struct Writer {
    bootstrap: String,
    topic: String,
    producer: BaseProducer<Deliveries>,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("topic", &self.topic).finish_non_exhaustive()
    }
}

impl Writer {
    fn new(bootstrap: &str, topic: &str, settings: &[(&str, &str)]) -> Self {
        let mut config = config(bootstrap);
        for (key, value) in settings {
            config.set(*key, *value);
        }
        let producer = config.create_with_context(Deliveries::default()).unwrap();
        Self { bootstrap: bootstrap.to_owned(), topic: topic.to_owned(), producer }
    }

    /// Hands one message over; [`Self::flush`] waits until the broker has it.
    pub(crate) fn send(&self, partition: i32, key: Option<&str>, value: Option<&str>, timestamp: Option<i64>) {
        self.send_bytes(partition, key, value.map(str::as_bytes), timestamp);
    }

    fn send_bytes(&self, partition: i32, key: Option<&str>, value: Option<&[u8]>, timestamp: Option<i64>) {
        let mut record = BaseRecord::<str, [u8]>::to(&self.topic).partition(partition);
        (record.key, record.payload, record.timestamp) = (key, value, timestamp);
        while let Err((error, refused)) = self.producer.send(record) {
            assert_eq!(error.rdkafka_error_code(), Some(RDKafkaErrorCode::QueueFull), "{}: {error}", self.topic);
            self.producer.poll(Duration::from_millis(1));
            record = refused;
        }
    }

    pub(crate) fn send_values(&self, messages: impl IntoIterator<Item = (i32, String)>) {
        for (partition, value) in messages {
            self.send(partition, None, Some(&value), None);
        }
    }

    pub(crate) fn flush(&self) {
        self.flush_within(PATIENCE);
    }

    /// As [`Self::flush`], for those whose brokers come and go.
    pub(crate) fn flush_within(&self, patience: Duration) {
        // The producer's own flush takes a tenth of a second, however soon the broker has everything.
        let began = Instant::now();
        while self.producer.in_flight_count() > 0 {
            assert!(began.elapsed() < patience, "{}: the broker doesn't take all messages", self.topic);
            self.producer.poll(Duration::from_millis(1));
        }
        let faults = self.producer.context().faults.lock().unwrap();
        assert!(faults.is_empty(), "{}: {faults:?}", self.topic);
    }

    /// Must be called once, before the first transaction. The writer needs a `transactional.id`.
    pub(crate) fn init_transactions(&self) {
        self.producer.init_transactions(PATIENCE).unwrap();
    }

    /// Begins a transaction with these messages, and leaves it open.
    pub(crate) fn begin(&self, messages: impl IntoIterator<Item = (i32, String)>) {
        self.producer.begin_transaction().unwrap();
        self.send_values(messages);
        self.flush();
    }

    pub(crate) fn commit(&self) {
        self.producer.commit_transaction(PATIENCE).unwrap();
        self.wait_for_markers();
    }

    pub(crate) fn abort(&self) {
        self.producer.abort_transaction(PATIENCE).unwrap();
        self.wait_for_markers();
    }

    /// A transaction is committed once its coordinator says so; the markers in the partitions come a little later,
    /// and until then the last stable offset stands before the transaction.
    fn wait_for_markers(&self) {
        let uncommitted: BaseConsumer =
            config(&self.bootstrap).set("isolation.level", "read_uncommitted").create().unwrap();
        let committed = self.producer.client();
        let metadata = committed.fetch_metadata(Some(&self.topic), PATIENCE).unwrap();
        let began = Instant::now();
        for partition in metadata.topics()[0].partitions() {
            let end_of_all = || uncommitted.fetch_watermarks(&self.topic, partition.id(), PATIENCE).unwrap().1;
            while committed.fetch_watermarks(&self.topic, partition.id(), PATIENCE).unwrap().1 < end_of_all() {
                assert!(began.elapsed() < PATIENCE, "{}: no transaction marker", self.topic);
            }
        }
    }
}

/// Remembers what couldn't be delivered.
#[derive(Debug, Default)]
struct Deliveries {
    faults: Mutex<Vec<KafkaError>>,
}

impl ClientContext for Deliveries {}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();

    fn delivery(&self, delivery: &DeliveryResult<'_>, _: ()) {
        if let Err((error, _)) = delivery {
            self.faults.lock().unwrap().push(error.clone());
        }
    }
}

fn config(bootstrap: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap).set("message.timeout.ms", PATIENCE.as_millis().to_string());
    config
}

fn unique(name: &str) -> String {
    static NUM_NAMES: AtomicU32 = AtomicU32::new(0);
    format!("{name}-{}-{}", std::process::id(), NUM_NAMES.fetch_add(1, Ordering::Relaxed))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// What this module says of a topic of three partitions, the last one empty, whoever serves it.
pub(crate) fn check_topic(topic: &Topic) {
    topic.produce(0, Some("a"), Some("one"), Some(1_000));
    topic.produce_values((0..2_000).map(|id| (1, id.to_string())));
    topic.produce(0, Some("a"), None, Some(2_000));
    assert_eq!(topic.end_offsets(), [2, 2_000, 0]);
    let seen = topic.read_back();
    let message = |offset, value: Option<&str>, timestamp| Seen {
        offset,
        key: Some("a".into()),
        value: value.map(Into::into),
        timestamp: Some(timestamp),
    };
    assert_eq!(seen[&0], [message(0, Some("one"), 1_000), message(1, None, 2_000)]);
    let values: Vec<_> = seen[&1].iter().map(|message| message.value.clone().unwrap()).collect();
    assert_eq!(values, (0..2_000).map(|id| id.to_string()).collect::<Vec<_>>());
    assert!(seen[&2].is_empty());
}

#[test]
fn what_is_written_to_the_mock_is_read_back() {
    let cluster = MockCluster::new(1).unwrap();
    check_topic(&Topic::mock(&cluster, "written", 3));
}
