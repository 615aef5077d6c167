//! Generated rows: sequences and seeded random values, bounded or endless, at a chosen rate.
//!
//! A row is a function of the seed and its sequence number alone, so any part of the data can be made
//! again at any time: a position is a sequence number.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{
    ArrayRef, AsArray, BinaryArray, BooleanArray, Decimal128Array, Float32Array, Float64Array, Int32Array, Int64Array,
    RecordBatch, RecordBatchOptions, StringArray,
};
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{DataType, Decimal128Type, Field, Int64Type, Schema, SchemaRef, TimeUnit};
use arrow::error::ArrowError;
use arrow::util::display::FormatOptions;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use tokio::time::Instant;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{Boundedness, History, ReadRequest, Source, SourceBatch, SourceStream};
use crate::checkpoint::{Advance, RowPositions, SourceState, SplitId, SplitState, Splits};
use crate::error::{BadRecord, Error, PositionUnit, Reason, Result};
use crate::ordered::{OrderedSender, Task, ordered};
use crate::schema::{ColumnBuilder, Fit, Mapping, Origin, ValueOptions, ticks_per_second, type_name};

/// A value that its type can't hold is an error and not a null.
const STRICT: CastOptions<'static> = CastOptions { safe: false, format_options: FormatOptions::new() };

/// The one split that generated rows have.
const SPLIT: &str = "rows";

/// Bytes of a batch, about, whatever its rows weigh.
const BATCH_BYTES: usize = 2 << 20;

/// Text and bytes are so long at most: a row must fit any memory.
const MAX_LENGTH: usize = 1 << 20;

/// Seconds from the epoch to 2000-01-01 and 2030-01-01: random times lie between them.
const RANDOM_TIMES: (i64, i64) = (946_684_800, 1_893_456_000);

/// How the values of one column are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// Uniform over the type, or between `min` and `max` (both inclusive, as text); text and bytes of `length`.
    Random {
        /// The smallest value.
        min: Option<String>,
        /// The largest value, inclusive.
        max: Option<String>,
        /// Characters of text, bytes of BYTES; 16 without.
        length: Option<usize>,
    },
    /// `start`, `start + 1`, … up to `end` (inclusive), with which the source ends. Dates go by days, times by seconds.
    Sequence {
        /// The first value.
        start: i64,
        /// The last value, inclusive; none without.
        end: Option<i64>,
    },
}

impl Default for FieldKind {
    fn default() -> Self {
        Self::Random { min: None, max: None, length: None }
    }
}

/// A source of generated rows.
#[derive(Debug, Clone)]
pub struct DatagenSource {
    name: String,
    schema: SchemaRef,
    columns: Arc<[Column]>,
    fields: BTreeMap<String, FieldKind>,
    seed: u64,
    num_rows: Option<u64>,
    rows_per_second: Option<u64>,
    mapping: Mapping,
}

/// Describes a [`DatagenSource`].
#[derive(Debug)]
pub struct DatagenSourceBuilder(DatagenSource);

impl DatagenSource {
    /// Begins a source of rows of `schema`: endless, random, seed 42.
    pub fn builder(schema: SchemaRef) -> DatagenSourceBuilder {
        DatagenSourceBuilder(Self {
            name: "datagen".into(),
            schema,
            columns: Arc::new([]),
            fields: BTreeMap::new(),
            seed: 42,
            num_rows: None,
            rows_per_second: None,
            mapping: Mapping::default(),
        })
    }

    /// The number of rows: the smaller of what was asked for and what the sequences hold.
    fn end(&self) -> Option<u64> {
        let sequences = self.fields.values().filter_map(|kind| match kind {
            FieldKind::Sequence { start, end: Some(end) } => {
                Some(end.saturating_sub(*start).saturating_add(1).max(0) as u64)
            }
            _ => None,
        });
        sequences.chain(self.num_rows).min()
    }
}

impl DatagenSourceBuilder {
    /// Sets the name; `datagen` without.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.0.name = name.into();
        self
    }

    /// Ends the source after `num_rows` rows.
    #[must_use]
    pub fn num_rows(mut self, num_rows: u64) -> Self {
        self.0.num_rows = Some(num_rows);
        self
    }

    /// Makes no more than so many rows a second.
    #[must_use]
    pub fn rows_per_second(mut self, rows: u64) -> Self {
        self.0.rows_per_second = Some(rows);
        self
    }

    /// Sets the seed of random values.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.0.seed = seed;
        self
    }

    /// Sets how one column is made.
    #[must_use]
    pub fn field(mut self, column: impl Into<String>, kind: FieldKind) -> Self {
        self.0.fields.insert(column.into(), kind);
        self
    }

    /// Sets how the source is fitted to the unified schema.
    #[must_use]
    pub fn mapping(mut self, mapping: Mapping) -> Self {
        self.0.mapping = mapping;
        self
    }

    /// Checks the description.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for a column that isn't there or a bound that isn't of its type,
    /// [`Error::Schema`] for a type that can't be generated.
    pub fn build(self) -> Result<DatagenSource> {
        let mut source = self.0;
        for name in source.fields.keys() {
            if source.schema.column_with_name(name).is_none() {
                return Err(Error::option(format!("fields.{name}.kind"), format!("the schema has no column {name}")));
            }
        }
        if source.rows_per_second == Some(0) {
            return Err(Error::option("rows-per-second", "it must be at least 1"));
        }
        let column = |field: &Arc<Field>| {
            let kind = source.fields.get(field.name()).cloned().unwrap_or_default();
            Column::try_new(field, &kind, source.seed)
        };
        source.columns = source.schema.fields().iter().map(column).collect::<Result<_>>()?;
        Ok(source)
    }
}

impl Source for DatagenSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn connector(&self) -> &str {
        "datagen"
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn boundedness(&self) -> Boundedness {
        if self.end().is_some() { Boundedness::Bounded } else { Boundedness::Unbounded }
    }

    fn position_options(&self) -> BTreeMap<String, String> {
        let mut options = self.mapping.to_options();
        options.insert("seed".into(), self.seed.to_string());
        for (name, kind) in &self.fields {
            if let FieldKind::Sequence { start, .. } = kind {
                options.insert(format!("fields.{name}.start"), start.to_string());
            }
        }
        options
    }

    fn unbounded_because(&self) -> Option<String> {
        self.end().is_none().then(|| "number-of-rows isn't set".into())
    }

    fn resolve<'a>(
        &'a self,
        stored: Option<SourceState>,
        _history: Option<&'a History>,
    ) -> BoxFuture<'a, Result<SourceState>> {
        let fresh = SplitState::new(SplitId::from(SPLIT), 0).with_stop(self.end());
        let fresh = || {
            SourceState::new(&self.name, "datagen", Splits::side_by_side([fresh])).with_options(self.position_options())
        };
        let mut state = stored.unwrap_or_else(fresh);
        // A stop is pinned until it is reached; a job that had completed takes the new one.
        if let Splits::SideBySide(splits) = &mut state.splits {
            for split in splits.values_mut().filter(|split| split.done) {
                split.stop = self.end();
                split.done = split.stop.is_some_and(|stop| stop <= split.position);
            }
        }
        async move { Ok(state) }.boxed()
    }

    fn open(&self, state: &SourceState, request: ReadRequest) -> Result<SourceStream> {
        let split = match &state.splits {
            Splits::SideBySide(splits) => splits.get(&SplitId::from(SPLIT)).cloned(),
            Splits::OneByOne { .. } => None,
        };
        let split = split.ok_or_else(|| Error::Chain(format!("source {} has one split, {SPLIT}", self.name)))?;
        if split.done {
            return Ok(stream::empty().boxed());
        }
        let target = request.fit_target(&self.mapping, &self.name);
        // Only the columns that are wanted are made.
        let mut wanted: Vec<usize> = Vec::new();
        let fit = Fit::try_new(&target, |name, _| {
            let Some((index, field)) = self.schema.column_with_name(name) else { return Ok(None) };
            let place = wanted.iter().position(|&known| known == index).unwrap_or_else(|| {
                wanted.push(index);
                wanted.len() - 1
            });
            Ok(Some((place, field.data_type().clone())))
        })?;
        let maker = Maker { columns: Arc::clone(&self.columns), wanted: wanted.into(), fit: Arc::new(fit) };
        let (sender, receiver) = ordered(2 * request.pool.num_threads());
        let rows_per_second = self.rows_per_second;
        let producer = Task::spawn(produce(maker, split, rows_per_second, request, sender));
        let items = receiver.map_ok(|held| held.value);
        // The task lives as long as the stream.
        Ok(items
            .map(move |item| {
                let _ = &producer;
                item
            })
            .boxed())
    }
}

/// Makes the columns that are wanted.
#[derive(Clone)]
struct Maker {
    columns: Arc<[Column]>,
    wanted: Arc<[usize]>,
    fit: Arc<Fit>,
}

async fn produce(
    maker: Maker,
    split: SplitState,
    rows_per_second: Option<u64>,
    request: ReadRequest,
    sender: OrderedSender<SourceBatch>,
) -> Result<()> {
    /// Ten batches a second: a live row is late by a tenth of a second at most.
    const TICKS_PER_SECOND: u64 = 10;
    let row_bytes = 16 + maker.wanted.iter().map(|&index| maker.columns[index].value_bytes()).sum::<usize>();
    let rows_at_once = match rows_per_second {
        Some(rows) => (rows / TICKS_PER_SECOND).clamp(1, request.batch_rows as u64),
        None => request.batch_rows as u64,
    };
    let rows_at_once = rows_at_once.min((BATCH_BYTES / row_bytes).max(1) as u64);
    let began = Instant::now();
    let mut position = split.position;
    while split.stop.is_none_or(|stop| position < stop) {
        let left = split.stop.map_or(u64::MAX, |stop| stop - position);
        let num_rows = rows_at_once.min(left);
        if let Some(rate) = rows_per_second {
            let due = (position - split.position) as f64 / rate as f64;
            tokio::time::sleep_until(began + Duration::from_secs_f64(due)).await;
        }
        let end = position + num_rows;
        let is_last = split.stop == Some(end);
        let advance = Advance::new(split.id.clone(), position, end).with_done(is_last);
        let permit = request.budget.acquire(num_rows as usize * row_bytes).await;
        let maker = maker.clone();
        let job = request.pool.spawn(move || maker.make(position, num_rows as usize, advance));
        if sender.submit(job, Some(permit)).await.is_err() {
            return Ok(());
        }
        position = end;
    }
    if split.position == position {
        let end = Advance::new(split.id.clone(), position, position).with_done(true);
        let progress = SourceBatch::progress(request.schema(), vec![end]);
        // Nobody listening is the end as well.
        let _ = sender.submit(async move { Ok(progress) }.boxed(), None).await;
    }
    Ok(())
}

impl Maker {
    fn make(&self, first: u64, num_rows: usize, advance: Advance) -> Result<SourceBatch> {
        let place = |row: u64, column: &str, message: String| {
            let mut record = BadRecord::new(SPLIT, row, PositionUnit::Sequence, Reason::Range, message);
            record.column = Some(column.to_owned());
            Error::BadRecord(Box::new(record))
        };
        let mut fields = Vec::with_capacity(self.wanted.len());
        let mut arrays = Vec::with_capacity(self.wanted.len());
        for &index in self.wanted.iter() {
            let column = &self.columns[index];
            let array = column.make(first, num_rows).map_err(|e| place(first, column.field.name(), e.to_string()))?;
            fields.push(Arc::clone(&column.field));
            arrays.push(array);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(num_rows));
        let schema = Arc::new(Schema::new(fields));
        let batch =
            RecordBatch::try_new_with_options(schema, arrays, &options).map_err(|e| place(first, "", e.to_string()))?;
        let rows = RowPositions::consecutive(first, num_rows);
        let origin = Origin { split: Some(SPLIT), path: None, rows: &rows, own: &[] };
        let batch = self
            .fit
            .apply(&batch, &origin)
            .map_err(|fault| place(first + fault.row as u64, &fault.column, fault.message))?;
        SourceBatch::try_new(batch, rows, vec![advance])
    }
}

/// How one column is made.
#[derive(Debug)]
struct Column {
    field: Arc<Field>,
    /// Differs from column to column, so that two columns of one type differ.
    seed: u64,
    values: Values,
}

#[derive(Debug)]
enum Values {
    Sequence(i64),
    /// Whole numbers of the type's own unit, both ends inclusive.
    Integers {
        min: i128,
        max: i128,
    },
    Doubles {
        min: f64,
        max: f64,
    },
    Booleans,
    Text(usize),
    Bytes(usize),
}

impl Column {
    fn try_new(field: &Arc<Field>, kind: &FieldKind, seed: u64) -> Result<Self> {
        let name = field.name();
        let unfit = || Error::Schema(format!("column {name}: {} can't be generated", type_name(field)));
        let values = match kind {
            FieldKind::Sequence { start, end } => {
                use DataType::*;
                let counts = matches!(
                    field.data_type(),
                    Int8 | Int16 | Int32 | Int64 | Float32 | Float64 | Decimal128(..) | Utf8 | Date32 | Timestamp(..)
                );
                if !counts {
                    return Err(Error::option(
                        format!("fields.{name}.kind"),
                        format!("{} has no sequence", type_name(field)),
                    ));
                }
                if end.is_some_and(|end| end < *start) {
                    return Err(Error::option(format!("fields.{name}.end"), "it lies before the start"));
                }
                Values::Sequence(*start)
            }
            FieldKind::Random { min, max, length } => {
                let bound = |text: &Option<String>, part: &str, default| match text {
                    None => Ok(default),
                    Some(text) => integer(field, text, &format!("fields.{name}.{part}")),
                };
                let length = length.unwrap_or(16);
                if length > MAX_LENGTH {
                    return Err(Error::option(format!("fields.{name}.length"), format!("it is {MAX_LENGTH} at most")));
                }
                match field.data_type() {
                    DataType::Boolean => Values::Booleans,
                    DataType::Utf8 => Values::Text(length),
                    DataType::Binary => Values::Bytes(length),
                    DataType::Float32 | DataType::Float64 => {
                        let bound = |text: &Option<String>, part: &str, default: f64| match text {
                            None => Ok(default),
                            Some(text) => text.parse().ok().filter(|value: &f64| value.is_finite()).ok_or_else(|| {
                                Error::option(format!("fields.{name}.{part}"), format!("'{text}' is not a number"))
                            }),
                        };
                        Values::Doubles { min: bound(min, "min", 0.0)?, max: bound(max, "max", 1000.0)? }
                    }
                    _ => {
                        let (least, most) = range(field.data_type()).ok_or_else(unfit)?;
                        let (min, max) = (bound(min, "min", least)?, bound(max, "max", most)?);
                        if min > max {
                            return Err(Error::option(format!("fields.{name}.max"), "it lies below the minimum"));
                        }
                        Values::Integers { min, max }
                    }
                }
            }
        };
        Ok(Self { field: Arc::clone(field), seed: xxh3_64_with_seed(name.as_bytes(), seed), values })
    }

    /// What one value takes, about.
    fn value_bytes(&self) -> usize {
        match self.values {
            Values::Text(length) | Values::Bytes(length) => length + 4,
            _ => 16,
        }
    }

    fn make(&self, first: u64, num_rows: usize) -> Result<ArrayRef, arrow::error::ArrowError> {
        let data_type = self.field.data_type();
        let rows = first..first + num_rows as u64;
        let random = |row: u64| splitmix(self.seed.wrapping_add(row.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let array: ArrayRef = match &self.values {
            Values::Sequence(start) => {
                // Dates go by days, times by seconds. A sequence that leaves its type is an error, here and in the cast.
                let step = match data_type {
                    DataType::Timestamp(unit, _) => ticks_per_second(*unit),
                    _ => 1,
                };
                let value = |row: u64| start.checked_add(i64::try_from(row).ok()?)?.checked_mul(step);
                let left = || ArrowError::ComputeError(format!("the sequence leaves {}", type_name(&self.field)));
                let values = rows.map(|row| value(row).ok_or_else(left)).collect::<Result<Vec<_>, _>>()?;
                let values: ArrayRef = Arc::new(Int64Array::from(values));
                match data_type {
                    DataType::Date32 => cast_with_options(&values, &DataType::Int32, &STRICT)?,
                    _ => values,
                }
            }
            Values::Integers { min, max } => {
                let span = (max - min) as u128 + 1;
                let value = |row: u64| min + ((u128::from(random(row)) * span) >> 64) as i128;
                match data_type {
                    DataType::Decimal128(precision, scale) => {
                        let values = Decimal128Array::from_iter_values(rows.map(value));
                        Arc::new(values.with_precision_and_scale(*precision, *scale)?)
                    }
                    DataType::Date32 | DataType::Time32(_) => {
                        Arc::new(Int32Array::from_iter_values(rows.map(|row| value(row) as i32)))
                    }
                    _ => Arc::new(Int64Array::from_iter_values(rows.map(|row| value(row) as i64))),
                }
            }
            Values::Doubles { min, max } => {
                // Two digits behind the point read well and are still doubles.
                let value = |row: u64| {
                    let unit = (random(row) >> 11) as f64 / (1u64 << 53) as f64;
                    ((min + (max - min) * unit) * 100.0).round() / 100.0
                };
                match data_type {
                    DataType::Float32 => {
                        Arc::new(Float32Array::from_iter_values(rows.map(|row| value(row).clamp(*min, *max) as f32)))
                    }
                    _ => Arc::new(Float64Array::from_iter_values(rows.map(|row| value(row).clamp(*min, *max)))),
                }
            }
            Values::Booleans => Arc::new(BooleanArray::from_iter(rows.map(|row| Some(random(row) >> 63 == 1)))),
            Values::Text(length) => Arc::new(StringArray::from_iter_values(rows.map(|row| {
                const DIGITS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
                (0..*length)
                    .map(|i| DIGITS[(splitmix(random(row) ^ (i as u64 / 12)) >> (5 * (i % 12)) & 31) as usize] as char)
                    .collect::<String>()
            }))),
            Values::Bytes(length) => Arc::new(BinaryArray::from_iter_values(
                rows.map(|row| (0..*length).map(|i| splitmix(random(row) ^ i as u64) as u8).collect::<Vec<_>>()),
            )),
        };
        if array.data_type() == data_type {
            return Ok(array);
        }
        cast_with_options(&array, data_type, &STRICT)
    }
}

/// One step of SplitMix64 (Steele, Lea, Flood 2014): every bit of the input moves every bit of the output.
fn splitmix(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The values that a random column has without bounds, in the type's own unit.
fn range(data_type: &DataType) -> Option<(i128, i128)> {
    let seconds = |unit: &TimeUnit| i128::from(ticks_per_second(*unit));
    Some(match data_type {
        DataType::Int8 => (i8::MIN.into(), i8::MAX.into()),
        DataType::Int16 => (i16::MIN.into(), i16::MAX.into()),
        DataType::Int32 => (i32::MIN.into(), i32::MAX.into()),
        DataType::Int64 => (i64::MIN.into(), i64::MAX.into()),
        DataType::Decimal128(precision, _) => {
            let most = 10i128.pow(u32::from(*precision).min(18)) - 1;
            (-most, most)
        }
        DataType::Date32 => (i128::from(RANDOM_TIMES.0 / 86_400), i128::from(RANDOM_TIMES.1 / 86_400) - 1),
        DataType::Time32(unit) | DataType::Time64(unit) => (0, 86_400 * seconds(unit) - 1),
        DataType::Timestamp(unit, _) => {
            (i128::from(RANDOM_TIMES.0) * seconds(unit), i128::from(RANDOM_TIMES.1) * seconds(unit) - 1)
        }
        _ => return None,
    })
}

/// A bound, written as a value of the column, in the type's own unit.
fn integer(field: &Field, text: &str, key: &str) -> Result<i128> {
    let mut column = ColumnBuilder::try_new(field, ValueOptions::default(), 1)?;
    column.push(text).map_err(|fault| Error::option(key, fault.describe(text.as_bytes(), field)))?;
    let array = column.finish();
    let unit = match field.data_type() {
        DataType::Decimal128(..) => return Ok(array.as_primitive::<Decimal128Type>().value(0)),
        DataType::Date32 | DataType::Time32(_) => {
            cast(&array, &DataType::Int32).and_then(|array| cast(&array, &DataType::Int64))
        }
        _ => cast(&array, &DataType::Int64),
    };
    let unit = unit.map_err(|e| Error::option(key, e.to_string()))?;
    Ok(unit.as_primitive::<Int64Type>().value(0).into())
}
