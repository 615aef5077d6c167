//! Fitting rows of which some may be bad.

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::{take, take_record_batch};

use super::BadRecords;
use crate::checkpoint::RowPositions;
use crate::error::{Error, Result};
use crate::schema::{Fit, Origin, Provenance, RowFault};

/// Rows that fit, and those that don't.
#[derive(Debug)]
pub(crate) struct Fitted {
    pub(crate) batch: RecordBatch,
    /// Where each of the batch's rows stands.
    pub(crate) rows: RowPositions,
    /// The bad rows, by their index among those that were given; only the first, and no row behind it, if bad records
    /// fail.
    pub(crate) faults: Vec<RowFault>,
}

/// Fits a source's own rows, and leaves out those that have a value their column can't hold.
///
/// # Errors
/// [`Error::Other`] if the rest doesn't fit either, which is a bug.
pub(crate) fn fit_rows(fit: &Fit, batch: &RecordBatch, origin: &Origin<'_>, bad: BadRecords) -> Result<Fitted> {
    let first = match fit.apply(batch, origin) {
        Ok(batch) => return Ok(Fitted { batch, rows: origin.rows.clone(), faults: Vec::new() }),
        Err(fault) => fault,
    };
    let mut faults = fit.faults(batch, origin.rows.num_rows());
    if faults.is_empty() {
        faults.push(first);
    }
    let num_rows = origin.rows.num_rows();
    let kept: Vec<usize> = if bad == BadRecords::Fail {
        faults.truncate(1);
        (0..faults[0].row).collect()
    } else {
        (0..num_rows).filter(|row| faults.binary_search_by_key(row, |fault| fault.row).is_err()).collect()
    };
    let failed = |e| Error::Other { context: "rows without the bad ones".into(), source: Box::new(e) };
    let places: UInt32Array = kept.iter().map(|&row| row as u32).collect::<Vec<_>>().into();
    let own: Vec<(Provenance, ArrayRef)> = origin
        .own
        .iter()
        .map(|(column, array)| Ok((*column, take(array, &places, None).map_err(failed)?)))
        .collect::<Result<_>>()?;
    let batch = take_record_batch(batch, &places).map_err(failed)?;
    let rows = origin.rows.pick(&kept)?;
    let batch = fit.apply(&batch, &Origin { rows: &rows, own: &own, ..*origin }).map_err(|fault| {
        let source = format!("row {}, column {}: {}", fault.row, fault.column, fault.message);
        Error::Other { context: "rows without the bad ones".into(), source: source.into() }
    })?;
    Ok(Fitted { batch, rows, faults })
}
