//! Describes a source of topics.

use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::SchemaRef;

use super::client::ClientSettings;
use super::{
    KafkaAddress, KafkaSource, OnDataLoss, OnGap, OnTopicDeleted, StartOffsets, StopOffsets, Tombstones, TopicPattern,
    Topics,
};
use crate::error::{Error, Result};
#[cfg(feature = "csv")]
use crate::format::CsvOptions;
#[cfg(feature = "json")]
use crate::format::JsonOptions;
use crate::format::{Format, TextOptions};
use crate::schema::Mapping;

/// How long a row waits for others before it is delivered: a trickling topic is seen at once, a flood is
/// decoded in batches.
const DEFAULT_LINGER: Duration = Duration::from_millis(20);

/// How often partitions and topics that are new are looked for.
const DEFAULT_DISCOVERY: Duration = Duration::from_secs(30);

/// Describes a [`KafkaSource`].
#[derive(Clone, Debug)]
pub struct KafkaSourceBuilder {
    name: Option<String>,
    settings: ClientSettings,
    topics: Vec<String>,
    pattern: Option<String>,
    format: Format,
    schema: Option<SchemaRef>,
    mapping: Mapping,
    options: TextOptions,
    start: StartOffsets,
    stop: StopOffsets,
    linger: Duration,
    tombstones: Tombstones,
    on_gap: OnGap,
    on_data_loss: Option<OnDataLoss>,
    on_topic_deleted: OnTopicDeleted,
    discovery: Duration,
    commits_to_group: bool,
}

impl KafkaSourceBuilder {
    pub(super) fn new(address: &KafkaAddress) -> Self {
        Self {
            name: None,
            settings: ClientSettings::new(address.bootstrap_servers()),
            topics: address.topics.clone(),
            pattern: None,
            format: Format::Raw,
            schema: None,
            mapping: Mapping::default(),
            options: TextOptions::default(),
            start: StartOffsets::default(),
            stop: StopOffsets::default(),
            linger: DEFAULT_LINGER,
            tombstones: Tombstones::default(),
            on_gap: OnGap::default(),
            on_data_loss: None,
            on_topic_deleted: OnTopicDeleted::default(),
            discovery: DEFAULT_DISCOVERY,
            commits_to_group: true,
        }
    }

    /// Sets the name; the topics without.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets how values are to be understood: csv, json or raw.
    #[must_use]
    pub fn format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// Gives the schema: a value says nothing of its types. Raw values have `value STRING` without.
    #[must_use]
    pub fn schema(mut self, schema: SchemaRef) -> Self {
        self.schema = Some(schema);
        self
    }

    /// Sets how the source is fitted to the unified schema.
    #[must_use]
    pub fn mapping(mut self, mapping: Mapping) -> Self {
        self.mapping = mapping;
        self
    }

    /// Sets the options of CSV. A value has no header: its fields are the schema's columns in their order.
    #[cfg(feature = "csv")]
    #[must_use]
    pub fn csv(mut self, options: CsvOptions) -> Self {
        self.options.csv = options;
        self
    }

    /// Sets the options of JSON.
    #[cfg(feature = "json")]
    #[must_use]
    pub fn json(mut self, options: JsonOptions) -> Self {
        self.options.json = options;
        self
    }

    /// Sets one of librdkafka's settings.
    #[must_use]
    pub fn property(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.set(key, value, false);
        self
    }

    /// As [`Self::property`], with a value that is never shown.
    #[must_use]
    pub fn secret_property(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.set(key, value, true);
        self
    }

    /// Sets where reading begins, the first time.
    #[must_use]
    pub fn start(mut self, start: StartOffsets) -> Self {
        self.start = start;
        self
    }

    /// Sets where reading ends.
    #[must_use]
    pub fn stop(mut self, stop: StopOffsets) -> Self {
        self.stop = stop;
        self
    }

    /// Sets how long a row waits for others before it is delivered; 20 ms without.
    #[must_use]
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }

    /// Sets what becomes of messages without a value; they are no rows without.
    #[must_use]
    pub fn tombstones(mut self, tombstones: Tombstones) -> Self {
        self.tombstones = tombstones;
        self
    }

    /// Sets what to do when the first offset wanted is no longer in the log.
    #[must_use]
    pub fn on_gap(mut self, on_gap: OnGap) -> Self {
        self.on_gap = on_gap;
        self
    }

    /// Reads every topic whose whole name `pattern`, a regular expression, takes, also those that are made later.
    /// The address names no topic then.
    #[must_use]
    pub fn topic_pattern(mut self, pattern: impl Into<String>) -> Self {
        self.pattern = Some(pattern.into());
        self
    }

    /// Sets what to do when offsets that are wanted are gone from the log. Without, it is an error, but a partition
    /// with a plain [`StartOffsets::Earliest`] of which nothing was read yet begins where the log does.
    #[must_use]
    pub fn on_data_loss(mut self, on_data_loss: OnDataLoss) -> Self {
        self.on_data_loss = Some(on_data_loss);
        self
    }

    /// Sets what to do when a topic is deleted.
    #[must_use]
    pub fn on_topic_deleted(mut self, on_topic_deleted: OnTopicDeleted) -> Self {
        self.on_topic_deleted = on_topic_deleted;
        self
    }

    /// Sets how often partitions and topics that are new are looked for, while a source without a stop is read; 30 s
    /// without. Zero is never: they are taken up at the next start.
    #[must_use]
    pub fn discovery_interval(mut self, interval: Duration) -> Self {
        self.discovery = interval;
        self
    }

    /// Sets whether positions are committed to the consumer group (`group.id`), if one was given, when the checkpoint is;
    /// they are without.
    #[must_use]
    pub fn commit_group_offsets(mut self, commits: bool) -> Self {
        self.commits_to_group = commits;
        self
    }

    /// Which topics are read.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if neither names nor a pattern tell it, or both do.
    fn selected(&self) -> Result<Topics> {
        match &self.pattern {
            Some(_) if !self.topics.is_empty() => {
                Err(Error::option("topic-pattern", format!("the topics are named already: {}", self.topics.join(", "))))
            }
            Some(pattern) => Ok(Topics::Pattern(TopicPattern::try_new(pattern)?)),
            None if self.topics.is_empty() => {
                Err(Error::option("topic", "no topic is named; write kafka://HOST/TOPIC, or set topic-pattern"))
            }
            None => Ok(Topics::Named(self.topics.clone())),
        }
    }

    /// Checks what doesn't depend on the schema.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for a setting that can't stand, or a format that messages don't have.
    pub fn check(&self) -> Result<()> {
        self.settings.check()?;
        if self.format.has_types() {
            return Err(Error::option("format", format!("messages can't be {}; csv, json or raw", self.format)));
        }
        #[cfg(feature = "csv")]
        self.options.csv.check()?;
        let topics = self.selected()?;
        for (key, offsets) in [
            ("scan.startup.specific-offsets", matches!(self.start, StartOffsets::At { .. })),
            ("scan.bounded.specific-offsets", matches!(self.stop, StopOffsets::At(_))),
        ] {
            if offsets && !matches!(&topics, Topics::Named(names) if names.len() == 1) {
                return Err(Error::option(
                    key,
                    "offsets are of one topic's partitions, and there may be several topics",
                ));
            }
        }
        if self.settings.get("group.id") == Some("") {
            return Err(Error::option("properties.group.id", "it is empty"));
        }
        if matches!(self.start, StartOffsets::Group { .. }) && self.settings.group().is_none() {
            return Err(Error::option("scan.startup.mode", "group-offsets needs properties.group.id beside it"));
        }
        Ok(())
    }

    /// Makes the source. Nothing is connected yet.
    ///
    /// # Errors
    /// As [`Self::check`]; [`Error::Schema`] without a schema, unless values are raw.
    pub fn build(self) -> Result<KafkaSource> {
        self.check()?;
        let topics = self.selected()?;
        let schema = match (self.schema, self.format) {
            (Some(schema), _) => schema,
            (None, Format::Raw) => crate::format::raw::schema(),
            (None, format) => {
                return Err(Error::Schema(format!(
                    "the columns of {format} messages aren't known before they are read; give a schema"
                )));
            }
        };
        Ok(KafkaSource {
            name: self.name.unwrap_or_else(|| match &topics {
                Topics::Named(names) => names.join(","),
                Topics::Pattern(pattern) => pattern.as_str().to_owned(),
            }),
            settings: self.settings,
            topics,
            format: self.format,
            schema,
            mapping: self.mapping,
            options: self.options,
            start: self.start,
            stop: self.stop,
            linger: self.linger,
            tombstones: self.tombstones,
            on_gap: self.on_gap,
            on_data_loss: self.on_data_loss,
            on_topic_deleted: self.on_topic_deleted,
            discovery: self.discovery,
            commits_to_group: self.commits_to_group,
            group: Arc::default(),
        })
    }
}
