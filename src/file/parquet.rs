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
use tokio::sync::Semaphore;

use self::lazy::PageThread;
use super::FileSource;
use super::fetch::ListedFile;
use super::plan::{Plan, PlannedFile};
use crate::budget::Permit;
use crate::checkpoint::{Advance, RowPositions};
use crate::error::{BadRecord, Error, PositionUnit, Result};
use crate::format::parquet::{Cost, FileFault, Footer, FooterDecoder, ParquetFile, Projection, TAIL_BYTES, Unit};
use crate::ordered::{Closed, DecodePool, OrderedReceiver, OrderedSender, Task, ordered};
use crate::schema::{Fit, OnExtra, Origin, plain_field};
use crate::source::{BadRecords, Fitted, ReadRequest, Reject, SourceBatch, SourceStream, fit_rows};

/// Decoded bytes of a unit, where nothing is decoded twice for it: large enough that the costs of a unit
/// vanish, small enough that many fit the default budget.
const UNIT_BYTES: u64 = 8 << 20;

/// The smallest aim for a unit, however small the budget: pages are seldom smaller.
const MIN_UNIT_BYTES: u64 = 1 << 20;

/// What small units may cost, in percent of decoding everything once, before larger ones are tried.
const GOOD_PERCENT: u64 = 125;

/// What the largest units may cost. Beyond that it is better to go through the row group once, on one thread.
const MAX_PERCENT: u64 = 170;

/// Rows that are decoded as one batch, at least: smaller ones are cut when they are taken.
const LEAST_DECODED_ROWS: usize = 1024;

/// Files whose footers are fetched ahead: many small files would wait for the store at each otherwise.
const FILES_AHEAD: usize = 4;

/// Requests that are under way at once, of all units together. More would be no faster for most stores, and
/// each keeps a thread of local files busy.
const MAX_REQUESTS: usize = 8;

/// Ranges no further apart than this are one request: a request costs more than so many bytes.
const MERGE_GAP_BYTES: u64 = 16 << 10;

/// The longest request that is made of several ranges; longer ones are quicker side by side.
const MERGED_BYTES: u64 = 8 << 20;

pub(super) fn open(source: &FileSource, plan: Plan, request: ReadRequest) -> Result<SourceStream> {
    let runtime = Handle::try_current().map_err(|e| Error::Worker { message: e.to_string() })?;
    let num_threads = request.pool.num_threads();
    // One for each thread, and two that are fetched meanwhile.
    let (units, receiver) = ordered(num_threads + 2);
    let requests = Arc::new(Semaphore::new(MAX_REQUESTS));
    let batch_rows = request.batch_rows;
    let reading = Reading { source: source.clone(), request, runtime, units: Arc::new(units), requests };
    let reader = Task::spawn(Arc::new(reading).run(plan));
    Ok(items(receiver, reader, batch_rows))
}

/// The schema of a file, for a source without a given one.
///
/// # Errors
/// [`Error::BadFile`] if it isn't Parquet, [`Error::Schema`] if two of its columns have one name.
pub(super) async fn schema_of(file: &ListedFile) -> Result<SchemaRef> {
    let parquet = load(file, &Semaphore::new(1)).await?;
    let mut names = BTreeSet::new();
    for field in parquet.schema().fields() {
        if !names.insert(field.name()) {
            return Err(Error::Schema(format!("{}: it has two columns {}", file.url, field.name())));
        }
    }
    // What a writer noted beside its columns isn't part of the columns.
    let fields = parquet.schema().fields().iter().map(|field| plain_field(field));
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
fn items(receiver: OrderedReceiver<Decoded>, reader: Task<()>, batch_rows: usize) -> SourceStream {
    struct State {
        receiver: OrderedReceiver<Decoded>,
        current: Decoded,
        /// Ended with the stream, or looked at when the window closes: it may have panicked.
        reader: Option<Task<()>>,
    }
    let state = State { receiver, current: Decoded { items: VecDeque::new(), permit: None }, reader: Some(reader) };
    stream::try_unfold(state, move |mut state| async move {
        loop {
            let left_bytes = state.current.items.iter().map(|(_, bytes)| bytes).sum();
            if let Some(permit) = &mut state.current.permit {
                permit.resize(left_bytes);
            }
            if let Some((item, bytes)) = state.current.items.pop_front() {
                if item.num_rows() <= batch_rows {
                    return Ok(Some((item, state)));
                }
                // Cut one by one as they are taken: a batch has costs of its own, however few its rows.
                let (first, rest) = item.split_at(batch_rows);
                let rest_bytes = bytes * rest.num_rows() / item.num_rows();
                state.current.items.push_front((rest, rest_bytes));
                return Ok(Some((first, state)));
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
    /// Requests that may be sent.
    requests: Arc<Semaphore>,
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
    bad_records: BadRecords,
    batch_rows: usize,
    requests: Arc<Semaphore>,
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
        let mut pages = PageThread::default();
        while let Some(file) = files.next().await {
            self.read_file(Arc::new(file?), &mut pages).await?;
        }
        Ok(())
    }

    async fn open_file(&self, planned: PlannedFile) -> Result<OpenFile> {
        let PlannedFile { file, start } = planned;
        let mut parquet = load(&file, &self.requests).await?;
        if start > parquet.num_rows() {
            return Err(bad_file(
                &file,
                FileFault::new(format!("row {start} is next, and it has {} rows", parquet.num_rows())),
            ));
        }
        let (columns, fit) = self.fit(&file, parquet.schema())?;
        let mut projection = parquet.project(&columns);
        let whole = |group: usize| Unit { group, rows: 0..parquet.group_rows(group) };
        let is_large = |group| parquet.cost(&whole(group), &projection).decoded > self.unit_bytes();
        if (0..parquet.num_groups()).any(is_large) {
            let index =
                FooterDecoder::with_offset_index(&parquet, file.size()).map_err(|fault| bad_file(&file, fault))?;
            parquet = finish(&file, index, &self.requests).await?;
            projection = parquet.project(&columns);
        }
        let (batch_rows, requests) = (self.request.batch_rows.max(LEAST_DECODED_ROWS), Arc::clone(&self.requests));
        Ok(OpenFile {
            file,
            start,
            parquet,
            projection,
            fit,
            bad_records: self.request.bad_records,
            batch_rows,
            requests,
            row_bytes: AtomicU64::new(0),
        })
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
            let reason =
                format!("{}: column {} isn't in the schema, and schema.extra-column is fail", file.url, extra.name());
            return Err(Error::Schema(reason));
        }
        let names = schema.fields().iter().map(|field| field.name().as_str());
        self.source.warn_of_extra(&file.url, names.filter(|name| !known.contains(name)));
        let wanted = self.request.columns.fields().iter().filter_map(|field| mapping.input(field.name()));
        // Batches have their columns in the order of the file.
        let columns: BTreeSet<usize> = wanted.filter_map(|name| schema.index_of(name).ok()).collect();
        let columns: Vec<usize> = columns.into_iter().collect();
        let target = self.request.fit_target(mapping, &file.url);
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

    async fn read_file(&self, file: Arc<OpenFile>, pages: &mut PageThread) -> Result<(), Stop> {
        if file.start == file.parquet.num_rows() {
            let end = Advance::new(file.file.id.clone(), file.start, file.start).with_done(true);
            let progress = Decoded::progress(SourceBatch::progress(self.request.schema(), vec![end]));
            return Ok(self.units.submit(futures::future::ready(Ok(progress)).boxed(), None).await?);
        }
        for group in 0..file.parquet.num_groups() {
            let from = file.start.saturating_sub(file.parquet.first_row(group));
            let end = file.parquet.group_rows(group);
            if from < end as u64 {
                self.read_group(&file, Unit { group, rows: from as usize..end }, pages).await?;
            }
        }
        Ok(())
    }

    async fn read_group(&self, file: &Arc<OpenFile>, left: Unit, pages: &mut PageThread) -> Result<(), Stop> {
        let limit = self.request.budget.limit_bytes() as u64;
        let group = left.group;
        let mut from = left.rows.start;
        while from < left.rows.end {
            let rest = Unit { group, rows: from..left.rows.end };
            let unit = self.next_unit(file, rest.clone()).filter(|unit| file.cost(unit).total() <= limit);
            let Some(unit) = unit else {
                return pages.read(self.page_reader(file, rest)).await;
            };
            from = unit.rows.end;
            let permit = self.request.budget.acquire(file.cost(&unit).total() as usize).await;
            let task = Task::spawn(read_unit(Arc::clone(file), unit, self.request.pool.clone(), permit));
            self.units.submit(task.boxed(), None).await?;
        }
        Ok(())
    }

    /// How much of the rest of a row group to decode as one; `None` if it is to be read page by page.
    fn next_unit(&self, file: &OpenFile, rest: Unit) -> Option<Unit> {
        let whole = file.cost(&rest);
        if whole.decoded <= self.unit_bytes() {
            return Some(rest);
        }
        let threads = self.request.pool.num_threads() as u64;
        let most = self.request.budget.limit_bytes() as u64 / (threads + 1);
        if file.parquet.has_offset_index() {
            let row_bytes = whole.decoded.div_ceil(rest.rows.len() as u64).max(1);
            let rows_of = |bytes: u64| (bytes / row_bytes).max(1) as usize;
            let percent = |bytes| file.parquet.repetition_percent(rest.group, &file.projection, rows_of(bytes));
            let mut aim = self.unit_bytes();
            // Half of the most: stored bytes and open pages come on top.
            while percent(aim) > GOOD_PERCENT && 2 * aim <= most / 2 {
                aim *= 2;
            }
            if percent(aim) <= MAX_PERCENT {
                return Some(file.parquet.cut(rest.group, &file.projection, rest.rows.start, rows_of(aim)));
            }
        }
        (whole.total() <= most).then_some(rest)
    }

    fn page_reader(&self, file: &Arc<OpenFile>, unit: Unit) -> lazy::Reader {
        lazy::Reader {
            file: Arc::clone(file),
            unit,
            budget: self.request.budget.clone(),
            runtime: self.runtime.clone(),
            units: Arc::clone(&self.units),
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
        let origin =
            Origin { split: Some(self.file.id.as_str()), path: Some(&self.file.url), rows: &positions, own: &[] };
        let Fitted { batch: fitted, rows, faults } = fit_rows(&self.fit, batch, &origin, self.bad_records)?;
        let mut bad = faults.into_iter().map(|fault| {
            let row = first + fault.row as u64;
            let record = BadRecord::new(&*self.file.url, row, PositionUnit::Row, fault.reason, fault.message);
            BadRecord { column: Some(fault.column), ..record }
        });
        if self.bad_records == BadRecords::Fail
            && let Some(record) = bad.next()
        {
            return Err(Error::BadRecord(Box::new(record)));
        }
        // What a row of a file without text was, its file says at its position.
        let is_kept = self.bad_records == BadRecords::Keep;
        let rejects = bad.map(|record| Reject { split: self.file.id.clone(), record, is_kept, raw: None }).collect();
        let end = first + batch.num_rows() as u64;
        let bytes = fitted.get_array_memory_size();
        let advance = Advance::new(self.file.id.clone(), first, end).with_done(end == self.parquet.num_rows());
        Ok((SourceBatch::try_new(fitted, rows, vec![advance])?.with_rejects(rejects), bytes))
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
        let data = fetch(&file.file, &ranges, &file.requests).await?;
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
                    let first =
                        self.file.parquet.first_row(self.unit.group) + (self.unit.rows.start + self.num_rows) as u64;
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
async fn load(file: &ListedFile, requests: &Semaphore) -> Result<ParquetFile> {
    let size = file.size();
    let tail = file.read(size.saturating_sub(TAIL_BYTES)..size).await?;
    let footer = FooterDecoder::try_new(size, tail).map_err(|fault| bad_file(file, fault))?;
    finish(file, footer, requests).await
}

async fn finish(file: &ListedFile, mut footer: FooterDecoder, requests: &Semaphore) -> Result<ParquetFile> {
    loop {
        match footer.decode().map_err(|fault| bad_file(file, fault))? {
            Footer::Whole(parquet) => return Ok(parquet),
            Footer::Needs(ranges) => {
                let data = fetch(file, &ranges, requests).await?;
                footer.push(ranges, data).map_err(|fault| bad_file(file, fault))?;
            }
        }
    }
}

fn bad_file(file: &ListedFile, fault: FileFault) -> Error {
    Error::BadFile { path: file.url.to_string(), reason: fault.reason, source: fault.cause }
}

/// Reads ranges, near ones by one request.
async fn fetch(file: &ListedFile, ranges: &[Range<u64>], allowed: &Semaphore) -> Result<Vec<Bytes>> {
    let requests = merged(ranges);
    let reads = requests.iter().cloned().map(|request| async move {
        let closed = |_| Error::Worker { message: "no more requests may be sent".into() };
        let _turn = allowed.acquire().await.map_err(closed)?;
        file.read(request).await
    });
    let data: Vec<Bytes> = stream::iter(reads).buffered(MAX_REQUESTS).try_collect().await?;
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

#[cfg(test)]
mod tests {
    use arrow::array::{
        ArrayRef, AsArray, Float64Array, Int32Array, Int32Builder, Int64Array, ListBuilder, StringArray,
    };
    use arrow::compute::concat_batches;
    use arrow::datatypes::Int64Type;
    use object_store::memory::InMemory;
    use object_store::path::Path;
    use object_store::{ObjectStore, ObjectStoreExt};
    use parquet::arrow::ArrowWriter;
    use parquet::basic::{Compression, ZstdLevel};
    use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};

    use super::*;
    use crate::budget::Budget;
    use crate::checkpoint::SourceState;
    use crate::ordered::DecodePool;
    use crate::schema::{Mapping, format_schema, parse_schema};
    use crate::source::Source;

    /// Rows whose every value tells its row, with nulls, repeated texts and lists.
    fn table(rows: Range<i64>) -> RecordBatch {
        let mut lists = ListBuilder::new(Int32Builder::new());
        for row in rows.clone() {
            for element in 0..row % 4 {
                lists.values().append_value((row + element) as i32);
            }
            lists.append(row % 7 != 0);
        }
        let columns: [(&str, ArrayRef); 5] = [
            ("id", Arc::new(Int64Array::from_iter_values(rows.clone()))),
            (
                "d",
                Arc::new(rows.clone().map(|row| (row % 5 != 0).then_some(row as f64 / 3.0)).collect::<Float64Array>()),
            ),
            (
                "word",
                Arc::new(
                    rows.clone().map(|row| Some(["alpha", "beta", "gamma"][row as usize % 3])).collect::<StringArray>(),
                ),
            ),
            ("text", Arc::new(rows.map(|row| Some(format!("row {row} of many"))).collect::<StringArray>())),
            ("list", Arc::new(lists.finish())),
        ];
        RecordBatch::try_from_iter_with_nullable(columns.map(|(name, array)| (name, array, true))).unwrap()
    }

    fn properties(group_rows: usize, with_index: bool) -> WriterProperties {
        let properties: WriterPropertiesBuilder = WriterProperties::builder()
            .set_max_row_group_row_count(Some(group_rows))
            .set_data_page_row_count_limit(1000)
            .set_write_batch_size(500)
            .set_compression(Compression::ZSTD(ZstdLevel::default()));
        match with_index {
            true => properties.build(),
            false => {
                properties.set_offset_index_disabled(true).set_statistics_enabled(EnabledStatistics::Chunk).build()
            }
        }
    }

    fn written(batch: &RecordBatch, properties: WriterProperties) -> Bytes {
        let mut file = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut file, batch.schema(), Some(properties)).unwrap();
        writer.write(batch).unwrap();
        writer.close().unwrap();
        file.into()
    }

    async fn store(files: &[(&str, Bytes)]) -> Arc<dyn ObjectStore> {
        let store = InMemory::new();
        for (name, bytes) in files {
            store.put(&Path::from(*name), bytes.clone().into()).await.unwrap();
        }
        Arc::new(store)
    }

    async fn source(store: &Arc<dyn ObjectStore>, schema: Option<&str>) -> Result<FileSource> {
        let builder = FileSource::builder("in").store(Arc::clone(store)).name("0");
        match schema {
            Some(schema) => builder.schema(Arc::new(parse_schema(schema)?)).build().await,
            None => builder.build().await,
        }
    }

    /// How to read.
    #[derive(Debug, Clone, Copy)]
    struct How {
        threads: usize,
        memory: usize,
        batch_rows: usize,
    }

    const USUAL: How = How { threads: 2, memory: 64 << 20, batch_rows: 8192 };

    fn request(columns: SchemaRef, how: How) -> ReadRequest {
        ReadRequest {
            budget: Budget::new(how.memory),
            pool: DecodePool::new(how.threads).unwrap(),
            ..ReadRequest::new(columns).unwrap().with_batch_rows(how.batch_rows)
        }
    }

    /// Reads on from a state, which takes every advance.
    async fn read_on(source: &FileSource, state: &mut SourceState, request: ReadRequest) -> Result<RecordBatch> {
        let (schema, batch_rows, budget) = (request.schema(), request.batch_rows, request.budget.clone());
        let mut stream = source.open(state, request)?;
        let mut batches = Vec::new();
        while let Some(item) = stream.next().await {
            let item = item?;
            assert!(item.num_rows() <= batch_rows);
            for row in [0, item.num_rows().saturating_sub(1)].into_iter().filter(|&row| row < item.num_rows()) {
                assert_eq!(item.rows().position(row), Some(item.advances()[0].from + row as u64));
            }
            state.apply(item.advances(), item.num_rows() as u64).unwrap();
            batches.push(item.into_batch());
        }
        drop(stream);
        assert_eq!(budget.used_bytes(), 0);
        assert!(state.is_done());
        Ok(concat_batches(&schema, &batches).unwrap())
    }

    async fn read(store: &Arc<dyn ObjectStore>, schema: Option<&str>, how: How) -> Result<RecordBatch> {
        let source = source(store, schema).await?;
        let mut state = source.resolve(None, None).await?;
        read_on(&source, &mut state, request(source.schema(), how)).await
    }

    #[tokio::test]
    async fn row_groups_come_in_order_with_any_number_of_threads_and_any_memory() {
        let rows = table(0..40_000);
        for with_index in [true, false] {
            // Groups that are small, groups that must be cut, and one for all.
            for group_rows in [1_500, 17_000, 40_000] {
                let store = store(&[("in/a.parquet", written(&rows, properties(group_rows, with_index)))]).await;
                for (threads, memory) in [(1, 64 << 20), (2, 64 << 20), (3, 3 << 20), (8, 4 << 20)] {
                    let got = read(&store, None, How { threads, memory, batch_rows: 1024 }).await.unwrap();
                    assert_eq!(
                        got, rows,
                        "index {with_index}, groups of {group_rows}, {threads} threads, {memory} bytes"
                    );
                }
            }
        }
    }

    #[tokio::test]
    async fn reading_goes_on_at_any_row() {
        let rows = table(0..9_000);
        for with_index in [true, false] {
            let store = store(&[("in/a.parquet", written(&rows, properties(4_000, with_index)))]).await;
            let source = source(&store, None).await.unwrap();
            for position in [0, 1, 999, 1_000, 3_999, 4_000, 4_001, 7_777, 8_999, 9_000] {
                for memory in [64 << 20, 400 << 10] {
                    let mut state = source.resolve(None, None).await.unwrap();
                    state.apply(&[Advance::new("a.parquet".into(), 0, position)], position).unwrap();
                    let request = request(source.schema(), How { memory, batch_rows: 700, ..USUAL });
                    let got = read_on(&source, &mut state, request).await.unwrap();
                    assert_eq!(got, rows.slice(position as usize, 9_000 - position as usize), "from {position}");
                }
            }
        }
    }

    #[tokio::test]
    async fn a_column_is_null_in_the_file_that_lacks_it_and_there_only() {
        let rows = table(0..300);
        let without = rows.project(&[2, 0]).unwrap();
        let files = [rows.clone(), without, rows.clone()].map(|batch| written(&batch, properties(100, true)));
        let store = store(&[
            ("in/1.parquet", files[0].clone()),
            ("in/2.parquet", files[1].clone()),
            ("in/10.parquet", files[2].clone()),
        ])
        .await;
        let got = read(&store, Some("word STRING, gone INT, d DOUBLE, id BIGINT NOT NULL"), USUAL).await.unwrap();
        assert_eq!(got.num_rows(), 900);
        let nulls = |column: usize, file: usize| got.column(column).slice(300 * file, 300).null_count();
        assert_eq!([nulls(2, 0), nulls(2, 1), nulls(2, 2)], [60, 300, 60]);
        assert_eq!([nulls(1, 0), nulls(3, 1), nulls(0, 1)], [300, 0, 0]);
        assert_eq!(got.column(3).slice(300, 300).as_primitive::<Int64Type>().value(7), 7);
    }

    #[tokio::test]
    async fn only_what_is_asked_for_is_read_and_in_the_order_asked_for() {
        let rows = table(0..5_000);
        let store = store(&[("in/a.parquet", written(&rows, properties(2_000, true)))]).await;
        let source = source(&store, None).await.unwrap();
        for columns in [vec![4, 0], vec![3], vec![]] {
            let mut state = source.resolve(None, None).await.unwrap();
            let wanted = Arc::new(source.schema().project(&columns).unwrap());
            let got = read_on(&source, &mut state, request(wanted, USUAL)).await.unwrap();
            assert_eq!(got, rows.project(&columns).unwrap());
        }
        let got = read(&store, Some("id INT, d DOUBLE"), USUAL).await.unwrap();
        assert_eq!(format_schema(&got.schema()), "id INT, d DOUBLE");
    }

    #[tokio::test]
    async fn what_does_not_fit_is_an_error_with_its_place() {
        let rows = table(0..300);
        let store = store(&[("in/a.parquet", written(&rows, properties(100, true)))]).await;
        let error = read(&store, Some("word INT"), USUAL).await.unwrap_err();
        assert_eq!(error.to_string(), "column word: INT (the schema) and STRING (in/a.parquet) can't be unified");
        let error = read(&store, Some("nothing INT, no STRING"), USUAL).await.unwrap_err();
        assert_eq!(error.to_string(), "in/a.parquet: it has none of the columns nothing, no");
        let error = read(&store, Some("id TINYINT"), USUAL).await.unwrap_err();
        assert_eq!(error.to_string(), "in/a.parquet row 128, column id: '128' is out of range for TINYINT");
        let error = read(&store, Some("d DOUBLE NOT NULL"), USUAL).await.unwrap_err();
        assert_eq!(error.to_string(), "in/a.parquet row 0, column d: null in a NOT NULL column (DOUBLE)");
        let strict = Mapping { on_extra: OnExtra::Fail, ..Mapping::default() };
        let schema = Arc::new(parse_schema("id BIGINT").unwrap());
        let source = FileSource::builder("in").store(store).schema(schema).mapping(strict).build().await.unwrap();
        let mut state = source.resolve(None, None).await.unwrap();
        let error = read_on(&source, &mut state, request(source.schema(), USUAL)).await.unwrap_err();
        assert_eq!(error.to_string(), "in/a.parquet: column d isn't in the schema, and schema.extra-column is fail");
    }

    #[tokio::test]
    async fn files_without_rows_are_finished() {
        let empty = written(&table(0..0), properties(100, true));
        let files = [
            ("in/1.parquet", empty.clone()),
            ("in/2.parquet", written(&table(0..3), properties(2, true))),
            ("in/3.parquet", empty),
        ];
        let store = store(&files).await;
        assert_eq!(read(&store, None, USUAL).await.unwrap(), table(0..3));
    }

    #[tokio::test]
    async fn what_is_not_parquet_is_said() {
        let whole = written(&table(0..3_000), properties(1_000, true));
        let len = whole.len();
        for cut in [0, 1, 8, 11, 12, 500, len / 2, len - 500, len - 8, len - 1] {
            let store = store(&[("in/a.parquet", whole.slice(..cut))]).await;
            let error = read(&store, Some("id BIGINT"), USUAL).await.unwrap_err();
            assert!(matches!(&error, Error::BadFile { path, .. } if path == "in/a.parquet"), "cut at {cut}: {error}");
        }
        let csv = store(&[("in/a.parquet", Bytes::from_static(b"id,d\n1,2\n3,4\n5,6\n"))]).await;
        let error = read(&csv, None, USUAL).await.unwrap_err();
        assert_eq!(error.to_string(), "in/a.parquet: not a Parquet file, or truncated: it doesn't end with PAR1");
        // The footer claims more than there is.
        let mut claims = whole.to_vec();
        claims[len - 5] = 0x7f;
        let error = read(&store(&[("in/a.parquet", claims.into())]).await, None, USUAL).await.unwrap_err();
        assert!(error.to_string().contains("its footer claims"), "{error}");
    }

    #[tokio::test]
    async fn damaged_pages_end_the_reading_behind_what_is_whole() {
        let mut file = written(&table(0..3_000), properties(1_000, true)).to_vec();
        let parquet = load_bytes(file.clone().into());
        let all = parquet.project(&[0, 1, 2, 3, 4]);
        let second = parquet.stored_ranges(1, &all)[0].clone();
        file[second.start as usize + 1..second.end as usize].fill(0xee);
        let store = store(&[("in/a.parquet", file.into())]).await;
        let source = source(&store, None).await.unwrap();
        let state = source.resolve(None, None).await.unwrap();
        let mut stream = source.open(&state, request(source.schema(), USUAL)).unwrap();
        assert_eq!(stream.next().await.unwrap().unwrap().num_rows(), 1_000);
        let error = stream.next().await.unwrap().unwrap_err();
        assert!(matches!(error, Error::BadFile { .. } | Error::Worker { .. }), "{error}");
        assert!(stream.next().await.is_none());
    }

    fn load_bytes(file: Bytes) -> ParquetFile {
        let len = file.len() as u64;
        let mut decoder = FooterDecoder::try_new(len, file.clone()).unwrap();
        let Footer::Whole(parquet) = decoder.decode().unwrap() else { panic!("all bytes are there") };
        let mut decoder = FooterDecoder::with_offset_index(&parquet, len).unwrap();
        decoder.push(std::iter::once(0..len).collect(), vec![file]).unwrap();
        let Footer::Whole(parquet) = decoder.decode().unwrap() else { panic!("all bytes are there") };
        parquet
    }

    #[test]
    fn a_group_is_cut_where_pages_of_the_widest_column_begin() {
        let parquet = load_bytes(written(&table(0..10_000), properties(10_000, true)));
        let all = parquet.project(&[0]);
        let mut units = Vec::new();
        let mut from = 0;
        while from < 10_000 {
            let unit = parquet.cut(0, &all, from, 2_700);
            from = unit.rows.end;
            units.push(unit.rows);
        }
        assert_eq!(units, [0..2_000, 2_000..4_000, 4_000..6_000, 6_000..10_000]);
        assert_eq!(parquet.cut(0, &all, 0, 10).rows, 0..1_000, "never less than a page");
        assert_eq!(parquet.cut(0, &all, 1_500, 10).rows, 1_500..2_000);
        let all = parquet.project(&[0, 1, 2, 3, 4]);
        let part = parquet.cost(&Unit { group: 0, rows: 0..1_000 }, &all);
        let whole = parquet.cost(&Unit { group: 0, rows: 0..10_000 }, &all);
        assert!(part.stored < whole.stored && part.decoded.abs_diff(whole.decoded / 10) < 10, "{part:?} of {whole:?}");
        let actual = table(0..10_000).get_array_memory_size() as u64;
        assert!(whole.decoded > actual / 2 && whole.decoded < actual * 2, "{whole:?} for {actual}");
    }

    #[test]
    fn without_an_index_a_group_is_not_cut() {
        let parquet = load_bytes(written(&table(0..10_000), properties(10_000, false)));
        assert!(!parquet.has_offset_index());
        let id = parquet.project(&[0]);
        assert_eq!(parquet.cut(0, &id, 100, 10).rows, 100..10_000);
    }

    #[tokio::test]
    async fn pages_larger_than_the_budget_are_an_error_before_they_are_memory() {
        let text: StringArray = (0..2_000).map(|row| Some(format!("{row:0500}"))).collect();
        let batch = RecordBatch::try_from_iter([("text", Arc::new(text) as ArrayRef)]).unwrap();
        let properties = WriterProperties::builder()
            .set_dictionary_enabled(false)
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_offset_index_disabled(true)
            .set_statistics_enabled(EnabledStatistics::None)
            .build();
        let store = store(&[("in/a.parquet", written(&batch, properties))]).await;
        let error = read(&store, None, How { memory: 400 << 10, ..USUAL }).await.unwrap_err();
        let Error::Memory { place, needed_bytes, allowed_bytes } = &error else { panic!("{error}") };
        assert_eq!((place.as_str(), *allowed_bytes), ("in/a.parquet, row group 0: its open pages", 400 << 10));
        assert!(*needed_bytes > 400 << 10);
        assert_eq!(read(&store, None, How { memory: 2 << 20, ..USUAL }).await.unwrap(), batch);
    }

    #[tokio::test]
    async fn dropping_the_stream_gives_everything_back() {
        let rows = table(0..40_000);
        for with_index in [true, false] {
            let store = store(&[("in/a.parquet", written(&rows, properties(40_000, with_index)))]).await;
            let source = source(&store, None).await.unwrap();
            let state = source.resolve(None, None).await.unwrap();
            let request = request(source.schema(), How { memory: 3 << 20, batch_rows: 100, threads: 2 });
            let budget = request.budget.clone();
            let mut stream = source.open(&state, request).unwrap();
            assert!(stream.next().await.unwrap().unwrap().num_rows() > 0);
            drop(stream);
            // Tasks and threads end by themselves, and with them goes what they hold.
            while budget.used_bytes() > 0 {
                tokio::task::yield_now().await;
            }
        }
    }

    #[tokio::test]
    async fn a_schema_is_that_of_the_writer_without_its_notes() {
        let batch = table(0..3);
        let noted = batch.schema().as_ref().clone().with_metadata([("pandas".to_owned(), "{}".to_owned())].into());
        let batch = batch.with_schema(Arc::new(noted)).unwrap();
        let store = store(&[("in/a.parquet", written(&batch, properties(10, true)))]).await;
        let source = source(&store, None).await.unwrap();
        assert_eq!(format_schema(&source.schema()), "id BIGINT, d DOUBLE, word STRING, text STRING, list ARRAY<INT>");
        assert!(source.schema().metadata().is_empty());
        let twice = RecordBatch::try_from_iter([
            ("a", Arc::new(Int32Array::from(vec![1])) as ArrayRef),
            ("a", Arc::new(Int32Array::from(vec![2]))),
        ])
        .unwrap();
        let store = self::store(&[("in/a.parquet", written(&twice, properties(10, true)))]).await;
        let error = self::source(&store, None).await.unwrap_err();
        assert_eq!(error.to_string(), "in/a.parquet: it has two columns a");
    }

    #[test]
    fn near_ranges_are_one_request_and_large_ones_are_not() {
        assert_eq!(merged(&[30..40, 0..10, 10..20]), std::slice::from_ref(&(0..40)));
        let far = MERGE_GAP_BYTES + 11;
        assert_eq!(merged(&[0..10, far..far + 5]), [0..10, far..far + 5]);
        assert_eq!(
            merged(&[0..MERGED_BYTES, MERGED_BYTES..MERGED_BYTES + 5]),
            [0..MERGED_BYTES, MERGED_BYTES..MERGED_BYTES + 5]
        );
        assert_eq!(merged(&[0..MERGED_BYTES, 5..MERGED_BYTES + 5, 7..9]), std::slice::from_ref(&(0..MERGED_BYTES + 5)));
    }
}
