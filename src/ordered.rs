//! The ordered window: many jobs in flight, results in the order in which they were submitted.
//!
//! ```text
//! producer ── submit(job, permit) ──▶ │ job 3 │ job 2 │ job 1 │ ──▶ results 1, 2, 3 …
//!                                      on the pool, or fetching
//! ```
//!
//! The window is bounded in jobs by its length and in bytes by the permits. Jobs of the pool never
//! wait for anything. Dropping the receiving end drops what is in flight, and the producer sees it
//! at its next submission.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::thread;

use futures::future::BoxFuture;
use futures::{FutureExt, Stream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::budget::Permit;
use crate::error::{Error, Result};

/// Threads that decode; they end when the last clone is dropped.
///
/// A thread without a job sleeps. Those of rayon look for one a while longer, which is good for jobs that make jobs; but
/// these come from outside, one by one, and where there is a CPU too few the looking is taken from the thread that
/// fetches: a twentieth of all the CPU that reading a topic takes.
#[derive(Clone)]
pub struct DecodePool {
    workers: Arc<Workers>,
}

type Job = Box<dyn FnOnce() + Send>;

/// The jobs of threads, which end with this.
struct Workers {
    shared: Arc<Shared>,
    num_threads: usize,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    is_closed: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does jobs in their order, until no more can come.
    fn work(&self) {
        loop {
            let is_idle = |queue: &mut Queue| queue.jobs.is_empty() && !queue.is_closed;
            let waited = self.changed.wait_while(self.lock(), is_idle);
            let Some(job) = waited.unwrap_or_else(PoisonError::into_inner).jobs.pop_front() else { return };
            job();
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.shared.changed.notify_all();
    }
}

impl fmt::Debug for DecodePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DecodePool({} threads)", self.num_threads())
    }
}

impl DecodePool {
    /// Starts `num_threads` threads, at least one.
    ///
    /// # Errors
    /// [`Error::Worker`] if the system gives no threads.
    pub fn new(num_threads: usize) -> Result<Self> {
        let workers = Workers { shared: Arc::default(), num_threads: num_threads.max(1) };
        for index in 0..workers.num_threads {
            let shared = Arc::clone(&workers.shared);
            thread::Builder::new()
                .name(format!("segue-decode-{index}"))
                .spawn(move || shared.work())
                .map_err(|e| Error::Worker { message: format!("no threads to decode on: {e}") })?;
        }
        Ok(Self { workers: Arc::new(workers) })
    }

    /// The number of threads.
    pub fn num_threads(&self) -> usize {
        self.workers.num_threads
    }

    /// Starts `job` at once, or as soon as a thread is free; the future only fetches its result.
    ///
    /// A panic in the job becomes [`Error::Worker`].
    pub fn spawn<T, F>(&self, job: F) -> BoxFuture<'static, Result<T>>
    where
        T: Send + 'static,
        F: FnOnce() -> Result<T> + Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        let job = move || {
            let result =
                catch_unwind(AssertUnwindSafe(job)).unwrap_or_else(|payload| Err(worker_error(payload.as_ref())));
            // Nobody waits for it any more if the stream was dropped.
            let _ = sender.send(result);
        };
        self.workers.shared.lock().jobs.push_back(Box::new(job));
        self.workers.shared.changed.notify_one();
        let lost = || Error::Worker { message: "the pool ended before its job did".into() };
        receiver.map(move |received| received.unwrap_or_else(|_| Err(lost()))).boxed()
    }
}

/// Makes an error of what a panic carried.
pub(crate) fn worker_error(payload: &(dyn Any + Send)) -> Error {
    let message = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "panic without a message".into());
    Error::Worker { message }
}

/// Opens a window of at most `num_jobs` jobs.
pub fn ordered<T>(num_jobs: usize) -> (OrderedSender<T>, OrderedReceiver<T>) {
    let (sender, receiver) = mpsc::channel(num_jobs.max(1));
    (OrderedSender { queue: sender }, OrderedReceiver { queue: Some(receiver), current: None })
}

/// The receiving end is gone: the producer has nothing more to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed;

struct Slot<T> {
    result: BoxFuture<'static, Result<T>>,
    permit: Option<Permit>,
}

/// The producer's end of a window.
pub struct OrderedSender<T> {
    queue: mpsc::Sender<Slot<T>>,
}

impl<T> Clone for OrderedSender<T> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone() }
    }
}

impl<T> fmt::Debug for OrderedSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OrderedSender")
    }
}

impl<T: Send + 'static> OrderedSender<T> {
    /// Waits until there is a place, then puts a job's future in it. The future should already be at work.
    ///
    /// # Errors
    /// [`Closed`] if nobody receives any more.
    pub async fn submit(&self, result: BoxFuture<'static, Result<T>>, permit: Option<Permit>) -> Result<(), Closed> {
        self.queue.send(Slot { result, permit }).await.map_err(|_| Closed)
    }

    /// As [`Self::submit`], from a thread of its own.
    ///
    /// # Errors
    /// [`Closed`] if nobody receives any more.
    pub fn submit_blocking(&self, result: BoxFuture<'static, Result<T>>, permit: Option<Permit>) -> Result<(), Closed> {
        self.queue.blocking_send(Slot { result, permit }).map_err(|_| Closed)
    }

    /// Says whether nobody receives any more.
    pub fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }

    /// Returns when nobody receives any more.
    pub async fn closed(&self) {
        self.queue.closed().await;
    }
}

/// A result, and the permit for what it holds.
#[derive(Debug)]
pub struct Held<T> {
    /// The result of the job.
    pub value: T,
    /// Given back when dropped.
    pub permit: Option<Permit>,
}

/// The consumer's end of a window: the results in order. After an error nothing more comes.
pub struct OrderedReceiver<T> {
    queue: Option<mpsc::Receiver<Slot<T>>>,
    current: Option<Slot<T>>,
}

impl<T> fmt::Debug for OrderedReceiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OrderedReceiver")
    }
}

impl<T> Stream for OrderedReceiver<T> {
    type Item = Result<Held<T>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let Some(queue) = &mut this.queue else { return Poll::Ready(None) };
        if this.current.is_none() {
            this.current = ready!(queue.poll_recv(cx));
        }
        let Some(slot) = &mut this.current else {
            this.queue = None;
            return Poll::Ready(None);
        };
        let result = ready!(slot.result.poll_unpin(cx));
        let permit = slot.permit.take();
        this.current = None;
        if result.is_err() {
            this.queue = None;
        }
        Poll::Ready(Some(result.map(|value| Held { value, permit })))
    }
}

/// A task that is stopped when its handle is dropped.
#[derive(Debug)]
pub struct Task<T>(JoinHandle<Result<T>>);

impl<T: Send + 'static> Task<T> {
    /// Starts `work` on the current Tokio runtime.
    pub fn spawn(work: impl Future<Output = Result<T>> + Send + 'static) -> Self {
        Self(tokio::spawn(work))
    }
}

impl<T> Future for Task<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match ready!(self.0.poll_unpin(cx)) {
            Ok(result) => result,
            Err(e) if e.is_panic() => Err(worker_error(e.into_panic().as_ref())),
            Err(e) => Err(Error::Worker { message: e.to_string() }),
        })
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use futures::{StreamExt, TryStreamExt};

    use super::*;
    use crate::budget::Budget;

    async fn squares(num_threads: usize) -> Vec<u64> {
        let pool = DecodePool::new(num_threads).unwrap();
        let (sender, receiver) = ordered(4);
        let producer = async move {
            for i in 0..200u64 {
                // Early jobs take longest, so that results are ready out of order.
                let job = pool.spawn(move || {
                    std::thread::sleep(Duration::from_micros(300 * (7 - i % 8)));
                    Ok(i * i)
                });
                sender.submit(job, None).await.unwrap();
            }
        };
        let (_, results) = tokio::join!(producer, receiver.map_ok(|held| held.value).try_collect());
        results.unwrap()
    }

    #[tokio::test]
    async fn results_come_in_the_order_of_submission_with_any_number_of_threads() {
        let expected: Vec<u64> = (0..200).map(|i| i * i).collect();
        for num_threads in [1, 2, 3, 8] {
            assert_eq!(squares(num_threads).await, expected);
        }
    }

    #[tokio::test]
    async fn a_panic_is_an_error_and_the_end() {
        let pool = DecodePool::new(2).unwrap();
        let (sender, mut receiver) = ordered(4);
        sender.submit(pool.spawn(|| Ok(1)), None).await.unwrap();
        sender.submit(pool.spawn(|| panic!("digit {} lost", 7)), None).await.unwrap();
        sender.submit(pool.spawn(|| Ok(3)), None).await.unwrap();
        assert_eq!(receiver.next().await.unwrap().unwrap().value, 1);
        let error = receiver.next().await.unwrap().unwrap_err();
        assert_eq!(error.to_string(), "a worker failed: digit 7 lost");
        assert!(receiver.next().await.is_none());
        assert!(sender.submit(pool.spawn(|| Ok(4)), None).await.is_err());
    }

    #[tokio::test]
    async fn the_window_is_bounded_in_jobs_and_in_bytes() {
        let pool = DecodePool::new(2).unwrap();
        let budget = Budget::new(3);
        let (sender, mut receiver) = ordered(100);
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        let producer = tokio::spawn({
            let (pool, budget) = (pool.clone(), budget.clone());
            async move {
                for _ in 0..10 {
                    let permit = budget.acquire(1).await;
                    let job = pool.spawn(|| Ok(STARTED.fetch_add(1, Ordering::SeqCst)));
                    sender.submit(job, Some(permit)).await.unwrap();
                }
            }
        });
        while budget.used_bytes() < 3 {
            tokio::task::yield_now().await;
        }
        assert!(STARTED.load(Ordering::SeqCst) <= 3, "three permits, three jobs");
        let mut received = 0;
        while let Some(held) = receiver.next().await {
            let _ = held.unwrap();
            received += 1;
            assert!(STARTED.load(Ordering::SeqCst) <= received + 3);
        }
        producer.await.unwrap();
        assert_eq!(received, 10);
        assert_eq!(budget.used_bytes(), 0);
    }

    #[tokio::test]
    async fn dropping_the_receiver_stops_the_producer() {
        let pool = DecodePool::new(1).unwrap();
        let (sender, receiver) = ordered(2);
        let producer = tokio::spawn(async move {
            let mut submitted = 0u64;
            while sender.submit(pool.spawn(|| Ok(())), None).await.is_ok() {
                submitted += 1;
            }
            submitted
        });
        drop(receiver);
        assert!(producer.await.unwrap() <= 2);
    }
}
