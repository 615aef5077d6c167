//! The client's settings: brokers, pass-through properties, and what is ours to set.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rdkafka::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, ConsumerContext};
use rdkafka::error::KafkaError;

use super::QueueLimits;
use super::statistics::Statistics;
use crate::error::{Error, Result};

/// Settings that reading relies on; with another value messages would be lost or repeated.
const RESERVED: [(&str, &str); 12] = [
    ("bootstrap.servers", "the address names the brokers"),
    ("metadata.broker.list", "the address names the brokers"),
    ("auto.offset.reset", "scan.startup.mode says where to begin, and an offset that is gone is an error"),
    ("enable.auto.commit", "offsets are committed when the rows are safe"),
    ("auto.commit.enable", "offsets are committed when the rows are safe"),
    ("auto.commit.interval.ms", "offsets are committed when the rows are safe"),
    ("enable.auto.offset.store", "positions are kept in the checkpoint"),
    ("offset.store.method", "positions are kept in the checkpoint"),
    ("enable.partition.eof", "the end of a partition is always told"),
    ("consume.callback.max.messages", "messages are taken in batches"),
    ("test.mock.num.brokers", "it is for tests of librdkafka"),
    ("group.instance.id", "partitions are assigned by segue itself"),
];

/// Settings of Kafka's Java client, with what stands in their place here.
const JAVA_ONLY: [(&str, &str); 13] = [
    ("sasl.jaas.config", "sasl.username and sasl.password"),
    ("sasl.login.callback.handler.class", "sasl.oauthbearer.method"),
    ("sasl.client.callback.handler.class", "sasl.oauthbearer.method"),
    ("ssl.truststore.location", "ssl.ca.location (PEM)"),
    ("ssl.truststore.password", "ssl.ca.location (PEM)"),
    ("ssl.truststore.type", "ssl.ca.location (PEM)"),
    ("ssl.keystore.type", "ssl.certificate.location and ssl.key.location (PEM)"),
    ("ssl.keymanager.algorithm", "not needed: leave it out"),
    ("key.deserializer", "not needed: leave it out"),
    ("value.deserializer", "format"),
    ("max.poll.records", "--batch-rows"),
    ("request.timeout.ms", "socket.timeout.ms"),
    ("default.api.timeout.ms", "socket.timeout.ms"),
];

/// How to reach a cluster: its brokers, and librdkafka's settings as the user gave them.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ClientSettings {
    bootstrap_servers: String,
    properties: BTreeMap<String, String>,
    /// Properties whose values must not be shown.
    secret: BTreeSet<String>,
}

impl fmt::Debug for ClientSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.bootstrap_servers)?;
        for (key, value) in &self.properties {
            let value = if self.is_secret(key) { "***" } else { value };
            write!(f, " {key}={value}")?;
        }
        Ok(())
    }
}

impl ClientSettings {
    pub(crate) fn new(bootstrap_servers: impl Into<String>) -> Self {
        Self { bootstrap_servers: bootstrap_servers.into(), properties: BTreeMap::new(), secret: BTreeSet::new() }
    }

    pub(crate) fn bootstrap_servers(&self) -> &str {
        &self.bootstrap_servers
    }

    pub(crate) fn set(&mut self, key: impl Into<String>, value: impl Into<String>, is_secret: bool) {
        let key = key.into();
        if is_secret {
            self.secret.insert(key.clone());
        }
        self.properties.insert(key, value.into());
    }

    /// A value of the user's own.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.properties.get(key).map(String::as_str)
    }

    fn is_secret(&self, key: &str) -> bool {
        // Whatever its origin, what is called so isn't shown.
        self.secret.contains(key) || ["password", "secret", "key.pem"].iter().any(|word| key.contains(word))
    }

    /// Checks every property: that it is librdkafka's, that its value can stand, and that it is the user's to set.
    pub(crate) fn check(&self) -> Result<()> {
        self.check_as("properties.", &RESERVED)
    }

    /// As [`Self::check`], for properties that are given with `prefix`, of which the `reserved` ones can't be
    /// set, each for its reason.
    pub(crate) fn check_as(&self, prefix: &str, reserved: &[(&str, &str)]) -> Result<()> {
        for (key, value) in &self.properties {
            let option = || format!("{prefix}{key}");
            if let Some((_, why)) = reserved.iter().find(|(reserved, _)| reserved == key) {
                return Err(Error::option(option(), format!("it can't be set: {why}")));
            }
            if let Some((_, instead)) = JAVA_ONLY.iter().find(|(java, _)| java == key) {
                return Err(Error::option(
                    option(),
                    format!("it is a setting of Kafka's Java client; here it is {instead}"),
                ));
            }
            if key == "security.protocol" && value.to_ascii_lowercase().contains("ssl") {
                return Err(Error::Unsupported(format!(
                    "option '{}': TLS to brokers is not in this version",
                    option()
                )));
            }
            let mut alone = ClientConfig::new();
            alone.set(key, value);
            if let Err(error) = alone.create_native_config() {
                let reason = match error {
                    KafkaError::ClientConfig(_, reason, ..) if !self.is_secret(key) => reason,
                    _ => "librdkafka doesn't take its value".into(),
                };
                return Err(Error::option(option(), reason));
            }
        }
        Ok(())
    }

    /// Tells why a client couldn't be made, without any secret. Settings that can't stand together, or name a file
    /// that can't be read, are the fault of the options called `prefix`.
    pub(crate) fn client_error(&self, prefix: &str, action: &'static str, error: KafkaError) -> Error {
        match error {
            KafkaError::ClientCreation(reason) => Error::option(prefix, self.without_secrets(reason)),
            error => Error::Kafka {
                place: self.bootstrap_servers.clone(),
                action,
                source: self.without_secrets(error.to_string()).into(),
            },
        }
    }

    fn without_secrets(&self, text: String) -> String {
        let secrets = self.properties.iter().filter(|(key, value)| self.is_secret(key) && !value.is_empty());
        secrets.fold(text, |text, (_, value)| text.replace(value.as_str(), "***"))
    }

    /// What every client of this cluster is made with.
    pub(crate) fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.bootstrap_servers);
        config.set("client.id", "segue");
        // A refused connection is told at once, and tried again soon.
        config.set("reconnect.backoff.ms", "50");
        config.set("reconnect.backoff.max.ms", "1000");
        for (key, value) in &self.properties {
            config.set(key, value);
        }
        config.set_log_level(RDKafkaLogLevel::Warning);
        config
    }
}

impl ClientSettings {
    /// The consumer group that offsets are committed to, if one was given.
    pub(super) fn group(&self) -> Option<&str> {
        self.get("group.id")
    }

    /// As [`Self::config`], of no group: nobody but us decides where to read, and no coordinator is asked.
    pub(super) fn config_without_group(&self) -> ClientConfig {
        let mut config = self.config();
        config.remove("group.id");
        config
    }

    /// What a client that reads is made with.
    pub(crate) fn reading_config(&self, limits: &QueueLimits, has_stop: bool) -> ClientConfig {
        let mut config = self.config_without_group();
        config.set("enable.auto.commit", "false");
        config.set("enable.auto.offset.store", "false");
        // An offset that is gone is an error, never a silent jump.
        config.set("auto.offset.reset", "error");
        config.set("enable.partition.eof", "true");
        for (key, value) in [
            ("check.crcs", "true".to_owned()),
            ("queued.min.messages", limits.messages.to_string()),
            ("queued.max.messages.kbytes", (limits.payload_bytes >> 10).to_string()),
            ("fetch.max.bytes", limits.fetch_bytes.to_string()),
            // A partition whose queue was full would wait a second by default.
            ("fetch.queue.backoff.ms", "10".to_owned()),
            // The end of a partition behind a marker is told by a fetch that found nothing. Whoever waits for an end
            // isn't kept half a second; whoever follows for ever asks less often.
            ("fetch.wait.max.ms", if has_stop { "50" } else { "500" }.to_owned()),
        ] {
            if self.get(key).is_none() {
                config.set(key, value);
            }
        }
        config
    }
}

/// Hears what a client has to say: log lines go into the log, the last error is kept to explain a timeout, and the last
/// statistics for whoever looks.
#[derive(Debug, Default)]
pub(crate) struct Listener {
    statistics: Mutex<Option<Statistics>>,
    last_error: Mutex<Option<String>>,
    fatal: Mutex<Option<KafkaError>>,
}

impl Listener {
    /// The last error that the client told of, such as a refused connection.
    pub(crate) fn last_error(&self) -> Option<String> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The last statistics that nobody has taken yet.
    pub(super) fn take_statistics(&self) -> Option<Statistics> {
        self.statistics.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// An error after which the client can't go on: a login that was refused.
    pub(crate) fn take_fatal(&self) -> Option<KafkaError> {
        self.fatal.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Hears what a client has to say: it says it only when it is polled, one thing at a time.
pub(super) fn hear(client: &BaseConsumer<Listener>) {
    /// Polled without waiting, a client that had something to log looks like one that had nothing to say.
    const MOMENT: Duration = Duration::from_millis(1);
    while client.poll(MOMENT).is_some() {}
}

impl ClientContext for Listener {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(?level, "librdkafka {facility}: {message}");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        use rdkafka::types::RDKafkaErrorCode::{AllBrokersDown, Authentication, Fatal, SaslAuthenticationFailed};
        tracing::debug!("librdkafka: {error}: {reason}");
        // That all are down says less than why the last of them is.
        if let KafkaError::Global(AllBrokersDown) = error {
            return;
        }
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason.to_owned());
        if let KafkaError::Global(Authentication | Fatal | SaslAuthenticationFailed) = error {
            *self.fatal.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
    }

    fn stats_raw(&self, json: &[u8]) {
        match Statistics::parse(json) {
            Ok(statistics) => {
                *self.statistics.lock().unwrap_or_else(PoisonError::into_inner) = Some(statistics);
            }
            Err(e) => tracing::debug!("librdkafka's statistics can't be read: {e}"),
        }
    }
}

impl ConsumerContext for Listener {}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(key: &str, value: &str, is_secret: bool) -> String {
        let mut settings = ClientSettings::new("h:9092");
        settings.set(key, value, is_secret);
        settings.check().unwrap_err().to_string()
    }

    #[test]
    fn what_is_not_the_users_to_set_is_refused() {
        assert!(refused("auto.offset.reset", "latest", false).contains("it can't be set: scan.startup.mode"));
        assert!(refused("sasl.jaas.config", "x", false).contains("here it is sasl.username and sasl.password"));
        assert!(refused("fetch.max.bites", "1", false).contains("No such configuration property"));
        assert!(refused("fetch.wait.max.ms", "often", false).starts_with("option 'properties.fetch.wait.max.ms': "));
        let mut good = ClientSettings::new("h:9092");
        good.set("fetch.wait.max.ms", "100", false);
        good.check().unwrap();
    }

    #[test]
    fn secrets_are_not_shown() {
        let mut settings = ClientSettings::new("h:9092");
        settings.set("sasl.password", "geheim", false);
        settings.set("client.id", "auch", true);
        settings.set("fetch.wait.max.ms", "100", false);
        assert_eq!(format!("{settings:?}"), "h:9092 client.id=*** fetch.wait.max.ms=100 sasl.password=***");
        assert!(!refused("fetch.wait.max.ms", "geheim", true).contains("geheim"));
    }
}
