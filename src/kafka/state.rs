//! Turns where to begin and to end into numbers, once, and holds stored numbers against the log.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use chrono::Utc;
use serde_json::Value;
use tracing::warn;

use super::consumer::warn_of_loss;
use super::lookup::{Lookup, Offsets};
use super::offsets::PartitionOffsets;
use super::{CONNECTOR, END, KafkaSource, LOG_START, OnGap, StartOffsets, StopOffsets};
use crate::checkpoint::{SourceState, SplitId, SplitState, Splits};
use crate::error::{Error, Result};
use crate::source::Source;

/// The notes that tell, in a checkpoint, what start and stop were asked for.
const STARTUP: &str = "startup";
const BOUNDED: &str = "bounded";

/// Asks the cluster, and makes the state to read from.
pub(super) fn resolve(source: &KafkaSource, stored: Option<SourceState>) -> Result<SourceState> {
    let lookup = Lookup::connect(&source.settings)?;
    let topics = lookup.partitions(&source.topics)?;
    let partitions: Vec<(String, i32)> =
        topics.iter().flat_map(|(topic, ids)| ids.iter().map(move |id| (topic.clone(), *id))).collect();
    let starts = lookup.log_starts(&partitions)?;
    let ends = lookup.ends(&partitions)?;
    let mut logs = BTreeMap::new();
    for partition in &partitions {
        let (Some(&start), Some(&end)) = (starts.get(partition), ends.get(partition)) else {
            return Err(Error::Kafka {
                place: split_id(partition).to_string(),
                action: "look its offsets up",
                source: "the broker gave none".into(),
            });
        };
        logs.insert(partition.clone(), start..end);
    }
    let cluster = Cluster { source, lookup: &lookup, logs };
    match stored {
        None => cluster.fresh(),
        Some(state) => cluster.restarted(state),
    }
}

/// What the cluster has of a source's topics.
struct Cluster<'a> {
    source: &'a KafkaSource,
    lookup: &'a Lookup,
    /// Each partition's log, from its first offset to its end.
    logs: BTreeMap<(String, i32), Range<u64>>,
}

impl Cluster<'_> {
    fn fresh(&self) -> Result<SourceState> {
        let starts = self.starts()?;
        let stops = self.stops()?;
        let mut splits = Vec::with_capacity(self.logs.len());
        for (partition, log) in &self.logs {
            let start = starts.get(partition).copied().unwrap_or(log.start);
            let mut split = SplitState::new(split_id(partition), start);
            split.stop = stops.as_ref().map(|stops| stops.get(partition).copied().unwrap_or(log.end));
            self.check(&mut split, log)?;
            split.done = is_reached(&split);
            splits.push(split);
        }
        let mut state = SourceState::new(&self.source.name, CONNECTOR, Splits::side_by_side(splits))
            .with_options(self.source.position_options());
        state.notes.insert(STARTUP.into(), Value::String(self.source.start.to_string()));
        state.notes.insert(BOUNDED.into(), Value::String(self.source.stop.to_string()));
        Ok(state)
    }

    /// Keeps positions, and stops that aren't reached; takes up partitions that were added.
    fn restarted(&self, mut state: SourceState) -> Result<SourceState> {
        let Splits::SideBySide(splits) = &mut state.splits else {
            return Err(Error::Chain(format!("source {} reads partitions side by side", self.source.name)));
        };
        let known: BTreeSet<SplitId> = self.logs.keys().map(split_id).collect();
        if let Some(gone) = splits.keys().find(|split| !known.contains(*split)) {
            return Err(Error::NotFound {
                what: format!("{gone}: the checkpoint has a position of it, and the topic has no such partition"),
            });
        }
        let asked = Value::String(self.source.stop.to_string());
        let is_same_stop = state.notes.get(BOUNDED) == Some(&asked);
        let was_done = splits.values().all(|split| split.done);
        // A stop is pinned until it is reached.
        let stops = if is_same_stop && !was_done { None } else { Some(self.stops()?) };
        let plain_start = state.notes.get(STARTUP) == Some(&Value::String(StartOffsets::Earliest.to_string()));
        for (partition, log) in &self.logs {
            let id = split_id(partition);
            let mut split = match splits.get(&id) {
                Some(split) => {
                    let mut split = split.clone();
                    if let Some(stops) = &stops {
                        split.stop = stops.as_ref().map(|stops| stops.get(partition).copied().unwrap_or(log.end));
                        split.done = is_reached(&split);
                    }
                    split
                }
                // A partition that was added later is read from its beginning, whatever the first start was.
                None => {
                    let mut split = SplitState::new(id.clone(), log.start);
                    split.stop = (self.source.stop != StopOffsets::Never).then_some(log.end);
                    split.done = is_reached(&split);
                    split
                }
            };
            let nothing_read = split.position == split.start;
            if plain_start && nothing_read && !split.done && split.position < log.start {
                warn_of_loss(id.as_str(), split.position, log.start);
                (split.start, split.position) = (log.start, log.start);
                split.done = is_reached(&split);
            }
            self.check(&mut split, log)?;
            splits.insert(id, split);
        }
        state.notes.insert(BOUNDED.into(), asked);
        Ok(state)
    }

    /// Checks that the log has the position, and notes the log's end.
    fn check(&self, split: &mut SplitState, log: &Range<u64>) -> Result<()> {
        split.identity.other.insert(END.into(), log.end.into());
        if self.source.on_gap == OnGap::Tell {
            split.identity.other.insert(LOG_START.into(), log.start.into());
            return Ok(());
        }
        // Of a partition that is done nothing is wanted any more; but a log that ends before what was read of it is
        // another log, whatever is wanted.
        let is_gone = split.position < log.start && !split.done;
        if !is_gone && split.position <= log.end {
            return Ok(());
        }
        Err(Error::OffsetOutOfRange { split: split.id.to_string(), wanted: split.position, available: log.clone() })
    }

    fn starts(&self) -> Result<Offsets> {
        match &self.source.start {
            StartOffsets::Earliest => Ok(self.log_bounds(|log| log.start)),
            StartOffsets::Latest => Ok(self.log_bounds(|log| log.end)),
            StartOffsets::At(offsets) => self.given(offsets, "scan.startup.specific-offsets"),
            StartOffsets::Timestamp(millis) => {
                self.warn_of_future(*millis, "reading begins at the end of the topic");
                Ok(self.or_ends(self.lookup.at_time(&self.partitions(), *millis)?))
            }
        }
    }

    /// Where each partition ends; `None` for nowhere.
    fn stops(&self) -> Result<Option<Offsets>> {
        Ok(match &self.source.stop {
            StopOffsets::Never => None,
            StopOffsets::Latest => Some(self.log_bounds(|log| log.end)),
            StopOffsets::At(offsets) => Some(self.given(offsets, "scan.bounded.specific-offsets")?),
            StopOffsets::Timestamp(millis) => Some(self.or_ends(self.lookup.at_time(&self.partitions(), *millis)?)),
        })
    }

    fn warn_of_future(&self, millis: i64, so: &str) {
        let ahead_ms = millis - Utc::now().timestamp_millis();
        if ahead_ms > 0 {
            let topics = self.source.topics.join(", ");
            warn!("{topics}: the time asked for lies {} s in the future: {so}", ahead_ms / 1000 + 1);
        }
    }

    fn partitions(&self) -> Vec<(String, i32)> {
        self.logs.keys().cloned().collect()
    }

    fn log_bounds(&self, bound: fn(&Range<u64>) -> u64) -> Offsets {
        self.logs.iter().map(|(partition, log)| (partition.clone(), bound(log))).collect()
    }

    /// Where no message is so late, the end.
    fn or_ends(&self, mut found: Offsets) -> Offsets {
        for (partition, log) in &self.logs {
            found.entry(partition.clone()).or_insert(log.end);
        }
        found
    }

    /// Offsets as they were given, one for each partition that there is.
    fn given(&self, offsets: &PartitionOffsets, key: &str) -> Result<Offsets> {
        let ids: BTreeSet<i32> = self.logs.keys().map(|(_, id)| *id).collect();
        let topic = self.source.topics.join(", ");
        if let Some(missing) = ids.iter().find(|id| !offsets.0.contains_key(id)) {
            return Err(Error::option(key, format!("it names no offset for partition {missing} of {topic}")));
        }
        if let Some(extra) = offsets.0.keys().find(|id| !ids.contains(id)) {
            return Err(Error::option(key, format!("{topic} has no partition {extra}; it has {} of them", ids.len())));
        }
        let offset = |partition: &(String, i32)| offsets.0.get(&partition.1).map(|offset| (partition.clone(), *offset));
        Ok(self.logs.keys().filter_map(offset).collect())
    }
}

fn split_id(partition: &(String, i32)) -> SplitId {
    SplitId::new(format!("{}/{}", partition.0, partition.1))
}

fn is_reached(split: &SplitState) -> bool {
    split.stop.is_some_and(|stop| split.position >= stop)
}
