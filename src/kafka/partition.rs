//! Partitions: their names, where each one stands, and how a message finds its own.

use std::sync::Arc;
use std::time::Instant;

use super::queue::BatchQueue;
use super::state::split_id;
use super::{END, LEADER_EPOCH};
use crate::checkpoint::{SplitId, SplitState};
use crate::error::{Error, Result};

/// A partition as messages and errors name it.
#[derive(Clone, Debug)]
pub(super) struct Partition {
    pub(super) split: SplitId,
    /// The index of its topic among the source's.
    pub(super) topic: usize,
    pub(super) topic_name: Arc<str>,
    pub(super) id: i32,
}

impl Partition {
    /// Makes a partition known to the queue.
    pub(super) fn try_new(topic: &str, id: i32, queue: &mut BatchQueue) -> Result<Self> {
        let split = split_id(&(topic.to_owned(), id));
        let index = queue.topic(topic).map_err(|e| Error::Kafka {
            place: split.to_string(),
            action: "begin to read it",
            source: Box::new(e),
        })?;
        Ok(Self { split, topic: index, topic_name: topic.into(), id })
    }
}

/// Where a partition stands.
#[derive(Debug)]
pub(super) struct PartitionState {
    pub(super) state: SplitState,
    /// Whether it was to begin where the log does.
    pub(super) is_plain_start: bool,
    /// Whether everything that there was has been taken, as far as is known.
    pub(super) at_end: bool,
    /// Whether what is known of the log has changed since it was told.
    pub(super) changed: bool,
    pub(super) moved: Instant,
    pub(super) warned: bool,
    /// The epoch of the leader under which what stands before the position was written, as far as is known.
    pub(super) leader_epoch: Option<i32>,
}

impl PartitionState {
    pub(super) fn new(state: SplitState, is_plain_start: bool) -> Self {
        let leader_epoch = stored_epoch(&state);
        Self {
            state,
            is_plain_start,
            at_end: false,
            changed: false,
            moved: Instant::now(),
            warned: false,
            leader_epoch,
        }
    }

    pub(super) fn end(&self) -> u64 {
        self.state.identity.other.get(END).and_then(serde_json::Value::as_u64).unwrap_or(0)
    }

    pub(super) fn set_end(&mut self, end: u64) {
        if end != self.end() {
            self.state.identity.other.insert(END.into(), end.into());
            self.changed = true;
        }
    }

    /// Takes the leader epoch of what was read last into the state.
    pub(super) fn note_epoch(&mut self) {
        if self.leader_epoch == stored_epoch(&self.state) {
            return;
        }
        match self.leader_epoch {
            Some(epoch) => self.state.identity.other.insert(LEADER_EPOCH.into(), epoch.into()),
            None => self.state.identity.other.remove(LEADER_EPOCH),
        };
        self.changed = true;
    }

    pub(super) fn move_to(&mut self, position: u64, now: Instant) {
        self.state.position = position;
        self.moved = now;
    }

    pub(super) fn is_stop_reached(&self) -> bool {
        self.state.stop.is_some_and(|stop| self.state.position >= stop)
    }
}

fn stored_epoch(state: &SplitState) -> Option<i32> {
    let epoch = state.identity.other.get(LEADER_EPOCH)?.as_i64()?;
    i32::try_from(epoch).ok()
}

/// The index of each partition, by topic and number: looked up for every message.
pub(super) struct PartitionIndex(Vec<Vec<Option<u32>>>);

impl PartitionIndex {
    pub(super) fn new(partitions: &[Partition]) -> Self {
        let mut topics: Vec<Vec<Option<u32>>> = Vec::new();
        for (partition, index) in partitions.iter().zip(0..) {
            let id = usize::try_from(partition.id).unwrap_or(0);
            if topics.len() <= partition.topic {
                topics.resize(partition.topic + 1, Vec::new());
            }
            let topic = &mut topics[partition.topic];
            if topic.len() <= id {
                topic.resize(id + 1, None);
            }
            topic[id] = Some(index);
        }
        Self(topics)
    }

    pub(super) fn get(&self, topic: usize, partition: i32) -> Option<u32> {
        *self.0.get(topic)?.get(usize::try_from(partition).ok()?)?
    }
}
