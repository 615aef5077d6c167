//! `segue plan` and `segue status`: what would be read, and how far a job is.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use segue::checkpoint::{Checkpoint, FileCheckpointStore, SourceState, SplitState, Splits};
use segue::error::Error;
use segue::file::FileSource;
use segue::schema::format_schema;
use segue::source::{Boundedness, Source};
use serde_json::{Value, json};

use super::args::{PlanArgs, StatusArgs};
use super::chain::{self, Chain, ChainParts, Described, header_word};
use super::commands::print;
use super::console::{Console, bytes};
use super::fault::{Failure, Fault};

/// Shows what would be read.
pub(crate) async fn plan(args: &PlanArgs, console: &Console) -> Result<u8, Failure> {
    let described = Described::new(&args.input, None, console)?;
    let stored = chain::stored(args.job.checkpoint.as_deref())?;
    let resume_from = stored.as_ref().map(|stored| stored.checkpoint.clone());
    // A plan is for any job: one that is named, or that of the checkpoint.
    let job = args.job.job_id.clone().unwrap_or_default();
    let chain = described.build(ChainParts { job, stored, ..ChainParts::default() }, &console.silent()).await?;
    let state = chain.hybrid.resolve(resume_from).await?;
    if args.json {
        print(&format!("{:#}\n", plan_json(&chain, &state)))?;
    } else {
        print(&plan_text(&chain, &state))?;
    }
    Ok(0)
}

/// What is left of a source, split by split.
fn left(state: &SourceState) -> Vec<SplitState> {
    match &state.splits {
        Splits::OneByOne { list, done, current } => {
            let untouched = usize::from(current.is_some()) + done;
            current.iter().cloned().chain(list.iter().skip(untouched).map(|entry| entry.to_state())).collect()
        }
        Splits::SideBySide(splits) => splits.values().filter(|split| !split.done).cloned().collect(),
    }
}

fn plan_json(chain: &Chain, state: &Checkpoint) -> Value {
    let sources = chain.files.iter().zip(&state.sources).map(|(file, state)| {
        let splits = left(state).into_iter().map(|split| {
            json!({
                "split": split.id.as_str(),
                "start": split.position,
                "stop": split.stop,
                "log_start": null,
                "end": null,
                "size": split.identity.size,
            })
        });
        json!({
            "name": file.name(),
            "connector": file.connector(),
            "format": file.format().as_str(),
            "header": file.header(),
            "bounded": file.boundedness() != Boundedness::Unbounded,
            "splits": splits.collect::<Vec<_>>(),
        })
    });
    json!({
        "schema": format_schema(&chain.hybrid.schema()),
        "sources": sources.collect::<Vec<_>>(),
        "seam": { "gaps": [], "overlaps": [] },
    })
}

fn plan_text(chain: &Chain, state: &Checkpoint) -> String {
    let mut text = format!("schema: {}\n", format_schema(&chain.hybrid.schema()));
    let (mut num_files, mut total_bytes) = (0, 0);
    for (file, state) in chain.files.iter().zip(&state.sources) {
        let splits = left(state);
        let source_bytes: u64 = splits.iter().filter_map(|split| split.identity.size).sum();
        text.push_str(&source_text(file, state, &splits, source_bytes));
        num_files += splits.len();
        total_bytes += source_bytes;
    }
    let _ = writeln!(text, "total: {}, {}", counted(num_files, "file"), bytes(total_bytes));
    text
}

fn source_text(file: &Arc<FileSource>, state: &SourceState, splits: &[SplitState], source_bytes: u64) -> String {
    let mut text = format!("source {}: ", file.name());
    if let Some(path) = state.options.get("path") {
        let _ = write!(text, "{path}: ");
    }
    let _ = write!(text, "{}: ", header_word(file.format(), file.header()));
    let done = match &state.splits {
        Splits::OneByOne { done, .. } if *done > 0 => format!(" ({done} done)"),
        _ => String::new(),
    };
    let _ = writeln!(text, "{}{done}, {}", counted(splits.len(), "file"), bytes(source_bytes));
    let width = splits.iter().map(|split| split.id.as_str().chars().count()).max().unwrap_or(0);
    for split in splits {
        let size = split.identity.size.map(bytes).unwrap_or_default();
        let _ = write!(text, "  {:width$}  {size:>9}", split.id.as_str());
        if split.position > split.start {
            let _ = write!(text, "  from position {}", split.position);
        }
        text.push('\n');
    }
    text
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// Shows a checkpoint.
pub(crate) fn status(args: &StatusArgs) -> Result<u8, Failure> {
    let sink = args.checkpoint.split_once(':').map(|(format, _)| format);
    if let Some(format @ ("parquet" | "delta" | "csv" | "json" | "arrow" | "kafka")) = sink {
        return Err(Fault::later(format!("status {}: the status of a {format} sink", args.checkpoint)).into());
    }
    let path = Path::new(&args.checkpoint);
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
    document["lag"] = lag(checkpoint).into();
    Ok(format!("{document:#}\n"))
}

/// Messages between position and end of every partition whose end is known; `None` without any.
fn lag(checkpoint: &Checkpoint) -> Option<u64> {
    let partitions = checkpoint.sources.iter().flat_map(|source| match &source.splits {
        Splits::SideBySide(splits) => splits.values().collect::<Vec<_>>(),
        Splits::OneByOne { .. } => Vec::new(),
    });
    let lags =
        partitions.filter_map(|split| Some(split.identity.other.get("end")?.as_u64()?.saturating_sub(split.position)));
    lags.fold(None, |sum, lag| Some(sum.unwrap_or(0) + lag))
}

fn status_text(checkpoint: &Checkpoint, age_ms: Option<i64>) -> String {
    let mut text = format!("job {}, commit {}", checkpoint.job, checkpoint.epoch);
    if let Some(age_ms) = age_ms {
        let _ = write!(text, ", written {} ({} s ago)", checkpoint.written, age_ms / 1000);
    }
    let _ = writeln!(text, "\nschema: {}", checkpoint.schema);
    for source in &checkpoint.sources {
        let _ = write!(text, "source {} ({}", source.name, source.connector);
        for key in ["path", "format"] {
            if let Some(value) = source.options.get(key) {
                let _ = write!(text, ", {value}");
            }
        }
        let _ = writeln!(
            text,
            "): {} rows, {} rejected{}",
            source.rows,
            source.rejected,
            if source.is_done() { "; done" } else { "" }
        );
        text.push_str(&splits_text(&source.splits));
    }
    text
}

fn splits_text(splits: &Splits) -> String {
    let mut text = String::new();
    match splits {
        Splits::OneByOne { list, done, current } => {
            let _ = writeln!(text, "  {done} of {} done", counted(list.len(), "file"));
            if let Some(split) = current {
                let size = split.identity.size.map(|size| format!(", a file of {}", bytes(size))).unwrap_or_default();
                let _ = writeln!(text, "  {}: next position {}{size}", split.id, split.position);
            }
        }
        Splits::SideBySide(splits) => {
            for split in splits.values() {
                let stop = split.stop.map(|stop| format!(" of {stop}")).unwrap_or_default();
                let done = if split.done { ", done" } else { "" };
                let _ = writeln!(text, "  {}: next position {}{stop}{done}", split.id, split.position);
            }
        }
    }
    text
}
