//! Text files: fetched ahead, cut into whole records on one thread, decoded on the pool.
//!
//! ```text
//! fetch task ──ranges in order──▶ cutter thread ──chunks──▶ pool ──ordered──▶ items
//! ```
//!
//! The cutter decompresses, finds each file's header, and cuts. It does nothing else, since it is the one
//! sequential stage. Dropping the stream closes both channels, and task and thread end.

mod ahead;
mod cutter;
mod decoding;

use std::thread;

use futures::{StreamExt, stream};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use self::ahead::Fetch;
use self::cutter::Cutter;
pub(super) use self::decoding::{bom_bytes, check_encoding};
use super::FileSource;
use super::plan::Plan;
use crate::error::{Error, Result};
use crate::ordered::{OrderedReceiver, Task, ordered, worker_error};
use crate::source::{ReadRequest, SourceBatch, SourceStream};

/// Bytes of text that are decoded as one job. Long enough that the costs of a job vanish, short enough that
/// some fit every cache and the smallest budget.
const CHUNK_BYTES: usize = 1 << 20;

/// The smallest chunk, however small the budget.
const MIN_CHUNK_BYTES: usize = 64 << 10;

/// Ranges that are fetched ahead.
const RANGES_AHEAD: usize = 4;

pub(super) fn open(source: &FileSource, plan: Plan, request: ReadRequest) -> Result<SourceStream> {
    let runtime = Handle::try_current().map_err(|e| Error::Worker { message: e.to_string() })?;
    let (num_threads, batch_rows) = (request.pool.num_threads(), request.batch_rows);
    let (chunks, receiver) = ordered::<Decoded>(2 * num_threads + 2);
    let (fetched, pieces) = mpsc::channel(RANGES_AHEAD);
    let fetcher = Task::spawn(Fetch::new(source, &request).run(plan, fetched));
    let cutter = Cutter::new(source.clone(), request, chunks, runtime);
    let handle = thread::Builder::new()
        .name("segue-cut".into())
        .spawn(move || cutter.run(pieces))
        .map_err(|e| Error::Worker { message: format!("no thread to cut on: {e}") })?;
    Ok(items(receiver, fetcher, handle, batch_rows))
}

/// The items one by one; a chunk's permit is held until its last item is taken.
fn items(
    receiver: OrderedReceiver<Decoded>,
    fetcher: Task<()>,
    cutter: thread::JoinHandle<()>,
    batch_rows: usize,
) -> SourceStream {
    let batches = receiver.flat_map(move |held| match held {
        Err(e) => stream::iter([Err(e)]).boxed(),
        Ok(held) => {
            let Decoded { item, fault } = held.value;
            // Cut one by one as they are taken: a batch has costs of its own, however few its rows.
            let items = stream::unfold((item, held.permit), move |(item, permit)| {
                let next = item.map(|item| match item.num_rows() > batch_rows {
                    true => {
                        let (first, rest) = item.split_at(batch_rows);
                        (Ok(first), (Some(rest), permit))
                    }
                    false => (Ok(item), (None, None)),
                });
                futures::future::ready(next)
            });
            items.chain(stream::iter(fault.map(Err))).boxed()
        }
    });
    // A cutter that ended in a panic has closed the window without an error: that must not look like the end.
    // Its end of the window is closed, so it is about to end, and joining it waits for nothing.
    let mut workers = Some((fetcher, cutter));
    let end = stream::poll_fn(move |_| {
        let panicked = workers.take().and_then(|(_, cutter)| cutter.join().err());
        std::task::Poll::Ready(panicked.map(|payload| Err(worker_error(payload.as_ref()))))
    });
    let mut failed = false;
    batches
        .chain(end)
        .take_while(move |item| {
            let go_on = !failed;
            failed |= item.is_err();
            futures::future::ready(go_on)
        })
        .boxed()
}

/// The rows of one chunk, and the bad record behind them, with which reading ends.
struct Decoded {
    item: Option<SourceBatch>,
    fault: Option<Error>,
}

/// Bytes that are fetched, and cut, at once: what a budget of `limit_bytes` can have several of.
fn piece_bytes(limit_bytes: usize) -> usize {
    (limit_bytes / (8 * RANGES_AHEAD)).clamp(MIN_CHUNK_BYTES, CHUNK_BYTES)
}
