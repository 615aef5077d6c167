//! What the demo heard of its stream: some rows to show, and whether every bid came once, history first.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::Int32Type;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use segue::error::Error;

use super::{Phase, millis};

/// Rows that are shown at the begin and at the end of each phase.
const SHOWN: u64 = 3;

/// The stream, as far as it was heard.
pub(super) struct Story {
    history_rows: u64,
    rows: u64,
    /// Rows heard of history, and of what is live.
    heard: [u64; 2],
    lines: [Vec<Line>; 2],
    /// Whether each id was there, and the last id of each split.
    seen: Vec<bool>,
    last_of_split: BTreeMap<String, i64>,
    fault: Option<String>,
    began: Instant,
    /// When the last row of history came, the first live one, and the end.
    last_bounded: Option<Instant>,
    first_unbounded: Option<Instant>,
    ended: Option<Instant>,
}

/// A row to show, and its place in its phase.
struct Line {
    index: u64,
    cells: Vec<String>,
}

impl Story {
    pub(super) fn new(history_rows: u64, rows: u64) -> Self {
        Self {
            history_rows,
            rows,
            heard: [0; 2],
            lines: [Vec::new(), Vec::new()],
            seen: vec![false; rows as usize],
            last_of_split: BTreeMap::new(),
            fault: None,
            began: Instant::now(),
            last_bounded: None,
            first_unbounded: None,
            ended: None,
        }
    }

    /// Hears a batch: `id, bid_price, order_time, _phase, _split, _position`.
    pub(super) fn hear(&mut self, phase: Phase, batch: &RecordBatch, now: Instant) -> Result<(), Error> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let is_live = phase == Phase::Unbounded;
        if is_live {
            self.first_unbounded.get_or_insert(now);
        } else {
            self.last_bounded = Some(now);
        }
        let ids = batch.column(0).as_primitive::<Int32Type>();
        let splits = batch.column(4).as_string::<i32>();
        for row in 0..batch.num_rows() {
            self.check(i64::from(ids.value(row)), splits.value(row), is_live);
        }
        let phase_rows = if is_live { self.rows - self.history_rows } else { self.history_rows };
        let first = self.heard[usize::from(is_live)];
        for row in 0..batch.num_rows() {
            let index = first + row as u64;
            if index < SHOWN || index + SHOWN >= phase_rows {
                self.lines[usize::from(is_live)].push(Line { index, cells: cells(batch, row)? });
            }
        }
        self.heard[usize::from(is_live)] += batch.num_rows() as u64;
        Ok(())
    }

    pub(super) fn end(&mut self, now: Instant) {
        self.ended = Some(now);
        let missing = self.seen.iter().position(|seen| !seen);
        if let Some(missing) = missing {
            self.blame(|| format!("id {} is missing", missing + 1));
        }
    }

    /// Checks that an id is new, of its phase, and behind the one before it in its split.
    fn check(&mut self, id: i64, split: &str, is_live: bool) {
        match usize::try_from(id - 1).ok().and_then(|index| self.seen.get_mut(index)) {
            None => return self.blame(|| format!("id {id} was never written")),
            Some(seen) if *seen => return self.blame(|| format!("id {id} came twice")),
            Some(seen) => *seen = true,
        }
        if is_live != (id as u64 > self.history_rows) || (!is_live && self.heard[1] > 0) {
            self.blame(|| format!("id {id} came in the wrong phase"));
        }
        match self.last_of_split.get_mut(split) {
            Some(last) if *last >= id => {
                let last = *last;
                self.blame(|| format!("id {id} came after {last} in {split}"));
            }
            Some(last) => *last = id,
            None => {
                self.last_of_split.insert(split.to_owned(), id);
            }
        }
    }

    fn blame(&mut self, fault: impl FnOnce() -> String) {
        self.fault.get_or_insert_with(fault);
    }

    pub(super) fn is_right(&self) -> bool {
        self.fault.is_none()
    }

    /// The rows, the seam, and the summary.
    pub(super) fn told(&self) -> String {
        let header = ["id", "bid_price", "order_time", "_phase", "_split", "_position"].map(str::to_owned).to_vec();
        let shown = || self.lines.iter().flatten().map(|line| &line.cells);
        let width = |column: usize| shown().chain([&header]).map(|cells| cells[column].len()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..header.len()).map(width).collect();
        let mut text = String::from("\n");
        put_row(&mut text, &header, &widths);
        self.put_phase(&mut text, 0, &widths);
        let total: usize = widths.iter().map(|width| width + 2).sum();
        let seam = "── the seam: files end, the topic goes on ";
        let _ = writeln!(text, "  {seam}{}", "─".repeat(total.saturating_sub(seam.chars().count() + 2)));
        self.put_phase(&mut text, 1, &widths);
        self.put_summary(&mut text);
        text
    }

    fn put_phase(&self, text: &mut String, phase: usize, widths: &[usize]) {
        let mut next = 0;
        for line in &self.lines[phase] {
            if line.index > next {
                let _ = writeln!(text, "  … {} more", line.index - next);
            }
            put_row(text, &line.cells, widths);
            next = line.index + 1;
        }
    }

    fn put_summary(&self, text: &mut String) {
        let [bounded, unbounded] = self.heard;
        let elapsed = self.ended.map_or(Duration::ZERO, |ended| ended - self.began);
        let rate = (bounded + unbounded) as f64 / elapsed.as_secs_f64().max(1e-6);
        let _ = writeln!(text, "\nrows      {bounded} bounded + {unbounded} unbounded = {}", bounded + unbounded);
        let _ = writeln!(text, "speed     {:.0} rows/s, {} for all of them", rate, millis(elapsed));
        if let (Some(last), Some(first)) = (self.last_bounded, self.first_unbounded) {
            let _ = writeln!(
                text,
                "switch    {} from the last row of the files to the first of the topic",
                millis(first - last)
            );
        }
        let _ = match &self.fault {
            None => writeln!(text, "check     ids 1 to {} came once each, history first: ok", self.rows),
            Some(fault) => writeln!(text, "check     FAILED: {fault}"),
        };
    }
}

fn cells(batch: &RecordBatch, row: usize) -> Result<Vec<String>, Error> {
    let options = FormatOptions::default().with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.3f"));
    let cell =
        |column: &ArrayRef| ArrayFormatter::try_new(column, &options).map(|formatter| formatter.value(row).to_string());
    let cells = batch.columns().iter().map(cell).collect::<Result<Vec<_>, _>>();
    cells.map_err(|e| Error::Other { context: "showing a row".into(), source: e.into() })
}

/// Numbers to the right, words to the left.
fn put_row(text: &mut String, cells: &[String], widths: &[usize]) {
    let mut line = String::new();
    for (index, (cell, width)) in cells.iter().zip(widths).enumerate() {
        let _ = match index {
            0 | 1 | 5 => write!(line, "  {cell:>width$}"),
            _ => write!(line, "  {cell:width$}"),
        };
    }
    let _ = writeln!(text, "{}", line.trim_end());
}
