//! The polling thread: takes messages, keeps positions, cuts micro-batches, and hands them to the pool.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use rdkafka::consumer::Consumer as _;
use rdkafka::types::RDKafkaErrorCode;
use tracing::warn;

use super::OnTopicDeleted;
use super::decoding::{DecodedMessages, Decoding};
use super::loss::OnDataLoss;
use super::micro_batch::{Limits, MicroBatch, RunKind};
use super::partition::{Partition, PartitionIndex, PartitionState};
use super::queue::{BatchQueue, Event};
use super::wait::wait_while;
use super::watch::Watch;
use crate::budget::{Budget, Permit};
use crate::checkpoint::SplitState;
use crate::error::{Error, Result};
use crate::ordered::{Closed, DecodePool, OrderedSender, worker_error};
use crate::progress::{FetchGauges, FetchQueue, Fetching};
use crate::source::{Decoded, Rest};

/// How long the thread sleeps at most: so soon it sees that nobody reads any more, and serves what the client
/// has to say.
pub(super) const NAP: Duration = Duration::from_millis(50);

/// How often ends of partitions are looked at, to tell the lag.
const END_INTERVAL: Duration = Duration::from_secs(1);

/// How often the topics are looked after. librdkafka only logs that one is gone, and goes on in another one of its
/// name without a word.
const TOPIC_INTERVAL: Duration = Duration::from_secs(2);

/// How much seldomer for each of them: every one costs a request.
const INTERVAL_PER_TOPIC: Duration = Duration::from_millis(20);

/// After so long without a move below its stop, a partition is said to wait for an open transaction.
const STUCK_AFTER: Duration = Duration::from_secs(60);

/// Messages that are taken by one call, at most: enough that the call's own cost vanishes.
const MAX_TAKEN: usize = 512;

/// Bytes that a row of a micro-batch takes besides its value: entry, position, and short columns.
const ROW_BYTES: usize = 64;

/// Decoded bytes and the value's own, for each byte of a value.
const VALUE_FACTOR: usize = 4;

/// What the thread works with.
pub(super) struct Consumer {
    pub(super) queue: BatchQueue,
    pub(super) partitions: Arc<[Partition]>,
    pub(super) states: Vec<PartitionState>,
    pub(super) decoding: Arc<Decoding>,
    pub(super) limits: Limits,
    pub(super) budget: Budget,
    pub(super) pool: DecodePool,
    pub(super) sender: OrderedSender<Decoded>,
    /// Where to tell what is fetched, if somebody looks.
    pub(super) gauges: Option<Arc<FetchGauges>>,
    /// Whether it was said that no broker can be reached.
    pub(super) is_cut_off: bool,
    pub(super) watch: Watch,
    pub(super) on_topic_deleted: OnTopicDeleted,
    pub(super) on_data_loss: Option<OnDataLoss>,
    /// Whether reading was to begin where logs do.
    pub(super) is_plain_start: bool,
    /// Held for what librdkafka queues.
    pub(super) _queued: Option<Permit>,
}

/// Why the thread ends before its partitions do.
pub(super) enum Stop {
    /// Nobody reads any more.
    Closed,
    Failed(Error),
}

impl From<Closed> for Stop {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Consumer {
    /// Starts the thread. It ends by itself when every partition is done, or nobody reads any more.
    pub(super) fn spawn(self) -> Result<()> {
        let mut consumer = self;
        let run = move || {
            let error = match catch_unwind(AssertUnwindSafe(|| consumer.run())) {
                Ok(Ok(()) | Err(Stop::Closed)) => None,
                Ok(Err(Stop::Failed(error))) => Some(error),
                Err(payload) => Some(worker_error(payload.as_ref())),
            };
            let Self { sender, queue, watch, gauges, .. } = consumer;
            if let Some(error) = error {
                // Nobody to tell it to is the end as well.
                let _ = wait_while(sender.submit(async { Err(error) }.boxed(), None), || true);
            }
            // The reader goes on before the client has said goodbye to its brokers.
            drop(sender);
            drop((queue, watch));
            if let Some(gauges) = gauges {
                gauges.tell(Fetching { queue: Some(FetchQueue::default()), ..Fetching::default() });
            }
        };
        let handle = thread::Builder::new()
            .name("segue-kafka".into())
            .spawn(run)
            .map_err(|e| Error::Worker { message: format!("no thread to poll Kafka on: {e}") })?;
        drop(handle);
        Ok(())
    }

    fn run(&mut self) -> Result<(), Stop> {
        self.begin()?;
        let mut index = PartitionIndex::new(&self.partitions);
        let mut batch = MicroBatch::new(&self.partitions, self.decoding.wanted(), None);
        // Small first: a partition of large messages must not fill the memory with its first batch.
        let mut chunk = 16;
        let (mut served, mut looked, mut asked) = (Instant::now(), Instant::now(), Instant::now());
        loop {
            let now = Instant::now();
            if served + NAP <= now || batch.is_empty() {
                served = now;
                self.serve()?;
                if self.sender.is_closed() {
                    return Err(Stop::Closed);
                }
                while let Some(sighting) = self.watch.next() {
                    if let Err(stop) = self.take_up(sighting, &mut batch) {
                        self.submit(batch)?;
                        return Err(stop);
                    }
                    index = PartitionIndex::new(&self.partitions);
                }
                if self.is_done() {
                    return self.end(batch);
                }
            }
            if looked + END_INTERVAL <= now {
                looked = now;
                self.look_at_ends(now);
            }
            if asked + TOPIC_INTERVAL + INTERVAL_PER_TOPIC * self.queue.num_topics() <= now {
                asked = now;
                self.watch.ask();
            }
            let wait = batch.wait(&self.limits, now);
            if wait == Some(Duration::ZERO) {
                let (rows, bytes) = (batch.num_rows(), batch.value_bytes());
                chunk = (self.limits.bytes * rows / bytes.max(1)).clamp(1, MAX_TAKEN);
                self.submit(batch)?;
                batch = MicroBatch::new(&self.partitions, self.decoding.wanted(), Some((rows, bytes)));
                continue;
            }
            let room = self.limits.rows.saturating_sub(batch.len()).clamp(1, chunk);
            let mut taken = self.take(room, Duration::ZERO, &index, &mut batch);
            if let Ok(0) = taken {
                // One at a time wakes as soon as there is something; asking for more would wait for all of it.
                taken = self.take(1, wait.unwrap_or(NAP).min(NAP), &index, &mut batch);
            }
            let taken = match taken {
                Ok(taken) => taken,
                // What came before the error is good.
                Err(stop) => {
                    self.submit(batch)?;
                    return Err(stop);
                }
            };
            if taken > 0 && self.is_done() {
                return self.end(batch);
            }
        }
    }

    /// Hands the last micro-batch on, if it is of the topics that were to be read.
    fn end(&mut self, batch: MicroBatch) -> Result<(), Stop> {
        self.confirm_topics()?;
        self.submit(batch)
    }

    fn is_done(&self) -> bool {
        self.states.iter().all(|partition| partition.state.done)
    }

    /// Takes up to `max` messages and events into `batch`.
    fn take(
        &mut self,
        max: usize,
        timeout: Duration,
        index: &PartitionIndex,
        batch: &mut MicroBatch,
    ) -> Result<usize, Stop> {
        let tombstones_are_rows = self.decoding.tombstones_are_rows();
        let (states, partitions) = (&mut self.states, &self.partitions);
        let (mut failed, mut out_of_range, mut stopped) = (None, Vec::new(), Vec::new());
        let mut has_doubts = false;
        // Not known before the wait is over; one look at the clock serves all that is taken.
        let mut now = None;
        let taken = self.queue.take(max, timeout, |event| {
            // What comes behind a damaged batch must not move its partition past it.
            if failed.is_some() {
                return;
            }
            let now = *now.get_or_insert_with(Instant::now);
            let (topic, partition) = match &event {
                Event::Message(message) => (message.topic, message.partition()),
                Event::End { topic, partition, .. } | Event::Failed { topic, partition, .. } => (*topic, *partition),
            };
            let Some(which) = index.get(topic, partition) else { return };
            let state = &mut states[which as usize];
            if state.state.done {
                return;
            }
            let from = state.state.position;
            match event {
                Event::Message(message) => {
                    let offset = message.offset();
                    // What a new leader sends again has been taken already.
                    if offset < from {
                        return;
                    }
                    state.at_end = false;
                    state.leader_epoch = message.leader_epoch();
                    if let Some(stop) = state.state.stop.filter(|stop| offset >= *stop) {
                        state.move_to(stop, now);
                    } else {
                        state.move_to(offset + 1, now);
                        if tombstones_are_rows || message.value().is_some() {
                            batch.push_row(which, from, &message, now);
                        } else {
                            batch.push(which, from, RunKind::Skip, offset + 1, now);
                        }
                    }
                }
                Event::End { offset, .. } => {
                    state.at_end = true;
                    state.set_end(offset);
                    let end = state.state.stop.map_or(offset, |stop| stop.min(offset));
                    if end > from {
                        // Of a marker, or what compaction left of a message, the epoch isn't told.
                        state.leader_epoch = None;
                        state.move_to(end, now);
                        batch.push(which, from, RunKind::Skip, end, now);
                    }
                }
                Event::Failed { code: RDKafkaErrorCode::AutoOffsetReset, reason, .. } => {
                    out_of_range.push((which, reason));
                }
                Event::Failed { code, reason, .. } => {
                    if is_of_topic(code) {
                        has_doubts = true;
                    } else if is_passing(code) {
                        tracing::debug!("{}: {reason}", partitions[which as usize].split);
                    } else {
                        let place = partitions[which as usize].split.to_string();
                        failed = Some(Error::Kafka { place, action: "read it", source: reason.into() });
                    }
                }
            }
            if state.is_stop_reached() {
                state.state.done = true;
                batch.push(which, from, RunKind::Done, state.state.position, now);
                stopped.push(which);
            }
        });
        self.is_cut_off &= taken == 0;
        if has_doubts {
            self.watch.ask();
        }
        if let Some(error) = failed {
            return Err(error.into());
        }
        for gone in out_of_range {
            self.out_of_range(gone, batch)?;
        }
        for which in stopped {
            let partition = &self.partitions[which as usize];
            self.queue
                .stop(partition.topic, partition.id)
                .map_err(|e| kafka(partition.split.as_str(), "end reading it", e))?;
        }
        Ok(taken)
    }

    /// Serves errors and statistics of the client.
    pub(super) fn serve(&mut self) -> Result<(), Error> {
        let listener = Arc::clone(self.queue.consumer().client().context());
        // The listener hears what there is; a message can't come here, since partitions have a queue of their own.
        while let Some(event) = self.queue.consumer().poll(Duration::ZERO) {
            let code = event.err().and_then(|error| error.rdkafka_error_code());
            if code == Some(RDKafkaErrorCode::AllBrokersDown) && !self.is_cut_off {
                self.is_cut_off = true;
                let reason = listener.last_error().map_or_else(String::new, |reason| format!(": {reason}"));
                warn!("no broker can be reached any more, and it is tried again and again{reason}");
            }
        }
        if let (Some(statistics), Some(gauges)) = (listener.take_statistics(), &self.gauges) {
            gauges.tell(statistics.fetching(&self.partitions, &self.states));
        }
        match listener.take_fatal() {
            None => Ok(()),
            Some(error) => {
                let place = self.partitions.first().map_or_else(String::new, |partition| partition.split.to_string());
                let reason = listener.last_error().unwrap_or_else(|| error.to_string());
                Err(Error::Kafka { place, action: "read it", source: reason.into() })
            }
        }
    }

    /// Notes the ends of partitions, and warns of one that can't reach its stop.
    fn look_at_ends(&mut self, now: Instant) {
        for (partition, state) in self.partitions.iter().zip(&mut self.states) {
            // At its end the event has said more exactly what the end is.
            if !state.at_end
                && let Some(end) = self.queue.high_watermark(partition.topic, partition.id)
            {
                state.set_end(end.max(state.state.position));
            }
            let Some(stop) = state.state.stop.filter(|_| !state.state.done && state.at_end && !state.warned) else {
                continue;
            };
            if state.moved + STUCK_AFTER <= now {
                state.warned = true;
                warn!(
                    "{}: at offset {}, waiting for offset {stop}: a transaction is open, or nothing is written",
                    partition.split, state.state.position
                );
            }
        }
    }

    /// Hands a micro-batch to the pool, when the budget allows it and the window has a place.
    fn submit(&mut self, batch: MicroBatch) -> Result<(), Stop> {
        if batch.is_empty() {
            return Ok(());
        }
        for partition in batch.moved() {
            let state = &mut self.states[partition as usize];
            // What was read is there.
            state.set_end(state.end().max(state.state.position));
            state.note_epoch();
        }
        let changed = self.changed();
        let bytes = batch.value_bytes() * VALUE_FACTOR + batch.len() * ROW_BYTES;
        let budget = self.budget.clone();
        let permit = self.wait(budget.acquire(bytes))?;
        let job = start(self.pool.clone(), Arc::clone(&self.decoding), Arc::new(batch), 0, changed);
        let sender = self.sender.clone();
        self.wait(async move { sender.submit(job, Some(permit)).await })??;
        Ok(())
    }

    /// What isn't told yet of logs, as states of their splits.
    pub(super) fn changed(&mut self) -> Vec<SplitState> {
        let changed = self
            .states
            .iter_mut()
            .filter_map(|partition| std::mem::take(&mut partition.changed).then(|| partition.state.clone()));
        changed.collect()
    }

    /// Waits for `work`, serving the client meanwhile.
    pub(super) fn wait<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Stop> {
        let mut failed = None;
        let mut closed = false;
        let done = wait_while(work, || {
            failed = self.serve().err();
            closed = self.sender.is_closed();
            failed.is_none() && !closed
        });
        match (done, failed) {
            (_, Some(error)) => Err(error.into()),
            (Some(value), None) => Ok(value),
            (None, None) => Err(Stop::Closed),
        }
    }
}

/// Starts to decode a micro-batch from row `first` on, and what is left of it when that is asked for.
fn start(
    pool: DecodePool,
    decoding: Arc<Decoding>,
    batch: Arc<MicroBatch>,
    first: usize,
    changed: Vec<SplitState>,
) -> BoxFuture<'static, Result<Decoded>> {
    let job = pool.spawn({
        let (decoding, batch) = (Arc::clone(&decoding), Arc::clone(&batch));
        move || decoding.decode(&batch, first)
    });
    let decoded = async move {
        let DecodedMessages { item, fault, rest } = job.await?;
        let item = item.map(|item| item.with_changed(changed));
        let rest = rest.map(|first| Rest::new(move || start(pool, decoding, batch, first, Vec::new())));
        Ok(Decoded { item, fault, rest })
    };
    decoded.boxed()
}

/// Whether an error says that a topic may be gone, or be another one: then that is looked after.
fn is_of_topic(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode::{UnknownPartition, UnknownTopic, UnknownTopicId, UnknownTopicOrPartition};
    matches!(code, UnknownPartition | UnknownTopic | UnknownTopicId | UnknownTopicOrPartition)
}

/// Whether librdkafka goes on by itself after such an error of a partition.
fn is_passing(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode::{
        AllBrokersDown, BrokerTransportFailure, FencedLeaderEpoch, LeaderNotAvailable, NotLeaderForPartition,
        OffsetNotAvailable, OperationTimedOut, ReplicaNotAvailable, RequestTimedOut, Resolve, UnknownLeaderEpoch,
    };
    matches!(
        code,
        AllBrokersDown
            | BrokerTransportFailure
            | FencedLeaderEpoch
            | LeaderNotAvailable
            | NotLeaderForPartition
            | OffsetNotAvailable
            | OperationTimedOut
            | ReplicaNotAvailable
            | RequestTimedOut
            | Resolve
            | UnknownLeaderEpoch
    )
}

pub(super) fn kafka(place: &str, action: &'static str, error: rdkafka::error::KafkaError) -> Error {
    Error::Kafka { place: place.to_owned(), action, source: Box::new(error) }
}
