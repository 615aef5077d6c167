//! Parquet files: row groups, or parts of them, fetched and decoded side by side, delivered in order.
//!
//! ```text
//! footers (some files ahead) ─▶ units ──task each: fetch ranges ▶ decode on the pool──▶ ordered items
//!                                 └──── a group too large, and without an offset index: page by page (`lazy`)
//! ```
//!
//! One task goes through the files. For each unit it waits for bytes of the budget, in reading order, and
//! starts a task that fetches and decodes. How large a unit may be follows from the budget alone, so
//! memory stays bounded whatever the writer made; it changes nothing in what is read.

mod lazy;

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use bytes::Bytes;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use parquet::DecodeResult;
use parquet::arrow::push_decoder::ParquetPushDecoder;
use parquet::errors::ParquetError;
use tokio::runtime::Handle;

use super::FileSource;
use super::fetch::ListedFile;
use super::plan::{Plan, PlannedFile};
use crate::budget::Permit;
use crate::checkpoint::{Advance, RowPositions};
use crate::error::{BadRecord, Error, PositionUnit, Result};
use crate::format::parquet::{Cost, FileFault, Footer, FooterDecoder, ParquetFile, Projection, TAIL_BYTES, Unit};
use crate::ordered::{Closed, DecodePool, OrderedReceiver, OrderedSender, Task, ordered, worker_error};
use crate::schema::{Fit, FitTarget, OnExtra, Origin};
use crate::source::{ReadRequest, SourceBatch, SourceStream};

/// Decoded bytes of a unit, at most: large enough that the costs of a unit vanish, small enough that many
/// fit the default budget.
const UNIT_BYTES: u64 = 8 << 20;

/// The smallest aim for a unit, however small the budget: pages are seldom smaller.
const MIN_UNIT_BYTES: u64 = 1 << 20;

/// How often pages may be decoded for the sake of small units. Beyond that it is better to go through the
/// row group once, on one thread.
const MAX_REPETITION: u64 = 2;

/// Files whose footers are fetched ahead: many small files would wait for the store at each otherwise.
const FILES_AHEAD: usize = 4;

/// Requests of one unit that are under way at once.
const REQUESTS_AHEAD: usize = 8;

/// Ranges no further apart than this are one request: a request costs more than so many bytes.
const MERGE_GAP_BYTES: u64 = 16 << 10;

/// The longest request that is made of several ranges; longer ones are quicker side by side.
const MERGED_BYTES: u64 = 8 << 20;

pub(super) fn open(source: &FileSource, plan: Plan, request: ReadRequest) -> Result<SourceStream> {
    let runtime = Handle::try_current().map_err(|e| Error::Worker { message: e.to_string() })?;
    let num_threads = request.pool.num_threads();
    let (units, receiver) = ordered(2 * num_threads + 2);
    let reading = Reading { source: source.clone(), request, runtime, units: Arc::new(units) };
    let reader = Task::spawn(Arc::new(reading).run(plan));
    Ok(items(receiver, reader))
}

/// The schema of a file, for a source without a given one.
///
/// # Errors
/// [`Error::BadFile`] if it isn't Parquet, [`Error::Schema`] if two of its columns have one name.
pub(super) async fn schema_of(file: &ListedFile) -> Result<SchemaRef> {
    let parquet = load(file).await?;
    let mut names = BTreeSet::new();
    for field in parquet.schema().fields() {
        if !names.insert(field.name()) {
            return Err(Error::Schema(format!("{}: it has two columns {}", file.url, field.name())));
        }
    }
    // What a writer noted beside its columns isn't part of the columns.
    let fields = parquet.schema().fields().iter().map(|field| field.as_ref().clone().with_metadata(Default::default()));
    Ok(Arc::new(Schema::new(fields.collect::<Vec<_>>())))
}

/// What one job made: items in order, what each of them takes, and the permit for all.
#[derive(Debug)]
struct Decoded {
    items: VecDeque<(SourceBatch, usize)>,
    permit: Option<Permit>,
}

impl Decoded {
    fn progress(item: SourceBatch) -> Self {
        Self { items: VecDeque::from([(item, 0)]), permit: None }
    }
}

/// The items one by one. The permit covers those that weren't handed out, and the one that was last.
fn items(receiver: OrderedReceiver<Decoded>, reader: Task<()>) -> SourceStream {
    struct State {
        receiver: OrderedReceiver<Decoded>,
        current: Decoded,
        /// Ended with the stream, or looked at when the window closes: it may have panicked.
        reader: Option<Task<()>>,
    }
    let state = State { receiver, current: Decoded { items: VecDeque::new(), permit: None }, reader: Some(reader) };
    stream::try_unfold(state, |mut state| async move {
        loop {
            let left_bytes = state.current.items.iter().map(|(_, bytes)| bytes).sum();
            if let Some(permit) = &mut state.current.permit {
                permit.resize(left_bytes);
            }
            if let Some((item, _)) = state.current.items.pop_front() {
                return Ok(Some((item, state)));
            }
            match state.receiver.next().await {
                Some(held) => state.current = held?.value,
                None => {
                    if let Some(reader) = state.reader.take() {
                        reader.await?;
                    }
                    return Ok(None);
                }
            }
        }
    })
    .boxed()
}

/// One reading of a source's files.
#[derive(Debug)]
struct Reading {
    source: FileSource,
    request: ReadRequest,
    runtime: Handle,
    units: Arc<OrderedSender<Decoded>>,
}

/// Why reading stops early.
#[derive(Debug)]
enum Stop {
    Failed(Error),
    /// Nobody receives any more.
    Closed,
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Closed> for Stop {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

/// One file while it is read.
#[derive(Debug)]
struct OpenFile {
    file: ListedFile,
    start: u64,
    parquet: ParquetFile,
    projection: Projection,
    fit: Fit,
    batch_rows: usize,
    /// Decoded bytes per row, as the last unit had them; 0 before the first.
    row_bytes: AtomicU64,
}

impl Reading {
    async fn run(self: Arc<Self>, plan: Plan) -> Result<()> {
        match self.read_files(plan).await {
            Ok(()) | Err(Stop::Closed) => Ok(()),
            Err(Stop::Failed(error)) => {
                // In its place behind what was read before. Nobody to tell it to is no fault.
                let _ = self.units.submit(futures::future::ready(Err(error)).boxed(), None).await;
                Ok(())
            }
        }
    }

    async fn read_files(self: &Arc<Self>, plan: Plan) -> Result<(), Stop> {
        let opening = stream::iter(plan).map(|planned| {
            let reading = Arc::clone(self);
            Task::spawn(async move { reading.open_file(planned?).await })
        });
        let mut files = opening.buffered(FILES_AHEAD);
        while let Some(file) = files.next().await {
            self.read_file(Arc::new(file?)).await?;
        }
        Ok(())
    }

    async fn open_file(&self, planned: PlannedFile) -> Result<OpenFile> {
        let PlannedFile { file, start } = planned;
        let mut parquet = load(&file).await?;
        if start > parquet.num_rows() {
            return Err(bad_file(&file, FileFault::new(format!("row {start} is next, and it has {} rows", parquet.num_rows()))));
        }
        let (columns, fit) = self.fit(&file, parquet.schema())?;
        let mut projection = parquet.project(&columns);
        let whole = |group: usize| Unit { group, rows: 0..parquet.group_rows(group) };
        let is_large = |group| parquet.cost(&whole(group), &projection).decoded > self.unit_bytes();
        if (0..parquet.num_groups()).any(is_large) {
            let index = FooterDecoder::with_offset_index(&parquet, file.size()).map_err(|fault| bad_file(&file, fault))?;
            parquet = finish(&file, index).await?;
            projection = parquet.project(&columns);
        }
        let batch_rows = self.request.batch_rows;
        Ok(OpenFile { file, start, parquet, projection, fit, batch_rows, row_bytes: AtomicU64::new(0) })
    }

    /// Which columns of a file to read, by their index in its schema, and how to fit them.
    fn fit(&self, file: &ListedFile, schema: &Schema) -> Result<(Vec<usize>, Fit)> {
        let FileSource { mapping, schema: source_schema, .. } = &self.source;
        let known: Vec<&str> = source_schema.fields().iter().filter_map(|field| mapping.input(field.name())).collect();
        if !known.is_empty() && !known.iter().any(|name| schema.column_with_name(name).is_some()) {
            return Err(Error::Schema(format!("{}: it has none of the columns {}", file.url, known.join(", "))));
        }
        let extra = schema.fields().iter().find(|field| !known.contains(&field.name().as_str()));
        if let (OnExtra::Fail, Some(extra)) = (mapping.on_extra, extra) {
            let reason = format!("{}: column {} isn't in the schema, and schema.extra-column is fail", file.url, extra.name());
            return Err(Error::Schema(reason));
        }
        let wanted = self.request.columns.fields().iter().filter_map(|field| mapping.input(field.name()));
        // Batches have their columns in the order of the file.
        let columns: BTreeSet<usize> = wanted.filter_map(|name| schema.index_of(name).ok()).collect();
        let columns: Vec<usize> = columns.into_iter().collect();
        let target = FitTarget { request: &self.request, mapping, place: &file.url };
        let fit = Fit::try_new(&target, |name, _| {
            let Some((index, field)) = schema.column_with_name(name) else { return Ok(None) };
            let place = columns.binary_search(&index).ok();
            Ok(place.map(|place| (place, field.data_type().clone())))
        })?;
        self.source.warn_of_missing(&file.url, fit.missing());
        Ok((columns, fit))
    }

    /// What a unit should have when it is decoded: so little that every thread can work and the next units
    /// can be fetched.
    fn unit_bytes(&self) -> u64 {
        let num_threads = self.request.pool.num_threads() as u64;
        (self.request.budget.limit_bytes() as u64 / (4 * (num_threads + 1))).clamp(MIN_UNIT_BYTES, UNIT_BYTES)
    }

    async fn read_file(&self, file: Arc<OpenFile>) -> Result<(), Stop> {
        if file.start == file.parquet.num_rows() {
            let end = Advance::new(file.file.id.clone(), file.start, file.start).with_done(true);
            let progress = Decoded::progress(SourceBatch::progress(self.request.schema(), vec![end]));
            return Ok(self.units.submit(futures::future::ready(Ok(progress)).boxed(), None).await?);
        }
        for group in 0..file.parquet.num_groups() {
            let from = file.start.saturating_sub(file.parquet.first_row(group));
            let end = file.parquet.group_rows(group);
            if from < end as u64 {
                self.read_group(&file, Unit { group, rows: from as usize..end }).await?;
            }
        }
        Ok(())
    }

    async fn read_group(&self, file: &Arc<OpenFile>, left: Unit) -> Result<(), Stop> {
        let limit = self.request.budget.limit_bytes() as u64;
        let num_threads = self.request.pool.num_threads() as u64;
        let group = left.group;
        let mut from = left.rows.start;
        while from < left.rows.end {
            let rest = Unit { group, rows: from..left.rows.end };
            let all = file.cost(&rest);
            let row_bytes = all.decoded.div_ceil(rest.rows.len() as u64).max(1);
            let unit_rows = (self.unit_bytes() / row_bytes).max(1) as usize;
            let can_cut =
                file.parquet.has_offset_index() && file.parquet.repetition(group, &file.projection, unit_rows) <= MAX_REPETITION;
            let unit = if all.decoded <= self.unit_bytes() {
                rest
            } else if can_cut {
                file.parquet.cut(group, &file.projection, from, unit_rows)
            } else if all.total() <= limit / (num_threads + 1) {
                rest
            } else {
                return self.read_lazily(file, rest).await;
            };
            let cost = file.cost(&unit);
            if cost.total() > limit {
                return self.read_lazily(file, Unit { group, rows: from..left.rows.end }).await;
            }
            from = unit.rows.end;
            let permit = self.request.budget.acquire(cost.total() as usize).await;
            let task = Task::spawn(read_unit(Arc::clone(file), unit, self.request.pool.clone(), permit));
            self.units.submit(task.boxed(), None).await?;
        }
        Ok(())
    }

    /// Goes through the rest of a row group page by page, on a thread that may block.
    async fn read_lazily(&self, file: &Arc<OpenFile>, unit: Unit) -> Result<(), Stop> {
        let reader = lazy::Reader {
            file: Arc::clone(file),
            unit,
            budget: self.request.budget.clone(),
            runtime: self.runtime.clone(),
            units: Arc::clone(&self.units),
        };
        match tokio::task::spawn_blocking(move || reader.run()).await {
            Ok(result) => result,
            Err(e) if e.is_panic() => Err(worker_error(e.into_panic().as_ref()).into()),
            Err(_) => Err(Stop::Closed),
        }
    }
}

impl OpenFile {
    /// What a unit takes, with what is known by now of the rows.
    fn cost(&self, unit: &Unit) -> Cost {
        let cost = self.parquet.cost(unit, &self.projection);
        match self.row_bytes.load(Ordering::Relaxed) {
            0 => cost,
            row_bytes => Cost { decoded: row_bytes.saturating_mul(unit.rows.len() as u64), ..cost },
        }
    }

    /// Makes an item of rows that start at row `first` of the file.
    fn item(&self, batch: &RecordBatch, first: u64) -> Result<(SourceBatch, usize)> {
        let positions = RowPositions::consecutive(first, batch.num_rows());
        let origin = Origin { split: Some(self.file.id.as_str()), path: Some(&self.file.url), rows: &positions, own: &[] };
        let fitted = self.fit.apply(batch, &origin).map_err(|fault| {
            let mut record = BadRecord::new(&*self.file.url, first + fault.row as u64, PositionUnit::Row, fault.message);
            record.column = Some(fault.column);
            Error::BadRecord(Box::new(record))
        })?;
        let end = first + batch.num_rows() as u64;
        let bytes = fitted.get_array_memory_size();
        let advance = Advance::new(self.file.id.clone(), first, end).with_done(end == self.parquet.num_rows());
        Ok((SourceBatch::try_new(fitted, positions, vec![advance])?, bytes))
    }

    /// Notes what rows take once they are decoded.
    fn learn(&self, num_rows: usize, bytes: usize) {
        if num_rows > 0 {
            self.row_bytes.store((bytes as u64).div_ceil(num_rows as u64), Ordering::Relaxed);
        }
    }

    fn undecodable(&self, unit: &Unit, cause: ParquetError) -> Error {
        let first = self.parquet.first_row(unit.group);
        let (from, to) = (first + unit.rows.start as u64, first + unit.rows.end as u64);
        let reason = format!("row group {}, rows {from}..{to}: it can't be decoded", unit.group);
        bad_file(&self.file, FileFault::caused(reason, cause))
    }

    /// Holds the rows that came against those that the footer promised.
    fn check_rows(&self, unit: &Unit, num_rows: usize) -> Result<()> {
        if num_rows == unit.rows.len() {
            return Ok(());
        }
        let reason = format!("row group {}: {num_rows} rows came where its footer has {}", unit.group, unit.rows.len());
        Err(bad_file(&self.file, FileFault::new(reason)))
    }
}

/// Fetches and decodes one unit.
async fn read_unit(file: Arc<OpenFile>, unit: Unit, pool: DecodePool, mut permit: Permit) -> Result<Decoded> {
    let mut job = UnitJob::try_new(&file, unit)?;
    // Nothing is decoded here: without bytes the decoder only says what it needs.
    let mut needs = job.run()?;
    while let Some(ranges) = needs {
        let data = fetch(&file.file, &ranges).await?;
        let step = move || {
            let mut job = job;
            job.push(ranges, data)?;
            let needs = job.run()?;
            Ok((job, needs))
        };
        (job, needs) = pool.spawn(step).await?;
    }
    let (items, bytes) = job.finish()?;
    permit.resize(bytes);
    Ok(Decoded { items, permit: Some(permit) })
}

/// The decoding of one unit.
struct UnitJob {
    file: Arc<OpenFile>,
    unit: Unit,
    decoder: ParquetPushDecoder,
    items: VecDeque<(SourceBatch, usize)>,
    num_rows: usize,
}

impl UnitJob {
    fn try_new(file: &Arc<OpenFile>, unit: Unit) -> Result<Self> {
        let decoder = file.parquet.decoder(&unit, &file.projection, file.batch_rows);
        let decoder = decoder.map_err(|e| file.undecodable(&unit, e))?;
        Ok(Self { file: Arc::clone(file), unit, decoder, items: VecDeque::new(), num_rows: 0 })
    }

    fn push(&mut self, ranges: Vec<Range<u64>>, data: Vec<Bytes>) -> Result<()> {
        self.decoder.push_ranges(ranges, data).map_err(|e| self.file.undecodable(&self.unit, e))
    }

    /// Decodes as far as it can; gives the ranges that it needs, or `None` at the end.
    fn run(&mut self) -> Result<Option<Vec<Range<u64>>>> {
        loop {
            match self.decoder.try_decode().map_err(|e| self.file.undecodable(&self.unit, e))? {
                DecodeResult::NeedsData(ranges) => return Ok(Some(ranges)),
                DecodeResult::Finished => return Ok(None),
                DecodeResult::Data(batch) => {
                    let first = self.file.parquet.first_row(self.unit.group) + (self.unit.rows.start + self.num_rows) as u64;
                    self.num_rows += batch.num_rows();
                    self.items.push_back(self.file.item(&batch, first)?);
                }
            }
        }
    }

    fn finish(self) -> Result<(VecDeque<(SourceBatch, usize)>, usize)> {
        self.file.check_rows(&self.unit, self.num_rows)?;
        let bytes = self.items.iter().map(|(_, bytes)| bytes).sum();
        self.file.learn(self.num_rows, bytes);
        Ok((self.items, bytes))
    }
}

/// Reads a file's footer.
async fn load(file: &ListedFile) -> Result<ParquetFile> {
    let size = file.size();
    let tail = file.read(size.saturating_sub(TAIL_BYTES)..size).await?;
    let footer = FooterDecoder::try_new(size, tail).map_err(|fault| bad_file(file, fault))?;
    finish(file, footer).await
}

async fn finish(file: &ListedFile, mut footer: FooterDecoder) -> Result<ParquetFile> {
    loop {
        match footer.decode().map_err(|fault| bad_file(file, fault))? {
            Footer::Whole(parquet) => return Ok(parquet),
            Footer::Needs(ranges) => {
                let data = fetch(file, &ranges).await?;
                footer.push(ranges, data).map_err(|fault| bad_file(file, fault))?;
            }
        }
    }
}

fn bad_file(file: &ListedFile, fault: FileFault) -> Error {
    Error::BadFile { path: file.url.to_string(), reason: fault.reason, source: fault.cause }
}

/// Reads ranges, near ones by one request.
async fn fetch(file: &ListedFile, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
    let requests = merged(ranges);
    let reads = requests.iter().cloned().map(|request| file.read(request));
    let data: Vec<Bytes> = stream::iter(reads).buffered(REQUESTS_AHEAD).try_collect().await?;
    let cut = |range: &Range<u64>| {
        // The request with the last start that isn't behind the range's own holds it whole.
        let index = requests.partition_point(|request| request.start <= range.start).checked_sub(1)?;
        let from = (range.start - requests[index].start) as usize;
        let to = from + (range.end - range.start) as usize;
        data.get(index).filter(|bytes| to <= bytes.len()).map(|bytes| bytes.slice(from..to))
    };
    let cut = ranges.iter().map(cut).collect::<Option<_>>();
    cut.ok_or_else(|| Error::Worker { message: format!("{}: a range was left out of what was read", file.url) })
}

/// The requests that cover some ranges, by their start.
fn merged(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut sorted = ranges.to_vec();
    sorted.sort_by_key(|range| (range.start, range.end));
    let mut requests: Vec<Range<u64>> = Vec::new();
    for range in sorted {
        match requests.last_mut() {
            Some(last) if range.end <= last.end => {}
            // Ranges that overlap must come from one request.
            Some(last)
                if range.start < last.end
                    || (range.start - last.end <= MERGE_GAP_BYTES && range.end - last.start <= MERGED_BYTES) =>
            {
                last.end = range.end;
            }
            _ => requests.push(range),
        }
    }
    requests
}
