//! Questions to a cluster, each asked once. Every call blocks, within its bound.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::metadata::MetadataTopic;
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{Offset, TopicPartitionList};

use super::client::Listener;
use super::describe;
use super::topics::Topics;

/// A topic's name and a partition's number.
pub(super) type PartitionKey = (String, i32);

/// Offsets of partitions.
pub(super) type Offsets = BTreeMap<PartitionKey, u64>;

/// Each partition's log, from its first offset to its end.
pub(super) type Logs = BTreeMap<PartitionKey, Range<u64>>;

/// A topic as the cluster describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Described {
    pub(super) name: String,
    /// Their numbers, rising; none if there is no such topic.
    pub(super) partitions: Vec<i32>,
    /// What tells it from another topic of this name; `None` where the brokers have no ids.
    pub(super) id: Option<String>,
    /// Whether a broker has said that it may not be read, or not even be looked at.
    pub(super) is_forbidden: bool,
}

/// The topics that a source reads: each that is named, in that order, or those that the pattern takes. Asking makes
/// none of them.
pub(super) fn described(
    client: &BaseConsumer<Listener>,
    topics: &Topics,
    timeout: Duration,
) -> KafkaResult<Vec<Described>> {
    match topics {
        Topics::Named(names) => names.iter().map(|name| describe(client, name, timeout)).collect(),
        Topics::Pattern(pattern) => {
            let metadata = client.fetch_metadata(None, timeout)?;
            let taken = metadata.topics().iter().filter(|topic| pattern.takes(topic.name()));
            let mut described: Vec<Described> = taken.map(description).collect::<KafkaResult<_>>()?;
            described.sort_unstable_by(|one, other| one.name.cmp(&other.name));
            Ok(described)
        }
    }
}

/// One topic.
pub(super) fn describe(client: &BaseConsumer<Listener>, name: &str, timeout: Duration) -> KafkaResult<Described> {
    let metadata = client.fetch_metadata(Some(name), timeout)?;
    let topic = metadata.topics().iter().find(|topic| topic.name() == name);
    topic.map_or_else(|| Ok(Described { name: name.to_owned(), ..Described::default() }), description)
}

fn description(topic: &MetadataTopic) -> KafkaResult<Described> {
    let name = topic.name().to_owned();
    if let Some(error) = topic.error() {
        return match RDKafkaErrorCode::from(error) {
            RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic => {
                Ok(Described { name, ..Described::default() })
            }
            RDKafkaErrorCode::TopicAuthorizationFailed => {
                Ok(Described { name, is_forbidden: true, ..Described::default() })
            }
            code => Err(KafkaError::MetadataFetch(code)),
        };
    }
    let mut partitions: Vec<i32> = topic.partitions().iter().map(|partition| partition.id()).collect();
    partitions.sort_unstable();
    Ok(Described { name, partitions, ..Described::default() })
}

/// Adds the ids of topics, and whether they may be read; neither where nobody can be asked.
pub(super) fn add_ids(client: &BaseConsumer<Listener>, topics: &mut [Described], timeout: Duration) -> KafkaResult<()> {
    let there: Vec<&str> =
        topics.iter().filter(|topic| !topic.partitions.is_empty()).map(|topic| topic.name.as_str()).collect();
    let Some(first) = there.first() else { return Ok(()) };
    if !has_controller(client, first, timeout)? {
        return Ok(());
    }
    let mut facts = describe::describe_topics(client, &there, timeout)?;
    for topic in topics {
        if let Some(facts) = facts.remove(&topic.name) {
            (topic.id, topic.is_forbidden) = (facts.id, facts.is_forbidden);
        }
    }
    Ok(())
}

/// The ids of topics; of one that isn't there, or where nobody can be asked, there is none.
pub(super) fn topic_ids(
    client: &BaseConsumer<Listener>,
    names: &[&str],
    timeout: Duration,
) -> KafkaResult<BTreeMap<String, String>> {
    let Some(first) = names.first() else { return Ok(BTreeMap::new()) };
    if !has_controller(client, first, timeout)? {
        return Ok(BTreeMap::new());
    }
    let facts = describe::describe_topics(client, names, timeout)?;
    Ok(facts.into_iter().filter_map(|(name, facts)| Some((name, facts.id?))).collect())
}

/// Whether there is a broker that can be asked what topics are: the mock cluster has none. Any topic will do.
fn has_controller(client: &BaseConsumer<Listener>, topic: &str, timeout: Duration) -> KafkaResult<bool> {
    let controller = describe::controller(client, timeout);
    let metadata = client.fetch_metadata(Some(topic), timeout)?;
    Ok(metadata.brokers().iter().any(|broker| Some(broker.id()) == controller))
}

/// The log of each partition: from the first offset that it still has to the last stable offset when reading
/// committed, else the high watermark.
pub(super) fn logs(
    client: &BaseConsumer<Listener>,
    partitions: &[PartitionKey],
    timeout: Duration,
) -> KafkaResult<Logs> {
    let starts = known(offsets(client, partitions, Offset::Beginning, timeout)?);
    let ends = known(offsets(client, partitions, Offset::End, timeout)?);
    let log = |partition: &PartitionKey| {
        let (Some(&start), Some(&end)) = (starts.get(partition), ends.get(partition)) else {
            return Err(KafkaError::OffsetFetch(RDKafkaErrorCode::OffsetNotAvailable));
        };
        Ok((partition.clone(), start..end))
    };
    partitions.iter().map(log).collect()
}

/// One partition's log, as of [`logs`].
pub(super) fn log(
    client: &BaseConsumer<Listener>,
    topic: &str,
    partition: i32,
    timeout: Duration,
) -> KafkaResult<Range<u64>> {
    let (low, high) = client.fetch_watermarks(topic, partition, timeout)?;
    Ok(low.max(0) as u64..high.max(0) as u64)
}

/// The first offset of each partition with a timestamp of `millis` or later; none where there isn't one.
pub(super) fn at_time(
    client: &BaseConsumer<Listener>,
    partitions: &[PartitionKey],
    millis: i64,
    timeout: Duration,
) -> KafkaResult<Offsets> {
    offsets(client, partitions, Offset::Offset(millis), timeout).map(known)
}

/// What a group has committed, of a client of that group; none where it hasn't.
pub(super) fn committed(
    client: &BaseConsumer<Listener>,
    partitions: &[PartitionKey],
    timeout: Duration,
) -> KafkaResult<Offsets> {
    found(&client.committed_offsets(list(partitions, Offset::Invalid)?, timeout)?).map(known)
}

/// One request to each leader, which librdkafka makes of a list of "times": a time, or -1 and -2 for end and
/// beginning, as the protocol has them.
fn offsets(
    client: &BaseConsumer<Listener>,
    partitions: &[PartitionKey],
    at: Offset,
    timeout: Duration,
) -> KafkaResult<Vec<(PartitionKey, Offset)>> {
    if partitions.is_empty() {
        return Ok(Vec::new());
    }
    found(&client.offsets_for_times(list(partitions, at)?, timeout)?)
}

fn list(partitions: &[PartitionKey], at: Offset) -> KafkaResult<TopicPartitionList> {
    let mut list = TopicPartitionList::with_capacity(partitions.len());
    for (topic, partition) in partitions {
        list.add_partition_offset(topic, *partition, at)?;
    }
    Ok(list)
}

fn found(list: &TopicPartitionList) -> KafkaResult<Vec<(PartitionKey, Offset)>> {
    let mut offsets = Vec::with_capacity(list.count());
    for element in list.elements() {
        element.error()?;
        offsets.push(((element.topic().to_owned(), element.partition()), element.offset()));
    }
    Ok(offsets)
}

fn known(offsets: Vec<(PartitionKey, Offset)>) -> Offsets {
    let number = |(partition, offset)| match offset {
        Offset::Offset(offset) => u64::try_from(offset).ok().map(|offset| (partition, offset)),
        _ => None,
    };
    offsets.into_iter().filter_map(number).collect()
}
