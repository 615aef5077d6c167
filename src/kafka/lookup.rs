//! Asks a cluster for partitions and offsets. Every call blocks, within a bound.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{Offset, TopicPartitionList};

use super::client::{ClientSettings, Listener};
use crate::error::{Error, Result};

/// How long a cluster may take to answer. A broker that restarts is back by then; a wrong address is told soon.
const PATIENCE: Duration = Duration::from_millis(7500);

/// How long one request may take before the client is asked what is wrong.
const REQUEST: Duration = Duration::from_secs(2);

/// Offsets of partitions, by topic and number.
pub(super) type Offsets = BTreeMap<(String, i32), u64>;

/// A client that only asks.
pub(crate) struct Lookup {
    consumer: BaseConsumer<Listener>,
    place: String,
}

impl Lookup {
    pub(crate) fn connect(settings: &ClientSettings) -> Result<Self> {
        let place = settings.bootstrap_servers().to_owned();
        let mut config = settings.config();
        config.remove("group.id");
        let made = config.create_with_context(Listener::default());
        let consumer = made.map_err(|e| settings.client_error("properties", "make a client", e))?;
        Ok(Self { consumer, place })
    }

    /// The partitions of each topic.
    pub(super) fn partitions(&self, topics: &[String]) -> Result<BTreeMap<String, Vec<i32>>> {
        let mut found = BTreeMap::new();
        for topic in topics {
            let partitions = self.asked("reach the cluster", || self.partitions_of(topic))?;
            if partitions.is_empty() {
                return Err(self.no_topic(topic));
            }
            found.insert(topic.clone(), partitions);
        }
        Ok(found)
    }

    /// Whether a topic is there. Asking doesn't make it.
    pub(crate) fn has(&self, topic: &str) -> Result<bool> {
        let partitions = self.asked("reach the cluster", || self.partitions_of(topic))?;
        Ok(!partitions.is_empty())
    }

    /// The partitions of a topic; none if there is no such topic.
    fn partitions_of(&self, topic: &str) -> KafkaResult<Vec<i32>> {
        let metadata = self.consumer.fetch_metadata(Some(topic), REQUEST)?;
        let Some(topic) = metadata.topics().iter().find(|known| known.name() == topic) else { return Ok(Vec::new()) };
        if let Some(error) = topic.error() {
            return match RDKafkaErrorCode::from(error) {
                RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic => Ok(Vec::new()),
                code => Err(KafkaError::MetadataFetch(code)),
            };
        }
        let mut partitions: Vec<i32> = topic.partitions().iter().map(|partition| partition.id()).collect();
        partitions.sort_unstable();
        Ok(partitions)
    }

    fn no_topic(&self, topic: &str) -> Error {
        // The names are a help only; that the topic isn't there is certain without them.
        let known = self.consumer.fetch_metadata(None, REQUEST).ok();
        let names = known.iter().flat_map(|metadata| metadata.topics()).map(|known| known.name());
        let similar = similar(topic, names.filter(|name| !name.starts_with("__")));
        let hint = match similar.as_slice() {
            [] => String::new(),
            names => format!("; there is {}", names.join(", ")),
        };
        Error::NotFound { what: format!("{}: there is no topic {topic}{hint}", self.place) }
    }

    /// The first offset of each partition that its log still has.
    pub(super) fn log_starts(&self, partitions: &[(String, i32)]) -> Result<Offsets> {
        self.offsets(partitions, Offset::Beginning).map(known)
    }

    /// The end of each partition: the last stable offset when reading committed, else the high watermark.
    pub(super) fn ends(&self, partitions: &[(String, i32)]) -> Result<Offsets> {
        self.offsets(partitions, Offset::End).map(known)
    }

    /// The first offset of each partition with a timestamp of `millis` or later; none where there isn't one.
    pub(super) fn at_time(&self, partitions: &[(String, i32)], millis: i64) -> Result<Offsets> {
        self.offsets(partitions, Offset::Offset(millis)).map(known)
    }

    /// One request to each leader, which librdkafka makes of a list of "times": a time, or -1 and -2 for end and
    /// beginning, as the protocol has them.
    fn offsets(&self, partitions: &[(String, i32)], at: Offset) -> Result<Vec<(String, i32, Offset)>> {
        if partitions.is_empty() {
            return Ok(Vec::new());
        }
        self.asked("look offsets up", || {
            let mut times = TopicPartitionList::with_capacity(partitions.len());
            for (topic, partition) in partitions {
                times.add_partition_offset(topic, *partition, at)?;
            }
            let found = self.consumer.offsets_for_times(times, REQUEST)?;
            let mut offsets = Vec::with_capacity(partitions.len());
            for element in found.elements() {
                element.error()?;
                offsets.push((element.topic().to_owned(), element.partition(), element.offset()));
            }
            Ok(offsets)
        })
    }

    /// Asks again until there is an answer, the client has failed for good, or patience ends.
    fn asked<T>(&self, action: &'static str, mut ask: impl FnMut() -> KafkaResult<T>) -> Result<T> {
        let began = Instant::now();
        loop {
            let error = match ask() {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            // What the client has to say is heard only when it is polled.
            while self.consumer.poll(Duration::ZERO).is_some() {}
            let listener = self.consumer.client().context();
            let is_fatal = listener.take_fatal().is_some() || !is_passing(&error);
            if is_fatal || began.elapsed() >= PATIENCE {
                let reason = match listener.last_error() {
                    Some(reason) => reason.into(),
                    None => Box::new(error) as crate::error::Cause,
                };
                return Err(Error::Kafka { place: self.place.clone(), action, source: reason });
            }
            // A leader that is being elected needs a moment.
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Whether the brokers say that there is no such topic; not so if they say nothing.
    pub(super) fn is_gone(consumer: &BaseConsumer<Listener>, topic: &str) -> bool {
        /// The polling thread asks, and must not stand still for long.
        const MOMENT: Duration = Duration::from_millis(500);
        let Ok(metadata) = consumer.fetch_metadata(Some(topic), MOMENT) else { return false };
        let error = metadata.topics().iter().find(|known| known.name() == topic).and_then(|known| known.error());
        error.map(RDKafkaErrorCode::from).is_some_and(|code| {
            matches!(code, RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic)
        })
    }

    /// What a partition's log has now: from its first offset to its end.
    pub(super) fn log_of(consumer: &BaseConsumer<Listener>, topic: &str, partition: i32) -> KafkaResult<Range<u64>> {
        let (low, high) = consumer.fetch_watermarks(topic, partition, PATIENCE)?;
        Ok(low.max(0) as u64..high.max(0) as u64)
    }
}

fn known(offsets: Vec<(String, i32, Offset)>) -> Offsets {
    let number = |(topic, partition, offset)| match offset {
        Offset::Offset(offset) => u64::try_from(offset).ok().map(|offset| ((topic, partition), offset)),
        _ => None,
    };
    offsets.into_iter().filter_map(number).collect()
}

/// Whether asking again may help.
fn is_passing(error: &KafkaError) -> bool {
    use RDKafkaErrorCode::{
        Authentication, ClusterAuthorizationFailed, InvalidArgument, InvalidTopic, SaslAuthenticationFailed,
        TopicAuthorizationFailed,
    };
    !matches!(
        error.rdkafka_error_code(),
        Some(
            Authentication
                | ClusterAuthorizationFailed
                | InvalidArgument
                | InvalidTopic
                | SaslAuthenticationFailed
                | TopicAuthorizationFailed
        )
    )
}

/// The names most like `wanted`, three at most.
fn similar<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    const MOST: usize = 3;
    let allowed = (wanted.len() / 3).max(2);
    let mut near: Vec<(usize, &str)> = names
        .map(|name| (strsim::damerau_levenshtein(wanted, name), name))
        .filter(|(distance, name)| *distance <= allowed || name.contains(wanted) || wanted.contains(name))
        .collect();
    near.sort_unstable();
    near.into_iter().take(MOST).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_names_are_near_or_longer() {
        let names = ["bids", "bids-2024", "asks", "b"];
        assert_eq!(similar("bidz", names.into_iter()), ["bids", "b"]);
        assert_eq!(similar("bids-202", names.into_iter()), ["bids-2024", "bids", "b"]);
        assert_eq!(similar("orders", names.into_iter()), [""; 0]);
    }
}
