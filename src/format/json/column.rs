//! One column of JSON values: scalars by the rules that all text has, and ARRAY, ROW and MAP of them.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, LargeListArray, ListArray, MapArray, NullBufferBuilder, StructArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use arrow::error::ArrowError;

use super::JsonOptions;
use super::keys::Members;
use super::scan::{Kind, Scanner, Slot, Syntax, unescape};
use crate::error::{Error, Reason, Result, quoted};
use crate::schema::{ColumnBuilder, ValueFault, ValueOptions, type_name, with_article};

/// Why a value can't stand in a column.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ColumnFault {
    /// Where in the column, if it is nested: `.b[2]`.
    pub(super) path: String,
    pub(super) reason: Reason,
    pub(super) message: String,
    pub(super) hint: Option<&'static str>,
}

impl ColumnFault {
    fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { path: String::new(), reason, message: message.into(), hint: None }
    }

    /// A scalar that its type doesn't take.
    fn of_value(fault: ValueFault, value: &[u8], field: &Field) -> Self {
        Self::new(fault.reason(), fault.describe(value, field))
    }

    fn below(mut self, step: &str) -> Self {
        self.path.insert_str(0, step);
        self
    }
}

/// A value was passed once before it comes here, so this is no more than a second line of defence.
impl From<Syntax> for ColumnFault {
    fn from(syntax: Syntax) -> Self {
        Self::new(Reason::Syntax, syntax.message)
    }
}

/// Collects the values of one column.
#[derive(Debug)]
pub(super) struct Column {
    field: Field,
    fail_on_missing: bool,
    values: Values,
}

#[derive(Debug)]
enum Values {
    Scalar(Scalar),
    List(List),
    Row(Row),
    Map(Map),
}

impl Column {
    /// Prepares a column for about `rows` rows.
    ///
    /// # Errors
    /// [`Error::Schema`] for a type that JSON can't become.
    pub(super) fn try_new(field: &Field, options: &JsonOptions, rows: usize) -> Result<Self> {
        let values = match field.data_type() {
            DataType::List(item) | DataType::LargeList(item) => Values::List(List {
                item_field: Arc::clone(item),
                item: Box::new(Self::try_new(item, options, rows)?),
                is_large: matches!(field.data_type(), DataType::LargeList(_)),
                shape: Shape::new(rows),
            }),
            DataType::Struct(fields) => {
                let names = fields.iter().map(|field| field.name().clone()).collect();
                let columns = fields.iter().map(|field| Self::try_new(field, options, rows));
                Values::Row(Row {
                    fields: fields.clone(),
                    columns: columns.collect::<Result<_>>()?,
                    members: Members::new(names, options.case_insensitive_names),
                    nulls: NullBufferBuilder::new(rows),
                })
            }
            DataType::Map(entries, sorted) => {
                let DataType::Struct(pair) = entries.data_type() else { return Err(unsupported(field)) };
                let [key, value] = pair.as_ref() else { return Err(unsupported(field)) };
                // A key of JSON is always text.
                let coerce = JsonOptions { coerce: true, ..*options };
                Values::Map(Map {
                    entries: Arc::clone(entries),
                    pair: pair.clone(),
                    keys: Box::new(Self::try_new(key, &coerce, rows)?),
                    values: Box::new(Self::try_new(value, options, rows)?),
                    sorted: *sorted,
                    shape: Shape::new(rows),
                })
            }
            _ => Values::Scalar(Scalar::try_new(field, options, rows)?),
        };
        Ok(Self { field: field.clone(), fail_on_missing: options.fail_on_missing_field, values })
    }

    pub(super) fn name(&self) -> &str {
        self.field.name()
    }

    /// The number of values.
    pub(super) fn num_rows(&mut self) -> usize {
        match &mut self.values {
            Values::Scalar(scalar) => scalar.builder.num_rows(),
            Values::List(List { shape, .. }) | Values::Map(Map { shape, .. }) => shape.ends.len(),
            Values::Row(row) => row.nulls.len(),
        }
    }

    /// Drops all values behind the first `rows`, and what a bad value has left in the columns below.
    pub(super) fn truncate(&mut self, rows: usize) {
        match &mut self.values {
            Values::Scalar(scalar) => scalar.builder.truncate(rows),
            Values::List(list) => {
                list.shape.truncate(rows);
                list.item.truncate(list.shape.num_elements());
            }
            Values::Row(row) => {
                truncate_nulls(&mut row.nulls, rows);
                row.columns.iter_mut().for_each(|column| column.truncate(rows));
            }
            Values::Map(map) => {
                map.shape.truncate(rows);
                map.keys.truncate(map.shape.num_elements());
                map.values.truncate(map.shape.num_elements());
            }
        }
    }

    /// Adds a value of `text`. A fault can leave something behind, which [`Self::truncate`] takes away.
    pub(super) fn push(&mut self, text: &str, slot: Slot) -> Result<(), ColumnFault> {
        if matches!(slot.kind, Kind::Null | Kind::Missing) {
            return self.push_nothing(slot.kind);
        }
        match (&mut self.values, slot.kind) {
            (Values::Scalar(scalar), _) => scalar.push(text, slot, &self.field),
            (Values::List(list), Kind::Array) => list.push(text, slot),
            (Values::Row(row), Kind::Object) => row.push(text, slot),
            (Values::Map(map), Kind::Object) => map.push(text, slot),
            (_, kind) => {
                let message = format!("{} is not {}", kind.describe(), with_article(&type_name(&self.field)));
                Err(ColumnFault::new(Reason::Type, message))
            }
        }
    }

    /// Adds values of `text`, up to the first bad one; `false` if there is one. That can leave something behind, which
    /// [`Self::truncate`] takes away.
    pub(super) fn extend(&mut self, text: &str, mut slots: impl Iterator<Item = Slot>) -> bool {
        let nullable = self.field.is_nullable();
        let may_be_missing = nullable && !self.fail_on_missing;
        loop {
            let mut other = None;
            match &mut self.values {
                Values::Scalar(Scalar { builder, class, .. }) => {
                    // As far as values are good by their text alone, and nulls in place, the column takes them at once.
                    let run = std::iter::from_fn(|| {
                        let slot = slots.next()?;
                        match slot.kind {
                            kind if class.takes_as_written(kind) => Some(Some(slot.text(text))),
                            Kind::Null if nullable => Some(None),
                            Kind::Missing if may_be_missing => Some(None),
                            _ => {
                                other = Some(slot);
                                None
                            }
                        }
                    });
                    if fill(builder, run).is_err() {
                        return false;
                    }
                }
                _ => other = slots.next(),
            }
            let Some(slot) = other else { return true };
            if self.push(text, slot).is_err() {
                return false;
            }
        }
    }

    fn push_nothing(&mut self, kind: Kind) -> Result<(), ColumnFault> {
        let missing = kind == Kind::Missing;
        if missing && self.fail_on_missing {
            let hint = Some("json.fail-on-missing-field=false reads a missing key as null");
            return Err(ColumnFault { hint, ..ColumnFault::new(Reason::Null, "the key is missing") });
        }
        if !self.field.is_nullable() {
            let what = if missing { "the key is missing" } else { "null" };
            let message = format!("{what} in a NOT NULL column ({})", type_name(&self.field));
            return Err(ColumnFault::new(Reason::Null, message));
        }
        self.push_null()
    }

    /// Adds a null, also where the column has none: below a null ROW nobody sees it.
    fn push_null(&mut self) -> Result<(), ColumnFault> {
        match &mut self.values {
            Values::Scalar(scalar) => {
                scalar.builder.push_null().map_err(|fault| ColumnFault::of_value(fault, b"null", &self.field))
            }
            Values::List(List { shape, .. }) | Values::Map(Map { shape, .. }) => {
                shape.push_null();
                Ok(())
            }
            Values::Row(row) => {
                row.nulls.append_null();
                row.columns.iter_mut().try_for_each(Self::push_null)
            }
        }
    }

    /// Takes the column out, and begins the next one.
    pub(super) fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        Ok(match &mut self.values {
            Values::Scalar(scalar) => scalar.builder.finish(),
            Values::List(list) => {
                let (ends, nulls) = list.shape.finish();
                let (field, items) = (Arc::clone(&list.item_field), list.item.finish()?);
                if list.is_large {
                    Arc::new(LargeListArray::try_new(field, offsets(&ends)?, items, nulls)?)
                } else {
                    Arc::new(ListArray::try_new(field, offsets(&ends)?, items, nulls)?)
                }
            }
            Values::Row(row) => {
                let (len, nulls) = (row.nulls.len(), row.nulls.finish());
                let columns = row.columns.iter_mut().map(Self::finish).collect::<Result<_, _>>()?;
                Arc::new(StructArray::try_new_with_length(row.fields.clone(), columns, nulls, len)?)
            }
            Values::Map(map) => {
                let (ends, nulls) = map.shape.finish();
                let columns = vec![map.keys.finish()?, map.values.finish()?];
                let entries = StructArray::try_new(map.pair.clone(), columns, None)?;
                Arc::new(MapArray::try_new(Arc::clone(&map.entries), offsets(&ends)?, entries, nulls, map.sorted)?)
            }
        })
    }
}

fn unsupported(field: &Field) -> Error {
    Error::Schema(format!("column {}: {} can't be read from JSON", field.name(), type_name(field)))
}

/// Ends of lists as offsets.
fn offsets<O: arrow::array::OffsetSizeTrait>(ends: &[usize]) -> Result<OffsetBuffer<O>, ArrowError> {
    let too_long = || ArrowError::ComputeError("more elements in one batch than offsets can count".into());
    let offsets = ends.iter().map(|&end| O::from_usize(end).ok_or_else(too_long));
    let offsets: Vec<O> = std::iter::once(Ok(O::zero())).chain(offsets).collect::<Result<_, _>>()?;
    Ok(OffsetBuffer::new(offsets.into()))
}

/// Which JSON values a type takes as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Text,
    Boolean,
    Integer,
    Float,
    Decimal,
    /// Dates, times and bytes, which JSON can only write as strings.
    Written,
}

impl Class {
    /// Says whether values of a kind are good for the type by their text alone.
    fn takes_as_written(self, kind: Kind) -> bool {
        matches!(
            (kind, self),
            (Kind::Number, Self::Integer | Self::Float | Self::Decimal)
                | (Kind::String, Self::Text | Self::Written | Self::Decimal)
                | (Kind::Bool, Self::Boolean)
        )
    }
}

fn fill<'a>(builder: &mut ColumnBuilder, values: impl Iterator<Item = Option<&'a str>>) -> Result<(), ValueFault> {
    for value in values {
        match value {
            Some(text) => builder.push(text)?,
            None => builder.push_null()?,
        }
    }
    Ok(())
}

#[derive(Debug)]
struct Scalar {
    builder: ColumnBuilder,
    class: Class,
    coerce: bool,
    unescaped: String,
}

impl Scalar {
    fn try_new(field: &Field, options: &JsonOptions, rows: usize) -> Result<Self> {
        use DataType::*;
        let class = match field.data_type() {
            Utf8 | LargeUtf8 | Utf8View => Class::Text,
            Boolean => Class::Boolean,
            Float32 | Float64 => Class::Float,
            Decimal128(..) | Decimal256(..) => Class::Decimal,
            data_type if data_type.is_integer() => Class::Integer,
            _ => Class::Written,
        };
        // Nulls below a null ROW must go in; the column itself looks at NOT NULL.
        let nullable = field.clone().with_nullable(true);
        let builder = ColumnBuilder::try_new(&nullable, ValueOptions::default(), rows)?;
        Ok(Self { builder, class, coerce: options.coerce, unescaped: String::new() })
    }

    fn push(&mut self, text: &str, slot: Slot, field: &Field) -> Result<(), ColumnFault> {
        let raw = slot.text(text);
        let value = if slot.kind == Kind::Escaped {
            self.unescaped.clear();
            unescape(raw, &mut self.unescaped);
            self.unescaped.as_str()
        } else {
            raw
        };
        if !self.takes(slot.kind, value) {
            return Err(mismatch(slot.kind, value, field));
        }
        self.builder.push(value).map_err(|fault| ColumnFault::of_value(fault, value.as_bytes(), field))
    }

    fn takes(&self, kind: Kind, value: &str) -> bool {
        match (kind, self.class) {
            (Kind::Bool, Class::Boolean) => true,
            (Kind::Number, Class::Integer | Class::Float | Class::Decimal) => true,
            (Kind::String | Kind::Escaped, Class::Text | Class::Written | Class::Decimal) => true,
            // As they are written, since JSON has no number for them.
            (Kind::String, Class::Float) if matches!(value, "NaN" | "Infinity" | "-Infinity") => true,
            (Kind::Bool | Kind::Number, Class::Text) => self.coerce,
            (Kind::String | Kind::Escaped, _) => self.coerce,
            _ => false,
        }
    }
}

/// A value of a kind that the type doesn't take.
fn mismatch(kind: Kind, value: &str, field: &Field) -> ColumnFault {
    let not_a =
        |what: String| ColumnFault::new(Reason::Type, format!("{what} is not {}", with_article(&type_name(field))));
    match kind {
        Kind::Array | Kind::Object => not_a(kind.describe().to_owned()),
        Kind::String | Kind::Escaped => ColumnFault {
            hint: Some("json.coerce=true reads numbers and booleans from strings"),
            ..not_a(format!("the string {}", quoted(value.as_bytes())))
        },
        Kind::Number if matches!(field.data_type(), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) => {
            ColumnFault {
                hint: Some("json.coerce=true reads numbers as text"),
                ..not_a(format!("the number {}", quoted(value.as_bytes())))
            }
        }
        _ => ColumnFault::of_value(ValueFault::NotA, value.as_bytes(), field),
    }
}

/// Where each list ends among the elements, and which lists are null.
#[derive(Debug)]
struct Shape {
    ends: Vec<usize>,
    nulls: NullBufferBuilder,
}

impl Shape {
    fn new(rows: usize) -> Self {
        Self { ends: Vec::with_capacity(rows), nulls: NullBufferBuilder::new(rows) }
    }

    fn push(&mut self, len: usize) {
        self.ends.push(self.num_elements() + len);
        self.nulls.append_non_null();
    }

    fn push_null(&mut self) {
        self.ends.push(self.num_elements());
        self.nulls.append_null();
    }

    fn num_elements(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    fn truncate(&mut self, rows: usize) {
        self.ends.truncate(rows);
        truncate_nulls(&mut self.nulls, rows);
    }

    fn finish(&mut self) -> (Vec<usize>, Option<NullBuffer>) {
        (std::mem::take(&mut self.ends), self.nulls.finish())
    }
}

fn truncate_nulls(nulls: &mut NullBufferBuilder, rows: usize) {
    if rows < nulls.len() {
        nulls.truncate(rows);
    }
}

#[derive(Debug)]
struct List {
    item_field: FieldRef,
    item: Box<Column>,
    is_large: bool,
    shape: Shape,
}

impl List {
    fn push(&mut self, text: &str, slot: Slot) -> Result<(), ColumnFault> {
        let mut len = 0;
        second_look(text, slot).array(|scanner| {
            let element = scanner.value(0)?;
            self.item.push(text, element).map_err(|fault| fault.below(&format!("[{len}]")))?;
            len += 1;
            Ok::<(), ColumnFault>(())
        })?;
        self.shape.push(len);
        Ok(())
    }
}

#[derive(Debug)]
struct Row {
    fields: Fields,
    columns: Vec<Column>,
    members: Members,
    nulls: NullBufferBuilder,
}

impl Row {
    fn push(&mut self, text: &str, slot: Slot) -> Result<(), ColumnFault> {
        let slots = self.members.read(&mut second_look(text, slot), text, 0)?;
        for (column, &slot) in self.columns.iter_mut().zip(slots) {
            column.push(text, slot).map_err(|fault| fault.below(&format!(".{}", column.name())))?;
        }
        self.nulls.append_non_null();
        Ok(())
    }
}

#[derive(Debug)]
struct Map {
    entries: FieldRef,
    pair: Fields,
    keys: Box<Column>,
    values: Box<Column>,
    sorted: bool,
    shape: Shape,
}

impl Map {
    fn push(&mut self, text: &str, slot: Slot) -> Result<(), ColumnFault> {
        let mut members: Vec<(Slot, Slot)> = Vec::new();
        let mut known: HashMap<String, usize> = HashMap::new();
        second_look(text, slot).object(|scanner, key| {
            let value = scanner.value(0)?;
            let mut name = String::new();
            unescape(key.text(text), &mut name);
            // The last value of a key counts, as everywhere.
            let index = *known.entry(name).or_insert(members.len());
            match members.get_mut(index) {
                Some(member) => member.1 = value,
                None => members.push((key, value)),
            }
            Ok::<(), ColumnFault>(())
        })?;
        for &(key, value) in &members {
            let step = || format!("[{}]", quoted(key.text(text).as_bytes()));
            self.keys.push(text, key).map_err(|fault| fault.below(&step()))?;
            self.values.push(text, value).map_err(|fault| fault.below(&step()))?;
        }
        self.shape.push(members.len());
        Ok(())
    }
}

/// A scanner over a value that was passed before: its depth was looked at then.
fn second_look(text: &str, slot: Slot) -> Scanner<'_> {
    Scanner::new(text, slot.start, slot.end, usize::MAX)
}
