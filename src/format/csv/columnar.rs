//! Decodes regular records column by column, straight from the index.
//!
//! The text goes by in windows that stay in the processor's cache: a window is indexed, and then each column takes
//! its fields out of all the whole records there. A record that isn't regular, or has another number of fields than
//! the plan, is left to the reference.

use super::chunk::Chunk;
use super::index::{Found, Index, Irregular, Kernel, Positions, Visitor};
use super::plan::{CsvColumn, CsvPlan};
use crate::schema::ColumnBuilder;

/// Text that is indexed at once: with its index and what it becomes it fits the second cache, and most of the time
/// the first. A quarter of it and four times as much are slower by a few per cent, a whole chunk by a quarter.
const WINDOW_BYTES: usize = 32 << 10;

/// The fewest records that are decoded at once.
const LEAST_RUN_ROWS: usize = 4;

/// Of what was indexed in vain, the reference takes such a part before the index is tried again: so a text whose quotes
/// lead astray again and again is indexed so many times at most, and after a single stray quote columns soon go on.
const VAIN_PART: usize = 16;

/// Longer chunks are left to the reference: positions have 32 bits, with room for what stands behind the end.
const MAX_CHUNK_BYTES: usize = 1 << 31;

/// How text is indexed; without influence on what comes out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Indexing {
    pub(super) kernel: Kernel,
    pub(super) window_bytes: usize,
}

impl Indexing {
    /// The fastest here.
    pub(super) fn detect() -> Self {
        Self { kernel: Kernel::detect(), window_bytes: WINDOW_BYTES }
    }
}

/// Decodes runs of regular records of one chunk.
#[derive(Debug)]
pub(super) struct Columnar<'a> {
    indexing: Indexing,
    chunk: Chunk<'a>,
    /// Looks at what is behind the window; none before the first run, and once it stopped at a violation.
    index: Option<Index>,
    /// Up to here the text was indexed.
    indexed: usize,
    /// Before this the index isn't begun again.
    retry_at: usize,
    window: Window,
    /// Records that are decoded at once: fewer where values are bad, since a column may go over records in vain behind
    /// one that another column doesn't take.
    run_rows: usize,
    undoubled: Undoubled,
}

impl<'a> Columnar<'a> {
    pub(super) fn new(indexing: Indexing, chunk: Chunk<'a>) -> Self {
        Self {
            indexing,
            chunk,
            index: None,
            indexed: 0,
            retry_at: 0,
            window: Window::default(),
            run_rows: usize::MAX,
            undoubled: Undoubled::default(),
        }
    }

    /// Says whether a chunk of `bytes` can be decoded so at all.
    pub(super) fn can_decode(plan: &CsvPlan, bytes: &[u8]) -> bool {
        let is_there = |column: &CsvColumn| column.index < plan.num_fields;
        plan.num_fields > 0
            && plan.columns.iter().all(is_there)
            && bytes.len() <= MAX_CHUNK_BYTES
            && plan.dialect.is_indexable(bytes)
    }

    /// Decodes the records from `at` on, and adds to `starts` where each starts. Each column holds `num_rows` values
    /// before, and one for each of these records behind them. Returns where the first one starts that isn't regular, or
    /// has a value that its column doesn't take, or before which the index isn't tried again; where the text ends if
    /// there is none.
    pub(super) fn decode(
        &mut self,
        plan: &CsvPlan,
        columns: &mut [ColumnBuilder],
        mut num_rows: usize,
        at: usize,
        starts: &mut Vec<u64>,
    ) -> usize {
        let text_len = self.chunk.text.len();
        if at >= text_len {
            return at;
        }
        // Behind a record that only had another number of fields, or a bad value, the window goes on.
        let goes_on = self.index.is_some() && self.window.skip_to(at as u32);
        if !goes_on {
            if at < self.retry_at {
                return at;
            }
            self.index = Some(Index::new(self.indexing.kernel, &plan.dialect, at));
            self.window.restart(at as u32);
        }
        loop {
            let num_regular = self.window.num_rows(plan, self.run_rows);
            let num_good = if num_regular > 0 { self.rows(plan, columns, num_rows, num_regular) } else { 0 };
            let is_limited = num_regular == self.run_rows;
            self.run_rows = match num_good == num_regular {
                true => self.run_rows.saturating_mul(2),
                false => (2 * num_good).max(LEAST_RUN_ROWS),
            };
            starts.extend(self.window.record_starts()[..num_good].iter().map(|start| u64::from(*start)));
            self.window.pass(num_good, num_good * plan.num_fields);
            num_rows += num_good;
            if is_limited && num_good == num_regular {
                continue;
            }
            let has_other_record = self.window.record_starts().len() > 1;
            if has_other_record || !self.index_more() {
                let end = text_len.min(self.window.start() as usize);
                // Without another record there the index begins again behind this one.
                self.retry_at = end + self.indexed.saturating_sub(end) / VAIN_PART;
                return end;
            }
        }
    }

    /// Indexes the next window. Says whether there was something to index.
    fn index_more(&mut self) -> bool {
        let text = self.chunk.text;
        let Some(index) = self.index.as_mut().filter(|index| index.at() < text.len()) else { return false };
        self.window.forget_passed();
        let outcome = index.advance(text.as_bytes(), self.indexing.window_bytes, &mut self.window);
        self.window.has_quotes = index.has_quotes();
        self.indexed = index.at();
        if outcome.is_err() {
            self.index = None;
        } else if index.at() == text.len() && self.chunk.is_text() && !index.is_inside() && !text.ends_with('\n') {
            // The last record needs no line end; its last field ends as if there were one.
            self.window.field_starts.push(text.len() as u32 + 1);
            self.window.record_starts.push(text.len() as u32 + 1);
        }
        true
    }

    /// Gives each column its fields of the next `num_regular` records, up to the first one with a bad value. Returns how
    /// many are good.
    fn rows(&mut self, plan: &CsvPlan, columns: &mut [ColumnBuilder], num_rows: usize, num_regular: usize) -> usize {
        let num_fields = plan.num_fields;
        let null_literal = plan.options.null_literal.as_deref();
        let is_plain = !self.window.has_quotes && null_literal.is_none();
        let field_starts = &self.window.field_starts()[..=num_regular * num_fields];
        let (text, field_starts) = self.undoubled.of(self.chunk.text, field_starts, &self.window.doubled);
        let mut num_good = num_regular;
        for (builder, column) in columns.iter_mut().zip(plan.columns.iter()) {
            // Behind a bad value only an earlier one counts.
            let starts = &field_starts[column.index..=num_good * num_fields];
            let fields = Fields { text, starts, num_fields, is_last: column.index + 1 == num_fields };
            let is_text = builder.is_text();
            let outcome = if is_plain {
                builder.extend(PlainValues { fields, is_text })
            } else {
                builder.extend(Values { fields, is_text, quote: plan.dialect.quote, null_literal })
            };
            if outcome.is_err() {
                num_good = builder.num_rows() - num_rows;
                if num_good == 0 {
                    break;
                }
            }
        }
        if num_good < num_regular {
            columns.iter_mut().for_each(|column| column.truncate(num_rows + num_good));
        }
        num_good
    }
}

/// The index of some records, and of the beginning of one more.
#[derive(Debug, Default)]
struct Window {
    /// Where fields start. What ends a field stands one before the start of the next.
    field_starts: Positions,
    /// Those of them where records start.
    record_starts: Vec<u32>,
    /// The second quote of each doubled one.
    doubled: Vec<u32>,
    /// Whether there may be quotes.
    has_quotes: bool,
    /// How many fields and records of these lists are done with.
    passed_fields: usize,
    passed_records: usize,
}

impl Window {
    /// Begins at a record's start.
    fn restart(&mut self, start: u32) {
        self.field_starts.restart(start);
        self.record_starts.clear();
        self.record_starts.push(start);
        self.doubled.clear();
        (self.passed_fields, self.passed_records) = (0, 0);
    }

    /// The starts of fields that aren't done with, and at last of one whose end isn't known.
    fn field_starts(&self) -> &[u32] {
        &self.field_starts.as_slice()[self.passed_fields..]
    }

    /// The starts of records that aren't done with, and at last of one whose end isn't known.
    fn record_starts(&self) -> &[u32] {
        &self.record_starts[self.passed_records..]
    }

    /// Where the first record starts that isn't done with.
    fn start(&self) -> u32 {
        self.record_starts[self.passed_records]
    }

    /// How many whole records stand at the beginning that have the right number of fields, of the first `max`.
    fn num_rows(&self, plan: &CsvPlan, max: usize) -> usize {
        // Only quotes make a record too long.
        let max_len = if self.has_quotes { plan.dialect.max_record_bytes } else { usize::MAX };
        let nexts = self.field_starts().iter().skip(plan.num_fields).step_by(plan.num_fields);
        let records = self.record_starts().windows(2).zip(nexts);
        let is_row =
            |(record, next): &(&[u32], &u32)| record[1] == **next && (record[1] - record[0]) as usize <= max_len;
        records.take(max).take_while(is_row).count()
    }

    /// Is done with so many records and fields.
    fn pass(&mut self, num_records: usize, num_fields: usize) {
        self.passed_records += num_records;
        self.passed_fields += num_fields;
    }

    /// Is done with what stands before the record that starts at `start`. Says whether there is one.
    fn skip_to(&mut self, start: u32) -> bool {
        let found = (self.record_starts().binary_search(&start), self.field_starts().binary_search(&start));
        let (Ok(num_records), Ok(num_fields)) = found else { return false };
        self.pass(num_records, num_fields);
        true
    }

    /// Makes room.
    fn forget_passed(&mut self) {
        let start = self.start();
        self.field_starts.drop_first(self.passed_fields);
        self.record_starts.drain(..self.passed_records);
        self.doubled.drain(..self.doubled.partition_point(|second| *second < start));
        (self.passed_fields, self.passed_records) = (0, 0);
    }
}

impl Visitor for Window {
    #[inline(always)]
    fn visit(&mut self, found: Found) -> Result<(), Irregular> {
        let base = found.base as u32;
        self.field_starts.push_bits(base + 1, found.structural);
        push_bits(&mut self.record_starts, base + 1, found.record_ends);
        push_bits(&mut self.doubled, base, found.doubled);
        Ok(())
    }
}

/// Adds `base + i` for each bit i that is set. There are few.
#[inline(always)]
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
        let place = |bound| doubled.partition_point(|second| second < bound);
        let doubled = &doubled[place(first)..place(last)];
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::CsvOptions;
    use super::*;
    use crate::schema::parse_schema;

    /// Bytes that are indexed if nothing but the index takes records, and every line behind one is tried.
    fn num_indexed(text: &str) -> usize {
        let schema = parse_schema("a STRING, b STRING").unwrap();
        let column = |(index, field): (usize, &_)| CsvColumn { index, field: Arc::clone(field) };
        let columns = schema.fields().iter().enumerate().map(column).collect();
        let plan = CsvPlan::new(&CsvOptions::default(), columns, 2);
        let values = crate::schema::ValueOptions::default();
        let mut columns: Vec<_> =
            plan.columns.iter().map(|column| ColumnBuilder::try_new(&column.field, values, 0).unwrap()).collect();
        let indexing = Indexing { window_bytes: 1 << 10, ..Indexing::detect() };
        let mut columnar = Columnar::new(indexing, Chunk::new(text.as_bytes()));
        let (mut at, mut starts, mut num_indexed) = (0, Vec::new(), 0);
        while at < text.len() {
            let retry_at = columnar.retry_at;
            let end = columnar.decode(&plan, &mut columns, starts.len(), at, &mut starts);
            if at >= retry_at {
                num_indexed += columnar.indexed - at;
            }
            at = end + text[end..].find('\n').map_or(text.len() - end, |len| len + 1);
        }
        num_indexed
    }

    /// Each line opened a quote for the index, which went to the end of the text each time.
    #[test]
    fn text_is_indexed_in_vain_a_few_times() {
        let text = "x\",\"\n".repeat(20_000);
        assert!(num_indexed(&text) <= 4 * VAIN_PART * text.len(), "{} of {} bytes", num_indexed(&text), text.len());
    }
}
