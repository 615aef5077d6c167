//! What happens to partitions besides messages: they begin, are added, end with their topic, and lose offsets.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaResult;
use tracing::warn;

use super::ask;
use super::client::Listener;
use super::consumer::{Consumer, Stop, kafka};
use super::lookup::PATIENCE;
use super::loss;
use super::micro_batch::{MicroBatch, RunKind};
use super::partition::{Partition, PartitionState};
use super::watch::{Added, Sighting};
use super::{OnTopicDeleted, TOPIC_ID};
use crate::checkpoint::SplitState;
use crate::error::Error;
use crate::source::{Decoded, SourceBatch};

/// How long the client may take to hear of a topic's partitions before it is served in between.
const METADATA: Duration = Duration::from_millis(500);

/// How long a question may take that waits behind a fetch.
const ID_REQUEST: Duration = Duration::from_secs(1);

/// How often a partition may be missing in what a broker answers before it counts as gone.
const TIMES_UNKNOWN: u32 = 20;

impl Consumer {
    /// Begins to fetch every partition where it stands.
    pub(super) fn begin(&mut self) -> Result<(), Stop> {
        let with_epoch = |index: &usize| self.states[*index].leader_epoch.is_some();
        let mut unvalidated: Vec<usize> = (0..self.states.len()).filter(with_epoch).collect();
        // Before anything is fetched: behind a fetch that waits an answer waits as well.
        let topics: BTreeSet<Arc<str>> =
            unvalidated.iter().map(|&index| Arc::clone(&self.partitions[index].topic_name)).collect();
        for topic in topics {
            self.hear_of(&topic);
        }
        for (partition, state) in self.partitions.iter().zip(&self.states) {
            self.queue
                .start(partition.topic, partition.id, state.state.position)
                .map_err(|e| kafka(partition.split.as_str(), "begin to read it", e))?;
        }
        // What was read before must still be what the log has before the position.
        let mut times_unknown = 0;
        loop {
            let num_before = unvalidated.len();
            unvalidated = self.validate(unvalidated)?;
            let Some(&first) = unvalidated.first() else { return Ok(()) };
            if unvalidated.len() < num_before {
                times_unknown = 0;
            }
            let partition = &self.partitions[first];
            times_unknown += u32::from(self.hear_of(&partition.topic_name));
            if times_unknown > TIMES_UNKNOWN {
                let what = format!("{}: the topic has no such partition any more", partition.split);
                return Err(Error::NotFound { what }.into());
            }
            self.serve()?;
            if self.sender.is_closed() {
                return Err(Stop::Closed);
            }
        }
    }

    /// Has partitions fetched only once the log is seen to have what was read of them; returns those of which the
    /// client hasn't heard.
    fn validate(&mut self, indexes: Vec<usize>) -> Result<Vec<usize>, Stop> {
        let mut unknown = Vec::new();
        for index in indexes {
            let (partition, state) = (&self.partitions[index], &self.states[index]);
            let Some(epoch) = state.leader_epoch else { continue };
            let is_known = self
                .queue
                .validate(partition.topic, partition.id, state.state.position, epoch)
                .map_err(|e| kafka(partition.split.as_str(), "begin to read it", e))?;
            if !is_known {
                unknown.push(index);
            }
        }
        Ok(unknown)
    }

    /// Lets the client hear of a topic's partitions, which it does when it asks for them; says whether a broker
    /// answered.
    fn hear_of(&self, topic: &str) -> bool {
        let answer = self.queue.consumer().fetch_metadata(Some(topic), METADATA);
        if let Err(error) = &answer {
            tracing::debug!("{topic}: asking for its partitions: {error}");
        }
        answer.is_ok()
    }

    /// Takes up what was seen of the topics.
    pub(super) fn take_up(&mut self, sighting: Sighting, batch: &mut MicroBatch) -> Result<(), Stop> {
        match sighting {
            Sighting::Added(added) => self.add(added, batch),
            Sighting::Gone { topic } if self.on_topic_deleted == OnTopicDeleted::Fail => {
                let what = format!("topic {topic} is gone: it was deleted while it was read");
                Err(Error::NotFound { what: format!("{what} (scan.on-topic-deleted=finish goes on without it)") }
                    .into())
            }
            Sighting::Gone { topic } => self.finish(&topic, batch),
            Sighting::Recreated { topic, stored, now } => {
                let of_topic = self.partitions.iter().find(|partition| *partition.topic_name == *topic);
                let split = of_topic.map_or(topic, |partition| partition.split.to_string());
                Err(Error::TopicRecreated { split, stored, now }.into())
            }
        }
    }

    /// Begins to read partitions that were added.
    fn add(&mut self, added: Vec<Added>, batch: &mut MicroBatch) -> Result<(), Stop> {
        let mut partitions = self.partitions.to_vec();
        for Added { partition: (topic, id), log, topic_id } in added {
            let partition = Partition::try_new(&topic, id, &mut self.queue)?;
            tracing::info!("{}: it is new, and read from its beginning, offset {}", partition.split, log.start);
            let mut split = SplitState::new(partition.split.clone(), log.start);
            if let Some(id) = topic_id {
                split.identity.other.insert(TOPIC_ID.into(), id.into());
            }
            self.queue
                .start(partition.topic, partition.id, log.start)
                .map_err(|e| kafka(partition.split.as_str(), "begin to read it", e))?;
            let mut state = PartitionState::new(split, self.is_plain_start);
            state.set_end(log.end);
            // Told before anything of it is read, also if it is empty: where it begins is to be known.
            state.changed = true;
            self.states.push(state);
            partitions.push(partition);
        }
        self.partitions = partitions.into();
        // They stand behind those that the entries so far speak of.
        batch.partitions = Arc::clone(&self.partitions);
        // The checkpoint is to know of them before there is anything to read.
        let changed = self.changed();
        let progress = SourceBatch::progress(self.decoding.schema(), Vec::new()).with_changed(changed);
        let sender = self.sender.clone();
        let told = Decoded { item: Some(progress), fault: None, rest: None };
        self.wait(async move { sender.submit(async { Ok(told) }.boxed(), None).await })??;
        Ok(())
    }

    /// Ends the partitions of a topic where they stand.
    fn finish(&mut self, topic: &str, batch: &mut MicroBatch) -> Result<(), Stop> {
        let now = Instant::now();
        for (which, (partition, state)) in (0..).zip(self.partitions.iter().zip(&mut self.states)) {
            if *partition.topic_name != *topic || state.state.done {
                continue;
            }
            loss::of_deleted(&mut state.state);
            state.changed = true;
            let position = state.state.position;
            batch.push(which, position, RunKind::Done, position, now);
            self.queue
                .stop(partition.topic, partition.id)
                .map_err(|e| kafka(partition.split.as_str(), "end reading it", e))?;
        }
        Ok(())
    }

    /// Checks, before the end of all partitions is told, that the topics are those that were to be read: one that was made
    /// again a moment ago may have been read on without a word.
    pub(super) fn confirm_topics(&mut self) -> Result<(), Stop> {
        let read = || {
            let all = self.partitions.iter().zip(self.states.iter().map(|state| &state.state));
            all.filter(|(_, split)| !loss::is_deleted(split))
        };
        let names: BTreeSet<&str> = read().map(|(partition, _)| &*partition.topic_name).collect();
        let names: Vec<&str> = names.into_iter().collect();
        let now = match ask::topic_ids(self.queue.consumer(), &names, ID_REQUEST) {
            Ok(now) => now,
            Err(error) => {
                warn!("whether the topics are still those that were read can't be asked: {error}");
                return Ok(());
            }
        };
        for (partition, split) in read() {
            loss::check_topic(split, now.get(&*partition.topic_name).map(String::as_str))?;
        }
        Ok(())
    }

    /// Asks about a partition until there is an answer, nobody reads any more, or patience ends.
    fn asked<T>(&mut self, which: u32, ask: impl Fn(&BaseConsumer<Listener>) -> KafkaResult<T>) -> Result<T, Stop> {
        let began = Instant::now();
        loop {
            let split = &self.partitions[which as usize].split;
            match ask(self.queue.consumer()) {
                Ok(answer) => return Ok(answer),
                Err(error) if began.elapsed() >= PATIENCE => {
                    return Err(kafka(split.as_str(), "look its offsets up", error).into());
                }
                Err(error) => tracing::debug!("{split}: looking its offsets up: {error}"),
            }
            self.serve()?;
            if self.sender.is_closed() {
                return Err(Stop::Closed);
            }
        }
    }

    /// The log no longer has a position: an error, or it goes on elsewhere.
    pub(super) fn out_of_range(&mut self, (which, reason): (u32, String), batch: &mut MicroBatch) -> Result<(), Stop> {
        // Of another topic of its name no offset means anything.
        let (topic, id) = {
            let partition = &self.partitions[which as usize];
            (Arc::clone(&partition.topic_name), partition.id)
        };
        let now_id = self.asked(which, |client| ask::topic_ids(client, &[&topic], ID_REQUEST))?.remove(&*topic);
        let log = self.asked(which, |client| ask::log(client, &topic, id, METADATA))?;
        let (partition, state) = (&self.partitions[which as usize], &mut self.states[which as usize]);
        let split = partition.split.as_str();
        loss::check_topic(&state.state, now_id.as_deref())?;
        let wanted = state.state.position;
        if log.contains(&wanted) || wanted == log.end {
            // It has the position, but not what was read up to it.
            return Err(Error::LogTruncated { split: split.to_owned(), position: wanted, source: reason.into() }.into());
        }
        let policy = loss::policy(self.on_data_loss, &state.state, state.is_plain_start);
        let Some(to) = loss::go_on_at(&mut state.state, &log, policy)? else {
            return Err(loss::out_of_range(&state.state, &log).into());
        };
        state.changed = true;
        state.leader_epoch = None;
        self.queue.stop(partition.topic, partition.id).map_err(|e| kafka(split, "end reading it", e))?;
        let now = Instant::now();
        state.move_to(to, now);
        batch.push(which, wanted, RunKind::Skip, to, now);
        if state.is_stop_reached() {
            state.state.done = true;
            batch.push(which, wanted, RunKind::Done, to, now);
            return Ok(());
        }
        self.queue.start(partition.topic, partition.id, to).map_err(|e| kafka(split, "begin to read it", e))?;
        Ok(())
    }
}
