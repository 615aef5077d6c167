//! Looks what becomes of topics while they are read: partitions that are added, topics that are made, deleted, or
//! made again. It asks on a thread of its own, so that a broker that doesn't answer holds no messages up, and by a
//! client of its own: on one connection a question waits until the fetch before it is answered.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use rdkafka::consumer::BaseConsumer;
use rdkafka::error::KafkaResult;
use tracing::warn;

use super::ask::{self, PartitionKey};
use super::client::{ClientSettings, Listener, hear};
use super::topics::Topics;
use crate::error::{Error, Result};

/// How long one question may take. The thread ends no later than after that.
const MOMENT: Duration = Duration::from_secs(1);

/// A topic that was deleted is missing so often; a broker that has just started may know it a moment later.
const TIMES_MISSING: u32 = 2;

/// So many looks in turn may fail before that is told.
const TIMES_FAILED: u32 = 3;

/// What is seen of the topics.
#[derive(Debug)]
pub(super) enum Sighting {
    /// Partitions that weren't there before.
    Added(Vec<Added>),
    /// A topic that isn't there any more.
    Gone { topic: String },
    /// A topic of a name that was read, and that is another one.
    Recreated { topic: String, stored: String, now: String },
}

/// A partition that is there now.
#[derive(Debug)]
pub(super) struct Added {
    pub(super) partition: PartitionKey,
    pub(super) log: Range<u64>,
    pub(super) topic_id: Option<String>,
}

/// What is known of a topic.
#[derive(Debug, Default)]
pub(super) struct KnownTopic {
    pub(super) id: Option<String>,
    pub(super) partitions: BTreeSet<i32>,
    /// How often in turn it was missing.
    times_missing: u32,
    is_gone: bool,
}

/// The topics to be looked after.
pub(super) struct Watched {
    pub(super) settings: ClientSettings,
    pub(super) topics: Topics,
    pub(super) known: BTreeMap<String, KnownTopic>,
    /// How often partitions and topics that are new are looked for; never without.
    pub(super) discovery: Option<Duration>,
}

/// The other end of the thread, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Watch {
    asks: SyncSender<()>,
    sightings: Receiver<Sighting>,
}

impl Watch {
    /// Starts the thread.
    pub(super) fn spawn(watched: Watched) -> Result<Self> {
        let (asks, asked) = sync_channel(1);
        // One at a time: what isn't taken yet is looked at again later.
        let (sender, sightings) = sync_channel(1);
        let handle = thread::Builder::new()
            .name("segue-topics".into())
            .spawn(move || watched.run(&asked, &sender))
            .map_err(|e| Error::Worker { message: format!("no thread to look after topics: {e}") })?;
        drop(handle);
        Ok(Self { asks, sightings })
    }

    /// Asks for a look before its time.
    pub(super) fn ask(&self) {
        // It was asked for already, or the thread is at an end: then there is nothing to be told any more.
        let _ = self.asks.try_send(());
    }

    /// What was seen and not taken yet.
    pub(super) fn next(&self) -> Option<Sighting> {
        self.sightings.try_recv().ok()
    }
}

impl Watched {
    fn run(mut self, asked: &Receiver<()>, sightings: &SyncSender<Sighting>) {
        let mut client = None;
        let mut times_failed = 0;
        loop {
            let wait = match self.discovery {
                Some(interval) => asked.recv_timeout(interval),
                None => asked.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            if wait == Err(RecvTimeoutError::Disconnected) {
                return;
            }
            let looked = match &client {
                Some(client) => self.look(client),
                None => match self.settings.config_without_group().create_with_context(Listener::default()) {
                    Ok(made) => self.look(client.insert(made)),
                    Err(error) => Err(error),
                },
            };
            if let Some(client) = &client {
                hear(client);
            }
            match looked {
                Ok(seen) => {
                    times_failed = 0;
                    for sighting in seen {
                        if sightings.send(sighting).is_err() {
                            return;
                        }
                    }
                }
                Err(error) => {
                    times_failed += 1;
                    tracing::debug!("{}: looking after them: {error}", self.topics);
                    // Told once, and not for every look while it lasts.
                    if times_failed == TIMES_FAILED {
                        let what = "what becomes of topics and partitions can't be seen";
                        warn!("{}: {what}, and it is tried again and again: {error}", self.topics);
                    }
                }
            }
        }
    }

    fn look(&mut self, client: &BaseConsumer<Listener>) -> KafkaResult<Vec<Sighting>> {
        let mut topics = match (&self.topics, self.discovery) {
            // Those that were known and are gone are none that the pattern takes.
            (Topics::Pattern(_), Some(_)) => ask::described(client, &self.topics, MOMENT)?,
            _ => Vec::new(),
        };
        for name in self.known.keys() {
            if !topics.iter().any(|topic| topic.name == *name) {
                topics.push(ask::describe(client, name, MOMENT)?);
            }
        }
        ask::add_ids(client, &mut topics, MOMENT)?;
        let (mut seen, mut added) = (Vec::new(), Vec::new());
        for topic in topics {
            let known = self.known.entry(topic.name.clone()).or_default();
            // Of one that may not be looked at any more nothing is known; fetching it tells.
            if known.is_gone || topic.is_forbidden {
                continue;
            }
            if topic.partitions.is_empty() {
                known.times_missing += 1;
                known.is_gone = known.times_missing >= TIMES_MISSING;
                if known.is_gone {
                    seen.push(Sighting::Gone { topic: topic.name });
                }
                continue;
            }
            known.times_missing = 0;
            match (&known.id, &topic.id) {
                (Some(stored), Some(now)) if stored != now => {
                    known.is_gone = true;
                    seen.push(Sighting::Recreated { topic: topic.name, stored: stored.clone(), now: now.clone() });
                    continue;
                }
                (None, Some(_)) => known.id.clone_from(&topic.id),
                _ => {}
            }
            if self.discovery.is_some() {
                let is_new = |id: &i32| !known.partitions.contains(id);
                added.extend(topic.partitions.into_iter().filter(is_new).map(|id| (topic.name.clone(), id)));
            }
        }
        let logs = match ask::logs(client, &added, MOMENT) {
            Ok(logs) => logs,
            // They have no leader yet; the next look finds them again.
            Err(error) => {
                tracing::debug!("{}: new partitions have no offsets yet: {error}", self.topics);
                return Ok(seen);
            }
        };
        let mut found = Vec::with_capacity(logs.len());
        for (partition, log) in logs {
            let Some(known) = self.known.get_mut(&partition.0) else { continue };
            known.partitions.insert(partition.1);
            found.push(Added { partition, log, topic_id: known.id.clone() });
        }
        if !found.is_empty() {
            seen.push(Sighting::Added(found));
        }
        Ok(seen)
    }
}
