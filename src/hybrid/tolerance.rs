//! How many bad records a job puts up with.

use std::fmt;
use std::str::FromStr;

use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};
use crate::source::{Reject, SourceBatch};

/// A share says little about the first few records.
const LEAST_RECORDS: u64 = 1000;

/// How many bad records are allowed over the life of a job; the next one ends it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MaxErrors {
    /// So many.
    Count(u64),
    /// So many of a hundred records, good and bad ones together; judged from 1,000 records on and at the end.
    Percent(f64),
}

impl MaxErrors {
    fn is_passed(self, rejected: u64, records: u64) -> bool {
        match self {
            Self::Count(allowed) => rejected > allowed,
            Self::Percent(percent) => rejected as f64 * 100.0 > percent * records as f64,
        }
    }
}

/// As it is given: `10`, `1%`.
impl fmt::Display for MaxErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl FromStr for MaxErrors {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong =
            || Error::option("max-errors", format!("'{text}' is neither a number nor a percentage, as 10 or 1%"));
        match text.strip_suffix('%') {
            None => text.parse().map(Self::Count).map_err(|_| wrong()),
            Some(percent) => match percent.trim_end().parse::<f64>() {
                Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(Self::Percent(percent)),
                Ok(_) => Err(Error::option("max-errors", format!("'{text}' isn't between 0% and 100%"))),
                Err(_) => Err(wrong()),
            },
        }
    }
}

/// Counts a job's records against what it puts up with. What ends the job, and where, is a function of the records
/// alone, as long as one split is read after the other.
#[derive(Debug)]
pub(super) struct Tolerance {
    max: Option<MaxErrors>,
    rows: u64,
    rejected: u64,
}

impl Tolerance {
    /// Begins where the job stands.
    pub(super) fn new(max: Option<MaxErrors>, checkpoint: &Checkpoint) -> Self {
        let rows = checkpoint.sources.iter().map(|source| source.rows).sum();
        let rejected = checkpoint.sources.iter().map(|source| source.rejected).sum();
        Self { max, rows, rejected }
    }

    /// Counts an item. If there are too many bad records, gives what comes before the one that is too many, and the error.
    pub(super) fn take(&mut self, item: SourceBatch) -> (SourceBatch, Option<Error>) {
        let Some(max) = self.max else { return (item, None) };
        let rows_before: Vec<usize> = item.rejects().iter().map(|reject| item.rows_before(reject)).collect();
        let first_judged = self.first_judged(max, &rows_before, item.num_rows());
        // At last there is only what stands behind all of them.
        let rejects = item.rejects().iter().zip(&rows_before).map(Some).chain([None]);
        for (index, reject) in rejects.enumerate() {
            if let Some(Judged { row, num_rejects }) = first_judged
                && num_rejects == index
                && let Some(error) = self.judge(max, row + 1, num_rejects, None)
            {
                return (item.split_at(row + 1).0, Some(error));
            }
            if let Some((reject, num_rows)) = reject
                && let Some(error) = self.judge(max, *num_rows, index + 1, Some(reject))
            {
                return (item.before_reject(reject), Some(error));
            }
        }
        self.rows += item.num_rows() as u64;
        self.rejected += rows_before.len() as u64;
        (item, None)
    }

    /// The good record at which a share is judged for the first time, if it is in an item with so many rows before each
    /// bad record.
    fn first_judged(&self, max: MaxErrors, rows_before: &[usize], num_rows: usize) -> Option<Judged> {
        let missing = LEAST_RECORDS.checked_sub(self.rows + self.rejected)?;
        if matches!(max, MaxErrors::Count(_)) || missing == 0 || missing > (num_rows + rows_before.len()) as u64 {
            return None;
        }
        (0..num_rows).find_map(|row| {
            let num_rejects = rows_before.partition_point(|before| *before <= row);
            ((row + 1 + num_rejects) as u64 == missing).then_some(Judged { row, num_rejects })
        })
    }

    /// The error if behind so many rows and bad records of an item there are too many of these.
    fn judge(&self, max: MaxErrors, num_rows: usize, num_rejects: usize, record: Option<&Reject>) -> Option<Error> {
        let rejected = self.rejected + num_rejects as u64;
        let records = self.rows + num_rows as u64 + rejected;
        let is_judged = matches!(max, MaxErrors::Count(_)) || records >= LEAST_RECORDS;
        let record = record.map(|reject| Error::BadRecord(Box::new(reject.record.clone())));
        (is_judged && max.is_passed(rejected, records)).then(|| error(max, rejected, records, record))
    }

    /// Judges a share that was judged before: the job goes on only if it is allowed more.
    pub(super) fn begin(&self) -> Option<Error> {
        let (max, records) = (self.max?, self.rows + self.rejected);
        let is_judged = matches!(max, MaxErrors::Percent(_)) && records >= LEAST_RECORDS;
        (is_judged && max.is_passed(self.rejected, records)).then(|| error(max, self.rejected, records, None))
    }

    /// Judges the share at the end of the job.
    pub(super) fn end(&self) -> Option<Error> {
        let (max, records) = (self.max?, self.rows + self.rejected);
        max.is_passed(self.rejected, records).then(|| error(max, self.rejected, records, None))
    }
}

/// A good record, and how many bad ones stand before it in its item.
#[derive(Debug, Clone, Copy)]
struct Judged {
    row: usize,
    num_rejects: usize,
}

fn error(max: MaxErrors, rejected: u64, records: u64, record: Option<Error>) -> Error {
    let plural = if rejected == 1 { "" } else { "s" };
    let what = match max {
        MaxErrors::Count(1) => format!("{rejected} bad record{plural}, and 1 is allowed"),
        MaxErrors::Count(count) => format!("{rejected} bad record{plural}, and {count} are allowed"),
        MaxErrors::Percent(percent) => {
            let share = rejected as f64 * 100.0 / records as f64;
            format!("{rejected} of {records} records are bad ({share:.2} %), and {percent} % are allowed")
        }
    };
    Error::TooManyBadRecords { what, record: record.map(Box::new) }
}
