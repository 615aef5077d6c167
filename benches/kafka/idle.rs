//! What it costs to follow partitions in which nothing happens.

use std::time::{Duration, Instant};

use segue::hybrid::{HybridSource, ReadOptions};
use segue::kafka::{KafkaAddress, KafkaSource};

use super::{cpu_seconds, make_topic};

const SILENT_PARTITIONS: u16 = 64;

/// Connections are made before.
const WARM_UP: Duration = Duration::from_secs(3);

/// Follows for so many seconds, and prints the CPU time of the process.
pub(super) async fn run(address: &KafkaAddress, seconds: u64) {
    make_topic(address, SILENT_PARTITIONS).await;
    let chain = HybridSource::builder().source(KafkaSource::builder(address).build().unwrap()).build().unwrap();
    let mut stream = chain.open(chain.resolve(None).await.unwrap(), ReadOptions::default()).unwrap();
    let began = Instant::now();
    let mut before = None;
    while began.elapsed() < WARM_UP + Duration::from_secs(seconds) {
        // Ends of partitions are told as items without rows.
        let _ = tokio::time::timeout(Duration::from_secs(1), stream.next()).await;
        if began.elapsed() >= WARM_UP {
            before.get_or_insert_with(cpu_seconds);
        }
    }
    let busy = cpu_seconds() - before.unwrap_or_default();
    println!(
        "{SILENT_PARTITIONS} silent partitions followed for {seconds} s: {busy:.2} s of CPU, {:.2} % of a core",
        100.0 * busy / seconds as f64
    );
}
