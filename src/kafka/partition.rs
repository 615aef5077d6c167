//! Partitions: their names, where each one stands, and how a message finds its own.

use std::sync::Arc;
use std::time::Instant;

use super::END;
use crate::checkpoint::{SplitId, SplitState};

/// A partition as messages and errors name it.
#[derive(Clone, Debug)]
pub(super) struct Partition {
    pub(super) split: SplitId,
    /// The index of its topic among the source's.
    pub(super) topic: usize,
    pub(super) topic_name: Arc<str>,
    pub(super) id: i32,
}

/// Where a partition stands.
#[derive(Debug)]
pub(super) struct PartitionState {
    pub(super) state: SplitState,
    /// Whether the log's new start may be gone on from, when the position is gone and nothing was read yet.
    pub(super) may_skip: bool,
    /// Whether everything that there was has been taken, as far as is known.
    pub(super) at_end: bool,
    /// Whether the end has changed since it was told.
    pub(super) end_changed: bool,
    pub(super) moved: Instant,
    pub(super) warned: bool,
}

impl PartitionState {
    pub(super) fn new(state: SplitState, may_skip: bool) -> Self {
        Self { state, may_skip, at_end: false, end_changed: false, moved: Instant::now(), warned: false }
    }

    pub(super) fn end(&self) -> u64 {
        self.state.identity.other.get(END).and_then(serde_json::Value::as_u64).unwrap_or(0)
    }

    pub(super) fn set_end(&mut self, end: u64) {
        if end != self.end() {
            self.state.identity.other.insert(END.into(), end.into());
            self.end_changed = true;
        }
    }

    pub(super) fn move_to(&mut self, position: u64, now: Instant) {
        self.state.position = position;
        self.moved = now;
    }

    pub(super) fn is_stop_reached(&self) -> bool {
        self.state.stop.is_some_and(|stop| self.state.position >= stop)
    }
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
