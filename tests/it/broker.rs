//! A real Kafka, which `tests/broker/run` starts: what the mock cluster can't do, and the whole at once.

mod authorization;
pub(crate) mod cluster;
mod groups;
pub(crate) mod kills;
pub(crate) mod load;
mod losses;
mod outages;
mod program;
mod proxy;
mod reading;
mod records;
mod sizes;
mod topics;
mod truncation;

use std::fs;

use tempfile::TempDir;

use crate::topic::{Topic, check_topic};

/// Bids, as history and topics hold them.
pub(crate) const BIDS: &str = "id BIGINT, bid_price DOUBLE, order_time TIMESTAMP(3)";

/// Where the broker is.
fn bootstrap() -> String {
    std::env::var("SEGUE_TEST_BROKER").expect("these tests want a broker: tests/broker/run cargo test …")
}

pub(crate) async fn topic(name: &str, num_partitions: i32) -> Topic {
    Topic::create(&bootstrap(), name, num_partitions).await
}

/// A bid as CSV.
fn bid(id: i64) -> String {
    format!("{id},{}.5,2023-08-15 14:37:35.{:03}", id % 100, id % 1000)
}

/// Ten files with the bids 1 to `num_rows`, in the folder `bids`. Their natural order isn't that of their bytes.
fn history(num_rows: i64) -> TempDir {
    const FILES: i64 = 10;
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("bids")).unwrap();
    for file in 1..=FILES {
        let ids = (file - 1) * num_rows / FILES + 1..=file * num_rows / FILES;
        let rows: String = ids.map(|id| bid(id) + "\n").collect();
        let path = folder.path().join(format!("bids/part-{file}.csv"));
        fs::write(path, format!("id,bid_price,order_time\n{rows}")).unwrap();
    }
    folder
}

/// Bids for one partition.
fn bids(partition: i32, ids: impl IntoIterator<Item = i64>) -> impl Iterator<Item = (i32, String)> {
    ids.into_iter().map(move |id| (partition, bid(id)))
}

#[tokio::test]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn what_is_written_is_read_back() {
    check_topic(&topic("written", 3).await);
}

#[tokio::test]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn only_what_is_committed_counts_and_markers_take_offsets() {
    let topic = topic("transactions", 1).await;
    let writer = topic.writer(&[("transactional.id", topic.name())]);
    writer.init_transactions();
    writer.begin([(0, "committed".to_owned())]);
    writer.commit();
    writer.begin([(0, "aborted".to_owned())]);
    writer.abort();
    assert_eq!(topic.end_offsets(), [4]);
    writer.begin([(0, "open".to_owned())]);
    assert_eq!(topic.end_offsets(), [4]);
    let values = |topic: &Topic| -> Vec<_> { topic.read_back()[&0].iter().filter_map(|m| m.value.clone()).collect() };
    assert_eq!(values(&topic), ["committed"]);
    writer.commit();
    assert_eq!(topic.end_offsets(), [6]);
    assert_eq!(values(&topic), ["committed", "open"]);
}

#[tokio::test]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn forgotten_messages_move_the_start_of_the_log() {
    let topic = topic("forgotten", 1).await;
    topic.produce_values((0..10).map(|id| (0, id.to_string())));
    topic.delete_before(&[(0, 4)]).await;
    assert_eq!(topic.read_back()[&0].iter().map(|message| message.offset).collect::<Vec<_>>(), [4, 5, 6, 7, 8, 9]);
}
