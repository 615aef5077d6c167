//! The topic is there before the first row: found, or made.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::metadata::Metadata;
use rdkafka::producer::{BaseProducer, Producer};

use super::Described;
use super::producer::Reports;
use crate::error::{Cause, Error, Result};
use crate::kafka::client::Listener;

/// How long brokers may be away: long enough for one that is just being started, and the fault is told before
/// anybody has waited for 10 s.
const PATIENCE: Duration = Duration::from_secs(8);

/// How long one look may take before it is known whether to go on.
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);

/// How long to wait between looks that found nothing.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The replicas that the brokers give a topic by themselves.
const DEFAULT_REPLICATION: TopicReplication<'static> = TopicReplication::Fixed(-1);

/// Looks for the topic, and makes it if it isn't there.
///
/// # Errors
/// [`Error::Kafka`] if no broker answers, the topic can't be made, or it doesn't come into sight.
pub(super) fn make_sure_of(described: &Described, producer: &BaseProducer<Reports>) -> Result<()> {
    let look = Look { described, producer };
    // Asked for by name, a topic that isn't there might be made at once, with as many partitions as brokers like.
    let asked = look.until(None, "reach a broker", |metadata| {
        let is_there = metadata.topics().iter().any(|topic| topic.name() == described.topic);
        Some(if is_there { Asked::IsThere } else { Asked::IsMissing { broker: any_broker(metadata) } })
    })?;
    let Asked::IsMissing { broker } = asked else { return Ok(()) };
    make(described, broker)?;
    look.until(Some(&described.topic), "find the topic", |metadata| {
        let mut topics = metadata.topics().iter().filter(|topic| topic.error().is_none());
        topics.any(|topic| topic.name() == described.topic && !topic.partitions().is_empty()).then_some(())
    })
}

enum Asked {
    IsThere,
    IsMissing { broker: Option<i32> },
}

/// The broker that has answered, or one that it knows.
fn any_broker(metadata: &Metadata) -> Option<i32> {
    let answered = Some(metadata.orig_broker_id()).filter(|id| *id >= 0);
    answered.or_else(|| metadata.brokers().first().map(|broker| broker.id()))
}

/// Looks at what the cluster has.
struct Look<'a> {
    described: &'a Described,
    producer: &'a BaseProducer<Reports>,
}

impl Look<'_> {
    /// Asks for `topic`, or for all there are, until what `found` looks for has come.
    fn until<T>(&self, topic: Option<&str>, action: &'static str, found: impl Fn(&Metadata) -> Option<T>) -> Result<T> {
        let began = Instant::now();
        let listener = &self.producer.context().listener;
        loop {
            let looked = self.producer.client().fetch_metadata(topic, LOOK_TIMEOUT);
            let why: Cause = match looked {
                Ok(metadata) => match found(&metadata) {
                    Some(found) => return Ok(found),
                    None => "it isn't there".into(),
                },
                Err(error) => error.into(),
            };
            // Errors are heard only while events are served.
            self.producer.poll(LOOK_INTERVAL);
            let place = || self.described.target.clone();
            if let Some(error) = listener.take_fatal() {
                let source = listener.last_error().map_or_else(|| error.into(), Cause::from);
                return Err(Error::Kafka { place: place(), action, source });
            }
            let is_abandoned = self.described.abandoned.load(Ordering::Relaxed);
            if began.elapsed() >= PATIENCE || is_abandoned {
                let source = listener.last_error().map_or(why, Cause::from);
                return Err(Error::Kafka { place: place(), action, source });
            }
        }
    }
}

/// Makes the topic, unless the brokers leave that to whoever asks for it first.
///
/// `broker` is asked to begin with: today's brokers pass it on to their controller, and one that can't make topics
/// says so at once. Brokers before that (Kafka 2.7, ZooKeeper) say that they aren't the controller.
fn make(described: &Described, broker: Option<i32>) -> Result<()> {
    let failed = |source: Cause| Error::Kafka { place: described.target.clone(), action: "make the topic", source };
    let admin = AdminClient::from_config_and_context(&described.settings.config(), Listener::default())
        .map_err(|e| failed(e.into()))?;
    let partitions = described.partitions.get();
    let topic = NewTopic::new(&described.topic, partitions.into(), DEFAULT_REPLICATION);
    let ask = |broker: Option<i32>| {
        let options = AdminOptions::new().request_timeout(Some(PATIENCE)).operation_timeout(Some(PATIENCE));
        match block_on(admin.create_topics([&topic], &options.broker_id(broker)))? {
            // One was asked for, so there is one answer.
            Ok(made) => Ok(made.into_iter().find_map(Result::err).map(|(_, code)| code)),
            Err(KafkaError::AdminOp(code)) => Ok(Some(code)),
            Err(e) => Err(failed(e.into())),
        }
    };
    let mut refused = ask(broker)?;
    if refused == Some(RDKafkaErrorCode::NotController) {
        refused = ask(None)?;
    }
    match refused {
        None => tracing::info!("topic {} was not there and is made, partitions: {partitions}", described.topic),
        // Somebody else was quicker.
        Some(RDKafkaErrorCode::TopicAlreadyExists) => {}
        Some(RDKafkaErrorCode::UnsupportedFeature) => {
            tracing::debug!("the brokers make topic {} themselves", described.topic);
        }
        Some(code) => return Err(failed(code.to_string().into())),
    }
    Ok(())
}

/// Waits for a future that needs no runtime of its own; this thread belongs to none.
fn block_on<F: Future>(future: F) -> Result<F::Output> {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.map_err(|source| Error::Io { path: "threads".into(), action: "cannot start", source })?;
    Ok(runtime.block_on(future))
}
