//! Messages larger than what is fetched at once, and as large as a broker takes.

use segue::format::Format;

use super::bootstrap;
use super::reading::{live, read_to_now};
use crate::cli::rows;
use crate::common::schema;
use crate::topic::Topic;

const MEGABYTE: usize = 1 << 20;

/// What the broker's own limit is made for these topics.
const LIMIT: &str = "10485760";

/// Writes values of these lengths, CSV of an id and a text, and says what they are.
async fn topic_of(name: &str, lengths: &[usize]) -> (Topic, Vec<String>) {
    let topic = Topic::create_with(&bootstrap(), name, 1, &[("max.message.bytes", LIMIT)]).await;
    let writer = topic.writer(&[("message.max.bytes", LIMIT), ("queue.buffering.max.kbytes", "262144")]);
    let value = |(id, length): (usize, &usize)| {
        let id = format!("{id},");
        let text = "x".repeat(length - id.len());
        id + &text
    };
    let values: Vec<String> = lengths.iter().enumerate().map(value).collect();
    writer.send_values(values.iter().map(|value| (0, value.clone())));
    writer.flush();
    (topic, values)
}

#[tokio::test]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn messages_larger_than_a_fetch_are_read() {
    let lengths = [100, 50_000, 100, 700_000, 3 * MEGABYTE, 100, 100];
    let (topic, _) = topic_of("larger", &lengths).await;
    for properties in [
        &[("fetch.message.max.bytes", "1000")][..],
        &[("max.partition.fetch.bytes", "1")],
        &[("message.max.bytes", "1000"), ("fetch.max.bytes", "1000")],
    ] {
        let source = live(&topic).schema(schema());
        let source = properties.iter().fold(source, |source, (key, value)| source.property(*key, *value));
        let read = read_to_now(source).await;
        let lengths_read: Vec<usize> = read.lines().iter().map(|line| line.len()).collect();
        assert_eq!(lengths_read, lengths, "{properties:?}");
    }
}

/// Also where the memory that is allowed holds only a few of them, and none of it is meant for one fetch.
#[tokio::test]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn messages_up_to_the_brokers_limit_are_read_within_little_memory() {
    let limit: usize = LIMIT.parse().unwrap();
    // The broker counts some bytes of a message besides its value.
    let lengths = [8 * MEGABYTE, 100, limit - 1_000, 8 * MEGABYTE, 8 * MEGABYTE, 100, 8 * MEGABYTE];
    let (topic, values) = topic_of("limit", &lengths).await;
    let all = values.join("\n") + "\n";
    let folder = tempfile::tempdir().unwrap();
    let address = topic.address();
    for memory in ["48mb", "8mb", "256mb"] {
        let read = ["read", &address, "--schema", "id BIGINT, name STRING", "--format", "csv", "--bounded"];
        let ran = rows(&folder, &[&read[..], &["--memory", memory, "--output", "csv", "--no-header"]].concat());
        assert!(ran == all, "{memory}: {} of {} bytes", ran.len(), all.len());
    }
    let raw = read_to_now(live(&topic).format(Format::Raw).schema(crate::common::schema_of("value STRING"))).await;
    assert!(raw.lines() == values);
}
