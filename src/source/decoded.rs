//! What decoding a chunk of text gives, and the stream that is made of it: the same for files and messages.

use std::future::ready;
use std::task::Poll;

use futures::{StreamExt, stream};

use super::{SourceBatch, SourceStream};
use crate::error::Error;
use crate::ordered::OrderedReceiver;

/// The rows of one chunk, and the bad record behind them, with which reading ends.
#[derive(Debug)]
pub(crate) struct Decoded {
    pub(crate) item: Option<SourceBatch>,
    pub(crate) fault: Option<Error>,
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
                ready(next)
            });
            items.chain(stream::iter(fault.map(Err))).boxed()
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
