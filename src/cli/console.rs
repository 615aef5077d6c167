//! Stderr: notes, log lines, and the progress bar, which must not get into each other's way.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use segue::progress::{FetchQueue, Progress, ProgressUnit, Snapshot, SourceSnapshot};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::registry::LookupSpan;

use super::args::TalkArgs;

/// How often the bar moves: often enough to look alive, seldom enough to cost nothing.
const BAR_INTERVAL: Duration = Duration::from_millis(200);

/// How often a line says how far the job is, where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// What is told, and where. Cloning shares it.
#[derive(Clone, Debug)]
pub(crate) struct Console {
    quiet: bool,
    bar: Arc<Mutex<Option<ProgressBar>>>,
}

impl Console {
    /// Makes the console, and lets everything that is logged go through it.
    pub(crate) fn start(talk: &TalkArgs) -> Self {
        let console = Self { quiet: talk.quiet, bar: Arc::default() };
        let filter = match (talk.quiet, talk.verbose) {
            (true, _) => "error",
            (_, true) => "warn,segue=debug",
            _ => "warn,segue=info",
        };
        tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new(filter))
            .with_ansi(false)
            .event_format(Plain)
            .with_writer(console.clone())
            .init();
        console
    }

    /// The same console for a command that says on stdout what would be a note.
    pub(crate) fn silent(&self) -> Self {
        Self { quiet: true, bar: Arc::clone(&self.bar) }
    }

    /// Tells something, unless nothing but errors is to be told.
    pub(crate) fn note(&self, text: impl fmt::Display) {
        if !self.quiet {
            self.line(&format!("{text}\n"));
        }
    }

    /// Writes whole lines, above the bar if there is one.
    fn line(&self, text: &str) {
        let bar = self.bar.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let write = || {
            // There is nobody left to tell that stderr is closed.
            let _ = io::stderr().write_all(text.as_bytes());
        };
        match bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// Shows how far a job is until the returned guard is dropped: a bar on a terminal that the rows don't go to,
    /// else a line now and then.
    pub(crate) fn show(&self, progress: Arc<Progress>, rows_on_terminal: bool) -> Shown {
        if self.quiet {
            return Shown { console: self.clone(), task: None };
        }
        let on_bar = io::stderr().is_terminal() && !rows_on_terminal;
        let console = self.clone();
        let task = if on_bar {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            *self.bar.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.clone());
            tokio::spawn(async move {
                loop {
                    draw(&bar, &progress.snapshot());
                    tokio::time::sleep(BAR_INTERVAL).await;
                }
            })
        } else {
            tokio::spawn(async move {
                loop {
                    tokio::time::sleep(LINE_INTERVAL).await;
                    console.line(&format!("{}\n", described(&progress.snapshot())));
                }
            })
        };
        Shown { console: self.clone(), task: Some(task) }
    }
}

/// Shows progress as long as it lives.
#[derive(Debug)]
pub(crate) struct Shown {
    console: Console,
    task: Option<tokio::task::JoinHandle<()>>,
}

impl Drop for Shown {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
        if let Some(bar) = self.console.bar.lock().unwrap_or_else(PoisonError::into_inner).take() {
            bar.finish_and_clear();
        }
    }
}

fn draw(bar: &ProgressBar, snapshot: &Snapshot) {
    let template = match total(snapshot) {
        Some((done, total, _)) => {
            bar.set_length(total.max(1));
            bar.set_position(done);
            "{percent:>3}% {bar:16} {wide_msg}"
        }
        None => "{spinner} {wide_msg}",
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_message(described(snapshot));
    bar.tick();
}

/// What is done of what there is to do, over all sources if they count the same thing, else of the active one.
fn total(snapshot: &Snapshot) -> Option<(u64, u64, ProgressUnit)> {
    let active = snapshot.sources.get(snapshot.active)?;
    let alike: Vec<&SourceSnapshot> = match active.unit {
        ProgressUnit::Bytes => snapshot.sources.iter().filter(|source| source.unit == ProgressUnit::Bytes).collect(),
        ProgressUnit::Positions => vec![active],
    };
    let total = alike.iter().map(|source| source.total).sum::<Option<u64>>()?;
    Some((alike.iter().map(|source| source.done).sum(), total, active.unit))
}

/// `1234567 rows, 12.3 MB of 45.6 MB, 01:02 left, 617283 rows/s, part-3.csv`, and `1234567 rows, 5 rows/s, lag 23
/// (bids/0 20), fetch queue 17 (1.2 kB)` where there is no end: what matters first, since a narrow terminal cuts the
/// end.
fn described(snapshot: &Snapshot) -> String {
    let mut parts = vec![counted(snapshot.rows(), "row")];
    match total(snapshot) {
        Some((done, total, ProgressUnit::Bytes)) => parts.push(format!("{} of {}", bytes(done), bytes(total))),
        Some((done, total, ProgressUnit::Positions)) => parts.push(format!("{done} of {total}")),
        None => {}
    }
    if let Some(eta) = snapshot.eta {
        parts.push(format!("{} left", clock(eta)));
    }
    parts.push(format!("{} rows/s", snapshot.rows_per_second.round() as u64));
    if snapshot.rejected() > 0 {
        parts.push(format!("{} bad", snapshot.rejected()));
    }
    let active = snapshot.sources.get(snapshot.active);
    match snapshot.lag {
        // Which partition the last row was of says nothing.
        Some(lag) => parts.push(format!("lag {lag}{}", active.map(furthest_behind).unwrap_or_default())),
        None => parts.extend(snapshot.split.as_ref().map(ToString::to_string)),
    }
    if let Some(FetchQueue { messages, bytes: size }) = active.and_then(|source| source.fetch_queue) {
        parts.push(format!("fetch queue {messages} ({})", bytes(size)));
    }
    parts.join(", ")
}

/// ` (bids/0 20)`: of several partitions the one that is furthest behind.
fn furthest_behind(source: &SourceSnapshot) -> String {
    let worst = source.furthest_behind().filter(|_| source.partitions.len() > 1);
    let told = worst.and_then(|worst| Some(format!(" ({} {})", worst.split, worst.lag?)));
    told.unwrap_or_default()
}

/// A size for people: `1.5 MB`, of 1024, as option values count.
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let (mut value, mut unit) = (bytes as f64 / 1024.0, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// `1 file`, `2 files`.
pub(crate) fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// `1:02:03`, or `02:03` under an hour.
fn clock(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes:02}:{seconds:02}") }
}

/// One line an event, without time and place: `warning: …`.
struct Plain;

impl<S, N> FormatEvent<S, N> for Plain
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let level = *event.metadata().level();
        if level == Level::ERROR {
            writer.write_str("error: ")?;
        } else if level == Level::WARN {
            writer.write_str("warning: ")?;
        } else if level != Level::INFO {
            writer.write_str("debug: ")?;
        }
        context.field_format().format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

/// Collects what one event writes, and writes it at once.
pub(crate) struct Lines {
    console: Console,
    text: Vec<u8>,
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.console.line(&String::from_utf8_lossy(&self.text));
    }
}

impl<'a> MakeWriter<'a> for Console {
    type Writer = Lines;

    fn make_writer(&'a self) -> Lines {
        Lines { console: self.clone(), text: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_short() {
        for (size, text) in [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 kB"), (5 << 30, "5.0 GB")] {
            assert_eq!(bytes(size), text);
        }
        assert_eq!(clock(Duration::from_secs(62)), "01:02");
        assert_eq!(clock(Duration::from_secs(3723)), "1:02:03");
    }
}
