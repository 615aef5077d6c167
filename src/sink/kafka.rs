//! Rows to a topic: each row is a message without a key, its value CSV or JSON.
//!
//! ```text
//! write  ─ rows ─▶ │ waiting │ ─▶ segue-sink: encode, enqueue ─▶ │ librdkafka's queue │ ─▶ brokers
//!                                 waits while that is full ◀──────┤  bounded in bytes  │
//! commit ─ call ────────────────▶ waits until that is empty ◀─────┘ and in messages    ◀─ acknowledged
//! ```
//!
//! Delivery is at least once. A commit returns when all replicas that are in sync have every row, so what a
//! checkpoint counts as written can't be lost; rows that came after the last commit come again after a kill.
//! Within a run no row is lost, repeated or overtaken in its partition, whatever is sent anew (the producer is
//! idempotent). There is no key, so librdkafka spreads the rows over the partitions, a batch at a time.

mod producer;
mod topic;

use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::RecordBatch;
use futures::FutureExt;
use futures::future::BoxFuture;

use self::producer::{Producer, RESERVED};
use super::text::{CsvEncoder, JsonEncoder, RecordEncoder, unpack};
use super::thread::{Call, OnDrop, Output, OutputThread};
use super::{Header, Sink};
use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};
use crate::kafka::KafkaAddress;
use crate::kafka::client::ClientSettings;
use crate::source::ChainBatch;

/// Bytes that the sink holds, if nothing else is said: enough for tens of thousands of messages on their way,
/// so that a broker's answer is never waited for with nothing to send.
pub const DEFAULT_KAFKA_MEMORY_BYTES: usize = 32 << 20;

/// The prefix of librdkafka's settings among the options of a sink.
const PROPERTIES: &str = "sink.properties.";

/// How a row is written into a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MessageFormat {
    /// A CSV record without a line end. Messages have no header: whoever reads them must know the columns.
    /// Where a row has only one column, its null is an empty value.
    #[default]
    Csv,
    /// A JSON object without a line end.
    Json,
}

impl MessageFormat {
    /// The name, as `sink.format` has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Json => "json",
        }
    }
}

impl fmt::Display for MessageFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for MessageFormat {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        [Self::Csv, Self::Json]
            .into_iter()
            .find(|format| format.as_str() == text)
            .ok_or_else(|| Error::option("sink.format", format!("'{text}' is none of csv, json")))
    }
}

/// Writes rows into a topic, on a thread of its own.
///
/// It keeps no checkpoint: rows are delivered at least once. Rows are seen as they are written, not only
/// after a commit. After an error the sink is of no further use.
#[derive(Debug)]
pub struct KafkaSink {
    /// Tells the thread that nobody waits for it any more, also while it waits for a broker.
    abandoned: Arc<AtomicBool>,
    thread: OutputThread,
    reserved_bytes: usize,
}

/// Describes a [`KafkaSink`].
#[derive(Clone, Debug)]
pub struct KafkaSinkBuilder {
    address: KafkaAddress,
    settings: ClientSettings,
    format: MessageFormat,
    partitions: NonZeroU16,
    memory_bytes: usize,
}

impl KafkaSink {
    /// Begins a sink into the topic at `address`, which must name one.
    pub fn builder(address: &KafkaAddress) -> KafkaSinkBuilder {
        KafkaSinkBuilder {
            address: address.clone(),
            settings: ClientSettings::new(address.bootstrap_servers()),
            format: MessageFormat::default(),
            partitions: NonZeroU16::MIN,
            memory_bytes: DEFAULT_KAFKA_MEMORY_BYTES,
        }
    }
}

impl KafkaSinkBuilder {
    /// Sets how a row is written; CSV without.
    #[must_use]
    pub fn format(mut self, format: MessageFormat) -> Self {
        self.format = format;
        self
    }

    /// Sets how many partitions a topic gets that has to be made; one without. A topic that is there keeps
    /// what it has.
    #[must_use]
    pub fn partitions(mut self, partitions: NonZeroU16) -> Self {
        self.partitions = partitions;
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

    /// Bounds what the sink holds: rows that wait, and messages on their way. A row can't be larger than a
    /// quarter of it.
    #[must_use]
    pub fn memory_bytes(mut self, bytes: usize) -> Self {
        self.memory_bytes = bytes;
        self
    }

    /// Checks the description, without connecting.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for several topics or a setting that can't stand.
    pub fn check(&self) -> Result<()> {
        self.topic()?;
        self.settings.check_as(PROPERTIES, &RESERVED)
    }

    fn topic(&self) -> Result<&str> {
        match self.address.topics.as_slice() {
            [topic] => Ok(topic),
            [] => Err(Error::option(self.address.to_string(), "it names no topic for the rows to go into")),
            _ => Err(Error::option(self.address.to_string(), "it names several topics, and rows go into one")),
        }
    }

    /// Starts the thread. [`Sink::recover`] connects, and makes a topic that isn't there.
    ///
    /// # Errors
    /// As [`Self::check`]; [`Error::Worker`] if the system gives no thread.
    pub fn build(self) -> Result<KafkaSink> {
        let reserved_bytes = self.memory_bytes;
        let encoder: Box<dyn RecordEncoder> = match self.format {
            MessageFormat::Csv => Box::new(CsvEncoder::new(Header::Omitted)),
            MessageFormat::Json => Box::<JsonEncoder>::default(),
        };
        let (thread, abandoned) = self.start(encoder)?;
        Ok(KafkaSink { abandoned, thread, reserved_bytes })
    }

    /// The topic's address.
    pub(super) fn target(&self) -> String {
        self.address.to_string()
    }

    /// What the thread may hold.
    pub(super) fn reserved_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Starts the thread that makes messages of rows. The flag tells it that nobody waits for it any more.
    pub(super) fn start(self, encoder: Box<dyn RecordEncoder>) -> Result<(OutputThread, Arc<AtomicBool>)> {
        self.check()?;
        let topic = self.topic()?.to_owned();
        let target = self.target();
        let abandoned = Arc::new(AtomicBool::new(false));
        let output = KafkaOutput {
            described: Described {
                target: target.clone(),
                topic,
                partitions: self.partitions,
                settings: self.settings,
                // A quarter are rows that wait for the thread.
                memory_bytes: self.memory_bytes / 4 * 3,
                abandoned: Arc::clone(&abandoned),
            },
            encoder,
            has_begun: false,
            buffer: Vec::new(),
            producer: None,
        };
        let thread = OutputThread::start(target, output, self.memory_bytes / 4, OnDrop::Abandon)?;
        Ok((thread, abandoned))
    }
}

impl Sink for KafkaSink {
    fn recover(&mut self) -> BoxFuture<'_, Result<Option<Checkpoint>>> {
        async {
            self.thread.call(Call::Recover).await?;
            Ok(None)
        }
        .boxed()
    }

    fn write<'a>(&'a mut self, batch: &'a ChainBatch) -> BoxFuture<'a, Result<()>> {
        self.thread.write(batch.item.batch()).boxed()
    }

    fn commit<'a>(&'a mut self, _checkpoint: &'a Checkpoint) -> BoxFuture<'a, Result<()>> {
        self.thread.call(Call::Commit).boxed()
    }

    fn close(&mut self) -> BoxFuture<'_, Result<()>> {
        self.thread.call(Call::Close).boxed()
    }

    fn reserved_bytes(&self) -> usize {
        self.reserved_bytes
    }
}

impl Drop for KafkaSink {
    fn drop(&mut self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }
}

/// What the thread needs to know to connect.
#[derive(Clone, Debug)]
struct Described {
    /// The address, for errors.
    target: String,
    topic: String,
    partitions: NonZeroU16,
    settings: ClientSettings,
    /// For messages, from the time they are encoded until they are acknowledged.
    memory_bytes: usize,
    abandoned: Arc<AtomicBool>,
}

/// What the thread does.
struct KafkaOutput {
    described: Described,
    encoder: Box<dyn RecordEncoder>,
    has_begun: bool,
    /// One value.
    buffer: Vec<u8>,
    producer: Option<Producer>,
}

impl Output for KafkaOutput {
    fn recover(&mut self) -> Result<()> {
        if self.producer.is_none() {
            self.producer = Some(Producer::connect(&self.described)?);
        }
        Ok(())
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.recover()?;
        let Some(producer) = &self.producer else { return Ok(()) };
        if !self.has_begun {
            self.has_begun = true;
            self.encoder.begin(batch.schema_ref(), &mut self.buffer)?;
        }
        let columns = unpack(batch)?;
        for row in 0..batch.num_rows() {
            self.buffer.clear();
            self.encoder.record(&columns, row, &mut self.buffer);
            producer.send(&self.buffer)?;
        }
        producer.check()
    }

    fn commit(&mut self) -> Result<()> {
        self.producer.as_ref().map_or(Ok(()), Producer::flush)
    }

    fn close(&mut self) -> Result<()> {
        // Readers of the topic see rows as they come, so those since the last commit are theirs as well.
        self.commit()
    }
}
