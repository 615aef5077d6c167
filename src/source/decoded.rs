//! What decoding a chunk of text gives, and the stream that is made of it: the same for files and messages.

use std::future::ready;
use std::task::Poll;

use futures::future::BoxFuture;
use futures::{StreamExt, stream};

use super::{SourceBatch, SourceStream};
use crate::budget::Permit;
use crate::error::{Error, Result};
use crate::ordered::OrderedReceiver;

/// The rows of one chunk, and what is behind them: the bad record with which reading ends, or more of the chunk.
pub(crate) struct Decoded {
    pub(crate) item: Option<SourceBatch>,
    pub(crate) fault: Option<Error>,
    pub(crate) rest: Option<Rest>,
}

/// What is left of a chunk, to be decoded when the rows before are taken.
pub(crate) struct Rest(Box<dyn FnOnce() -> BoxFuture<'static, Result<Decoded>> + Send>);

impl Rest {
    pub(crate) fn new(decode: impl FnOnce() -> BoxFuture<'static, Result<Decoded>> + Send + 'static) -> Self {
        Self(Box::new(decode))
    }
}

/// What is still to come of one chunk.
struct Chunk {
    decoded: Decoded,
    _permit: Option<Permit>,
    batch_rows: usize,
}

impl Chunk {
    /// The next item, of at most `batch_rows` rows, and the chunk behind it.
    async fn next(mut self) -> Option<(Result<SourceBatch>, Self)> {
        loop {
            if let Some(item) = self.decoded.item.take() {
                // Cut one by one as they are taken: a batch has costs of its own, however few its rows.
                if item.num_rows() <= self.batch_rows {
                    return Some((Ok(item), self));
                }
                let (first, rest) = item.split_at(self.batch_rows);
                self.decoded.item = Some(rest);
                return Some((Ok(first), self));
            }
            if let Some(fault) = self.decoded.fault.take() {
                self.decoded.rest = None;
                return Some((Err(fault), self));
            }
            let Rest(decode) = self.decoded.rest.take()?;
            match decode().await {
                Ok(decoded) => self.decoded = decoded,
                Err(e) => return Some((Err(e), self)),
            }
        }
    }
}

/// The items one by one, of at most `batch_rows` rows; a chunk's permit is held until its last item is taken.
///
/// `end` is called once, when the window is closed without an error: it says whether that was a failure.
pub(crate) fn items(
    receiver: OrderedReceiver<Decoded>,
    batch_rows: usize,
    end: impl FnOnce() -> Option<Error> + Send + 'static,
) -> SourceStream {
    let batches = receiver.flat_map(move |held| match held {
        Err(e) => stream::iter([Err(e)]).boxed(),
        Ok(held) => {
            let chunk = Chunk { decoded: held.value, _permit: held.permit, batch_rows };
            stream::unfold(chunk, Chunk::next).boxed()
        }
    });
    let mut end = Some(end);
    let end = stream::poll_fn(move |_| Poll::Ready(end.take().and_then(|end| end()).map(Err)));
    let mut failed = false;
    batches
        .chain(end)
        .take_while(move |item| {
            let go_on = !failed;
            failed |= item.is_err();
            ready(go_on)
        })
        .boxed()
}
