//! The conformance suite: holds a source, or a chain of sources, against the rules of [`crate::source`].
//!
//! The suite reads a chain again and again: from its beginning and from the states in between, with
//! other numbers of threads, other batch sizes and little memory. It needs no other knowledge of the
//! sources than [`Source`] gives, so a source written elsewhere is checked as those of this crate are.
//! [`check_source`] is all that most need; a [`Suite`] can be told what rows to expect, and can check
//! one rule at a time:
//!
//! | rule | checked by |
//! |---|---|
//! | *order*, *chain*, *empty*, *end* | [`Suite::items`] |
//! | *schema* | [`Suite::schema`] |
//! | *cut anywhere* | [`Suite::cut_anywhere`] |
//! | *drop* | [`Suite::drop_ends_threads`] |
//! | the same rows with any number of threads, batch size and memory | [`Suite::determinism`] |
//! | a state that was stored and read back continues the same, with the same numbers | [`Suite::restart`] |
//! | a bad record ends reading at the same place every time | [`Suite::failure`] |
//!
//! All of it needs a Tokio runtime with its timer on, as `#[tokio::test]` gives.

mod rows;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{Int64Type, SchemaRef};
use futures::{FutureExt, StreamExt};
use object_store::memory::InMemory;

use self::rows::{Rows, difference};
use crate::checkpoint::{Checkpoint, CheckpointStore, ObjectCheckpointStore, SourceState, SplitId, SplitState, Splits};
use crate::error::{Error, Result};
use crate::hybrid::{HybridSource, HybridStream, ReadOptions};
use crate::schema::Provenance;
use crate::source::{ChainBatch, ReadRequest, Source, SourceBatch};

/// No item takes that long in a test: a stream that waits longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Enough for one chunk of a small test file: with it, every producer has to wait for its reader.
const LITTLE_MEMORY_BYTES: usize = 1 << 20;

/// Up to so many rows, a source is cut after each of them; longer ones at so many places.
const DEFAULT_CUTS: usize = 64;

/// A rule that a source breaks, and how.
#[derive(Clone, PartialEq, Eq)]
pub struct Violation {
    /// The rule, as in the table of [`crate::source`].
    pub rule: &'static str,
    /// What was found, with the split and the position.
    pub detail: String,
}

/// The outcome of a check.
pub type Verdict<T = ()> = Result<T, Violation>;

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule '{}' is broken: {}", self.rule, self.detail)
    }
}

/// As [`fmt::Display`], so that `unwrap` in a test reads well.
impl fmt::Debug for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Violation {}

fn broken(rule: &'static str, detail: impl fmt::Display) -> Violation {
    Violation { rule, detail: detail.to_string() }
}

/// Holds `source`, as a chain of one, against every rule.
///
/// An endless source is read for its first thousand rows.
///
/// # Errors
/// The first rule that is broken.
///
/// # Example
/// ```
/// use std::sync::Arc;
///
/// use arrow::array::{Int64Array, RecordBatch};
/// use segue::schema::parse_schema;
/// use segue::source::MemorySource;
/// use segue::testing::check_source;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let schema = Arc::new(parse_schema("id BIGINT")?);
/// let rows = RecordBatch::try_new(schema.clone(), vec![Arc::new(Int64Array::from(vec![1, 2, 3]))])?;
/// // In place of this one: a source of your own.
/// let source = MemorySource::builder(schema).batch("a", rows).build();
/// check_source(source).await?;
/// # Ok(())
/// # }
/// ```
pub async fn check_source(source: impl Source + 'static) -> Verdict {
    let is_endless = !source.boundedness().has_end();
    let chain = HybridSource::builder().source(source).build().map_err(|e| broken("chain", told(&e)))?;
    let suite = Suite::new(chain);
    let suite = if is_endless { suite.with_first_rows(1000) } else { suite };
    suite.run().await
}

/// The rules, for one chain of sources.
#[derive(Debug, Clone)]
pub struct Suite {
    chain: HybridSource,
    expected: Option<Vec<RecordBatch>>,
    first_rows: Option<u64>,
    max_cuts: usize,
    patience: Duration,
}

/// What one reading gave.
struct Reading {
    rows: Rows,
    batches: Vec<RecordBatch>,
    checkpoint: Checkpoint,
    /// The error that ended it.
    error: Option<String>,
}

impl Suite {
    /// Prepares to check `chain`, which must give the same rows whenever it is read.
    pub fn new(chain: HybridSource) -> Self {
        Self { chain, expected: None, first_rows: None, max_cuts: DEFAULT_CUTS, patience: PATIENCE }
    }

    /// Says what rows are to come, in order. Without, the first reading says it.
    #[must_use]
    pub fn with_expected(mut self, batches: impl IntoIterator<Item = RecordBatch>) -> Self {
        self.expected = Some(batches.into_iter().collect());
        self
    }

    /// Reads only the first `num_rows` rows: for endless chains, whose last source must have one split then.
    #[must_use]
    pub fn with_first_rows(mut self, num_rows: u64) -> Self {
        self.first_rows = Some(num_rows);
        self
    }

    /// Sets at how many places to cut; up to so many rows, it is after each of them. 64 without.
    #[must_use]
    pub fn with_max_cuts(mut self, max_cuts: usize) -> Self {
        self.max_cuts = max_cuts;
        self
    }

    /// Sets how long to wait for an item, or for a thread's end, before it counts as hanging; 60 s without.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Checks every rule, except what [`Self::failure`] is for.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub async fn run(&self) -> Verdict {
        self.items().await?;
        self.rows().await?;
        self.schema().await?;
        self.determinism().await?;
        self.cut_anywhere().await?;
        self.restart().await?;
        self.drop_ends_threads().await
    }

    /// Checks *order*, *chain*, *empty* and *end*: item by item of each source's own stream, before a chain sees it.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub async fn items(&self) -> Verdict {
        let resolved = self.resolved("resolve").await?;
        for (index, source) in self.chain.sources().iter().enumerate() {
            let request = ReadRequest::new(self.chain.schema()).map_err(|e| broken("items", told(&e)))?;
            let schema = request.schema();
            let mut state = resolved.sources[index].clone();
            let opened = source.open(&state, request);
            let mut stream = opened.map_err(|e| broken("items", format!("it can't be opened: {}", told(&e))))?;
            let mut positions = BTreeMap::new();
            let mut rows_left = self.first_rows.unwrap_or(u64::MAX);
            while rows_left > 0 {
                let item = tokio::time::timeout(self.patience, stream.next()).await;
                let Some(item) = item.map_err(|_| broken("end", self.hangs(source.name())))? else { break };
                let item = item.map_err(|e| broken("items", format!("reading failed: {}", told(&e))))?;
                check_item(&item, &schema, &mut positions)?;
                state.take_up(item.changed());
                state.apply(item.advances(), item.num_rows() as u64).map_err(|e| broken("chain", e))?;
                rows_left = rows_left.saturating_sub(item.num_rows() as u64);
            }
            if rows_left == 0 {
                continue;
            }
            if !state.is_done() {
                return Err(broken(
                    "end",
                    format!("the stream of {} ended before its splits were done", source.name()),
                ));
            }
            for _ in 0..3 {
                let again = AssertUnwindSafe(stream.next()).catch_unwind().await;
                match again {
                    Ok(None) => {}
                    Ok(Some(_)) => return Err(broken("end", "something came after the end")),
                    Err(_) => return Err(broken("end", "the stream panicked when it was asked again after its end")),
                }
            }
        }
        Ok(())
    }

    /// Checks that the rows are those of [`Self::with_expected`], and that the chain is done after them.
    ///
    /// # Errors
    /// The first row that differs.
    pub async fn rows(&self) -> Verdict {
        let whole = self.read("rows", &self.chain, None, self.options()).await?;
        if let Some(expected) = &self.expected {
            let found = difference(&whole.batches, expected, |row| format!("row {row}"));
            if let Some(difference) = found.map_err(|e| broken("rows", e))? {
                return Err(broken("rows", difference));
            }
        }
        if self.first_rows.is_none() && !whole.checkpoint.is_done() {
            return Err(broken("end", "the stream ended and its checkpoint isn't done"));
        }
        Ok(())
    }

    /// Checks *schema*: with all columns, with each alone, with all backwards, with none, and with provenance.
    ///
    /// # Errors
    /// The first batch with another schema, or with other values than without the projection.
    pub async fn schema(&self) -> Verdict {
        const RULE: &str = "schema";
        let whole = self.read(RULE, &self.chain, None, self.options()).await?;
        let num_columns = self.chain.schema().fields().len();
        let mut projections: Vec<Vec<usize>> = (0..num_columns).map(|column| vec![column]).collect();
        projections.push((0..num_columns).rev().collect());
        projections.push(Vec::new());
        let num_provenance = self.chain.output_schema().fields().len() - num_columns;
        for columns in projections {
            let names = columns.iter().map(|&column| self.chain.schema().field(column).name().clone()).collect();
            let options = ReadOptions { projection: Some(names), ..self.options() };
            let read = self.read(RULE, &self.chain, None, options).await?;
            let wanted: Vec<usize> = columns.iter().copied().chain(num_columns..num_columns + num_provenance).collect();
            let expected = whole.rows.project(&wanted).map_err(|e| broken(RULE, e))?;
            same(RULE, &read.rows, &expected, || format!("with the columns {columns:?}"))?;
        }
        self.provenance().await
    }

    /// Checks that the columns of provenance say what is known of each row.
    async fn provenance(&self) -> Verdict {
        const RULE: &str = "schema";
        let mut builder = HybridSource::builder().schema(self.chain.schema()).provenance(Provenance::ALL);
        for source in self.chain.sources() {
            builder = builder.shared(Arc::clone(source));
        }
        // A chain whose own columns have such names can't have both.
        let Ok(chain) = builder.build() else { return Ok(()) };
        let first = chain.schema().fields().len();
        let checkpoint = chain.resolve(None).await.map_err(|e| broken(RULE, told(&e)))?;
        let mut stream = chain.open(checkpoint, self.options()).map_err(|e| broken(RULE, told(&e)))?;
        while let Some(item) = self.next(RULE, &mut stream).await? {
            let item_of = item.map_err(|e| broken(RULE, told(&e)))?;
            let (item, source) = (&item_of.item, item_of.source);
            if item.batch().schema() != chain.output_schema() {
                return Err(broken(RULE, format!("{}, asked was {}", item.batch().schema(), chain.output_schema())));
            }
            let column = |column: Provenance| -> &ArrayRef { item.batch().column(first + column as usize) };
            let text = |which: Provenance, row: usize| column(which).as_string::<i32>().value(row);
            for row in 0..item.num_rows() {
                let split = item.rows().advance_index(row).and_then(|index| item.advances().get(index));
                let position = item.rows().position(row).map(|position| position as i64);
                let is = (
                    text(Provenance::Source, row),
                    text(Provenance::Phase, row),
                    text(Provenance::Split, row),
                    Some(column(Provenance::Position).as_primitive::<Int64Type>().value(row)),
                );
                let name = chain.sources()[source].name();
                let should = (name, chain.phase(source).as_str(), split.map_or("", |s| s.split.as_str()), position);
                if is != should || column(Provenance::Split).is_null(row) {
                    return Err(broken(RULE, format!("provenance of row {row} is {is:?}, known is {should:?}")));
                }
            }
        }
        Ok(())
    }

    /// Checks that neither threads nor batch size nor memory change what is read.
    ///
    /// # Errors
    /// The first row that differs, with the setting.
    pub async fn determinism(&self) -> Verdict {
        const RULE: &str = "determinism";
        let whole = self.read(RULE, &self.chain, None, self.options()).await?;
        for (num_threads, batch_rows, memory_bytes) in settings() {
            let options = ReadOptions { num_threads, batch_rows, memory_bytes, ..self.options() };
            let read = self.read(RULE, &self.chain, None, options).await?;
            let setting = || format!("with {num_threads} threads, batches of {batch_rows}, {memory_bytes} bytes");
            if let Some(batch) = read.batches.iter().find(|batch| batch.num_rows() > batch_rows) {
                return Err(broken(RULE, format!("{}: a batch of {} rows", setting(), batch.num_rows())));
            }
            same(RULE, &read.rows, &whole.rows, setting)?;
            if self.first_rows.is_none() && read.checkpoint != whole.checkpoint {
                return Err(broken(RULE, format!("{}: it ends at another checkpoint", setting())));
            }
        }
        Ok(())
    }

    /// Checks *cut anywhere*: after a row, after an item without rows, before the first row; by cutting
    /// the item there and by a limit.
    ///
    /// # Errors
    /// The cut, and the first row that is missing, twice there, or different.
    pub async fn cut_anywhere(&self) -> Verdict {
        const RULE: &str = "cut anywhere";
        let whole = self.read(RULE, &self.chain, None, self.options()).await?;
        let cuts = self.cuts(&whole);
        let start = self.resolved(RULE).await?;
        let mut states = vec![(Rows::default(), start.clone())];
        let mut stream = self.open(RULE, &self.chain, start.clone(), self.options())?;
        let mut before = (Rows::default(), start.clone());
        while let Some(item) = self.next(RULE, &mut stream).await? {
            let item = item.map_err(|e| broken(RULE, told(&e)))?;
            let (source, item) = (item.source, item.item);
            let begin = before.0.num_rows();
            let mut at: BTreeSet<usize> =
                cuts.range(begin + 1..begin + 1 + item.num_rows() as u64).map(|cut| (cut - begin) as usize).collect();
            if item.num_rows() == 0 && states.len() < 2 * self.max_cuts {
                at.insert(0);
            }
            for row in at {
                let (left, right) = item.split_at(row);
                let mut cut = before.clone();
                apply(&mut cut, source, &left)?;
                let mut both = cut.clone();
                apply(&mut both, source, &right)?;
                if both.1 != *stream.checkpoint() {
                    return Err(broken(
                        RULE,
                        format!("both sides of a cut after row {} aren't the whole", begin + row as u64),
                    ));
                }
                states.push(cut);
            }
            apply(&mut before, source, &item)?;
        }
        for (rows_before, state) in &states {
            let cut = rows_before.num_rows();
            let options = ReadOptions { limit: self.first_rows.map(|rows| rows - cut), ..self.options() };
            let rest = self.read(RULE, &self.chain, Some(state.clone()), options).await?;
            let mut joined = rows_before.clone();
            joined.extend(rest.rows);
            same(RULE, &joined, &whole.rows, || format!("stopped after row {cut}, at {}", positions(state)))?;
        }
        let step = states.len().div_ceil(8);
        for (rows_before, state) in states.iter().filter(|(rows, _)| rows.num_rows() > 0).step_by(step) {
            let cut = rows_before.num_rows();
            let options = ReadOptions { limit: Some(cut), ..self.options() };
            let read = self.read(RULE, &self.chain, None, options).await?;
            same(RULE, &read.rows, rows_before, || format!("with a limit of {cut} rows"))?;
            // Progress without rows may stand between a row and the next one: either state is right.
            let same_rows = states.iter().filter(|(rows, _)| rows.num_rows() == cut);
            if !same_rows.into_iter().any(|(_, state)| *state == read.checkpoint) {
                return Err(broken(
                    RULE,
                    format!(
                        "a limit of {cut} rows ends at {}, the cut at {}",
                        positions(&read.checkpoint),
                        positions(state)
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Checks that states survive being stored: read back and resolved they have the same numbers, and give the rest.
    ///
    /// # Errors
    /// The state, and what became of it.
    pub async fn restart(&self) -> Verdict {
        const RULE: &str = "restart";
        let whole = self.read(RULE, &self.chain, None, self.options()).await?;
        let store = ObjectCheckpointStore::new(Arc::new(InMemory::new()), "checkpoint.json".into());
        let total = whole.rows.num_rows();
        for cut in BTreeSet::from([0, 1.min(total), total / 3, total / 2, total.saturating_sub(1), total]) {
            let options = ReadOptions { limit: Some(cut), ..self.options() };
            let first = self.read(RULE, &self.chain, None, options).await?;
            let stored = first.checkpoint;
            let after = format!("after row {cut}, at {}", positions(&stored));
            store.save(&stored).await.map_err(|e| broken(RULE, format!("{after}: {}", told(&e))))?;
            let loaded = store.load().await.map_err(|e| broken(RULE, format!("{after}: {}", told(&e))))?;
            let resolved = self.chain.resolve(loaded).await;
            let resolved = resolved.map_err(|e| broken(RULE, format!("{after}: {}", told(&e))))?;
            same_numbers(&stored, &resolved).map_err(|e| broken(RULE, format!("{after}: {e}")))?;
            let options = ReadOptions { limit: self.first_rows.map(|rows| rows - cut), ..self.options() };
            let rest = self.read(RULE, &self.chain, Some(resolved), options).await?;
            let mut joined = first.rows;
            joined.extend(rest.rows);
            same(RULE, &joined, &whole.rows, || format!("restarted {after}"))?;
        }
        Ok(())
    }

    /// Checks *drop*: after a stream is dropped, at its beginning, within and at its end, the threads it
    /// started end. Where the system doesn't list threads in `/proc`, there is nothing to check.
    ///
    /// # Errors
    /// The threads that are left.
    pub async fn drop_ends_threads(&self) -> Verdict {
        const RULE: &str = "drop";
        for num_items in [0, 1, 3, usize::MAX] {
            let Some(before) = threads() else { return Ok(()) };
            let start = self.resolved(RULE).await?;
            let options = ReadOptions { num_threads: 3, memory_bytes: LITTLE_MEMORY_BYTES, ..self.options() };
            let mut stream = self.open(RULE, &self.chain, start, options)?;
            for _ in 0..num_items {
                let Some(item) = self.next(RULE, &mut stream).await? else { break };
                item.map_err(|e| broken(RULE, told(&e)))?;
            }
            // A thread names itself, maybe only later: so all that are new are remembered, and their names
            // looked at when they should be gone. Those that other tests start meanwhile end with them.
            let started = threads().unwrap_or_default();
            drop(stream);
            let left = || {
                let now = threads().unwrap_or_default();
                let new = started.keys().filter(|id| !before.contains_key(id));
                new.filter_map(|id| now.get(id)).filter(|name| name.starts_with("segue")).cloned().collect::<Vec<_>>()
            };
            let began = tokio::time::Instant::now();
            while !left().is_empty() {
                if began.elapsed() > self.patience {
                    return Err(broken(
                        RULE,
                        format!("dropped after {num_items} items, left are {}", left().join(", ")),
                    ));
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        Ok(())
    }

    /// Checks a chain that fails: the error says `message`, nothing comes after it, it stands behind the
    /// same rows whatever the threads and the batch size, and comes again when reading goes on from there.
    ///
    /// # Errors
    /// What is different.
    pub async fn failure(&self, message: &str) -> Verdict {
        const RULE: &str = "end";
        let mut first: Option<Reading> = None;
        for (num_threads, batch_rows, memory_bytes) in settings() {
            let options = ReadOptions { num_threads, batch_rows, memory_bytes, ..self.options() };
            let start = self.resolved(RULE).await?;
            let read = self.read_until_error(RULE, &self.chain, start, options.clone()).await?;
            let setting = || format!("with {num_threads} threads, batches of {batch_rows}, {memory_bytes} bytes");
            if read.error.as_deref() != Some(message) {
                return Err(broken(RULE, format!("{}: ended with {:?}, expected {message:?}", setting(), read.error)));
            }
            if let Some(first) = &first {
                same(RULE, &read.rows, &first.rows, setting)?;
            }
            let again = self.read_until_error(RULE, &self.chain, read.checkpoint.clone(), options).await?;
            if again.error.as_deref() != Some(message) || again.rows.num_rows() != 0 {
                let rows = again.rows.num_rows();
                return Err(broken(RULE, format!("{}: opened again, {rows} rows and {:?}", setting(), again.error)));
            }
            first.get_or_insert(read);
        }
        if let (Some(expected), Some(first)) = (&self.expected, &first) {
            let found = difference(&first.batches, expected, |row| format!("row {row}"));
            if let Some(difference) = found.map_err(|e| broken("rows", e))? {
                return Err(broken("rows", difference));
            }
        }
        Ok(())
    }

    fn options(&self) -> ReadOptions {
        ReadOptions { num_threads: 2, limit: self.first_rows, ..ReadOptions::default() }
    }

    async fn resolved(&self, rule: &'static str) -> Verdict<Checkpoint> {
        let fresh = self.chain.resolve(None).await;
        let fresh = fresh.map_err(|e| broken(rule, format!("it can't be resolved: {}", told(&e))))?;
        let again = self.chain.resolve(Some(fresh.clone())).await;
        let again = again.map_err(|e| broken("resolve", format!("a fresh state is refused: {}", told(&e))))?;
        same_numbers(&fresh, &again).map_err(|e| broken("resolve", e))?;
        Ok(fresh)
    }

    fn open(
        &self,
        rule: &'static str,
        chain: &HybridSource,
        from: Checkpoint,
        options: ReadOptions,
    ) -> Verdict<HybridStream> {
        chain.open(from, options).map_err(|e| broken(rule, format!("it can't be opened: {}", told(&e))))
    }

    async fn next(&self, rule: &'static str, stream: &mut HybridStream) -> Verdict<Option<Result<ChainBatch>>> {
        tokio::time::timeout(self.patience, stream.next()).await.map_err(|_| broken(rule, self.hangs("the chain")))
    }

    fn hangs(&self, name: &str) -> String {
        format!("nothing came from {name} for {:?}", self.patience)
    }

    /// Reads from `from`, or from a fresh start, to the end.
    async fn read(
        &self,
        rule: &'static str,
        chain: &HybridSource,
        from: Option<Checkpoint>,
        options: ReadOptions,
    ) -> Verdict<Reading> {
        let from = match from {
            Some(from) => from,
            None => self.resolved(rule).await?,
        };
        let place = positions(&from);
        let reading = self.read_until_error(rule, chain, from, options).await?;
        match &reading.error {
            None => Ok(reading),
            Some(error) => {
                let rows = reading.rows.num_rows();
                Err(broken(rule, format!("reading from {place} failed after {rows} rows: {error}")))
            }
        }
    }

    async fn read_until_error(
        &self,
        rule: &'static str,
        chain: &HybridSource,
        from: Checkpoint,
        options: ReadOptions,
    ) -> Verdict<Reading> {
        let mut stream = self.open(rule, chain, from, options)?;
        let (mut rows, mut batches, mut error) = (Rows::default(), Vec::new(), None);
        while let Some(item) = self.next(rule, &mut stream).await? {
            match item {
                Ok(item) => {
                    rows.push(item.source, &item.item).map_err(|e| broken(rule, e))?;
                    if item.item.num_rows() > 0 {
                        batches.push(item.item.into_batch());
                    }
                }
                Err(e) if error.is_none() => error = Some(told(&e)),
                Err(e) => return Err(broken("end", format!("a second error came: {}", told(&e)))),
            }
        }
        Ok(Reading { rows, batches, checkpoint: stream.checkpoint().clone(), error })
    }

    /// Where to cut: after every row of short chains; else evenly, and around the borders of the first batches.
    fn cuts(&self, whole: &Reading) -> BTreeSet<u64> {
        let total = whole.rows.num_rows();
        let places = self.max_cuts as u64;
        if total <= places {
            return (0..=total).collect();
        }
        let mut cuts: BTreeSet<u64> =
            (1..=places).map(|i| (u128::from(i) * u128::from(total) / u128::from(places)) as u64).collect();
        let mut border = 0;
        for batch in whole.batches.iter().take(self.max_cuts / 8) {
            border += batch.num_rows() as u64;
            cuts.extend([border - 1, border, border + 1]);
        }
        cuts.range(..=total).copied().collect()
    }
}

/// Threads, rows per batch and bytes of memory that must make no difference.
fn settings() -> [(usize, usize, usize); 5] {
    let plenty = ReadOptions::default().memory_bytes;
    [(1, 8192, plenty), (2, 7, plenty), (3, 1000, LITTLE_MEMORY_BYTES), (8, 64, plenty), (8, 8192, LITTLE_MEMORY_BYTES)]
}

/// Checks one item of a source's own stream. `positions` holds, per split, the lowest position that may come next.
fn check_item(item: &SourceBatch, schema: &SchemaRef, positions: &mut BTreeMap<SplitId, u64>) -> Verdict {
    if item.batch().schema() != *schema {
        return Err(broken("schema", format!("a batch has {}, asked was {schema}", item.batch().schema())));
    }
    if item.rows().num_rows() != item.num_rows() {
        return Err(broken("order", format!("{} rows with {} positions", item.num_rows(), item.rows().num_rows())));
    }
    if item.num_rows() == 0 && item.advances().is_empty() && item.changed().is_empty() {
        return Err(broken("empty", "an item with neither rows nor progress"));
    }
    for row in 0..item.num_rows() {
        let advance = item.rows().advance_index(row).and_then(|index| item.advances().get(index));
        let (Some(advance), Some(position)) = (advance, item.rows().position(row)) else {
            return Err(broken("order", format!("row {row} of an item has no position or no advance")));
        };
        if !(advance.from..advance.to).contains(&position) {
            return Err(broken("order", format!("row {row} at {position} lies outside of its advance {advance:?}")));
        }
        let lowest = positions.entry(advance.split.clone()).or_default();
        if position < *lowest {
            return Err(broken(
                "order",
                format!("split {}: position {position} comes after {}", advance.split, *lowest - 1),
            ));
        }
        *lowest = position + 1;
    }
    Ok(())
}

fn apply((rows, checkpoint): &mut (Rows, Checkpoint), source: usize, item: &SourceBatch) -> Verdict {
    rows.push(source, item).map_err(|e| broken("order", e))?;
    if let Some(state) = checkpoint.sources.get_mut(source) {
        state.take_up(item.changed());
    }
    checkpoint.apply(source, item.advances(), item.num_rows() as u64).map_err(|e| broken("chain", e))
}

fn same(rule: &'static str, got: &Rows, expected: &Rows, how: impl Fn() -> String) -> Verdict {
    match got.difference(expected).map_err(|e| broken(rule, e))? {
        None => Ok(()),
        Some(difference) => Err(broken(rule, format!("{}: {difference}", how()))),
    }
}

/// Says whether resolving kept what must be kept. A stop that was reached may be another one afterwards.
fn same_numbers(stored: &Checkpoint, resolved: &Checkpoint) -> Result<(), String> {
    if stored.sources.len() != resolved.sources.len() {
        return Err(format!("{} sources became {}", stored.sources.len(), resolved.sources.len()));
    }
    let same_split = |was: &SplitState, is: &SplitState| {
        let kept = (was.start, was.position) == (is.start, is.position);
        kept && (was.done || (was.stop, was.done) == (is.stop, is.done))
    };
    for (was, is) in stored.sources.iter().zip(&resolved.sources) {
        let same_splits = match (&was.splits, &is.splits) {
            (Splits::SideBySide(was), Splits::SideBySide(is)) => {
                was.iter().all(|(id, split)| is.get(id).is_some_and(|now| same_split(split, now)))
            }
            (was, is) => was == is,
        };
        if !same_splits {
            return Err(format!("source {}: {:?} was resolved to {:?}", was.name, was.splits, is.splits));
        }
        let others = |state: &SourceState| {
            (
                state.name.clone(),
                state.connector.clone(),
                state.options.clone(),
                state.notes.clone(),
                state.rows,
                state.rejected,
            )
        };
        if others(was) != others(is) {
            return Err(format!("source {}: {:?} was resolved to {:?}", was.name, others(was), others(is)));
        }
    }
    Ok(())
}

/// The error with its causes, on one line.
fn told(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// The positions of splits that were begun: `a.csv @345, b.csv @0`.
fn positions(checkpoint: &Checkpoint) -> String {
    let mut shown = Vec::new();
    for source in &checkpoint.sources {
        match &source.splits {
            Splits::OneByOne { done, current, .. } => {
                shown.push(format!("{}: {done} splits done", source.name));
                shown.extend(current.iter().map(|split| format!("{split:?}")));
            }
            Splits::SideBySide(splits) => shown.extend(splits.values().map(|split| format!("{split:?}"))),
        }
    }
    shown.join(", ")
}

/// The names of this process's threads, by id.
fn threads() -> Option<BTreeMap<u64, String>> {
    let tasks = std::fs::read_dir("/proc/self/task").ok()?;
    let thread = |task: std::io::Result<std::fs::DirEntry>| {
        let task = task.ok()?;
        // A thread may end between its listing and its reading.
        let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
        let id = task.file_name().to_str()?.parse().ok()?;
        Some((id, name.trim_end().to_owned()))
    };
    Some(tasks.filter_map(thread).collect())
}
