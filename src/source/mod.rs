//! What a source is.
//!
//! A *source* is a described input: a folder of files, a topic, generated rows. It consists of
//! *splits*, each with a position of its own: one file, one topic partition. It is used in two steps
//! that are the same for a fresh start and for a restart:
//!
//! 1. [`Source::resolve`] turns nothing, or what was stored, into a [`SourceState`]: names become
//!    lists of files, `latest` becomes a number.
//! 2. [`Source::open`] reads from a state. There is no other way to read.
//!
//! # Rules
//!
//! What every source keeps, and what the conformance suite (`segue::testing`, feature `testing`) checks:
//!
//! | rule | meaning |
//! |---|---|
//! | *order* | within a split positions only rise |
//! | *chain* | each advance starts where the one before it ended |
//! | *cut anywhere* | stop after any row, reopen from the state then, and the rest is exactly the missing rows |
//! | *end* | after an error or the end nothing more comes |
//! | *drop* | dropping the stream ends all its threads |
//! | *empty* | items without rows only carry progress |
//! | *schema* | every batch has exactly the requested schema, projected |

mod datagen;
mod decoded;
mod fitter;
mod memory;
mod reject;
mod rows;

use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use futures::future::BoxFuture;
use futures::stream::BoxStream;

pub use datagen::{DatagenSource, DatagenSourceBuilder, FieldKind};
pub(crate) use decoded::{Decoded, Rest, items};
pub use fitter::Fitter;
pub use memory::{MemorySource, MemorySourceBuilder};
pub(crate) use reject::MAX_REJECT_BYTES;
pub use reject::{BadRecords, Reject};
#[cfg(feature = "parquet")]
pub(crate) use rows::Fitted;
pub(crate) use rows::fit_rows;

use crate::budget::Budget;
use crate::checkpoint::{Advance, RowPositions, SourceState, SplitState};
use crate::error::{Error, Result};
use crate::ordered::DecodePool;
use crate::progress::FetchGauges;
use crate::schema::{FitTarget, Mapping, Provenance};

/// Whether a source ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boundedness {
    /// It ends by itself: files.
    Bounded,
    /// It is live by nature and was given a stop: a topic until its end offsets.
    LiveUntilStop,
    /// It doesn't end.
    Unbounded,
}

impl Boundedness {
    /// Says whether the source ends, by itself or by its stop.
    pub fn has_end(self) -> bool {
        self != Self::Unbounded
    }
}

/// `unbounded` for rows of a last source that is live by nature, whatever stop was set; else `bounded`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// History.
    Bounded,
    /// Live.
    Unbounded,
}

impl Phase {
    /// As it stands in the column `_phase`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bounded => "bounded",
            Self::Unbounded => "unbounded",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What the sources before know of where the data continues.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct History {}

/// A described input; opened as often as wanted. See the [module](self) for the rules.
pub trait Source: Debug + Send + Sync {
    /// The name, unique in a chain; it keys the checkpoint.
    fn name(&self) -> &str;

    /// The kind of source, in one word: `filesystem`, `datagen`. Stored, and compared at a restart.
    fn connector(&self) -> &str;

    /// The columns that the source has by itself, in its own order and types.
    fn schema(&self) -> SchemaRef;

    /// Whether the source ends.
    fn boundedness(&self) -> Boundedness;

    /// The options that give positions their meaning: stored, and compared at a restart.
    fn position_options(&self) -> BTreeMap<String, String>;

    /// The option that made the source endless, to be named when it may not be.
    fn unbounded_because(&self) -> Option<String> {
        None
    }

    /// Turns nothing, or what was stored, into a state to read from. Runs at every start.
    ///
    /// Fresh, it turns symbols into numbers: lists files, looks offsets up. With `stored` it keeps the
    /// numbers, checks that unfinished splits are still what they were, and looks up anew only a stop
    /// that was reached. `history` is what the sources before know.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Changed`], or what the input said.
    fn resolve<'a>(
        &'a self,
        stored: Option<SourceState>,
        history: Option<&'a History>,
    ) -> BoxFuture<'a, Result<SourceState>>;

    /// Reads from `state`. Starts work in the background, returns at once, buffers within the budget.
    ///
    /// # Contract
    /// Called within a Tokio runtime. `state` comes from [`Self::resolve`], moved by advances of this source.
    ///
    /// # Errors
    /// [`Error::SchemaConflict`] if the requested schema can't be had of this source.
    fn open(&self, state: &SourceState, request: ReadRequest) -> Result<SourceStream>;

    /// Is told what a sink has committed: the place for group offsets.
    fn committed(&self, state: &SourceState) {
        let _ = state;
    }
}

/// A source's items. After an error or the end nothing more comes.
pub type SourceStream = BoxStream<'static, Result<SourceBatch>>;

/// What to read, and with what means.
#[derive(Clone, Debug)]
pub struct ReadRequest {
    /// The columns wanted, in this order and with these types.
    pub columns: SchemaRef,
    /// Columns of provenance behind them.
    pub provenance: Vec<Provenance>,
    /// What rows of this source say in `_source`.
    pub source_name: Arc<str>,
    /// What rows of this source say in `_phase`.
    pub phase: Phase,
    /// What becomes of bad records, unless the source's own options say otherwise.
    pub bad_records: BadRecords,
    /// Rows per batch, at most.
    pub batch_rows: usize,
    /// What may be buffered.
    pub budget: Budget,
    /// Where to decode.
    pub pool: DecodePool,
    /// Where to tell now and then what is fetched and not taken yet, if somebody looks.
    pub gauges: Option<Arc<FetchGauges>>,
}

/// Rows per batch. Larger batches amortise per-batch work but delay the first row and hold more memory;
/// 8192 matches DataFusion's default, so no re-slicing happens downstream.
pub const DEFAULT_BATCH_ROWS: usize = 8192;

/// Bytes that may be buffered. Enough for every thread to decode one chunk while the next ones are fetched.
pub const DEFAULT_MEMORY_BYTES: usize = 256 << 20;

impl ReadRequest {
    /// Asks for `columns`, with default means.
    ///
    /// # Errors
    /// [`Error::Worker`] if the system gives no threads.
    pub fn new(columns: SchemaRef) -> Result<Self> {
        let num_threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        Ok(Self {
            columns,
            provenance: Vec::new(),
            source_name: "0".into(),
            phase: Phase::Bounded,
            bad_records: BadRecords::default(),
            batch_rows: DEFAULT_BATCH_ROWS,
            budget: Budget::new(DEFAULT_MEMORY_BYTES),
            pool: DecodePool::new(num_threads)?,
            gauges: None,
        })
    }

    /// Asks for columns of provenance behind the others.
    #[must_use]
    pub fn with_provenance(mut self, provenance: Vec<Provenance>) -> Self {
        self.provenance = provenance;
        self
    }

    /// Sets the rows per batch, at most.
    #[must_use]
    pub fn with_batch_rows(mut self, batch_rows: usize) -> Self {
        self.batch_rows = batch_rows.max(1);
        self
    }

    /// What becomes of bad records of a source whose own options may say that they are left out.
    pub(crate) fn bad_records(&self, source_ignores: bool) -> BadRecords {
        if source_ignores { BadRecords::Skip } else { self.bad_records }
    }

    /// The schema that every batch must have: the columns, and the provenance behind them.
    pub fn schema(&self) -> SchemaRef {
        let columns = self.columns.fields().iter().cloned();
        let provenance = self.provenance.iter().map(|column| FieldRef::from(column.field()));
        Arc::new(Schema::new(columns.chain(provenance).collect::<Vec<_>>()))
    }

    /// Says what a source's own columns are to be fitted to; `place` is the source or file, for errors.
    pub(crate) fn fit_target<'a>(&'a self, mapping: &'a Mapping, place: &'a str) -> FitTarget<'a> {
        FitTarget {
            columns: &self.columns,
            provenance: &self.provenance,
            schema: self.schema(),
            source_name: &self.source_name,
            phase: self.phase.as_str(),
            mapping,
            place,
        }
    }
}

/// One item of a source's stream: rows, where each of them stands, and the progress they make.
#[derive(Clone, Debug)]
pub struct SourceBatch {
    batch: RecordBatch,
    rows: RowPositions,
    advances: Vec<Advance>,
    changed: Vec<SplitState>,
    rejects: Vec<Reject>,
}

impl SourceBatch {
    /// Joins rows, their positions, and the progress that comes with them.
    ///
    /// # Errors
    /// [`Error::Other`] if positions and rows differ in number, or a row has no advance.
    pub fn try_new(batch: RecordBatch, rows: RowPositions, advances: Vec<Advance>) -> Result<Self> {
        let fault = if rows.num_rows() != batch.num_rows() {
            Some(format!("{} positions for {} rows", rows.num_rows(), batch.num_rows()))
        } else if rows.advance_index(0).is_some() && advances.is_empty() {
            Some("rows without an advance".to_owned())
        } else {
            None
        };
        match fault {
            Some(fault) => Err(Error::Other { context: "a source's item".into(), source: fault.into() }),
            None => Ok(Self { batch, rows, advances, changed: Vec::new(), rejects: Vec::new() }),
        }
    }

    /// Progress without rows: an empty file, a transaction marker.
    pub fn progress(schema: SchemaRef, advances: Vec<Advance>) -> Self {
        Self {
            batch: RecordBatch::new_empty(schema),
            rows: RowPositions::none(),
            advances,
            changed: Vec::new(),
            rejects: Vec::new(),
        }
    }

    /// Adds bad records that were left out. The advances move over them, and within a split their positions rise.
    #[must_use]
    pub fn with_rejects(mut self, rejects: Vec<Reject>) -> Self {
        self.rejects = rejects;
        self
    }

    /// Adds states of splits that were found later, or whose identity is known better now.
    #[must_use]
    pub fn with_changed(mut self, changed: Vec<SplitState>) -> Self {
        self.changed = changed;
        self
    }

    /// The rows.
    pub fn batch(&self) -> &RecordBatch {
        &self.batch
    }

    /// Takes the rows out.
    pub fn into_batch(self) -> RecordBatch {
        self.batch
    }

    /// The number of rows; 0 for mere progress.
    pub fn num_rows(&self) -> usize {
        self.batch.num_rows()
    }

    /// Where each row stands.
    pub fn rows(&self) -> &RowPositions {
        &self.rows
    }

    /// The progress that comes with the rows.
    pub fn advances(&self) -> &[Advance] {
        &self.advances
    }

    /// States of splits that were found later, or are known better now.
    pub fn changed(&self) -> &[SplitState] {
        &self.changed
    }

    /// Bad records that were left out.
    pub fn rejects(&self) -> &[Reject] {
        &self.rejects
    }

    /// Cuts before row `row`, with exact advances on both sides. Applying both is applying the whole.
    pub fn split_at(&self, row: usize) -> (Self, Self) {
        let row = row.min(self.num_rows());
        let (before, after) = self.rows.cut(&self.advances, row);
        let is_after = |reject: &&Reject| {
            let moves_over = |advance: &Advance| {
                advance.split == reject.split && (advance.from..advance.to).contains(&reject.record.position)
            };
            after.advances.iter().any(moves_over)
        };
        let (rejects_after, rejects_before): (Vec<_>, Vec<_>) = self.rejects.iter().partition(is_after);
        let left = Self {
            batch: self.batch.slice(0, row),
            rows: before.rows,
            advances: before.advances,
            changed: self.changed.clone(),
            rejects: rejects_before.into_iter().cloned().collect(),
        };
        let right = Self {
            batch: self.batch.slice(row, self.num_rows() - row),
            rows: after.rows,
            advances: after.advances,
            changed: Vec::new(),
            rejects: rejects_after.into_iter().cloned().collect(),
        };
        (left, right)
    }

    /// How many rows stand before a bad record of this item: those of other splits count as far as they stand before
    /// the first row of its own split behind it.
    pub(crate) fn rows_before(&self, reject: &Reject) -> usize {
        let Some(advance) = self.advances.iter().position(|advance| advance.split == reject.split) else { return 0 };
        self.rows.first_behind(advance, reject.record.position)
    }

    /// What comes before a bad record of this item: its split stands at that record then.
    pub(crate) fn before_reject(&self, reject: &Reject) -> Self {
        let (mut before, _) = self.split_at(self.rows_before(reject));
        let position = reject.record.position;
        for advance in before.advances.iter_mut().filter(|advance| advance.split == reject.split) {
            (advance.to, advance.done) = (advance.to.min(position), false);
        }
        before.rejects.retain(|other| other.split != reject.split || other.record.position < position);
        before
    }

    /// Cuts a long item into items of at most `batch_rows` rows.
    pub(crate) fn into_batches(self, batch_rows: usize) -> Vec<Self> {
        if self.num_rows() <= batch_rows {
            return vec![self];
        }
        let mut batches = Vec::with_capacity(self.num_rows().div_ceil(batch_rows));
        let mut rest = self;
        while rest.num_rows() > batch_rows {
            let (first, remaining) = rest.split_at(batch_rows);
            batches.push(first);
            rest = remaining;
        }
        batches.push(rest);
        batches
    }
}

/// One item of a chain: a source's item, and which source it is of.
#[derive(Debug, Clone)]
pub struct ChainBatch {
    /// The index of the source in the chain.
    pub source: usize,
    /// The item.
    pub item: SourceBatch,
}
