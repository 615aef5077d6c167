//! Topics: every partition a split, followed side by side, decoded on the ordered window.
//!
//! ```text
//! librdkafka ─▶ queue of our own ─▶ micro-batches ─▶ decode (pool) ─▶ ordered items
//!  fetches        one thread,         rows, bytes,      one message
//!                 segue-kafka         linger            is one record
//! ```
//!
//! Partitions are assigned by segue itself, with the offsets of the checkpoint; no consumer group decides
//! anything. Topics may be named or taken by a pattern; partitions and topics that come later are looked for by a
//! second thread, segue-topics, and read from their beginning. A position is the next offset to read. Messages without
//! a value (tombstones; unless [`Tombstones`] says otherwise), transaction markers and compacted offsets move positions
//! without rows.

mod address;
mod ask;
mod builder;
pub(crate) mod client;
mod consumer;
mod decoding;
mod describe;
mod group;
pub(crate) mod lookup;
mod loss;
mod micro_batch;
mod offsets;
mod partition;
mod queue;
mod queue_limits;
mod state;
mod statistics;
mod tombstones;
mod topics;
mod upkeep;
mod wait;
mod watch;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use rdkafka::consumer::BaseConsumer;
use tracing::warn;

pub use self::address::KafkaAddress;
use self::ask::PartitionKey;
pub use self::builder::KafkaSourceBuilder;
use self::client::{ClientSettings, Listener};
use self::consumer::Consumer;
use self::decoding::Decoding;
use self::group::GroupCommits;
pub use self::loss::OnDataLoss;
use self::micro_batch::Limits;
pub use self::offsets::{DefaultStart, PartitionOffsets, StartOffsets, StopOffsets};
use self::partition::{Partition, PartitionState};
use self::queue::BatchQueue;
use self::queue_limits::QueueLimits;
pub use self::tombstones::Tombstones;
pub use self::topics::{TopicPattern, Topics};
use self::watch::{KnownTopic, Watch, Watched};
use crate::checkpoint::{SourceState, SplitId, SplitState, Splits};
use crate::error::{Error, Result};
use crate::format::{Format, TextOptions};
use crate::ordered::ordered;
use crate::schema::Mapping;
use crate::source::{Boundedness, History, ReadRequest, Source, SourceStream, items};

/// The connector's name.
const CONNECTOR: &str = "kafka";

/// What to do when the first offset wanted is no longer in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnGap {
    /// [`Error::OffsetOutOfRange`], before anything is read.
    #[default]
    Fail,
    /// It is only told: each split's `log_start` and `end` stand in its identity. For plans, not for reading.
    Tell,
}

/// What to do when a topic is deleted that is being read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnTopicDeleted {
    /// [`Error::NotFound`].
    #[default]
    Fail,
    /// What was read of it is all of it: its partitions are done.
    Finish,
}

/// A source of topics.
#[derive(Clone, Debug)]
pub struct KafkaSource {
    name: String,
    settings: ClientSettings,
    topics: Topics,
    format: Format,
    schema: SchemaRef,
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
    /// Begun with the first commit; shared by clones.
    group: Arc<OnceLock<GroupCommits>>,
}

impl KafkaSource {
    /// Describes a source of what is at `address`: raw values, from the first message on, without an end. An address
    /// without topics wants [`KafkaSourceBuilder::topic_pattern`].
    pub fn builder(address: &KafkaAddress) -> KafkaSourceBuilder {
        KafkaSourceBuilder::new(address)
    }

    /// The format of values.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Which topics it reads.
    pub fn topics(&self) -> &Topics {
        &self.topics
    }

    /// What becomes of a split whose position is gone from the beginning of its log: what was asked for, or else what
    /// holds of a split that stands where it does.
    pub fn on_data_loss_of(&self, split: &SplitState) -> OnDataLoss {
        loss::policy(self.on_data_loss, split, self.start == StartOffsets::Earliest)
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
        match &self.topics {
            Topics::Named(names) => options.insert("topic".into(), names.join(";")),
            Topics::Pattern(pattern) => options.insert("topic-pattern".into(), pattern.as_str().into()),
        };
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
        let decoding = Decoding::try_new(self, &request)?;
        if !decoding.missing().is_empty() {
            warn!("{}: messages have no column {}; null there", self.name, decoding.missing().join(", "));
        }
        let queued = QueueLimits::new(request.budget.limit_bytes());
        let failed = |e| self.settings.client_error("properties", "begin to read from there", e);
        let mut config = self.settings.reading_config(&queued, self.stop != StopOffsets::Never);
        if request.gauges.is_some() && self.settings.get(STATISTICS_INTERVAL).is_none() {
            config.set(STATISTICS_INTERVAL, STATISTICS_INTERVAL_MS);
        }
        let consumer: BaseConsumer<Listener> = config.create_with_context(Listener::default()).map_err(failed)?;
        let mut queue = BatchQueue::new(consumer);
        let mut partitions = Vec::with_capacity(states.len());
        for state in &states {
            partitions.push(self.partition(&state.id, &mut queue)?);
        }
        let watch = Watch::spawn(Watched {
            settings: self.settings.clone(),
            topics: self.topics.clone(),
            known: self.known_topics(splits.values())?,
            discovery: (self.stop == StopOffsets::Never && !self.discovery.is_zero()).then_some(self.discovery),
        })?;
        let is_plain_start = self.start == StartOffsets::Earliest;
        let states = states.into_iter().map(|split| PartitionState::new(split, is_plain_start));
        let (sender, receiver) = ordered(2 * request.pool.num_threads() + 2);
        let consumer = Consumer {
            queue,
            partitions: partitions.into(),
            states: states.collect(),
            watch,
            on_topic_deleted: self.on_topic_deleted,
            on_data_loss: self.on_data_loss,
            is_plain_start,
            decoding: Arc::new(decoding),
            limits: Limits {
                rows: request.batch_rows.min(MICRO_BATCH_ROWS),
                bytes: MICRO_BATCH_BYTES.min(request.budget.limit_bytes() / 16),
                linger: self.linger,
            },
            gauges: request.gauges,
            is_cut_off: false,
            _queued: request.budget.lane().try_acquire(queued.held_bytes),
            budget: request.budget,
            pool: request.pool,
            sender,
        };
        consumer.spawn()?;
        Ok(items(receiver, request.batch_rows, || None))
    }

    fn committed(&self, state: &SourceState) {
        let Splits::SideBySide(splits) = &state.splits else { return };
        if self.settings.group().is_none() || !self.commits_to_group {
            return;
        }
        let commits = match self.group.get() {
            Some(commits) => commits,
            None => match GroupCommits::spawn(self.settings.clone()) {
                Ok(commits) => self.group.get_or_init(|| commits),
                Err(error) => {
                    warn!("{}: offsets aren't committed to the group: {error}", self.name);
                    return;
                }
            },
        };
        // Of a topic that is gone nothing can be committed.
        let is_there = |split: &&SplitState| !loss::is_deleted(split);
        let offset = |split: &SplitState| Some((key_of(&split.id)?, split.position));
        commits.commit(splits.values().filter(is_there).filter_map(offset).collect());
    }
}

/// How often librdkafka tells its statistics, in milliseconds. With a thousand partitions each time is a megabyte of
/// text, so not more often than somebody looks: a log line comes every 10 s, a scrape seldom more often.
const STATISTICS_INTERVAL: &str = "statistics.interval.ms";
const STATISTICS_INTERVAL_MS: &str = "5000";

/// Rows of a micro-batch, at most.
const MICRO_BATCH_ROWS: usize = 8192;

/// Bytes of a micro-batch's values after which it is cut.
const MICRO_BATCH_BYTES: usize = 1 << 20;

/// The key of a partition's end in its split's identity: what lag is counted to.
const END: &str = "end";

/// The key of a log's first offset there, for plans.
const LOG_START: &str = "log_start";

/// The key there of the topic's id, which tells it from another one of the same name.
const TOPIC_ID: &str = "topic_id";

/// The key there of the leader epoch under which what stands before the position was written
/// ([KIP-320](https://cwiki.apache.org/confluence/display/KAFKA/KIP-320)).
const LEADER_EPOCH: &str = "leader_epoch";

/// The key there of how many offsets were left out since the log no longer had them.
const LOST: &str = "lost";

/// The topic and the number that a split's name is made of.
fn key_of(split: &SplitId) -> Option<PartitionKey> {
    let (topic, id) = split.as_str().rsplit_once('/')?;
    Some((topic.to_owned(), id.parse().ok()?))
}

impl KafkaSource {
    /// The topic and the number of a split of this source.
    fn key(&self, split: &SplitId) -> Result<PartitionKey> {
        key_of(split).filter(|(topic, _)| self.topics.takes(topic)).ok_or_else(|| Error::UnexpectedSplit {
            split: split.to_string(),
            reason: format!("it is no partition of {}", self.topics),
        })
    }

    /// The partition that a split's name stands for.
    fn partition(&self, split: &SplitId, queue: &mut BatchQueue) -> Result<Partition> {
        let (topic, id) = self.key(split)?;
        Partition::try_new(&topic, id, queue)
    }

    /// What is known of topics by the states of their partitions.
    fn known_topics<'a>(&self, splits: impl Iterator<Item = &'a SplitState>) -> Result<BTreeMap<String, KnownTopic>> {
        let mut known: BTreeMap<String, KnownTopic> = BTreeMap::new();
        for split in splits {
            let (topic, id) = self.key(&split.id)?;
            let topic = known.entry(topic).or_default();
            topic.partitions.insert(id);
            if let Some(id) = split.identity.other.get(TOPIC_ID).and_then(|id| id.as_str()) {
                topic.id = Some(id.to_owned());
            }
        }
        Ok(known)
    }
}
