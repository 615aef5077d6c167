//! Topics: every partition a split, followed side by side, decoded on the ordered window.
//!
//! ```text
//! librdkafka ─▶ queue of our own ─▶ micro-batches ─▶ decode (pool) ─▶ ordered items
//!  fetches        one thread,         rows, bytes,      one message
//!                 segue-kafka         linger            is one record
//! ```
//!
//! Partitions are assigned by segue itself, with the offsets of the checkpoint; no consumer group decides
//! anything. A position is the next offset to read. Messages without a value (tombstones), transaction markers
//! and compacted offsets move positions without rows.

mod address;
pub(crate) mod client;
mod consumer;
mod decoding;
pub(crate) mod lookup;
mod micro_batch;
mod offsets;
mod partition;
mod queue;
mod state;
mod wait;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use rdkafka::consumer::BaseConsumer;
use tracing::warn;

pub use self::address::KafkaAddress;
use self::client::{ClientSettings, Listener};
use self::consumer::Consumer;
use self::decoding::Decoding;
use self::micro_batch::Limits;
pub use self::offsets::{PartitionOffsets, StartOffsets, StopOffsets};
use self::partition::{Partition, PartitionState};
use self::queue::BatchQueue;
use crate::checkpoint::{SourceState, SplitId, SplitState, Splits};
use crate::error::{Error, Result};
#[cfg(feature = "csv")]
use crate::format::CsvOptions;
#[cfg(feature = "json")]
use crate::format::JsonOptions;
use crate::format::{Format, TextOptions};
use crate::ordered::ordered;
use crate::schema::Mapping;
use crate::source::{Boundedness, History, ReadRequest, Source, SourceStream, items};

/// The connector's name.
const CONNECTOR: &str = "kafka";

/// How long a row waits for others before it is delivered: a trickling topic is seen at once, a flood is
/// decoded in batches.
const DEFAULT_LINGER: Duration = Duration::from_millis(20);

/// What to do when the first offset wanted is no longer in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnGap {
    /// [`Error::OffsetOutOfRange`], before anything is read.
    #[default]
    Fail,
    /// It is only told: each split's `log_start` and `end` stand in its identity. For plans, not for reading.
    Tell,
}

/// A source of topics.
#[derive(Clone, Debug)]
pub struct KafkaSource {
    name: String,
    settings: ClientSettings,
    topics: Vec<String>,
    format: Format,
    schema: SchemaRef,
    mapping: Mapping,
    options: TextOptions,
    start: StartOffsets,
    stop: StopOffsets,
    linger: Duration,
    on_gap: OnGap,
}

/// Describes a [`KafkaSource`].
#[derive(Clone, Debug)]
pub struct KafkaSourceBuilder {
    name: Option<String>,
    settings: ClientSettings,
    topics: Vec<String>,
    format: Format,
    schema: Option<SchemaRef>,
    mapping: Mapping,
    options: TextOptions,
    start: StartOffsets,
    stop: StopOffsets,
    linger: Duration,
    on_gap: OnGap,
}

impl KafkaSource {
    /// Describes a source of what is at `address`: raw values, from the first message on, without an end.
    pub fn builder(address: &KafkaAddress) -> KafkaSourceBuilder {
        KafkaSourceBuilder {
            name: None,
            settings: ClientSettings::new(address.bootstrap_servers()),
            topics: address.topics.clone(),
            format: Format::Raw,
            schema: None,
            mapping: Mapping::default(),
            options: TextOptions::default(),
            start: StartOffsets::default(),
            stop: StopOffsets::default(),
            linger: DEFAULT_LINGER,
            on_gap: OnGap::default(),
        }
    }

    /// The format of values.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The topics, in the order in which they were named.
    pub fn topics(&self) -> &[String] {
        &self.topics
    }
}

impl KafkaSourceBuilder {
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

    /// Sets what to do when the first offset wanted is no longer in the log.
    #[must_use]
    pub fn on_gap(mut self, on_gap: OnGap) -> Self {
        self.on_gap = on_gap;
        self
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
        for (key, offsets) in [
            ("scan.startup.specific-offsets", matches!(self.start, StartOffsets::At(_))),
            ("scan.bounded.specific-offsets", matches!(self.stop, StopOffsets::At(_))),
        ] {
            if offsets && self.topics.len() > 1 {
                return Err(Error::option(key, "offsets are of one topic's partitions, and there are several topics"));
            }
        }
        Ok(())
    }

    /// Makes the source. Nothing is connected yet.
    ///
    /// # Errors
    /// As [`Self::check`]; [`Error::Schema`] without a schema, unless values are raw.
    pub fn build(self) -> Result<KafkaSource> {
        self.check()?;
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
            name: self.name.unwrap_or_else(|| self.topics.join(",")),
            settings: self.settings,
            topics: self.topics,
            format: self.format,
            schema,
            mapping: self.mapping,
            options: self.options,
            start: self.start,
            stop: self.stop,
            linger: self.linger,
            on_gap: self.on_gap,
        })
    }
}

impl Source for KafkaSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn connector(&self) -> &str {
        CONNECTOR
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn boundedness(&self) -> Boundedness {
        match self.stop {
            StopOffsets::Never => Boundedness::Unbounded,
            _ => Boundedness::LiveUntilStop,
        }
    }

    fn position_options(&self) -> BTreeMap<String, String> {
        let mut options = self.mapping.to_options();
        options.insert("topic".into(), self.topics.join(";"));
        options.insert("format".into(), self.format.to_string());
        #[cfg(feature = "csv")]
        if self.format == Format::Csv {
            options.extend(self.options.csv.position_options());
        }
        options
    }

    fn unbounded_because(&self) -> Option<String> {
        (self.stop == StopOffsets::Never).then(|| "scan.bounded.mode is unbounded".into())
    }

    fn resolve<'a>(
        &'a self,
        stored: Option<SourceState>,
        _history: Option<&'a History>,
    ) -> BoxFuture<'a, Result<SourceState>> {
        let source = self.clone();
        async move {
            // librdkafka's calls block.
            let looked_up = tokio::task::spawn_blocking(move || state::resolve(&source, stored));
            looked_up.await.unwrap_or_else(|e| Err(Error::Worker { message: format!("looking offsets up: {e}") }))
        }
        .boxed()
    }

    fn open(&self, state: &SourceState, request: ReadRequest) -> Result<SourceStream> {
        let Splits::SideBySide(splits) = &state.splits else {
            return Err(Error::Chain(format!("source {} reads partitions side by side", self.name)));
        };
        let states: Vec<SplitState> = splits.values().filter(|split| !split.done).cloned().collect();
        if states.is_empty() {
            return Ok(stream::empty().boxed());
        }
        let partitions = states.iter().map(|split| self.partition(&split.id)).collect::<Result<Arc<[Partition]>>>()?;
        let decoding = Decoding::try_new(self, &request)?;
        if !decoding.missing().is_empty() {
            warn!("{}: messages have no column {}; null there", self.name, decoding.missing().join(", "));
        }
        let queued = QueueLimits::new(request.budget.limit_bytes());
        let failed = |e| self.settings.client_error("properties", "begin to read from there", e);
        let consumer: BaseConsumer<Listener> = self
            .settings
            .reading_config(&queued, self.stop != StopOffsets::Never)
            .create_with_context(Listener::default())
            .map_err(failed)?;
        let queue = BatchQueue::try_new(Arc::new(consumer), &self.topics).map_err(failed)?;
        let may_skip = self.start == StartOffsets::Earliest;
        let (sender, receiver) = ordered(2 * request.pool.num_threads() + 2);
        let consumer = Consumer {
            queue,
            partitions,
            states: states.into_iter().map(|split| PartitionState::new(split, may_skip)).collect(),
            decoding: Arc::new(decoding),
            limits: Limits {
                rows: request.batch_rows.min(MICRO_BATCH_ROWS),
                bytes: MICRO_BATCH_BYTES.min(request.budget.limit_bytes() / 16),
                linger: self.linger,
            },
            is_cut_off: false,
            times_missing: 0,
            _queued: request.budget.lane().try_acquire(queued.held_bytes),
            budget: request.budget,
            pool: request.pool,
            sender,
        };
        consumer.spawn()?;
        Ok(items(receiver, request.batch_rows, || None))
    }
}

/// Rows of a micro-batch, at most.
const MICRO_BATCH_ROWS: usize = 8192;

/// Bytes of a micro-batch's values after which it is cut.
const MICRO_BATCH_BYTES: usize = 1 << 20;

/// The key of a partition's end in its split's identity: what lag is counted to.
const END: &str = "end";

/// The key of a log's first offset there, for plans.
const LOG_START: &str = "log_start";

impl KafkaSource {
    /// The partition that a split's name stands for.
    fn partition(&self, split: &SplitId) -> Result<Partition> {
        let found = split.as_str().rsplit_once('/').and_then(|(name, id)| {
            let topic = self.topics.iter().position(|topic| topic == name)?;
            Some(Partition { split: split.clone(), topic, topic_name: name.into(), id: id.parse().ok()? })
        });
        found.ok_or_else(|| Error::UnexpectedSplit {
            split: split.to_string(),
            reason: format!("it is no partition of {}", self.topics.join(", ")),
        })
    }
}

/// What librdkafka may hold of messages that nobody took yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueLimits {
    /// Messages; a queued one costs about 300 bytes besides its payload.
    messages: usize,
    /// Payload, which is all that librdkafka counts.
    payload_bytes: usize,
    /// What one fetch brings at most; one in flight comes on top of the others.
    fetch_bytes: usize,
    /// All of it together, for the budget.
    held_bytes: usize,
}

impl QueueLimits {
    /// Takes half of what may be buffered: as much again is being decoded, or waits to be taken.
    fn new(limit_bytes: usize) -> Self {
        const MESSAGE_BYTES: usize = 300;
        /// librdkafka doesn't take less for a fetch than for a message.
        const MIN_FETCH_BYTES: usize = 1 << 20;
        const MAX_FETCH_BYTES: usize = 10 << 20;
        let held_bytes = limit_bytes / 2;
        Self {
            messages: (held_bytes / 2 / MESSAGE_BYTES).clamp(1000, 10_000_000),
            // librdkafka takes no more than 2 GB.
            payload_bytes: (held_bytes / 4).clamp(64 << 10, 2_097_151 << 10),
            fetch_bytes: (held_bytes / 16).clamp(MIN_FETCH_BYTES, MAX_FETCH_BYTES),
            held_bytes,
        }
    }
}
