//! Fits one source to the unified schema: which of its columns goes where, and what stands for the others.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, Scalar, new_null_array};
use arrow::compute::{CastOptions, cast, cast_with_options, is_not_null, kernels::zip::zip};
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type, SchemaRef, TimeUnit};
use arrow::error::ArrowError;

use super::metadata::{Origin, Provenance};
use super::values::{ColumnBuilder, ValueOptions};
use super::{precision, ticks_per_second, type_name, unify_types, unit_digits};
use crate::checkpoint::hash_of;
use crate::error::{Error, Reason, Result};

/// What to do with a column of the unified schema that a source lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnMissing {
    /// It is null, with one warning.
    #[default]
    Null,
    /// It is an error.
    Fail,
}

/// What to do with a column of a source that the unified schema lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnExtra {
    /// It isn't read.
    #[default]
    Ignore,
    /// It is an error.
    Fail,
}

/// Where one column of the unified schema comes from, if not from the column of its own name.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ColumnRule {
    /// The source's column: `column.NAME.from`.
    pub from: Option<String>,
    /// A text that every row has: `column.NAME.constant`.
    pub constant: Option<String>,
    /// A text that stands in place of null: `column.NAME.default`.
    pub default: Option<String>,
    /// Whether one of them must not be shown: a checkpoint then holds their hash, to know them again by.
    pub is_secret: bool,
}

/// How one source is fitted to the unified schema.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Mapping {
    /// By column of the unified schema.
    pub columns: BTreeMap<String, ColumnRule>,
    /// For columns that the source lacks.
    pub on_missing: OnMissing,
    /// For columns that the unified schema lacks.
    pub on_extra: OnExtra,
}

impl Mapping {
    /// The source's column for a column of the unified schema; `None` for a constant.
    pub fn input<'a>(&'a self, column: &'a str) -> Option<&'a str> {
        match self.columns.get(column) {
            Some(ColumnRule { constant: Some(_), .. }) => None,
            Some(ColumnRule { from: Some(from), .. }) => Some(from),
            _ => Some(column),
        }
    }

    /// How a column is decoded: one with a default may be null until the default is put in its place.
    pub(crate) fn decoded_field(&self, field: &FieldRef) -> FieldRef {
        match self.columns.get(field.name()) {
            Some(rule) if rule.default.is_some() => Arc::new(field.as_ref().clone().with_nullable(true)),
            _ => Arc::clone(field),
        }
    }

    /// The options that give these rules, for the checkpoint.
    pub fn to_options(&self) -> BTreeMap<String, String> {
        let mut options = BTreeMap::new();
        for (name, rule) in &self.columns {
            let parts = [("from", &rule.from), ("constant", &rule.constant), ("default", &rule.default)];
            for (part, value) in parts {
                if let Some(value) = value {
                    let shown =
                        if rule.is_secret { format!("hash:{}", hash_of(value.as_bytes())) } else { value.clone() };
                    options.insert(format!("column.{name}.{part}"), shown);
                }
            }
        }
        options
    }

    /// Checks that every rule is about a column that there is.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] otherwise, and for a column with both a source and a constant.
    pub fn check(&self, schema: &SchemaRef) -> Result<()> {
        for (name, rule) in &self.columns {
            let key = format!(
                "column.{name}.{}",
                if rule.from.is_some() {
                    "from"
                } else if rule.constant.is_some() {
                    "constant"
                } else {
                    "default"
                }
            );
            if schema.column_with_name(name).is_none() {
                return Err(Error::option(key, format!("the schema has no column {name}")));
            }
            if let Ok(field) = schema.field_with_name(name) {
                for (part, text) in [("constant", &rule.constant), ("default", &rule.default)] {
                    if let Some(text) = text {
                        one_value(field, text, &format!("column.{name}.{part}"))?;
                    }
                }
            }
            if rule.from.is_some() && rule.constant.is_some() {
                return Err(Error::option(key, "a column is taken from another or constant, not both"));
            }
        }
        Ok(())
    }
}

/// Says whether a column of one type can be had as another: by widening, or by a conversion that is
/// checked value by value (a narrower integer) or cuts digits (a coarser time).
pub(crate) fn fits(from: &DataType, to: &DataType) -> bool {
    use DataType::*;
    if unify_types(from, to).as_ref() == Some(to) {
        return true;
    }
    match (from, to) {
        (Dictionary(_, value), _) => fits(value, to),
        _ if from.is_integer() && to.is_integer() => true,
        (Float64, Float32) => true,
        (Timestamp(_, a), Timestamp(_, b)) => a == b,
        (Time32(_) | Time64(_), Time32(_) | Time64(_)) => true,
        (Utf8 | LargeUtf8 | Utf8View, Utf8 | LargeUtf8 | Utf8View) => true,
        (Binary | LargeBinary | BinaryView | FixedSizeBinary(_), Binary | LargeBinary | BinaryView) => true,
        (
            Decimal32(..) | Decimal64(..) | Decimal128(..) | Decimal256(..),
            Decimal128(_, to_scale) | Decimal256(_, to_scale),
        ) => {
            matches!(from, Decimal32(_, s) | Decimal64(_, s) | Decimal128(_, s) | Decimal256(_, s) if s <= to_scale)
        }
        (List(a) | LargeList(a) | FixedSizeList(a, _), List(b) | LargeList(b)) => fits(a.data_type(), b.data_type()),
        (Struct(a), Struct(b)) => b
            .iter()
            .all(|field| a.find(field.name()).is_some_and(|(_, have)| fits(have.data_type(), field.data_type()))),
        (Map(a, _), Map(b, _)) => match (a.data_type(), b.data_type()) {
            (Struct(a), Struct(b)) if a.len() == b.len() => {
                a.iter().zip(b).all(|(have, want)| fits(have.data_type(), want.data_type()))
            }
            _ => false,
        },
        _ => false,
    }
}

/// A row that can't be fitted.
#[derive(Debug)]
pub(crate) struct RowFault {
    /// Its index in the batch.
    pub(crate) row: usize,
    /// The column.
    pub(crate) column: String,
    /// By what it is counted.
    pub(crate) reason: Reason,
    /// Why.
    pub(crate) message: String,
}

/// Makes batches of the requested schema out of a source's own.
#[derive(Debug, Clone)]
pub(crate) struct Fit {
    columns: Vec<FitColumn>,
    provenance: Vec<Provenance>,
    source_name: Arc<str>,
    phase: &'static str,
    schema: SchemaRef,
    missing: Vec<String>,
}

#[derive(Debug, Clone)]
struct FitColumn {
    field: FieldRef,
    input: Input,
    /// One value in place of null.
    default: Option<ArrayRef>,
}

#[derive(Debug, Clone)]
enum Input {
    /// A column of the source's batch; converted if the type is another.
    Column(usize),
    /// One value for every row.
    Constant(ArrayRef),
    Null,
}

/// What a fit is made for: what is read, and of what source.
#[derive(Debug, Clone)]
pub(crate) struct FitTarget<'a> {
    /// The columns wanted.
    pub(crate) columns: &'a SchemaRef,
    /// The columns of provenance wanted behind them.
    pub(crate) provenance: &'a [Provenance],
    /// Both together.
    pub(crate) schema: SchemaRef,
    /// What rows say in `_source`.
    pub(crate) source_name: &'a Arc<str>,
    /// What rows say in `_phase`.
    pub(crate) phase: &'static str,
    pub(crate) mapping: &'a Mapping,
    /// The file or source, for errors.
    pub(crate) place: &'a str,
}

impl Fit {
    /// Fits columns found by `find`, which gets the name in the source and the wanted field, and gives
    /// the index in the source's batches and the type there.
    ///
    /// # Errors
    /// [`Error::SchemaConflict`] for types that don't go together, [`Error::Schema`] for a missing
    /// column that may not be missing, [`Error::InvalidOption`] for a constant or default that isn't
    /// of its column's type.
    pub(crate) fn try_new(
        target: &FitTarget<'_>,
        mut find: impl FnMut(&str, &FieldRef) -> Result<Option<(usize, DataType)>>,
    ) -> Result<Self> {
        let FitTarget { columns: wanted, mapping, place, .. } = target;
        let mut missing = Vec::new();
        let mut columns = Vec::with_capacity(wanted.fields().len());
        for field in wanted.fields() {
            let rule = mapping.columns.get(field.name());
            let value = |part: &str, text: Option<&String>| {
                text.map(|text| one_value(field, text, &format!("column.{}.{part}", field.name()))).transpose()
            };
            let default = value("default", rule.and_then(|rule| rule.default.as_ref()))?;
            let constant = value("constant", rule.and_then(|rule| rule.constant.as_ref()))?;
            let found = match mapping.input(field.name()) {
                Some(name) => find(name, field)?,
                None => None,
            };
            let input = match (constant, found) {
                (Some(constant), _) => Input::Constant(constant),
                (None, Some((index, data_type))) => {
                    if !fits(&data_type, field.data_type()) {
                        return Err(Error::SchemaConflict {
                            column: field.name().clone(),
                            left: type_name(field),
                            left_of: "the schema".into(),
                            right: type_name(&Field::new("", data_type, true)),
                            right_of: (*place).to_owned(),
                        });
                    }
                    Input::Column(index)
                }
                (None, None) if default.is_some() => Input::Null,
                (None, None) => {
                    if !field.is_nullable() || mapping.on_missing == OnMissing::Fail {
                        let why = if field.is_nullable() { "schema.missing-column is fail" } else { "it is NOT NULL" };
                        return Err(Error::Schema(format!("{place}: column {} is missing, and {why}", field.name())));
                    }
                    missing.push(field.name().clone());
                    Input::Null
                }
            };
            columns.push(FitColumn { field: Arc::clone(field), input, default });
        }
        Ok(Self {
            columns,
            provenance: target.provenance.to_vec(),
            source_name: Arc::clone(target.source_name),
            phase: target.phase,
            schema: Arc::clone(&target.schema),
            missing,
        })
    }

    /// The columns that the source lacks and that are null therefore.
    pub(crate) fn missing(&self) -> &[String] {
        &self.missing
    }

    /// Converts a batch. Its rows are counted by `origin`, since a batch without columns is possible.
    ///
    /// # Errors
    /// The first row that has a null where none may be, or a value that its column can't hold.
    pub(crate) fn apply(&self, batch: &RecordBatch, origin: &Origin<'_>) -> Result<RecordBatch, RowFault> {
        let num_rows = origin.rows.num_rows();
        let mut columns = Vec::with_capacity(self.columns.len() + self.provenance.len());
        for column in &self.columns {
            let array = match &column.input {
                Input::Null => new_null_array(column.field.data_type(), num_rows),
                Input::Constant(value) => repeated(value, num_rows),
                Input::Column(index) => convert(batch.column(*index), &column.field)?,
            };
            let array = match &column.default {
                Some(default) if array.logical_null_count() > 0 => or_default(&array, default, &column.field)?,
                _ => array,
            };
            if !column.field.is_nullable() && array.logical_null_count() > 0 {
                let row = (0..num_rows).find(|&row| array.is_null(row)).unwrap_or(0);
                return Err(column.null_at(row));
            }
            columns.push(array);
        }
        for column in &self.provenance {
            columns.push(origin.column(*column, &self.source_name, self.phase));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(num_rows));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options).map_err(|e| RowFault {
            row: 0,
            column: String::new(),
            reason: Reason::Type,
            message: e.to_string(),
        })
    }

    /// Every row that [`Self::apply`] refuses, in order, each with the first of its columns that is to blame.
    pub(crate) fn faults(&self, batch: &RecordBatch, num_rows: usize) -> Vec<RowFault> {
        let mut faults: BTreeMap<usize, RowFault> = BTreeMap::new();
        for column in &self.columns {
            let Input::Column(index) = column.input else { continue };
            let array = batch.column(index);
            // A cast that isn't strict makes null of what doesn't fit.
            let Ok(lenient) = cast_with_options(array, column.field.data_type(), &CastOptions::default()) else {
                continue;
            };
            for row in (0..num_rows).filter(|&row| lenient.is_null(row)) {
                if !array.is_null(row) {
                    faults.entry(row).or_insert_with(|| out_of_range(array, row, &column.field));
                } else if !column.field.is_nullable() && column.default.is_none() {
                    faults.entry(row).or_insert_with(|| column.null_at(row));
                }
            }
        }
        faults.into_values().collect()
    }
}

impl FitColumn {
    fn null_at(&self, row: usize) -> RowFault {
        let message = format!("null in a NOT NULL column ({})", type_name(&self.field));
        RowFault { row, column: self.field.name().clone(), reason: Reason::Null, message }
    }
}

fn out_of_range(array: &ArrayRef, row: usize, field: &Field) -> RowFault {
    let options = arrow::util::display::FormatOptions::default();
    let value = match arrow::util::display::ArrayFormatter::try_new(array, &options) {
        Ok(formatter) => format!("'{}'", formatter.value(row)),
        Err(_) => "the value".to_owned(),
    };
    let message = format!("{value} is out of range for {}", type_name(field));
    RowFault { row, column: field.name().clone(), reason: Reason::Range, message }
}

/// A text of the command line as one value of a column.
fn one_value(field: &Field, text: &str, key: &str) -> Result<ArrayRef> {
    let mut column = ColumnBuilder::try_new(field, ValueOptions::default(), 1)?;
    column.push(text).map_err(|fault| Error::option(key, fault.describe(text.as_bytes(), field)))?;
    Ok(column.finish())
}

fn repeated(value: &ArrayRef, num_rows: usize) -> ArrayRef {
    let indices = arrow::array::UInt32Array::from_value(0, num_rows);
    // Index 0 is there: the array has one value.
    arrow::compute::take(value, &indices, None).unwrap_or_else(|_| new_null_array(value.data_type(), num_rows))
}

fn or_default(array: &ArrayRef, default: &ArrayRef, field: &Field) -> Result<ArrayRef, RowFault> {
    let filled = is_not_null(array).and_then(|there| zip(&there, array, &Scalar::new(default)));
    filled.map_err(|e| RowFault { row: 0, column: field.name().clone(), reason: Reason::Type, message: e.to_string() })
}

fn convert(array: &ArrayRef, field: &Field) -> Result<ArrayRef, RowFault> {
    let wanted = field.data_type();
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    let converted = match (array.data_type(), wanted) {
        (same, _) if same == wanted => Ok(Arc::clone(array)),
        (DataType::Timestamp(from, _), DataType::Timestamp(to, _)) if from > to => coarser(array, *from, *to, wanted),
        _ => cast_with_options(array, wanted, &strict),
    };
    converted.and_then(|array| cut_digits(array, field)).map_err(|e| {
        // Look for the row that a lenient conversion makes null.
        let lenient = cast_with_options(array, wanted, &CastOptions::default()).ok();
        let row = lenient.and_then(|lenient| (0..array.len()).find(|&row| lenient.is_null(row) && !array.is_null(row)));
        match row {
            Some(row) => out_of_range(array, row, field),
            None => {
                let column = field.name().clone();
                RowFault { row: 0, column, reason: Reason::Range, message: e.to_string() }
            }
        }
    })
}

/// A timestamp in a coarser unit: digits are cut, as in text, so towards the past before 1970 too.
fn coarser(array: &ArrayRef, from: TimeUnit, to: TimeUnit, wanted: &DataType) -> Result<ArrayRef, ArrowError> {
    let factor = ticks_per_second(from) / ticks_per_second(to);
    with_ticks(array, wanted, |ticks| ticks.div_euclid(factor))
}

/// Cuts digits beyond a precision that the unit doesn't enforce, such as TIMESTAMP(2) in milliseconds.
fn cut_digits(array: ArrayRef, field: &Field) -> Result<ArrayRef, ArrowError> {
    let DataType::Timestamp(unit, _) = field.data_type() else { return Ok(array) };
    let excess = unit_digits(*unit) - precision(field).unwrap_or(9).min(unit_digits(*unit));
    if excess == 0 {
        return Ok(array);
    }
    let factor = 10i64.pow(excess.into());
    with_ticks(&array, field.data_type(), |ticks| ticks - ticks.rem_euclid(factor))
}

/// Changes the numbers behind timestamps. The casts only give the numbers another name.
fn with_ticks(array: &ArrayRef, wanted: &DataType, change: impl Fn(i64) -> i64) -> Result<ArrayRef, ArrowError> {
    let ticks = cast(array, &DataType::Int64)?;
    let changed: ArrayRef = Arc::new(ticks.as_primitive::<Int64Type>().unary::<_, Int64Type>(change));
    cast(&changed, wanted)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int32Array, Int64Array, StringArray, TimestampNanosecondArray};
    use arrow::datatypes::TimestampMillisecondType;
    use arrow::util::pretty::pretty_format_batches;

    use super::super::parse_schema;
    use super::*;
    use crate::checkpoint::RowPositions;
    use crate::source::ReadRequest;

    fn batch() -> RecordBatch {
        RecordBatch::try_from_iter([
            ("id", Arc::new(Int64Array::from(vec![Some(1), None, Some(300)])) as ArrayRef),
            ("s", Arc::new(StringArray::from(vec!["a", "b", "c"]))),
        ])
        .unwrap()
    }

    fn fit(schema: &str, mapping: &Mapping, batch: &RecordBatch) -> Result<Fit> {
        let columns = Arc::new(parse_schema(schema)?);
        let request = ReadRequest::new(columns)?.with_provenance(vec![
            Provenance::Source,
            Provenance::Position,
            Provenance::Topic,
        ]);
        let own = batch.schema();
        Fit::try_new(&request.fit_target(mapping, "f.parquet"), |name, _| {
            Ok(own.column_with_name(name).map(|(index, field)| (index, field.data_type().clone())))
        })
    }

    fn apply(fit: &Fit, batch: &RecordBatch) -> Result<RecordBatch, RowFault> {
        let rows = RowPositions::consecutive(10, batch.num_rows());
        fit.apply(batch, &Origin { split: None, path: None, rows: &rows, own: &[] })
    }

    fn rule(from: Option<&str>, constant: Option<&str>, default: Option<&str>) -> ColumnRule {
        ColumnRule {
            from: from.map(Into::into),
            constant: constant.map(Into::into),
            default: default.map(Into::into),
            is_secret: false,
        }
    }

    #[test]
    fn rename_constant_default_missing_and_provenance() {
        let mapping = Mapping {
            columns: BTreeMap::from([
                ("name".into(), rule(Some("s"), None, None)),
                ("origin".into(), rule(None, Some("2024-01-01"), None)),
                ("id".into(), rule(None, None, Some("7"))),
            ]),
            ..Mapping::default()
        };
        let fit = fit("name STRING, id BIGINT NOT NULL, origin DATE, gone INT", &mapping, &batch()).unwrap();
        assert_eq!(fit.missing(), ["gone"]);
        let table = pretty_format_batches(&[apply(&fit, &batch()).unwrap()]).unwrap().to_string();
        assert_eq!(
            table.lines().skip(3).take(3).collect::<Vec<_>>(),
            [
                "| a    | 1   | 2024-01-01 |      | 0       | 10        |        |",
                "| b    | 7   | 2024-01-01 |      | 0       | 11        |        |",
                "| c    | 300 | 2024-01-01 |      | 0       | 12        |        |",
            ]
        );
    }

    #[test]
    fn values_that_do_not_fit_are_placed() {
        let narrow = fit("id TINYINT", &Mapping::default(), &batch()).unwrap();
        let fault = apply(&narrow, &batch()).unwrap_err();
        assert_eq!(
            (fault.row, fault.column.as_str(), fault.message.as_str()),
            (2, "id", "'300' is out of range for TINYINT")
        );
        let not_null = fit("id BIGINT NOT NULL", &Mapping::default(), &batch()).unwrap();
        let fault = apply(&not_null, &batch()).unwrap_err();
        assert_eq!((fault.row, fault.message.as_str()), (1, "null in a NOT NULL column (BIGINT)"));
    }

    #[test]
    fn what_can_not_be_fitted_is_refused_with_both_types() {
        let error = fit("s INT", &Mapping::default(), &batch()).unwrap_err();
        assert_eq!(error.to_string(), "column s: INT (the schema) and STRING (f.parquet) can't be unified");
        let error = fit("gone INT NOT NULL", &Mapping::default(), &batch()).unwrap_err();
        assert_eq!(error.to_string(), "f.parquet: column gone is missing, and it is NOT NULL");
        let strict = Mapping { on_missing: OnMissing::Fail, ..Mapping::default() };
        assert!(fit("gone INT", &strict, &batch()).is_err());
        let constant =
            Mapping { columns: BTreeMap::from([("id".into(), rule(None, Some("x"), None))]), ..Mapping::default() };
        let error = fit("id INT", &constant, &batch()).unwrap_err();
        assert_eq!(error.to_string(), "option 'column.id.constant': 'x' is not an INT");
    }

    #[test]
    fn digits_of_timestamps_are_cut_towards_the_past() {
        let array: ArrayRef = Arc::new(TimestampNanosecondArray::from(vec![1_999_999_999, -1]));
        let batch = RecordBatch::try_from_iter([("t", array)]).unwrap();
        for (sql, expected) in [("TIMESTAMP(3)", [1999, -1]), ("TIMESTAMP(2)", [1990, -10])] {
            let fit = fit(&format!("t {sql}"), &Mapping::default(), &batch).unwrap();
            let got = apply(&fit, &batch).unwrap();
            assert_eq!(got.column(0).as_primitive::<TimestampMillisecondType>().values(), &expected, "{sql}");
        }
    }

    #[test]
    fn a_batch_without_columns_keeps_its_rows() {
        let empty = RecordBatch::try_new_with_options(
            Arc::new(arrow::datatypes::Schema::empty()),
            vec![],
            &RecordBatchOptions::new().with_row_count(Some(3)),
        )
        .unwrap();
        let fit = fit("gone INT", &Mapping::default(), &empty).unwrap();
        assert_eq!(apply(&fit, &empty).unwrap().num_rows(), 3);
    }

    #[test]
    fn an_integer_widens_without_a_check() {
        let array: ArrayRef = Arc::new(Int32Array::from(vec![1]));
        let batch = RecordBatch::try_from_iter([("id", array)]).unwrap();
        let fit = fit("id DOUBLE", &Mapping::default(), &batch).unwrap();
        assert_eq!(apply(&fit, &batch).unwrap().column(0).data_type(), &DataType::Float64);
    }
}
