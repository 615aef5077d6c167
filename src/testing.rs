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
mod rules;

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use arrow::array::RecordBatch;

use self::rows::Rows;
use crate::checkpoint::{Checkpoint, Splits};
use crate::error::{Error, Result};
use crate::hybrid::{HybridSource, HybridStream, ReadOptions};
use crate::source::{ChainBatch, Source};

/// No item takes that long in a test: a stream that waits longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

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

    fn options(&self) -> ReadOptions {
        ReadOptions { num_threads: 2, limit: self.first_rows, ..ReadOptions::default() }
    }

    async fn resolved(&self, rule: &'static str) -> Verdict<Checkpoint> {
        let fresh = self.chain.resolve(None).await;
        let fresh = fresh.map_err(|e| broken(rule, format!("it can't be resolved: {}", told(&e))))?;
        let again = self.chain.resolve(Some(fresh.clone())).await;
        let again = again.map_err(|e| broken("resolve", format!("a fresh state is refused: {}", told(&e))))?;
        rules::same_numbers(&fresh, &again).map_err(|e| broken("resolve", e))?;
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
