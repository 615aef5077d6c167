//! How long after it was sent, and acknowledged, a message of a slow topic arrives in a batch.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer};
use segue::format::Format;
use segue::hybrid::{HybridSource, ReadOptions};
use segue::kafka::{KafkaAddress, KafkaSource};
use segue::schema::parse_schema;

use super::{PARTITIONS, make_topic};

const PER_SECOND: u64 = 1000;
/// What comes while connections, and a broker that has just started, are new isn't counted.
const WARM_UP: u64 = 5 * PER_SECOND;

/// Notes when each message was acknowledged, in microseconds after `began`.
struct Acknowledged {
    began: Instant,
    micros: Arc<Vec<AtomicU64>>,
}

impl ClientContext for Acknowledged {}

impl ProducerContext for Acknowledged {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let message = result.as_ref().unwrap();
        let text = str::from_utf8(message.payload().unwrap()).unwrap();
        let number: usize = text.split(',').next().unwrap().parse().unwrap();
        self.micros[number].store(micros(self.began), Ordering::Release);
    }
}

/// Writes for so many seconds what a reader follows, and prints how late it came.
pub(super) async fn run(address: &KafkaAddress, seconds: u64) {
    make_topic(address, PARTITIONS).await;
    let began = Instant::now();
    let count = PER_SECOND * seconds + WARM_UP;
    let acknowledged: Arc<Vec<AtomicU64>> = Arc::new((0..count).map(|_| AtomicU64::new(0)).collect());
    let producer = thread::spawn({
        let (address, acknowledged) = (address.clone(), Arc::clone(&acknowledged));
        move || produce(&address, began, acknowledged)
    });

    let schema = Arc::new(parse_schema("number BIGINT, sent BIGINT").unwrap());
    let source = KafkaSource::builder(address).format(Format::Csv).schema(schema).build().unwrap();
    let chain = HybridSource::builder().source(source).build().unwrap();
    let mut stream = chain.open(chain.resolve(None).await.unwrap(), ReadOptions::default()).unwrap();
    let (mut seen, mut batches) = (0, 0);
    let mut arrived = Vec::new();
    while seen < count {
        let item = stream.next().await.unwrap().unwrap().item;
        let now = micros(began);
        let batch = item.batch();
        batches += u64::from(batch.num_rows() > 0);
        let column = |index: usize| batch.column(index).as_primitive::<Int64Type>().values();
        for (number, sent) in column(0).iter().zip(column(1)) {
            arrived.push((*number as u64, *sent as u64, now));
        }
        seen += batch.num_rows() as u64;
    }
    drop(stream);
    producer.join().unwrap();
    arrived.retain(|(number, ..)| *number >= WARM_UP);
    println!("{PER_SECOND} messages/s for {seconds} s in {PARTITIONS} partitions, {batches} batches; ms to a batch:");
    print("sent", arrived.iter().map(|(_, sent, now)| now.saturating_sub(*sent)).collect());
    let acknowledged = |number: u64| acknowledged[number as usize].load(Ordering::Acquire);
    print("acknowledged", arrived.iter().map(|(number, _, now)| now.saturating_sub(acknowledged(*number))).collect());
}

fn produce(address: &KafkaAddress, began: Instant, micros_of: Arc<Vec<AtomicU64>>) {
    let count = micros_of.len() as u64;
    let producer: ThreadedProducer<Acknowledged> = ClientConfig::new()
        .set("bootstrap.servers", address.bootstrap_servers())
        .set("linger.ms", "0")
        .create_with_context(Acknowledged { began, micros: micros_of })
        .unwrap();
    let start = Instant::now();
    for number in 0..count {
        let due = start + Duration::from_micros(number * 1_000_000 / PER_SECOND);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let value = format!("{number},{}", micros(began));
        let partition = (number % u64::from(PARTITIONS)) as i32;
        producer
            .send(BaseRecord::<(), str>::to(&address.topics[0]).partition(partition).payload(&value))
            .map_err(|(error, _)| error)
            .unwrap();
    }
    producer.flush(Duration::from_secs(10)).unwrap();
}

fn print(since: &str, mut micros: Vec<u64>) {
    micros.sort_unstable();
    let at = |percent: usize| micros[(micros.len() - 1) * percent / 100] as f64 / 1e3;
    println!("  since it was {since:12}  p50 {:5.1}   p99 {:5.1}   max {:5.1}", at(50), at(99), at(100));
}

fn micros(began: Instant) -> u64 {
    began.elapsed().as_micros() as u64
}
