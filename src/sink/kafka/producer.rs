//! The producer: what is enqueued, what waits, and what became of it.
//!
//! Acknowledged messages come back silently: librdkafka counts them down, and tells of failures alone
//! (`delivery.report.only.error`). A failed message is counted until its report was served. So when nothing is
//! left to count, and no failure was told, everything was acknowledged.
//!
//! `BaseProducer::poll` takes its whole time even if there is much to do, and `flush` is made of polls of
//! 100 ms; that is why waiting is done here, in short polls.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::config::{ClientConfig, FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext};

use super::Described;
use super::topic::make_sure_of;
use crate::error::{Cause, Error, Result};
use crate::kafka::client::Listener;

/// Settings that delivery relies on; with another value rows would be lost, repeated or overtaken.
pub(super) const RESERVED: [(&str, &str); 11] = [
    ("bootstrap.servers", "the address names the brokers"),
    ("metadata.broker.list", "the address names the brokers"),
    ("acks", "a row is safe when every replica in sync has it"),
    ("request.required.acks", "a row is safe when every replica in sync has it"),
    ("enable.idempotence", "rows are neither repeated nor overtaken when they are sent anew"),
    ("queuing.strategy", "rows keep their order"),
    ("transactional.id", "transactions are not in this version"),
    ("delivery.report.only.error", "segue takes the reports"),
    ("queue.buffering.max.messages", "the memory of the sink says it (--memory)"),
    ("queue.buffering.max.kbytes", "the memory of the sink says it (--memory)"),
    ("test.mock.num.brokers", "it is for tests of librdkafka"),
];

/// The largest message that librdkafka sends, if nothing else is said.
const DEFAULT_MESSAGE_MAX_BYTES: &str = "1000000";

/// What librdkafka keeps of a message besides its value, rounded up.
const MESSAGE_BYTES: usize = 256;

/// How long events are served before what is waited for is looked at again: short beside a broker's answer, and
/// long enough to cost nothing.
const SERVE_INTERVAL: Duration = Duration::from_millis(2);

/// How long nothing may move before it is told.
const STALL_INTERVAL: Duration = Duration::from_secs(10);

/// How much librdkafka may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SendLimits {
    /// The values of all messages that aren't acknowledged, in 1024 bytes.
    kbytes: usize,
    messages: usize,
}

impl SendLimits {
    /// Shares `memory_bytes` out: values, their copies in requests, and what comes with each message.
    fn of(memory_bytes: usize) -> Self {
        let share_bytes = memory_bytes / 3;
        Self { kbytes: (share_bytes / 1024).max(1), messages: (share_bytes / MESSAGE_BYTES).max(1) }
    }

    fn bytes(self) -> usize {
        self.kbytes * 1024
    }
}

/// A connected producer of one topic.
pub(super) struct Producer {
    described: Described,
    limits: SendLimits,
    inner: BaseProducer<Reports>,
}

impl Producer {
    /// Reaches a broker, and makes the topic if it isn't there.
    ///
    /// # Errors
    /// [`Error::Kafka`] if no broker answers, or the topic can't be made; [`Error::InvalidOption`] for settings
    /// that can't stand together.
    pub(super) fn connect(described: &Described) -> Result<Self> {
        make_sure_of(described)?;
        let limits = SendLimits::of(described.memory_bytes);
        let made = BaseProducer::from_config_and_context(&config(described, limits), Reports::default());
        let inner = made.map_err(|e| described.settings.client_error("sink.properties", "make a client", e))?;
        Ok(Self { described: described.clone(), limits, inner })
    }

    /// Enqueues a message, as soon as there is room for it.
    ///
    /// # Errors
    /// [`Error::Output`] if the message is too large, or one before it has failed; [`Error::Memory`] if there
    /// never is room for it.
    pub(super) fn send(&self, value: &[u8]) -> Result<()> {
        let mut stall = Stall::default();
        while !self.is_abandoned() {
            let record = BaseRecord::<(), [u8]>::to(&self.described.topic).payload(value);
            match self.inner.send(record) {
                Ok(()) => return Ok(()),
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => {
                    if value.len() > self.limits.bytes() {
                        return Err(self.too_large_for_memory(value.len()));
                    }
                    self.serve(&mut stall)?;
                }
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::MessageSizeTooLarge), _)) => {
                    return Err(self.too_large(value.len()));
                }
                Err((error, _)) => {
                    // A failure before it tells more.
                    self.check()?;
                    return Err(self.failed(error));
                }
            }
        }
        Ok(())
    }

    /// Waits until every message was acknowledged.
    ///
    /// # Errors
    /// [`Error::Output`] for the first one that was not.
    pub(super) fn flush(&self) -> Result<()> {
        let mut stall = Stall::default();
        while self.inner.in_flight_count() > 0 && !self.is_abandoned() {
            self.serve(&mut stall)?;
        }
        self.check()
    }

    /// Serves what has happened, without waiting, and returns the first failure.
    pub(super) fn check(&self) -> Result<()> {
        self.inner.poll(Duration::ZERO);
        let reports = self.inner.context();
        if let Some((code, reason)) = self.inner.client().fatal_error() {
            return Err(self.failed(format!("{code}: {reason}")));
        }
        if let Some(error) = reports.listener.take_fatal() {
            return Err(self.failed(error));
        }
        match reports.first_failure() {
            None => Ok(()),
            Some(failure) => Err(self.failed(failure)),
        }
    }

    /// Serves what happens for a moment.
    fn serve(&self, stall: &mut Stall) -> Result<()> {
        self.inner.poll(SERVE_INTERVAL);
        self.check()?;
        if let Some(stood) = stall.seen(self.inner.in_flight_count(), Instant::now()) {
            let last_error = self.inner.context().listener.last_error();
            let why = last_error.map(|error| format!(": {error}")).unwrap_or_default();
            let target = &self.described.target;
            tracing::warn!("{target}: no row was acknowledged for {} s, and still trying{why}", stood.as_secs());
        }
        Ok(())
    }

    /// Whether nobody waits for the rows any more.
    fn is_abandoned(&self) -> bool {
        self.described.abandoned.load(Ordering::Relaxed)
    }

    fn failed(&self, source: impl Into<Cause>) -> Error {
        Error::Output { target: self.described.target.clone(), source: source.into() }
    }

    fn too_large(&self, value_bytes: usize) -> Error {
        let key = "message.max.bytes";
        let allowed = self.described.settings.get(key).unwrap_or(DEFAULT_MESSAGE_MAX_BYTES);
        self.failed(format!(
            "a row of {value_bytes} bytes is too large for a message; sink.properties.{key} allows {allowed}"
        ))
    }

    fn too_large_for_memory(&self, value_bytes: usize) -> Error {
        Error::Memory {
            place: format!("{}: a row", self.described.target),
            needed_bytes: value_bytes as u64,
            allowed_bytes: self.limits.bytes() as u64,
        }
    }
}

/// What the producer is made with.
fn config(described: &Described, limits: SendLimits) -> ClientConfig {
    let mut config = described.settings.config();
    config.set("acks", "all");
    config.set("enable.idempotence", "true");
    config.set("delivery.report.only.error", "true");
    config.set("queue.buffering.max.kbytes", limits.kbytes.to_string());
    config.set("queue.buffering.max.messages", limits.messages.to_string());
    config
}

/// Hears what became of messages, and what else the client has to say.
#[derive(Debug, Default)]
struct Reports {
    listener: Listener,
    failure: Mutex<Option<String>>,
}

impl Reports {
    /// The first message that wasn't delivered, and why.
    fn first_failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ClientContext for Reports {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.listener.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.listener.error(error, reason);
    }

    fn stats_raw(&self, statistics: &[u8]) {
        self.listener.stats_raw(statistics);
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let Err((error, message)) = result else { return };
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        if failure.is_some() {
            return;
        }
        let reason = error.rdkafka_error_code().map_or_else(|| error.to_string(), |code| code.to_string());
        let mut text = format!("a row of {} bytes was not delivered: {reason}", message.payload_len());
        if message.partition() >= 0 {
            text = format!("partition {}: {text}", message.partition());
        }
        // That a message was given up after a while says nothing of the reason.
        let is_timeout = error.rdkafka_error_code() == Some(RDKafkaErrorCode::MessageTimedOut);
        if let Some(last) = self.listener.last_error().filter(|_| is_timeout) {
            text = format!("{text}; {last}");
        }
        *failure = Some(text);
    }
}

/// Notices that nothing moves.
#[derive(Debug, Default)]
struct Stall {
    /// What was in flight, and since when it is so many.
    stood: Option<(i32, Instant)>,
    /// How often that was told.
    told: u32,
}

impl Stall {
    /// Takes what is in flight `now`; returns for how long it has been so many, each time that is to be told.
    fn seen(&mut self, in_flight: i32, now: Instant) -> Option<Duration> {
        let Some((_, since)) = self.stood.filter(|(known, _)| *known == in_flight) else {
            *self = Self { stood: Some((in_flight, now)), told: 0 };
            return None;
        };
        let stood = now.saturating_duration_since(since);
        if stood < STALL_INTERVAL * (self.told + 1) {
            return None;
        }
        self.told += 1;
        Some(stood)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_their_copies_and_what_comes_with_them_stay_within_the_memory() {
        for memory_bytes in [1 << 20, 24 << 20] {
            let limits = SendLimits::of(memory_bytes);
            assert!(2 * limits.bytes() + limits.messages * MESSAGE_BYTES <= memory_bytes);
        }
        assert_eq!(SendLimits::of(24 << 20), SendLimits { kbytes: 8192, messages: 32_768 });
        assert_eq!(SendLimits::of(0), SendLimits { kbytes: 1, messages: 1 }, "librdkafka takes 0 for no limit");
    }

    #[test]
    fn that_nothing_moves_is_told_every_ten_seconds_until_something_does() {
        let began = Instant::now();
        let mut stall = Stall::default();
        let told = [(0, 5), (9, 5), (10, 5), (11, 5), (19, 5), (21, 5), (22, 4), (31, 4), (33, 4)]
            .map(|(second, in_flight)| stall.seen(in_flight, began + Duration::from_secs(second)).map(|s| s.as_secs()));
        assert_eq!(told, [None, None, Some(10), None, None, Some(21), None, None, Some(11)]);
    }
}
