//! Commits positions to a consumer group, so that tools that watch its lag work. Nothing is read by them: positions
//! are in the checkpoint.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{Offset, TopicPartitionList};
use tracing::warn;

use super::ask::Offsets;
use super::client::{ClientSettings, Listener, hear};
use crate::error::{Error, Result};

/// How long one commit is tried: a coordinator that moves to another broker is there again.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long the end of a job waits for its last commit.
const LAST_PATIENCE: Duration = Duration::from_millis(700);

/// How soon a commit that failed is tried again.
const AGAIN: Duration = Duration::from_millis(200);

/// How soon offsets that couldn't be committed are tried again, if no newer ones come.
const LATER: Duration = Duration::from_secs(30);

/// Commits on a thread of its own, which no commit of a job waits for; of several that wait the last one counts.
#[derive(Debug)]
pub(super) struct GroupCommits {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    offsets: Option<Offsets>,
    /// A commit is under way.
    is_busy: bool,
    /// No more will come.
    is_closed: bool,
    /// Nobody waits any more.
    is_abandoned: bool,
}

impl GroupCommits {
    /// Starts the thread. It connects with the first commit.
    pub(super) fn spawn(settings: ClientSettings) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let thread = thread::Builder::new()
            .name("segue-group".into())
            .spawn({
                let shared = Arc::clone(&shared);
                move || shared.run(&settings)
            })
            .map_err(|e| Error::Worker { message: format!("no thread to commit offsets on: {e}") })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Commits these offsets, each the next one to be read.
    pub(super) fn commit(&self, offsets: Offsets) {
        self.shared.lock().offsets = Some(offsets);
        self.shared.changed.notify_all();
    }
}

impl Drop for GroupCommits {
    fn drop(&mut self) {
        let mut waiting = self.shared.lock();
        waiting.is_closed = true;
        self.shared.changed.notify_all();
        let is_open = |waiting: &mut Waiting| waiting.is_busy || waiting.offsets.is_some();
        let waited = self.shared.changed.wait_timeout_while(waiting, LAST_PATIENCE, is_open);
        let (mut waiting, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        waiting.is_abandoned = true;
        drop(waiting);
        if timeout.timed_out() {
            warn!("the group's last offsets weren't committed in time; the checkpoint has them");
        } else if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            warn!("the thread that commits the group's offsets has failed");
        }
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, settings: &ClientSettings) {
        let group = settings.group().unwrap_or_default();
        tracing::info!("positions are committed to group {group} when the checkpoint is");
        let (mut client, mut left, mut told) = (None, None, false);
        loop {
            let Some(offsets) = self.next(left.take()) else { return };
            let committed = self.commit(settings, &mut client, &offsets);
            match committed {
                Ok(()) => told = false,
                Err(error) => {
                    // Once, and not for every commit while it lasts.
                    if !told {
                        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
                        warn!("offsets can't be committed to group {group}: {error}{}", cause.unwrap_or_default());
                    }
                    (left, told) = (Some(offsets), true);
                }
            }
            self.lock().is_busy = false;
            self.changed.notify_all();
        }
    }

    /// The offsets to be committed next: the newest, or those that are left after a while; `None` at the end.
    fn next(&self, left: Option<Offsets>) -> Option<Offsets> {
        let is_idle = |waiting: &mut Waiting| waiting.offsets.is_none() && !waiting.is_closed;
        let (mut waiting, is_late) = if left.is_some() {
            let waited = self.changed.wait_timeout_while(self.lock(), LATER, is_idle);
            let (waiting, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            (waiting, timeout.timed_out())
        } else {
            let waited = self.changed.wait_while(self.lock(), is_idle);
            (waited.unwrap_or_else(PoisonError::into_inner), false)
        };
        let offsets = match waiting.offsets.take() {
            None if is_late => left,
            newest => newest,
        };
        waiting.is_busy = offsets.is_some();
        offsets
    }

    fn commit(
        &self,
        settings: &ClientSettings,
        client: &mut Option<BaseConsumer<Listener>>,
        offsets: &Offsets,
    ) -> Result<()> {
        let failed = |e| settings.client_error("properties", "commit offsets", e);
        let client = match client {
            Some(client) => client,
            None => {
                let config = settings.config();
                client.insert(config.create_with_context(Listener::default()).map_err(failed)?)
            }
        };
        let list = list(offsets).map_err(failed)?;
        let began = Instant::now();
        loop {
            let error = match client.commit(&list, CommitMode::Sync) {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            // What the client has to say is heard only when it is polled.
            hear(client);
            let is_over = began.elapsed() >= PATIENCE || self.lock().is_abandoned;
            if is_refused_by_members(&error) {
                let reason =
                    "the group has running members, and only they may commit; give this job a group of its own";
                let place = settings.bootstrap_servers().to_owned();
                return Err(Error::Kafka { place, action: "commit offsets", source: reason.into() });
            }
            if is_over || !is_passing(&error) {
                return Err(failed(error));
            }
            thread::sleep(AGAIN);
        }
    }
}

fn list(offsets: &Offsets) -> KafkaResult<TopicPartitionList> {
    let mut list = TopicPartitionList::with_capacity(offsets.len());
    for ((topic, partition), offset) in offsets {
        let offset = i64::try_from(*offset).unwrap_or(i64::MAX);
        list.add_partition_offset(topic, *partition, Offset::Offset(offset))?;
    }
    Ok(list)
}

/// Whether a group refuses the offsets of somebody who isn't one of its members.
fn is_refused_by_members(error: &KafkaError) -> bool {
    use RDKafkaErrorCode::{IllegalGeneration, RebalanceInProgress, UnknownMemberId};
    matches!(error.rdkafka_error_code(), Some(IllegalGeneration | RebalanceInProgress | UnknownMemberId))
}

/// Whether trying again may help: the coordinator isn't known yet, or moves.
fn is_passing(error: &KafkaError) -> bool {
    use RDKafkaErrorCode::{
        AllBrokersDown, BrokerTransportFailure, CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator,
        OperationTimedOut, RequestTimedOut, WaitingForCoordinator,
    };
    matches!(
        error.rdkafka_error_code(),
        Some(
            AllBrokersDown
                | BrokerTransportFailure
                | CoordinatorLoadInProgress
                | CoordinatorNotAvailable
                | NotCoordinator
                | OperationTimedOut
                | RequestTimedOut
                | WaitingForCoordinator
        )
    )
}
