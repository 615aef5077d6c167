//! Turns where to begin and to end into numbers, once, and holds stored numbers against the log.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use chrono::Utc;
use serde_json::Value;
use tracing::warn;

use super::ask::{Logs, Offsets, PartitionKey};
use super::lookup::Lookup;
use super::loss;
use super::offsets::{DefaultStart, PartitionOffsets};
use super::{
    CONNECTOR, END, KafkaSource, LEADER_EPOCH, LOG_START, LOST, OnGap, OnTopicDeleted, StartOffsets, StopOffsets,
    TOPIC_ID, key_of,
};
use crate::checkpoint::{SourceState, SplitId, SplitState, Splits};
use crate::error::{Error, Result};
use crate::source::Source;

/// The notes that tell, in a checkpoint, what start and stop were asked for.
const STARTUP: &str = "startup";
const BOUNDED: &str = "bounded";

/// What of a split's guards against another log in its place can't be read: nothing would be noticed without it.
fn damaged_guard(split: &SplitState) -> Option<&'static str> {
    let is_epoch = |value: &Value| value.as_i64().is_some_and(|epoch| (0..=i64::from(i32::MAX)).contains(&epoch));
    let damaged = |key: &'static str, is_sound: &dyn Fn(&Value) -> bool| {
        split.identity.other.get(key).is_some_and(|value| !is_sound(value)).then_some(key)
    };
    damaged(TOPIC_ID, &Value::is_string)
        .or_else(|| damaged(LEADER_EPOCH, &is_epoch))
        .or_else(|| damaged(LOST, &Value::is_u64))
}

/// Asks the cluster, and makes the state to read from.
pub(super) fn resolve(source: &KafkaSource, stored: Option<SourceState>) -> Result<SourceState> {
    let lookup = Lookup::connect(&source.settings)?;
    let topics = lookup.topics(&source.topics)?;
    // Whoever reads on to the end of topics that go may find that one went between two runs.
    let may_miss = stored.is_some() && source.on_topic_deleted == OnTopicDeleted::Finish;
    let missing = topics.iter().find(|topic| topic.partitions.is_empty());
    if let Some(topic) = missing.filter(|_| !may_miss) {
        return Err(lookup.not_found(&source.topics, &topic.name));
    }
    if topics.is_empty() && !may_miss {
        return Err(lookup.not_found(&source.topics, ""));
    }
    let partitions: Vec<PartitionKey> =
        topics.iter().flat_map(|topic| topic.partitions.iter().map(|id| (topic.name.clone(), *id))).collect();
    let logs = lookup.logs(&partitions)?;
    let ids = topics.into_iter().filter_map(|topic| Some((topic.name, topic.id?))).collect();
    let cluster = Cluster { source, lookup: &lookup, logs, ids };
    match stored {
        None => cluster.fresh(),
        Some(state) => cluster.restarted(state),
    }
}

/// What the cluster has of a source's topics.
struct Cluster<'a> {
    source: &'a KafkaSource,
    lookup: &'a Lookup,
    logs: Logs,
    /// The id of each topic, where the brokers have ids.
    ids: BTreeMap<String, String>,
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
            self.check(&mut split, partition, log, false)?;
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
        self.check_topics(splits)?;
        self.check_missing(splits)?;
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
                    tracing::info!("{id}: it is new, and read from its beginning, offset {}", log.start);
                    let mut split = SplitState::new(id.clone(), log.start);
                    split.stop = match (&stops, &self.source.stop) {
                        (Some(stops), _) => stops.as_ref().map(|s| s.get(partition).copied().unwrap_or(log.end)),
                        (None, StopOffsets::Never) => None,
                        // A time holds for it as well; of all else it ends where it ends now.
                        (None, StopOffsets::Timestamp(millis)) => {
                            let at = self.lookup.at_time(std::slice::from_ref(partition), *millis)?;
                            Some(at.get(partition).copied().unwrap_or(log.end))
                        }
                        (None, _) => Some(log.end),
                    };
                    split
                }
            };
            self.check(&mut split, partition, log, plain_start)?;
            splits.insert(id, split);
        }
        state.notes.insert(BOUNDED.into(), asked);
        Ok(state)
    }

    /// Checks that topics are those that were read. One that was at its end, since it had been deleted, and that is there
    /// again, is a new one.
    fn check_topics(&self, splits: &mut BTreeMap<SplitId, SplitState>) -> Result<()> {
        let mut new = Vec::new();
        for split in splits.values() {
            if let Some(key) = damaged_guard(split) {
                let reason = format!("its {key} in the checkpoint is damaged");
                return Err(Error::UnexpectedSplit { split: split.id.to_string(), reason });
            }
            let Some((topic, _)) = key_of(&split.id) else { continue };
            match loss::check_topic(split, self.ids.get(&topic).map(String::as_str)) {
                Err(_) if loss::is_deleted(split) => new.push(split.id.clone()),
                checked => checked?,
            }
        }
        splits.retain(|id, _| !new.contains(id));
        Ok(())
    }

    /// A partition of which there is a position, and which isn't there any more, is gone: an error, or the end of it.
    fn check_missing(&self, splits: &mut BTreeMap<SplitId, SplitState>) -> Result<()> {
        let known: BTreeSet<SplitId> = self.logs.keys().map(split_id).collect();
        for split in splits.values_mut().filter(|split| !known.contains(&split.id) && !split.done) {
            if self.source.on_topic_deleted == OnTopicDeleted::Fail {
                let reason = "the checkpoint has a position of it, and the topic has no such partition any more \
                              (scan.on-topic-deleted=finish goes on without it)";
                return Err(Error::NotFound { what: format!("{}: {reason}", split.id) });
            }
            loss::of_deleted(split);
        }
        Ok(())
    }

    /// Checks that the log has the position, and notes what the log is.
    fn check(
        &self,
        split: &mut SplitState,
        partition: &PartitionKey,
        log: &Range<u64>,
        plain_start: bool,
    ) -> Result<()> {
        split.done = split.done || is_reached(split);
        if let Some(id) = self.ids.get(&partition.0) {
            split.identity.other.insert(TOPIC_ID.into(), id.as_str().into());
        }
        split.identity.other.insert(END.into(), log.end.into());
        if self.source.on_gap == OnGap::Tell {
            split.identity.other.insert(LOG_START.into(), log.start.into());
            return Ok(());
        }
        // Of a partition that is done nothing is wanted any more.
        if split.position < log.start && !split.done {
            let policy = loss::policy(self.source.on_data_loss, split, plain_start);
            if let Some(to) = loss::go_on_at(split, log, policy)? {
                split.position = to;
                split.done = is_reached(split);
            }
        }
        // A log that ends before what was read of it is another log, whatever is wanted. But a transaction that is open
        // may hold back what is there: it is waited for.
        if split.position > log.end && split.position > self.lookup.high_watermark(&self.source.settings, partition)? {
            return Err(loss::out_of_range(split, log));
        }
        Ok(())
    }

    fn starts(&self) -> Result<Offsets> {
        match &self.source.start {
            StartOffsets::Earliest => Ok(self.log_bounds(|log| log.start)),
            StartOffsets::Latest => Ok(self.log_bounds(|log| log.end)),
            StartOffsets::At { offsets, default } => self.given(offsets, *default, "scan.startup.specific-offsets"),
            StartOffsets::Group { default } => self.committed(*default),
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
            StopOffsets::At(offsets) => Some(self.given(offsets, None, "scan.bounded.specific-offsets")?),
            StopOffsets::Timestamp(millis) => Some(self.or_ends(self.lookup.at_time(&self.partitions(), *millis)?)),
        })
    }

    /// What the group has committed, or else the default.
    fn committed(&self, default: Option<DefaultStart>) -> Result<Offsets> {
        let group = self.source.settings.group().unwrap_or_default();
        let committed = Lookup::of_group(&self.source.settings)?.committed(&self.partitions())?;
        let start = |(partition, log): (&PartitionKey, &Range<u64>)| {
            let offset = committed.get(partition).copied().or_else(|| default.map(|default| start_of(log, default)));
            let offset = offset.ok_or_else(|| {
                let split = split_id(partition);
                Error::option(
                    "scan.startup.mode",
                    format!("group {group} has committed nothing of {split}; scan.startup.group-offsets.default says where such a partition begins"),
                )
            })?;
            Ok((partition.clone(), offset))
        };
        self.logs.iter().map(start).collect()
    }

    fn warn_of_future(&self, millis: i64, so: &str) {
        let ahead_ms = millis - Utc::now().timestamp_millis();
        if ahead_ms > 0 {
            warn!("{}: the time asked for lies {} s in the future: {so}", self.source.topics, ahead_ms / 1000 + 1);
        }
    }

    fn partitions(&self) -> Vec<PartitionKey> {
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

    /// Offsets as they were given, and the default for partitions that aren't named.
    fn given(&self, offsets: &PartitionOffsets, default: Option<DefaultStart>, key: &str) -> Result<Offsets> {
        let topic = &self.source.topics;
        let has = |id: &i32| self.logs.keys().any(|(_, known)| known == id);
        if let Some(extra) = offsets.0.keys().find(|id| !has(id)) {
            return Err(Error::option(
                key,
                format!("{topic} has no partition {extra}; it has {} of them", self.logs.len()),
            ));
        }
        let start = |(partition, log): (&PartitionKey, &Range<u64>)| {
            let given = offsets.0.get(&partition.1).copied();
            let offset = given.or_else(|| default.map(|default| start_of(log, default))).ok_or_else(|| {
                Error::option(key, format!("it names no offset for partition {} of {topic}", partition.1))
            })?;
            Ok((partition.clone(), offset))
        };
        self.logs.iter().map(start).collect()
    }
}

fn start_of(log: &Range<u64>, default: DefaultStart) -> u64 {
    match default {
        DefaultStart::Earliest => log.start,
        DefaultStart::Latest => log.end,
    }
}

pub(super) fn split_id(partition: &PartitionKey) -> SplitId {
    SplitId::new(format!("{}/{}", partition.0, partition.1))
}

fn is_reached(split: &SplitState) -> bool {
    split.stop.is_some_and(|stop| split.position >= stop)
}
