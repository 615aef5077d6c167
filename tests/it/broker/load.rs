//! Messages that come all the time, and a reader that follows them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use segue::checkpoint::Checkpoint;
use segue::error::Error;
use segue::hybrid::{HybridSource, ReadOptions};

use super::bid;
use crate::common::ids_in;
use crate::topic::{PATIENCE, Topic};

/// A cluster that was killed is back, and its reader too, within this time.
pub(crate) const RECOVERY: Duration = Duration::from_secs(90);

/// The ids of a partition count up from its number times this.
const PARTITION: i64 = 1_000_000_000;

/// The ids that the first `num_rows` messages of a partition have, in order.
pub(crate) fn ids_of(partition: i32, num_rows: i64) -> std::ops::Range<i64> {
    let first = i64::from(partition) * PARTITION;
    first..first + num_rows
}

/// Writes bids on a thread of its own, to one partition after the other, until it is told to end. Whatever becomes
/// of the brokers, each message is there once, and in order.
#[derive(Debug)]
pub(crate) struct Load {
    is_ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<i64>>,
    num_partitions: i32,
}

impl Load {
    /// Writes about so many messages a second to each partition.
    pub(crate) fn start(topic: &Topic, rows_per_second: i64) -> Self {
        const ROUNDS_PER_SECOND: i64 = 20;
        let is_ending = Arc::new(AtomicBool::new(false));
        let num_partitions = topic.num_partitions();
        let writer = topic.writer(&[("enable.idempotence", "true"), ("message.timeout.ms", "300000")]);
        let thread = thread::spawn({
            let is_ending = Arc::clone(&is_ending);
            move || {
                let mut num_rows = 0;
                while !is_ending.load(Ordering::Relaxed) {
                    let until = num_rows + (rows_per_second / ROUNDS_PER_SECOND).max(1);
                    for row in num_rows..until {
                        let value = |partition| (partition, bid(ids_of(partition, 0).start + row));
                        writer.send_values((0..num_partitions).map(value));
                    }
                    num_rows = until;
                    thread::sleep(Duration::from_millis(1000 / ROUNDS_PER_SECOND as u64));
                }
                writer.flush_within(RECOVERY);
                num_rows
            }
        });
        Self { is_ending, thread: Some(thread), num_partitions }
    }

    /// Ends, and says how many messages each partition has, once the brokers have all of them.
    pub(crate) fn finish(mut self) -> i64 {
        self.is_ending.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().expect("the load was written")
    }

    pub(crate) fn num_partitions(&self) -> i32 {
        self.num_partitions
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.is_ending.store(true, Ordering::Relaxed);
    }
}

/// Reads a chain on a task of its own, as fast as it can. The test must have more than one thread.
#[derive(Debug)]
pub(crate) struct Follower {
    seen: Arc<Mutex<Seen>>,
    task: tokio::task::JoinHandle<Option<Error>>,
}

/// What a follower has read.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The ids of each partition, in the order in which they came.
    pub(crate) ids: BTreeMap<i32, Vec<i64>>,
    pub(crate) checkpoint: Option<Checkpoint>,
}

impl Seen {
    pub(crate) fn add(&mut self, batch: &RecordBatch) {
        for id in ids_in(batch) {
            self.ids.entry((id / PARTITION) as i32).or_default().push(id);
        }
    }

    pub(crate) fn num_rows(&self) -> i64 {
        self.ids.values().map(|ids| ids.len() as i64).sum()
    }

    /// Each partition has given its first `num_rows` messages, each once and in order.
    #[track_caller]
    pub(crate) fn assert_whole(&self, num_partitions: i32, num_rows: i64) {
        self.assert_begun(num_partitions, num_rows);
        for (partition, ids) in &self.ids {
            assert_eq!(ids.len() as i64, num_rows, "rows of partition {partition}");
        }
        assert_eq!(self.ids.len() as i32, num_partitions);
    }

    /// Each partition has given the first of its `num_rows` messages, each once and in order, and maybe not all.
    #[track_caller]
    pub(crate) fn assert_begun(&self, num_partitions: i32, num_rows: i64) {
        for (partition, ids) in &self.ids {
            assert!(*partition < num_partitions && ids.len() as i64 <= num_rows, "{} of {partition}", ids.len());
            let wrong = ids.iter().copied().zip(ids_of(*partition, num_rows)).find(|(id, wanted)| id != wanted);
            assert_eq!(wrong, None, "partition {partition}: an id, and what should stand there");
        }
    }
}

impl Follower {
    pub(crate) async fn start(chain: &HybridSource, stored: Option<Checkpoint>) -> Self {
        let from = chain.resolve(stored).await.unwrap();
        let mut stream = chain.open(from, ReadOptions::default()).unwrap();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let task = tokio::spawn({
            let seen = Arc::clone(&seen);
            async move {
                while let Some(item) = stream.next().await {
                    let batch = match item {
                        Ok(item) => item.item.into_batch(),
                        Err(error) => return Some(error),
                    };
                    let mut seen = seen.lock().unwrap();
                    seen.add(&batch);
                    seen.checkpoint = Some(stream.checkpoint().clone());
                }
                None
            }
        });
        Self { seen, task }
    }

    pub(crate) fn num_rows(&self) -> i64 {
        self.seen.lock().unwrap().num_rows()
    }

    /// Waits until that many rows have come in all.
    pub(crate) async fn wait_for(&self, num_rows: i64) {
        let began = Instant::now();
        while self.num_rows() < num_rows {
            let place = format!("{} of {num_rows} rows", self.num_rows());
            assert!(!self.task.is_finished(), "it has ended: {place}");
            assert!(began.elapsed() < RECOVERY, "{place}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until so many more rows have come.
    pub(crate) async fn wait_for_more(&self, num_rows: i64) {
        self.wait_for(self.num_rows() + num_rows).await;
    }

    /// Ends it, once each partition has given all of its `num_rows` messages, each once and in order.
    pub(crate) async fn finish(self, num_partitions: i32, num_rows: i64) -> Seen {
        self.wait_for(num_rows * i64::from(num_partitions)).await;
        self.task.abort();
        let seen = std::mem::take(&mut *self.seen.lock().unwrap());
        seen.assert_whole(num_partitions, num_rows);
        seen
    }

    /// Waits until it fails, and gives what came before.
    pub(crate) async fn fail(self) -> (Seen, Error) {
        let ended = tokio::time::timeout(PATIENCE, self.task).await.expect("an error comes");
        let error = ended.unwrap().expect("it isn't at its end");
        (std::mem::take(&mut *self.seen.lock().unwrap()), error)
    }
}
