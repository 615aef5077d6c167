//! The topic is there before the first row: found, or made.

use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use super::Described;
use crate::error::{Cause, Error, Result};
use crate::kafka::client::Listener;
use crate::kafka::lookup::Lookup;

/// How long it may take to make a topic.
const PATIENCE: Duration = Duration::from_secs(6);

/// The replicas that the brokers give a topic by themselves.
const DEFAULT_REPLICATION: TopicReplication<'static> = TopicReplication::Fixed(-1);

/// Looks for the topic, and makes it if it isn't there.
///
/// # Errors
/// [`Error::Kafka`] if no broker answers, or the topic can't be made.
pub(super) fn make_sure_of(described: &Described) -> Result<()> {
    // A client that reads asks: brokers may make what a client that writes asks for, with partitions as they like.
    if Lookup::connect(&described.settings)?.has(&described.topic)? {
        return Ok(());
    }
    let maker = Maker::connect(described)?;
    // Today's brokers pass it on to their controller, and one that can't make topics says so at once. Those before
    // (Kafka 2.7, ZooKeeper) say that they aren't the controller, so then it is looked for.
    let refused = match maker.make(Some(maker.any_broker()?))? {
        Some(RDKafkaErrorCode::NotController) => maker.make(None)?,
        refused => refused,
    };
    let topic = &described.topic;
    match refused {
        None => tracing::info!("topic {topic} was not there and is made, partitions: {}", described.partitions),
        // Somebody else was quicker.
        Some(RDKafkaErrorCode::TopicAlreadyExists) => {}
        Some(RDKafkaErrorCode::UnsupportedFeature) => {
            tracing::debug!("the brokers can't be asked to make topic {topic}; the first row may make it");
        }
        Some(code) => return Err(maker.failed(code.to_string())),
    }
    Ok(())
}

/// A client that makes topics.
struct Maker<'a> {
    described: &'a Described,
    admin: AdminClient<Listener>,
}

impl<'a> Maker<'a> {
    fn connect(described: &'a Described) -> Result<Self> {
        let admin = AdminClient::from_config_and_context(&described.settings.config(), Listener::default())
            .map_err(|e| failed(described, e))?;
        Ok(Self { described, admin })
    }

    /// The broker that answers first, or one that it knows.
    fn any_broker(&self) -> Result<i32> {
        let metadata = self.admin.inner().fetch_metadata(None, PATIENCE).map_err(|e| self.failed(e))?;
        let answered = Some(metadata.orig_broker_id()).filter(|id| *id >= 0);
        let broker = answered.or_else(|| metadata.brokers().first().map(|broker| broker.id()));
        broker.ok_or_else(|| self.failed("the cluster names no broker"))
    }

    /// Asks `broker`, or the controller, to make the topic; returns why it was refused, if it was.
    fn make(&self, broker: Option<i32>) -> Result<Option<RDKafkaErrorCode>> {
        let topic = NewTopic::new(&self.described.topic, self.described.partitions.get().into(), DEFAULT_REPLICATION);
        let options =
            AdminOptions::new().request_timeout(Some(PATIENCE)).operation_timeout(Some(PATIENCE)).broker_id(broker);
        match block_on(self.admin.create_topics([&topic], &options))? {
            // One was asked for, so there is one answer.
            Ok(made) => Ok(made.into_iter().find_map(Result::err).map(|(_, code)| code)),
            Err(KafkaError::AdminOp(code)) => Ok(Some(code)),
            Err(e) => Err(self.failed(e)),
        }
    }

    fn failed(&self, source: impl Into<Cause>) -> Error {
        failed(self.described, source)
    }
}

fn failed(described: &Described, source: impl Into<Cause>) -> Error {
    Error::Kafka { place: described.target.clone(), action: "make the topic", source: source.into() }
}

/// Waits for a future that needs no runtime of its own; this thread belongs to none.
fn block_on<F: Future>(future: F) -> Result<F::Output> {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.map_err(|source| Error::Io { path: "threads".into(), action: "cannot start", source })?;
    Ok(runtime.block_on(future))
}
