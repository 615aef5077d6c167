//! How many bad records a job puts up with.

use std::fmt;
use std::str::FromStr;

use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};
use crate::source::SourceBatch;

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
                _ => Err(wrong()),
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
        for (index, reject) in item.rejects().iter().enumerate() {
            let rejected = self.rejected + index as u64 + 1;
            let records = self.rows + item.rows_before(reject) as u64 + rejected;
            let is_judged = matches!(max, MaxErrors::Count(_)) || records >= LEAST_RECORDS;
            if is_judged && max.is_passed(rejected, records) {
                let error = self.error(max, rejected, records, Some(Error::BadRecord(Box::new(reject.record.clone()))));
                return (item.before_reject(reject), Some(error));
            }
        }
        let before = self.rows + self.rejected;
        self.rows += item.num_rows() as u64;
        self.rejected += item.rejects().len() as u64;
        let records = self.rows + self.rejected;
        // The first time that a share is judged can be at a good record.
        if before < LEAST_RECORDS && records >= LEAST_RECORDS && max.is_passed(self.rejected, records) {
            let error = self.error(max, self.rejected, records, None);
            return (item, Some(error));
        }
        (item, None)
    }

    /// Judges the share at the end of the job.
    pub(super) fn end(&self) -> Option<Error> {
        let (max, records) = (self.max?, self.rows + self.rejected);
        max.is_passed(self.rejected, records).then(|| self.error(max, self.rejected, records, None))
    }

    fn error(&self, max: MaxErrors, rejected: u64, records: u64, record: Option<Error>) -> Error {
        let allowed = match max {
            MaxErrors::Count(count) => count.to_string(),
            MaxErrors::Percent(percent) => format!("{percent} % of {records}"),
        };
        Error::TooManyBadRecords { rejected, allowed, record: record.map(Box::new) }
    }
}
