//! Decodes regular records column by column, straight from the index.
//!
//! The text goes by in windows that stay in the processor's cache: a window is indexed, and then each column takes
//! its fields out of all the whole records there. A record that isn't regular, or has another number of fields than
//! the plan, is left to the reference.

use super::chunk::Chunk;
use super::index::{Found, Index, Irregular, Kernel, Positions, Visitor};
use super::plan::{CsvColumn, CsvPlan};
use crate::schema::ColumnBuilder;

/// Text that is indexed at once.
const WINDOW_BYTES: usize = 32 << 10;

/// Longer chunks are left to the reference: positions have 32 bits, with room for what stands behind the end.
const MAX_CHUNK_BYTES: usize = 1 << 31;

/// Decodes runs of regular records; keeps its buffers.
#[derive(Debug)]
pub(super) struct Columnar {
    kernel: Kernel,
    window_bytes: usize,
    window: Window,
    undoubled: Undoubled,
}

/// Among the records from `start` on is a bad value. The columns have different lengths now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadValue {
    pub(super) start: usize,
}

impl Columnar {
    pub(super) fn new() -> Self {
        Self::with(Kernel::detect(), WINDOW_BYTES)
    }

    pub(super) fn with(kernel: Kernel, window_bytes: usize) -> Self {
        Self { kernel, window_bytes, window: Window::default(), undoubled: Undoubled::default() }
    }

    /// Says whether a chunk of `bytes` can be given to [`Self::decode`] at all.
    pub(super) fn can_decode(plan: &CsvPlan, bytes: &[u8]) -> bool {
        let is_there = |column: &CsvColumn| column.index < plan.num_fields;
        plan.num_fields > 0
            && plan.columns.iter().all(is_there)
            && bytes.len() <= MAX_CHUNK_BYTES
            && plan.dialect.is_indexable(bytes)
    }

    /// Decodes the records from `at` on, and adds to `starts` where each starts. Returns where the first one starts
    /// that isn't regular; where the text ends if there is none.
    ///
    /// # Errors
    /// [`BadValue`] if a column didn't take a value.
    pub(super) fn decode(
        &mut self,
        plan: &CsvPlan,
        columns: &mut [ColumnBuilder],
        chunk: &Chunk<'_>,
        at: usize,
        starts: &mut Vec<u64>,
    ) -> Result<usize, BadValue> {
        let text = chunk.text;
        if at >= text.len() {
            return Ok(at);
        }
        let mut index = Index::new(self.kernel, &plan.dialect, at);
        self.window.restart(at as u32);
        loop {
            let is_regular = index.advance(text.as_bytes(), self.window_bytes, &mut self.window);
            let is_end = index.at() >= text.len();
            if is_regular.is_ok() && is_end && chunk.is_text() && !index.is_inside() && !text.ends_with('\n') {
                // The last record needs no line end; its last field ends as if there were one.
                self.window.field_starts.push(text.len() as u32 + 1);
                self.window.num_record_ends += 1;
            }
            let num_rows = self.num_rows(plan, text, index.has_quotes());
            self.rows(plan, columns, text, num_rows, index.has_quotes())?;
            let num_starts = num_rows * plan.num_fields;
            let field_starts = self.window.field_starts.as_slice();
            starts.extend(field_starts[..num_starts].iter().step_by(plan.num_fields).map(|start| u64::from(*start)));
            let next = field_starts[num_starts];
            let is_stopped = field_starts.len() - num_starts > plan.num_fields;
            if is_regular.is_err() || is_end || is_stopped {
                return Ok(text.len().min(next as usize));
            }
            self.window.drop_rows(num_rows, plan.num_fields);
        }
    }

    /// How many whole records stand at the beginning that have the right number of fields.
    fn num_rows(&self, plan: &CsvPlan, text: &str, has_quotes: bool) -> usize {
        let Window { field_starts, num_record_ends, .. } = &self.window;
        // Behind the text there is only the line end that the last record needs not have.
        let ends_record = |next: &u32| text.as_bytes().get(*next as usize - 1).is_none_or(|byte| *byte == b'\n');
        let records = field_starts.as_slice().windows(plan.num_fields + 1).step_by(plan.num_fields);
        let is_whole = |record: &[u32]| {
            let [start, .., next] = record else { return false };
            // Only quotes make a record too long.
            ends_record(next) && !(has_quotes && (next - start) as usize > plan.dialect.max_record_bytes)
        };
        let num_whole = records.clone().take_while(|record| is_whole(record)).count();
        if num_whole == *num_record_ends && num_whole == records.len() {
            // Each has a line end at its end, so none has one inside.
            return num_whole;
        }
        let has_end_inside = |record: &[u32]| record[1..plan.num_fields].iter().any(ends_record);
        records.take(num_whole).take_while(|record| !has_end_inside(record)).count()
    }

    /// Gives each column its fields of the first `num_rows` records.
    fn rows(
        &mut self,
        plan: &CsvPlan,
        columns: &mut [ColumnBuilder],
        text: &str,
        num_rows: usize,
        has_quotes: bool,
    ) -> Result<(), BadValue> {
        if num_rows == 0 {
            return Ok(());
        }
        let num_fields = plan.num_fields;
        let field_starts = &self.window.field_starts.as_slice()[..=num_rows * num_fields];
        let start = field_starts[0] as usize;
        let null_literal = plan.options.null_literal.as_deref();
        let (text, field_starts) = self.undoubled.of(text, field_starts, &self.window.doubled);
        for (builder, column) in columns.iter_mut().zip(plan.columns.iter()) {
            let starts = &field_starts[column.index..];
            let is_last = column.index + 1 == num_fields;
            let fields = Fields { text, starts, num_fields, is_last };
            let is_text = builder.is_text();
            let outcome = if has_quotes || null_literal.is_some() {
                builder.extend(Values { fields, is_text, quote: plan.dialect.quote, null_literal })
            } else {
                builder.extend(PlainValues { fields, is_text })
            };
            outcome.map_err(|_| BadValue { start })?;
        }
        Ok(())
    }
}

/// The index of the text from the first record on that isn't decoded yet.
#[derive(Debug, Default)]
struct Window {
    /// Where fields start. What ends a field stands one before the start of the next.
    field_starts: Positions,
    /// The second quote of each doubled one.
    doubled: Vec<u32>,
    num_record_ends: usize,
}

impl Window {
    fn restart(&mut self, start: u32) {
        self.field_starts.restart(start);
        self.doubled.clear();
        self.num_record_ends = 0;
    }

    fn drop_rows(&mut self, num_rows: usize, num_fields: usize) {
        let next = self.field_starts.as_slice()[num_rows * num_fields];
        self.field_starts.drop_first(num_rows * num_fields);
        self.doubled.drain(..self.doubled.partition_point(|second| *second < next));
        self.num_record_ends -= num_rows;
    }
}

impl Visitor for Window {
    #[inline(always)]
    fn visit(&mut self, found: Found) -> Result<(), Irregular> {
        self.field_starts.push_bits(found.base as u32 + 1, found.structural);
        self.num_record_ends += found.record_ends.count_ones() as usize;
        push_bits(&mut self.doubled, found.base as u32, found.doubled);
        Ok(())
    }
}

/// Adds `base + i` for each bit i that is set. There are few.
fn push_bits(positions: &mut Vec<u32>, base: u32, mut bits: u64) {
    while bits != 0 {
        positions.push(base + bits.trailing_zeros());
        bits &= bits - 1;
    }
}

/// The fields of one column, record by record.
#[derive(Clone, Debug)]
struct Fields<'a> {
    text: &'a str,
    /// Where the next field starts, and behind it the one that follows it in its record or in the next.
    starts: &'a [u32],
    num_fields: usize,
    /// Whether a field ends with its record.
    is_last: bool,
}

impl<'a> Iterator for Fields<'a> {
    type Item = &'a str;

    /// As it stands in the text, without the line end.
    // Called from the loop of every type, where it has to dissolve.
    #[inline(always)]
    fn next(&mut self) -> Option<&'a str> {
        let [start, following, ..] = *self.starts else { return None };
        self.starts = self.starts.get(self.num_fields..).unwrap_or_default();
        let (start, end) = (start as usize, following as usize - 1);
        let field = &self.text[start..end];
        // A CR belongs to the line end only if there is a LF.
        if self.is_last && field.ends_with('\r') && end < self.text.len() {
            return Some(&field[..field.len() - 1]);
        }
        Some(field)
    }
}

/// What fields say when none of them is quoted and no text stands for null.
#[derive(Debug)]
struct PlainValues<'a> {
    fields: Fields<'a>,
    is_text: bool,
}

impl<'a> Iterator for PlainValues<'a> {
    type Item = Option<&'a str>;

    #[inline(always)]
    fn next(&mut self) -> Option<Option<&'a str>> {
        let field = self.fields.next()?;
        Some((self.is_text || !field.is_empty()).then_some(field))
    }
}

/// What fields say.
#[derive(Debug)]
struct Values<'a> {
    fields: Fields<'a>,
    is_text: bool,
    quote: Option<u8>,
    null_literal: Option<&'a str>,
}

impl<'a> Iterator for Values<'a> {
    type Item = Option<&'a str>;

    #[inline(always)]
    fn next(&mut self) -> Option<Option<&'a str>> {
        let field = self.fields.next()?;
        // A field that begins with a quote ends with one: the text is regular.
        let is_quoted = self.quote.is_some() && field.as_bytes().first().copied() == self.quote;
        let value = if is_quoted { &field[1..field.len() - 1] } else { field };
        let is_null = (value.is_empty() && !self.is_text) || (!is_quoted && self.null_literal == Some(value));
        Some((!is_null).then_some(value))
    }
}

/// Text in which doubled quotes are single ones, and where its fields start.
#[derive(Debug, Default)]
struct Undoubled {
    text: String,
    field_starts: Vec<u32>,
}

impl Undoubled {
    /// The records between the first and the last of `field_starts`, with the quotes at `doubled` taken out.
    fn of<'a>(&'a mut self, text: &'a str, field_starts: &'a [u32], doubled: &[u32]) -> (&'a str, &'a [u32]) {
        let [first, .., last] = field_starts else { return (text, field_starts) };
        let doubled = &doubled[..doubled.partition_point(|second| second < last)];
        if doubled.is_empty() {
            return (text, field_starts);
        }
        self.text.clear();
        self.field_starts.clear();
        let (mut copied, mut removed) = (*first, *first);
        let mut doubled = doubled.iter().copied().peekable();
        for start in field_starts {
            while let Some(second) = doubled.next_if(|second| second < start) {
                self.text.push_str(&text[copied as usize..second as usize]);
                copied = second + 1;
                removed += 1;
            }
            self.field_starts.push(start - removed);
        }
        self.text.push_str(&text[copied as usize..text.len().min(*last as usize)]);
        (&self.text, &self.field_starts)
    }
}
