//! The rules, each as a method of the suite.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{Int64Type, SchemaRef};
use futures::{FutureExt, StreamExt};
use object_store::memory::InMemory;

use super::rows::{Rows, difference};
use super::{Reading, Suite, Verdict, broken, positions, told};
use crate::checkpoint::{
    Advance, Checkpoint, CheckpointStore, ObjectCheckpointStore, SourceState, SplitId, SplitState, Splits,
};
use crate::hybrid::{HybridSource, ReadOptions};
use crate::schema::Provenance;
use crate::source::{ReadRequest, Reject, SourceBatch};

/// Enough for one chunk of a small test file: with it, every producer has to wait for its reader.
const LITTLE_MEMORY_BYTES: usize = 1 << 20;

impl Suite {
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
            // Progress without rows may stand between a row and the next one, and a live source may join it to the row
            // or not: where the limit ended counts by what is left from there.
            let rest_limit = self.first_rows.map(|rows| rows - cut);
            let options = ReadOptions { limit: rest_limit, ..self.options() };
            let rest = self.read(RULE, &self.chain, Some(read.checkpoint.clone()), options).await?;
            let mut joined = read.rows;
            joined.extend(rest.rows);
            let place = || {
                let (limit, cut_at) = (positions(&read.checkpoint), positions(state));
                format!("a limit of {cut} rows ends at {limit}, the cut at {cut_at}")
            };
            same(RULE, &joined, &whole.rows, place)?;
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
            // Until then it bears the name of the one that started it, which is this one unless tasks move.
            let own_name = std::fs::read_to_string("/proc/thread-self/comm").unwrap_or_default();
            let own_name = own_name.trim_end();
            let is_ours = |name: &str| name.starts_with("segue") || (name == own_name && !name.starts_with("tokio"));
            let left = || {
                let now = threads().unwrap_or_default();
                let new = started.keys().filter(|id| !before.contains_key(id));
                new.filter_map(|id| now.get(id)).filter(|name| is_ours(name)).cloned().collect::<Vec<_>>()
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
    for Reject { split, record, .. } in item.rejects() {
        let moves_over =
            |advance: &&Advance| advance.split == *split && (advance.from..advance.to).contains(&record.position);
        if item.advances().iter().find(moves_over).is_none() {
            return Err(broken(
                "order",
                format!("no advance moves over the bad record at {} of {split}", record.position),
            ));
        }
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
pub(super) fn same_numbers(stored: &Checkpoint, resolved: &Checkpoint) -> Result<(), String> {
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
