//! What the decoders of one file have in common.

use std::sync::Arc;

use arrow::datatypes::{FieldRef, Schema, SchemaRef};

use super::CsvOptions;
use super::record::Dialect;

/// One wanted column: which field of a record, and the type it becomes.
#[derive(Debug, Clone)]
pub(crate) struct CsvColumn {
    pub(crate) index: usize,
    pub(crate) field: FieldRef,
}

/// Which fields become which columns.
#[derive(Debug, Clone)]
pub(crate) struct CsvPlan {
    pub(super) dialect: Dialect,
    pub(super) options: CsvOptions,
    pub(super) columns: Arc<[CsvColumn]>,
    /// Fields that a record should have.
    pub(super) num_fields: usize,
    pub(super) schema: SchemaRef,
}

impl CsvPlan {
    pub(crate) fn new(options: &CsvOptions, columns: Vec<CsvColumn>, num_fields: usize) -> Self {
        let fields: Vec<FieldRef> = columns.iter().map(|column| Arc::clone(&column.field)).collect();
        Self {
            dialect: options.dialect(),
            options: options.clone(),
            columns: columns.into(),
            num_fields,
            schema: Arc::new(Schema::new(fields)),
        }
    }
}
