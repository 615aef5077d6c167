//! Asks a cluster, again and again until it answers or patience ends: what a start rests on.

use std::time::{Duration, Instant};

use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::types::RDKafkaErrorCode;

use super::ask::{self, Described, Logs, Offsets, PartitionKey};
use super::client::{ClientSettings, Listener, hear};
use super::topics::Topics;
use crate::error::{Error, Result};

/// How long a cluster may take to answer. A broker that restarts is back by then; a wrong address is told soon.
pub(super) const PATIENCE: Duration = Duration::from_millis(7500);

/// How long one request may take before the client is asked what is wrong.
const REQUEST: Duration = Duration::from_secs(2);

/// A client that only asks.
pub(crate) struct Lookup {
    consumer: BaseConsumer<Listener>,
    place: String,
}

impl Lookup {
    pub(crate) fn connect(settings: &ClientSettings) -> Result<Self> {
        Self::made(settings, settings.config_without_group())
    }

    /// A client of the settings' group, which asks for what the group has committed.
    pub(super) fn of_group(settings: &ClientSettings) -> Result<Self> {
        Self::made(settings, settings.config())
    }

    fn made(settings: &ClientSettings, config: ClientConfig) -> Result<Self> {
        let place = settings.bootstrap_servers().to_owned();
        let made = config.create_with_context(Listener::default());
        let consumer = made.map_err(|e| settings.client_error("properties", "make a client", e))?;
        Ok(Self { consumer, place })
    }

    /// The topics that a source reads, as they are now. One that is named and isn't there has no partitions.
    pub(super) fn topics(&self, topics: &Topics) -> Result<Vec<Described>> {
        let described = self.asked("reach the cluster", || {
            let mut described = ask::described(&self.consumer, topics, REQUEST)?;
            ask::add_ids(&self.consumer, &mut described, REQUEST)?;
            Ok(described)
        })?;
        allowed(&described, "read it")?;
        Ok(described)
    }

    /// Whether a topic is there. Asking doesn't make it.
    pub(crate) fn has(&self, topic: &str) -> Result<bool> {
        let named = Topics::Named(vec![topic.to_owned()]);
        let described = self.asked("reach the cluster", || ask::described(&self.consumer, &named, REQUEST))?;
        allowed(&described, "look at it")?;
        Ok(described.iter().any(|topic| !topic.partitions.is_empty()))
    }

    /// Says that a source finds nothing to read, with what is there instead.
    pub(super) fn not_found(&self, topics: &Topics, missing: &str) -> Error {
        // The names are a help only; that the topic isn't there is certain without them.
        let known = self.consumer.fetch_metadata(None, REQUEST).ok();
        let names = known.iter().flat_map(|metadata| metadata.topics()).map(|known| known.name());
        let names = names.filter(|name| !name.starts_with("__"));
        let what = match topics {
            Topics::Named(_) => match similar(missing, names).as_slice() {
                [] => format!("there is no topic {missing}"),
                names => format!("there is no topic {missing}; there is {}", names.join(", ")),
            },
            Topics::Pattern(pattern) => {
                format!("no topic matches {}; there are {} others", pattern.as_str(), names.count())
            }
        };
        Error::NotFound { what: format!("{}: {what}", self.place) }
    }

    /// The log of each partition.
    pub(super) fn logs(&self, partitions: &[PartitionKey]) -> Result<Logs> {
        self.asked("look offsets up", || ask::logs(&self.consumer, partitions, REQUEST))
    }

    /// Where a partition's log ends with what isn't committed.
    pub(super) fn high_watermark(&self, settings: &ClientSettings, partition: &PartitionKey) -> Result<u64> {
        let mut config = settings.config_without_group();
        config.set("isolation.level", "read_uncommitted");
        let all = Self::made(settings, config)?;
        let (topic, id) = partition;
        all.asked("look offsets up", || ask::log(&all.consumer, topic, *id, REQUEST)).map(|log| log.end)
    }

    /// The first offset of each partition with a timestamp of `millis` or later; none where there isn't one.
    pub(super) fn at_time(&self, partitions: &[PartitionKey], millis: i64) -> Result<Offsets> {
        self.asked("look offsets up", || ask::at_time(&self.consumer, partitions, millis, REQUEST))
    }

    /// What the group of [`Self::of_group`] has committed; none where it hasn't.
    pub(super) fn committed(&self, partitions: &[PartitionKey]) -> Result<Offsets> {
        self.asked("look the group's offsets up", || ask::committed(&self.consumer, partitions, REQUEST))
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
            hear(&self.consumer);
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
}

/// Refuses topics of which a broker says that this is forbidden.
fn allowed(topics: &[Described], action: &'static str) -> Result<()> {
    let Some(topic) = topics.iter().find(|topic| topic.is_forbidden) else { return Ok(()) };
    let denied = KafkaError::MetadataFetch(RDKafkaErrorCode::TopicAuthorizationFailed);
    Err(Error::Kafka { place: topic.name.clone(), action, source: Box::new(denied) })
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
