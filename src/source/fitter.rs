//! Makes the batches that were asked for out of a source's own: for sources whose rows are in Arrow already.

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};

use super::{ReadRequest, SourceBatch};
use crate::checkpoint::{Advance, RowPositions};
use crate::error::{BadRecord, Error, PositionUnit, Result};
use crate::schema::{Fit, Mapping, Origin};

/// Fits a source's own batches to a [`ReadRequest`]: picks, orders and converts columns, fills in what is
/// missing, and adds the columns of provenance.
///
/// Made once, when the source is opened. A source of one's own needs no other knowledge of schemas:
/// `examples/custom_source.rs` shows it.
#[derive(Debug, Clone)]
pub struct Fitter {
    fit: Fit,
    schema: SchemaRef,
}

impl Fitter {
    /// Fits batches of the columns `own` to `request`. `place` names the source in errors.
    ///
    /// # Errors
    /// [`Error::SchemaConflict`] for types that don't go together, [`Error::Schema`] for a missing
    /// column that may not be missing, [`Error::InvalidOption`] for a constant or default that isn't
    /// of its column's type.
    pub fn try_new(own: &Schema, mapping: &Mapping, request: &ReadRequest, place: &str) -> Result<Self> {
        let fit = Fit::try_new(&request.fit_target(mapping, place), |name, _| {
            Ok(own.column_with_name(name).map(|(index, field)| (index, field.data_type().clone())))
        })?;
        Ok(Self { fit, schema: request.schema() })
    }

    /// Makes an item of rows of one split, which stand at `positions`, and of the progress that they make.
    ///
    /// # Errors
    /// [`Error::BadRecord`] for the first row with a value that its column can't hold, or a null where
    /// none may be.
    pub fn item(&self, rows: &RecordBatch, positions: RowPositions, advance: Advance) -> Result<SourceBatch> {
        let split = advance.split.clone();
        let origin = Origin { split: Some(split.as_str()), path: None, rows: &positions, own: &[] };
        let batch = self.fit.apply(rows, &origin).map_err(|fault| {
            let position = positions.position(fault.row).unwrap_or(advance.from);
            let mut record =
                BadRecord::new(split.as_str(), position, PositionUnit::Sequence, fault.reason, fault.message);
            record.column = Some(fault.column);
            Error::BadRecord(Box::new(record))
        })?;
        SourceBatch::try_new(batch, positions, vec![advance])
    }

    /// Makes an item without rows.
    pub fn progress(&self, advance: Advance) -> SourceBatch {
        SourceBatch::progress(SchemaRef::clone(&self.schema), vec![advance])
    }
}
