//! Consumer groups: where one has committed that it is, and offsets that are committed for whoever watches its lag.

use std::fs;
use std::time::Instant;

use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::{Offset, TopicPartitionList};
use segue::format::Format;
use segue::kafka::{DefaultStart, KafkaSource, KafkaSourceBuilder, StartOffsets, StopOffsets};

use super::{BIDS, bids, topic};
use crate::cli::rows;
use crate::common::{chain_of, read_all, schema_of, told};
use crate::topic::{PATIENCE, Topic};

fn of_group(topic: &Topic, default: Option<DefaultStart>) -> KafkaSourceBuilder {
    KafkaSource::builder(&topic.address().parse().unwrap())
        .format(Format::Csv)
        .schema(schema_of(BIDS))
        .property("group.id", topic.name())
        .start(StartOffsets::Group { default })
        .stop(StopOffsets::Latest)
}

fn member(topic: &Topic) -> BaseConsumer {
    ClientConfig::new().set("bootstrap.servers", topic.bootstrap()).set("group.id", topic.name()).create().unwrap()
}

/// What the group has committed of each of `num_partitions` partitions.
fn committed(topic: &Topic, num_partitions: i32) -> Vec<Offset> {
    let mut list = TopicPartitionList::new();
    for partition in 0..num_partitions {
        list.add_partition(topic.name(), partition);
    }
    let member = member(topic);
    let began = Instant::now();
    let committed = loop {
        match member.committed_offsets(list.clone(), PATIENCE) {
            Ok(committed) => break committed,
            // The coordinator of a group that is new has to be found first.
            Err(error) => assert!(began.elapsed() < PATIENCE, "{error}"),
        }
    };
    committed.elements().iter().map(|element| element.offset()).collect()
}

#[tokio::test]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn a_group_begins_where_it_has_committed_and_elsewhere_at_the_default() {
    let topic = topic("group", 2).await;
    topic.produce_values(bids(0, 0..5).chain(bids(1, 10..15)));
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic.name(), 0, Offset::Offset(3)).unwrap();
    member(&topic).commit(&list, CommitMode::Sync).unwrap();

    let none = chain_of(of_group(&topic, None).build().unwrap());
    let error = told(&none.resolve(None).await.unwrap_err());
    let name = topic.name();
    assert_eq!(
        error,
        format!(
            "option 'scan.startup.mode': group {name} has committed nothing of {name}/1; \
             scan.startup.group-offsets.default says where such a partition begins"
        )
    );
    for (default, expected) in
        [(DefaultStart::Earliest, vec![3, 4, 10, 11, 12, 13, 14]), (DefaultStart::Latest, vec![3, 4])]
    {
        let mut ids = read_all(&chain_of(of_group(&topic, Some(default)).build().unwrap())).await.ids();
        ids.sort_unstable();
        assert_eq!(ids, expected);
    }
}

/// CASE 34: after the checkpoint, and never before.
#[tokio::test]
#[ignore = "needs a real Kafka: tests/broker/run"]
async fn offsets_are_committed_to_the_group_that_was_given_when_the_checkpoint_is() {
    let topic = topic("commits", 2).await;
    topic.produce_values(bids(0, 0..5).chain(bids(1, 10..13)));
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = folder.path().join("job.json");
    let (address, group) = (topic.address(), format!("properties.group.id={}", topic.name()));
    let run = |options: &[&str]| {
        let arguments = ["read", &address, "--format", "csv", "--schema", BIDS, "--until", "now"];
        rows(&folder, &[&arguments[..], options].concat());
    };
    let nothing = [Offset::Invalid; 2];
    run(&["--checkpoint", "alone.json"]);
    assert_eq!(committed(&topic, 2), nothing, "there is no group");
    run(&["-o", &group]);
    assert_eq!(committed(&topic, 2), nothing, "there is no checkpoint");
    run(&["--checkpoint", "quiet.json", "-o", &group, "-o", "properties.commit.offsets.on.checkpoint=false"]);
    assert_eq!(committed(&topic, 2), nothing, "it is not to be");
    run(&["--checkpoint", "job.json", "-o", &group]);
    let began = Instant::now();
    // The last commit of a job is waited for, but not for ever.
    while committed(&topic, 2) != [Offset::Offset(5), Offset::Offset(3)] {
        assert!(began.elapsed() < PATIENCE, "{:?}", committed(&topic, 2));
    }
    let stored = fs::read_to_string(checkpoint).unwrap();
    assert!(stored.contains("\"position\": 5"), "{stored}");
}
