//! A thread of its own for output that blocks: a slow pipe, a disk that syncs.
//!
//! ```text
//! write  ── rows + permit ──▶ │ bounded by bytes │ ──▶ thread: encode, write
//! commit ── call, wait ─────▶ │   and in number  │ ──▶ thread: flush, sync, answer
//! ```
//!
//! So encoding runs beside reading, and the async runtime never waits for a disk. An error ends the
//! thread; it is returned by the call that waits for it, or by the next one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use arrow::array::RecordBatch;
use tokio::sync::{mpsc, oneshot};

use super::arrow_bytes;
use crate::budget::{Budget, Permit};
use crate::error::{Error, Result};
use crate::ordered::worker_error;

/// What a batch that waits takes besides its rows, and what each of its columns does.
const BATCH_BYTES: usize = 512;
const COLUMN_BYTES: usize = 256;

/// Batches that may wait, whatever their size: enough that neither side waits for the other's every step.
const MAX_WAITING: usize = 8;

/// What the thread works on. Dropping it undoes what isn't finished.
pub(super) trait Output: Send + 'static {
    /// Tidies up after a run that was killed.
    fn recover(&mut self) -> Result<()>;

    /// Writes rows.
    fn write(&mut self, batch: &RecordBatch) -> Result<()>;

    /// Makes everything written last.
    fn commit(&mut self) -> Result<()>;

    /// Ends the output.
    fn close(&mut self) -> Result<()>;
}

/// What the thread can be asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    Recover,
    Commit,
    Close,
}

/// What happens to rows that wait when the sink is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OnDrop {
    /// They are written still.
    Drain,
    /// They are left: nobody would see them anyway.
    Abandon,
}

enum Message {
    Rows(RecordBatch, Permit),
    Call(Call, oneshot::Sender<()>),
}

/// The handle of the thread. Dropping it ends the thread, and waits for that.
#[derive(Debug)]
pub(super) struct OutputThread {
    target: String,
    queue: Option<mpsc::Sender<Message>>,
    budget: Budget,
    thread: Option<JoinHandle<Result<()>>>,
    abandoned: Arc<AtomicBool>,
    on_drop: OnDrop,
}

impl OutputThread {
    /// Starts the thread; at most `queue_bytes` of rows wait for it (or one batch, if that is more).
    ///
    /// # Errors
    /// [`Error::Worker`] if the system gives no thread.
    pub(super) fn start(target: String, output: impl Output, queue_bytes: usize, on_drop: OnDrop) -> Result<Self> {
        let (queue, messages) = mpsc::channel(MAX_WAITING);
        let abandoned = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&abandoned);
        let thread = thread::Builder::new()
            .name("segue-sink".into())
            .spawn(move || {
                let run = AssertUnwindSafe(|| run(output, messages, &flag));
                catch_unwind(run).unwrap_or_else(|payload| Err(worker_error(payload.as_ref())))
            })
            .map_err(|e| Error::Worker { message: format!("no thread to write on: {e}") })?;
        Ok(Self {
            target,
            queue: Some(queue),
            budget: Budget::new(queue_bytes),
            thread: Some(thread),
            abandoned,
            on_drop,
        })
    }

    /// Hands rows over, as soon as there is room for them.
    pub(super) async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let permit = self.budget.acquire(arrow_bytes(batch) + BATCH_BYTES + batch.num_columns() * COLUMN_BYTES).await;
        self.send(Message::Rows(batch.clone(), permit)).await
    }

    /// Asks for something, and waits until it is done.
    pub(super) async fn call(&mut self, call: Call) -> Result<()> {
        let (done, answer) = oneshot::channel();
        self.send(Message::Call(call, done)).await?;
        match answer.await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.failure()),
        }
    }

    async fn send(&mut self, message: Message) -> Result<()> {
        let sent = match &self.queue {
            Some(queue) => queue.send(message).await.is_ok(),
            None => false,
        };
        if sent { Ok(()) } else { Err(self.failure()) }
    }

    /// What ended the thread, which no longer listens.
    fn failure(&mut self) -> Error {
        self.queue = None;
        let ended = self.thread.take().map(JoinHandle::join);
        match ended {
            Some(Ok(Err(e))) => e,
            Some(Err(payload)) => worker_error(payload.as_ref()),
            Some(Ok(Ok(()))) | None => {
                Error::Output { target: self.target.clone(), source: "it was closed, or has failed before".into() }
            }
        }
    }
}

impl Drop for OutputThread {
    fn drop(&mut self) {
        if self.on_drop == OnDrop::Abandon {
            self.abandoned.store(true, Ordering::Relaxed);
        }
        self.queue = None;
        if let Some(Ok(Err(error))) = self.thread.take().map(JoinHandle::join) {
            tracing::warn!(target = %self.target, %error, "output was dropped without being closed, and failed");
        }
    }
}

fn run(mut output: impl Output, mut messages: mpsc::Receiver<Message>, abandoned: &AtomicBool) -> Result<()> {
    while let Some(message) = messages.blocking_recv() {
        if abandoned.load(Ordering::Relaxed) {
            break;
        }
        match message {
            Message::Rows(batch, permit) => {
                output.write(&batch)?;
                drop(permit);
            }
            Message::Call(call, done) => {
                match call {
                    Call::Recover => output.recover()?,
                    Call::Commit => output.commit()?,
                    Call::Close => output.close()?,
                }
                // Nobody waits for the answer if the call was dropped.
                let _ = done.send(());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use arrow::array::{ArrayRef, Int64Array};

    use super::*;

    struct Script {
        log: Arc<Mutex<Vec<String>>>,
        fail_at: Option<usize>,
        panic_at: Option<usize>,
    }

    impl Output for Script {
        fn recover(&mut self) -> Result<()> {
            Ok(())
        }

        fn write(&mut self, batch: &RecordBatch) -> Result<()> {
            let mut log = self.log.lock().unwrap();
            log.push(format!("{} rows", batch.num_rows()));
            if self.fail_at == Some(log.len()) {
                return Err(Error::Output { target: "script".into(), source: "full".into() });
            }
            if self.panic_at == Some(log.len()) {
                drop(log);
                panic!("a bug");
            }
            Ok(())
        }

        fn commit(&mut self) -> Result<()> {
            self.log.lock().unwrap().push("commit".into());
            Ok(())
        }

        fn close(&mut self) -> Result<()> {
            Ok(())
        }
    }

    impl Drop for Script {
        fn drop(&mut self) {
            if let Ok(mut log) = self.log.lock() {
                log.push("dropped".into());
            }
        }
    }

    fn rows(num_rows: i64) -> RecordBatch {
        let id: ArrayRef = Arc::new(Int64Array::from_iter_values(0..num_rows));
        RecordBatch::try_from_iter([("id", id)]).unwrap()
    }

    fn script(fail_at: Option<usize>, panic_at: Option<usize>) -> (Script, Arc<Mutex<Vec<String>>>) {
        let log = Arc::new(Mutex::new(Vec::new()));
        (Script { log: Arc::clone(&log), fail_at, panic_at }, log)
    }

    fn start(script: Script, on_drop: OnDrop) -> OutputThread {
        OutputThread::start("script".into(), script, 1, on_drop).unwrap()
    }

    #[tokio::test]
    async fn an_error_comes_with_a_later_call_and_then_the_thread_is_gone() {
        let mut output = start(script(Some(1), None).0, OnDrop::Drain);
        output.write(&rows(1)).await.unwrap();
        let error = output.call(Call::Commit).await.unwrap_err();
        assert!(matches!(error, Error::Output { .. }), "{error}");
        assert!(output.thread.is_none());
        let error = output.write(&rows(1)).await.unwrap_err();
        assert!(matches!(error, Error::Output { .. }), "{error}");
    }

    #[tokio::test]
    async fn a_panic_is_an_error() {
        let mut output = start(script(None, Some(1)).0, OnDrop::Drain);
        output.write(&rows(1)).await.unwrap();
        let error = output.call(Call::Commit).await.unwrap_err();
        assert_eq!(error.to_string(), "a worker failed: a bug");
    }

    #[tokio::test]
    async fn a_drop_ends_the_thread_and_drains_if_asked_to() {
        let (script, log) = script(None, None);
        let mut output = start(script, OnDrop::Drain);
        output.write(&rows(1)).await.unwrap();
        output.write(&rows(2)).await.unwrap();
        output.call(Call::Commit).await.unwrap();
        output.write(&rows(3)).await.unwrap();
        drop(output);
        assert_eq!(*log.lock().unwrap(), ["1 rows", "2 rows", "commit", "3 rows", "dropped"]);
    }
}
