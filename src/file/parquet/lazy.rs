//! A row group page by page: for those that are too large to be decoded at once and don't say where their
//! pages begin.
//!
//! The parquet library reads such a row group through a [`ChunkReader`], column by column and page by page.
//! Ours fetches small ranges as they are asked for, with a little more of the column behind them, and keeps
//! account of the pages and dictionaries that are open: too much of them at one time is an error, before it
//! is memory.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::ready;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use super::{Decoded, OpenFile, Stop};
use crate::budget::{Budget, Permit};
use crate::error::{Error, Result};
use crate::format::parquet::Unit;
use crate::ordered::{OrderedSender, worker_error};

/// Bytes that are read ahead of a column, at most: as much as a page of most writers.
const MAX_AHEAD_BYTES: u64 = 1 << 20;

/// Bytes that are read ahead of a column, at least: a request for less costs more than the bytes.
const MIN_AHEAD_BYTES: u64 = 16 << 10;

/// Bytes of a page that are looked at for its sizes: three numbers of five bytes, each with a byte before it.
const SIZES_BYTES: usize = 18;

/// A thread that goes through row groups page by page, started with the first of them.
///
/// It is one for all: what a row group has freed is used again by the next, while every thread that
/// allocates much keeps some of it.
#[derive(Debug, Default)]
pub(super) struct PageThread(Option<mpsc::Sender<Job>>);

type Job = (Reader, oneshot::Sender<Result<(), Stop>>);

impl PageThread {
    /// Waits until `reader` is through.
    pub(super) async fn read(&mut self, reader: Reader) -> Result<(), Stop> {
        let jobs = match &self.0 {
            Some(jobs) => jobs,
            None => self.0.insert(start()?),
        };
        let lost = || Error::Worker { message: "the thread that reads pages has ended".into() };
        let (done, result) = oneshot::channel();
        jobs.send((reader, done)).await.map_err(|_| lost())?;
        result.await.map_err(|_| lost())?
    }
}

/// The thread ends once its jobs can't come any more, or nobody receives what it reads.
fn start() -> Result<mpsc::Sender<Job>> {
    let (jobs, mut received) = mpsc::channel::<Job>(1);
    let work = move || {
        while let Some((reader, done)) = received.blocking_recv() {
            let result = catch_unwind(AssertUnwindSafe(|| reader.run()));
            let result = result.unwrap_or_else(|payload| Err(worker_error(payload.as_ref()).into()));
            // Nobody waits any more if the stream was dropped.
            let _ = done.send(result);
        }
    };
    let thread = thread::Builder::new().name("segue-pages".into()).spawn(work);
    thread.map_err(|e| Error::Worker { message: format!("no thread to read pages on: {e}") })?;
    Ok(jobs)
}

/// Reads the rest of one row group, in order.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) file: Arc<OpenFile>,
    pub(super) unit: Unit,
    pub(super) budget: Budget,
    pub(super) runtime: Handle,
    pub(super) units: Arc<OrderedSender<Decoded>>,
}

impl Reader {
    /// Blocks: for bytes of the file, of the budget, and for a place in the window.
    pub(super) fn run(self) -> Result<(), Stop> {
        let Self { file, unit, .. } = &self;
        let limit = self.budget.limit_bytes() as u64;
        let row_bytes = file.cost(unit).decoded.div_ceil(unit.rows.len() as u64).max(1);
        // A batch may have an eighth of the budget: two are with the consumer, one is being decoded.
        let batch_rows = file.batch_rows.min((limit / 8 / row_bytes).max(1) as usize);
        let pages = self.open_pages()?;
        let failed = |cause: ParquetError| pages.failure().unwrap_or_else(|| file.undecodable(unit, cause));
        let builder =
            ParquetRecordBatchReaderBuilder::new_with_metadata(pages.clone(), file.parquet.reader_metadata().clone());
        let rows = builder
            .with_row_groups(vec![unit.group])
            .with_projection(file.projection.mask().clone())
            .with_batch_size(batch_rows)
            .with_row_selection(file.parquet.selection(unit))
            .build();
        let mut rows = rows.map_err(failed)?;
        let (mut num_rows, mut batch_bytes) = (0, row_bytes.saturating_mul(batch_rows as u64) as usize);
        loop {
            let mut permit = self.wait(self.budget.acquire(batch_bytes))?;
            let Some(batch) = rows.next() else { break };
            let batch = batch.map_err(|e| failed(ParquetError::External(Box::new(e))))?;
            let first = file.parquet.first_row(unit.group) + (unit.rows.start + num_rows) as u64;
            let (item, bytes) = file.item(&batch, first)?;
            drop(batch);
            num_rows += item.num_rows();
            file.learn(item.num_rows(), bytes);
            permit.resize(bytes);
            batch_bytes = bytes;
            let decoded = Decoded { items: VecDeque::from([(item, bytes)]), permit: Some(permit) };
            self.units.submit_blocking(ready(Ok(decoded)).boxed(), None)?;
        }
        file.check_rows(unit, num_rows)?;
        Ok(())
    }

    fn open_pages(&self) -> Result<Pages, Stop> {
        let ranges = self.file.parquet.stored_ranges(self.unit.group, &self.file.projection);
        let limit = self.budget.limit_bytes() as u64;
        let ahead_bytes = (limit / 64 / ranges.len().max(1) as u64).clamp(MIN_AHEAD_BYTES, MAX_AHEAD_BYTES);
        // A lane of its own: pages stay open while batches wait for bytes.
        let permit = self.wait(self.budget.lane().acquire(0))?;
        let columns = ranges.into_iter().map(Column::new).collect();
        let state = State { columns, permit, failure: None };
        Ok(Pages(Arc::new(Inner {
            file: Arc::clone(&self.file),
            group: self.unit.group,
            units: Arc::clone(&self.units),
            runtime: self.runtime.clone(),
            ahead_bytes,
            ceiling: self.budget.ceiling_bytes() as u64,
            state: Mutex::new(state),
        })))
    }

    fn wait<T>(&self, work: impl Future<Output = T>) -> Result<T, Stop> {
        block_on(&self.runtime, &self.units, work).ok_or(Stop::Closed)
    }
}

/// Waits for `work` on a thread of its own; `None` as soon as nobody receives any more.
fn block_on<T>(runtime: &Handle, units: &OrderedSender<Decoded>, work: impl Future<Output = T>) -> Option<T> {
    runtime.block_on(async {
        tokio::select! {
            biased;
            () = units.closed() => None,
            done = work => Some(done),
        }
    })
}

/// The pages of one row group, as the parquet library asks for them.
#[derive(Clone, Debug)]
struct Pages(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    file: Arc<OpenFile>,
    group: usize,
    units: Arc<OrderedSender<Decoded>>,
    runtime: Handle,
    ahead_bytes: u64,
    /// What open pages may take: all that this source will ever have, since it may be read before its turn.
    ceiling: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    columns: Vec<Column>,
    /// For all that is open.
    permit: Permit,
    /// Our own error: the parquet library passes on its text alone.
    failure: Option<Error>,
}

/// One column of the row group.
#[derive(Debug)]
struct Column {
    range: Range<u64>,
    /// What was read last, and where it starts.
    window: (u64, Bytes),
    /// What the last places that were looked at say of themselves, if a page begins there.
    looked_at: [Option<PageSizes>; 2],
    page_bytes: u64,
    dictionary_bytes: u64,
}

impl Column {
    fn new(range: Range<u64>) -> Self {
        let window = (range.start, Bytes::new());
        Self { range, window, looked_at: [None; 2], page_bytes: 0, dictionary_bytes: 0 }
    }

    fn open_bytes(&self) -> u64 {
        self.window.1.len() as u64 + self.page_bytes + self.dictionary_bytes
    }

    /// The window from `start` on, if it begins before.
    fn window_at(&self, start: u64) -> Option<Bytes> {
        let skip = usize::try_from(start.checked_sub(self.window.0)?).ok()?;
        (skip < self.window.1.len()).then(|| self.window.1.slice(skip..))
    }
}

impl Pages {
    fn state(&self) -> MutexGuard<'_, State> {
        // One thread reads; a panic in it ends the reading.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failure(&self) -> Option<Error> {
        self.state().failure.take()
    }

    fn failed(&self, error: Error) -> ParquetError {
        let shown = ParquetError::General(error.to_string());
        self.state().failure = Some(error);
        shown
    }

    fn column_of(&self, start: u64) -> Result<usize, ParquetError> {
        let column = self.state().columns.iter().position(|column| column.range.contains(&start));
        column.ok_or_else(|| ParquetError::EOF(format!("byte {start} is in no column that is read")))
    }

    /// At least `len` bytes from `start` on, if the column has so many; else what it has.
    fn bytes(&self, start: u64, len: u64) -> Result<Bytes, ParquetError> {
        let index = self.column_of(start)?;
        let end = {
            let state = self.state();
            let column = &state.columns[index];
            if let Some(bytes) =
                column.window_at(start).filter(|bytes| bytes.len() as u64 >= len.min(column.range.end - start))
            {
                return Ok(bytes);
            }
            start.saturating_add(len.max(self.0.ahead_bytes)).min(column.range.end)
        };
        self.account(index, |column| column.window = (start, Bytes::new()), end - start)?;
        let read = block_on(&self.0.runtime, &self.0.units, self.0.file.file.read(start..end));
        let bytes = match read {
            Some(Ok(bytes)) => bytes,
            Some(Err(error)) => return Err(self.failed(error)),
            None => return Err(ParquetError::General("nobody reads any more".into())),
        };
        self.account(index, |column| column.window = (start, bytes.clone()), 0)?;
        Ok(bytes)
    }

    /// Changes what is open of a column, and holds it with `more` bytes against the budget.
    fn account(&self, index: usize, change: impl FnOnce(&mut Column), more: u64) -> Result<(), ParquetError> {
        let needed_bytes = {
            let mut state = self.state();
            if let Some(column) = state.columns.get_mut(index) {
                change(column);
            }
            let open: u64 = state.columns.iter().map(Column::open_bytes).sum();
            let needed_bytes = open.saturating_add(more);
            if needed_bytes <= self.0.ceiling {
                state.permit.resize(needed_bytes as usize);
                return Ok(());
            }
            needed_bytes
        };
        let place = format!("{}, row group {}: its open pages", self.0.file.file.url, self.0.group);
        Err(self.failed(Error::Memory { place, needed_bytes, allowed_bytes: self.0.ceiling }))
    }
}

impl Length for Pages {
    fn len(&self) -> u64 {
        self.0.file.file.size()
    }
}

impl ChunkReader for Pages {
    type T = PageStart;

    fn get_read(&self, start: u64) -> Result<PageStart, ParquetError> {
        let index = self.column_of(start)?;
        let bytes = self.bytes(start, SIZES_BYTES as u64)?;
        if let Some(column) = self.state().columns.get_mut(index) {
            column.looked_at = [column.looked_at[1], PageSizes::parse(&bytes)];
        }
        Ok(PageStart { pages: self.clone(), at: start })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let index = self.column_of(start)?;
        let bytes = self.bytes(start, length as u64)?;
        if bytes.len() < length {
            return Err(ParquetError::EOF(format!("a page at byte {start} goes beyond its column")));
        }
        // With an offset index a page comes with its header; without, the header was looked at before.
        let looked_at = self.state().columns.get(index).map_or([None; 2], |column| column.looked_at);
        let of_length = looked_at.into_iter().flatten().find(|sizes| sizes.stored == length as u64);
        let sizes = of_length.or_else(|| PageSizes::parse(&bytes).filter(|sizes| sizes.stored < length as u64));
        let behind = bytes.slice(length..);
        let note = |column: &mut Column| {
            // What is behind the page stays; nothing holds the page but its reader.
            column.window = (start + length as u64, behind);
            if let Some(sizes) = sizes {
                sizes.note(column);
            }
        };
        self.account(index, note, 0)?;
        Ok(bytes.slice(..length))
    }
}

/// Reads the header of a page, which is as long as it is.
struct PageStart {
    pages: Pages,
    at: u64,
}

impl Read for PageStart {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let Ok(index) = self.pages.column_of(self.at) else { return Ok(0) };
        let here = self.pages.state().columns.get(index).and_then(|column| column.window_at(self.at));
        let bytes = match here {
            Some(bytes) => bytes,
            None => self.pages.bytes(self.at, 1).map_err(io::Error::other)?,
        };
        let len = out.len().min(bytes.len());
        out[..len].copy_from_slice(&bytes[..len]);
        self.at += len as u64;
        Ok(len)
    }
}

/// The sizes that a page's header begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PageSizes {
    is_dictionary: bool,
    plain: u64,
    stored: u64,
}

impl PageSizes {
    /// Reads `PageHeader {1: i32 type, 2: i32 uncompressed_page_size, 3: i32 compressed_page_size, …}` of
    /// [parquet.thrift](https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift)
    /// in Thrift's compact form; `None` if no such header begins here.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes.iter().copied();
        let mut field = || -> Option<u64> {
            // One more than the field before, of type i32.
            (rest.next()? == 0x15).then_some(())?;
            let (mut value, mut shift) = (0u64, 0);
            loop {
                let byte = rest.next()?;
                value |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte < 0x80 {
                    break;
                }
                if shift > 28 {
                    return None;
                }
            }
            // Zigzag: an odd number is negative, which no size is.
            (value % 2 == 0).then_some(value / 2)
        };
        let (page_type, plain, stored) = (field()?, field()?, field()?);
        Some(Self { is_dictionary: page_type == 2, plain, stored })
    }

    fn note(self, column: &mut Column) {
        column.page_bytes = self.plain;
        if self.is_dictionary {
            // It stays, as values: those of text with an offset each.
            column.dictionary_bytes = self.plain + self.plain / 4;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sizes_of_a_page_are_read_from_its_header() {
        // A dictionary page of 300 bytes, 128 as stored; then the next field of the header.
        let header = [0x15, 0x04, 0x15, 0xd8, 0x04, 0x15, 0x80, 0x02, 0x2c];
        let sizes = PageSizes { is_dictionary: true, plain: 300, stored: 128 };
        assert_eq!(PageSizes::parse(&header), Some(sizes));
        for no_header in [&header[..7], &[0x15, 0x05], &[0x16, 0x04], &[0x15, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], &[]]
        {
            assert_eq!(PageSizes::parse(no_header), None);
        }
    }
}
