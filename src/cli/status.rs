//! `segue status`: a checkpoint for people, and for programs.

use std::fmt::Write;
use std::path::Path;

use chrono::{DateTime, Utc};
use segue::checkpoint::{Checkpoint, FileCheckpointStore, SourceState, SplitState, Splits};
use segue::error::Error;
use serde_json::Value;

use super::args::StatusArgs;
use super::commands::print;
use super::console::{bytes, counted};
use super::fault::{Failure, Fault};

/// Shows a checkpoint.
pub(crate) fn status(args: &StatusArgs) -> Result<u8, Failure> {
    let sink = args.checkpoint.split_once(':').map(|(format, _)| format);
    if let Some(format @ ("parquet" | "delta" | "csv" | "json" | "arrow" | "kafka")) = sink {
        return Err(Fault::later(format!("status {}: the status of a {format} sink", args.checkpoint)).into());
    }
    let path = Path::new(&args.checkpoint);
    if path.is_dir() {
        return Err(Fault::later(format!("status {}: the status of a sink's folder", args.checkpoint)).into());
    }
    let checkpoint = FileCheckpointStore::read(path)?
        .ok_or_else(|| Error::NotFound { what: format!("{}: there is no checkpoint", args.checkpoint) })?;
    let age_ms = DateTime::parse_from_rfc3339(&checkpoint.written)
        .ok()
        .map(|written| (Utc::now() - written.to_utc()).num_milliseconds().max(0));
    let text = if args.json { status_json(&checkpoint, age_ms)? } else { status_text(&checkpoint, age_ms) };
    print(&text)?;
    Ok(0)
}

fn status_json(checkpoint: &Checkpoint, age_ms: Option<i64>) -> Result<String, Failure> {
    let json = checkpoint.to_json()?;
    let mut document: Value = serde_json::from_str(&json)
        .map_err(|e| Error::Checkpoint { path: String::new(), reason: format!("it can't be shown: {e}") })?;
    document["age_ms"] = age_ms.into();
    document["lag"] = lag(&checkpoint.sources).into();
    Ok(format!("{document:#}\n"))
}

/// Messages between position and end of every partition whose end is known; `None` without any.
fn lag<'a>(sources: impl IntoIterator<Item = &'a SourceState>) -> Option<u64> {
    let partitions = sources.into_iter().flat_map(|source| match &source.splits {
        Splits::SideBySide(splits) => splits.values().collect::<Vec<_>>(),
        Splits::OneByOne { .. } => Vec::new(),
    });
    partitions.filter_map(SplitState::lag).fold(None, |sum, lag| Some(sum.unwrap_or(0) + lag))
}

fn status_text(checkpoint: &Checkpoint, age_ms: Option<i64>) -> String {
    let mut text = format!("job {}, commit {}", checkpoint.job, checkpoint.epoch);
    if let Some(age_ms) = age_ms {
        let _ = write!(text, ", written {} ({} s ago)", checkpoint.written, age_ms / 1000);
    }
    let _ = writeln!(text, "\nschema: {}", checkpoint.schema);
    for source in &checkpoint.sources {
        let _ = write!(text, "source {} ({}", source.name, source.connector);
        for key in ["path", "topic", "topic-pattern", "format"] {
            if let Some(value) = source.options.get(key) {
                let _ = write!(text, ", {value}");
            }
        }
        let _ = writeln!(
            text,
            "): {}, {} rejected{}",
            counted(source.rows, "row"),
            source.rejected,
            if source.is_done() { "; done" } else { "" }
        );
        // Positions count bytes of the text that a charset is decoded into.
        let unit = source.options.get("csv.charset").map_or("", |_| " (as UTF-8)");
        text.push_str(&splits_text(&source.splits, unit));
    }
    if let Some(lag) = lag(&checkpoint.sources) {
        let _ = writeln!(text, "lag: {lag}, as of then");
    }
    text
}

fn splits_text(splits: &Splits, unit: &str) -> String {
    let mut text = String::new();
    match splits {
        Splits::OneByOne { list, done, current } => {
            let _ = writeln!(text, "  {done} of {} done", counted(list.len() as u64, "file"));
            if let Some(split) = current {
                let size = split.identity.size.map(|size| format!(", a file of {}", bytes(size))).unwrap_or_default();
                let _ = writeln!(text, "  {}: next position {}{unit}{size}", split.id, split.position);
            }
        }
        Splits::SideBySide(splits) => {
            for split in splits.values() {
                let stop = split.stop.map(|stop| format!(" of {stop}")).unwrap_or_default();
                let _ = write!(text, "  {}: next position {}{stop}", split.id, split.position);
                if let (Some(end), Some(lag)) = (split.end(), split.lag()) {
                    let _ = write!(text, ", end {end}, lag {lag}");
                }
                if split.lost() > 0 {
                    let _ = write!(text, ", {} lost", split.lost());
                }
                text.push_str(if split.done { ", done\n" } else { "\n" });
            }
        }
    }
    text
}
