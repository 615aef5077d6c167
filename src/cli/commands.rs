//! What each command does with what the command line means.

use std::io::{self, Write};
use std::sync::Arc;

use clap_complete::generate;
use segue::error::Error;
use segue::hybrid::HybridSource;
use segue::options::{
    Assignment, Connector, OPTION_KEYS, OptionKey, SinkOptions, SourceOptions, assign, job_id, options_of,
};
use segue::pipeline::{CommitPolicy, CopyOptions};
use segue::schema::format_schema;

use super::args::{self, CompletionsArgs, CopyArgs, GenArgs, OptionsArgs, OutputFormat, ReadArgs, SchemaArgs};
use super::bad_records::OnError;
use super::chain::{self, ChainParts, Described};
use super::console::Console;
use super::fault::{Failure, Fault};
use super::input;
use super::job::{self, Beside, Rows};
use super::sink::{Printed, SinkTarget};

/// Prints the rows of sources.
pub(crate) async fn read(args: &ReadArgs, console: &Console) -> Result<u8, Failure> {
    let on_error = OnError::parse(&args.run).map_err(Failure::Faults)?;
    let printed = Printed::new(&args.output)?;
    let provenance = chain::provenance(args.run.metadata.as_deref())?;
    let described = Described::new(&args.input, None, console)?;
    on_error.check(&described.sources, None, args.job.checkpoint.as_deref())?;
    let (store, stored) = job::claim(args.job.checkpoint.as_deref()).await?;
    let job = described.job(&args.job, None);
    let parts = ChainParts { job, provenance, stored, ..ChainParts::default() };
    let chain = described.build(parts, console).await?;
    let metrics = job::metrics(&args.run, console).await?;
    let mut sink = printed.open(chain.hybrid.output_schema(), args.run.means.memory)?;
    let options = job::copy_options(&args.run, CommitPolicy::read());
    let beside = Beside { console, rows: printed.rows(), on_error: Some(&on_error), metrics };
    let outcome = job::run(&chain.hybrid, &mut sink, store.as_ref(), options, beside).await?;
    if outcome.summary.stopped || args.output.output == Some(OutputFormat::None) {
        console.note(job::told(&outcome.summary, store.is_some()));
    }
    Ok(outcome.status)
}

/// Copies the rows of sources into files or a topic.
pub(crate) async fn copy(args: &CopyArgs, console: &Console) -> Result<u8, Failure> {
    let on_error = OnError::parse(&args.run).map_err(Failure::Faults)?;
    let target = SinkTarget::parse(&args.to)?;
    let provenance = chain::provenance(args.run.metadata.as_deref())?;
    let described = Described::new(&args.input, Some(&target), console)?;
    target.check_other_than(&described.sources)?;
    on_error.check(&described.sources, Some(&target), args.job.checkpoint.as_deref())?;
    let (store, stored) = job::claim(args.job.checkpoint.as_deref()).await?;
    let is_fresh = stored.is_none();
    if let Some(stored) = &stored {
        target.check_resumed(stored.checkpoint.sources.iter().map(|source| source.rows).sum())?;
    }
    let job = described.job(&args.job, Some(&target));
    let parts = ChainParts { job: job.clone(), provenance, stored, ..ChainParts::default() };
    let chain = described.build(parts, console).await?;
    let metrics = job::metrics(&args.run, console).await?;
    let mut sink = target.open(&described.sink, &job, args.run.means.memory)?;
    if is_fresh {
        target.check_fresh(store.is_some())?;
    }
    let options = job::copy_options(&args.run, CommitPolicy::copy());
    let beside = Beside { console, rows: Rows::Elsewhere, on_error: Some(&on_error), metrics };
    let outcome = job::run(&chain.hybrid, sink.as_mut(), store.as_ref(), options, beside).await?;
    console.note(format_args!("{target}: {}", job::told(&outcome.summary, store.is_some())));
    Ok(outcome.status)
}

/// Prints the schema of sources.
pub(crate) async fn schema(args: &SchemaArgs, console: &Console) -> Result<u8, Failure> {
    let described = Described::new(&args.input, None, console)?;
    let chain = described.build(ChainParts::default(), &console.silent()).await?;
    if chain.hybrid.schema().fields().is_empty() {
        return Err(Error::NoRecords { path: args.input.sources.join(" ") }.into());
    }
    print(&format!("{}\n", format_schema(&chain.hybrid.schema())))?;
    Ok(0)
}

/// Generates rows.
pub(crate) async fn generate_rows(args: &GenArgs, console: &Console) -> Result<u8, Failure> {
    let target = args.to.as_deref().map(SinkTarget::parse).transpose()?;
    let printed = Printed::new(&args.output)?;
    let mut faults = Vec::new();
    let mut assignments = input::assignments(&args.options, None, &mut faults);
    if !faults.is_empty() {
        return Err(Failure::Faults(faults));
    }
    assignments.push(Assignment::new("number-of-rows", &args.rows.to_string()));
    if let Some(size) = &args.roll_size {
        assignments.push(Assignment::new("sink.rolling-policy.file-size", size));
    }
    let mut source = SourceOptions::new(Connector::Datagen, "0");
    let mut sink = SinkOptions::default();
    assign(std::slice::from_mut(&mut source), target.is_some().then_some(&mut sink), &assignments)?;
    if let Some(target) = &target {
        target.check(&sink)?;
    }
    let schema = chain::schema_of(&args.schema)?;
    let built = source.datagen_builder(Arc::clone(&schema)).and_then(|builder| builder.build());
    let datagen = built.map_err(|error| source.hide_secrets(error))?;
    let job = job_id(&source, &target.as_ref().map_or_else(|| "stdout".to_owned(), ToString::to_string));
    let hybrid = HybridSource::builder().source(datagen).schema(schema).job(job.clone()).build()?;
    let read = job::read_options(&args.means, None);
    let Some(target) = target else {
        let mut sink = printed.open(hybrid.output_schema(), args.means.memory)?;
        let options = CopyOptions { read, commit: CommitPolicy::read(), ..CopyOptions::default() };
        let beside = Beside { console, rows: printed.rows(), on_error: None, metrics: None };
        return Ok(job::run(&hybrid, &mut sink, None, options, beside).await?.status);
    };
    let mut opened = target.open(&sink, &job, args.means.memory)?;
    target.check_fresh(false)?;
    // Nothing can be resumed here, so only the size ends a file.
    let commit = CommitPolicy::copy().with_bytes(None);
    let options = CopyOptions { read, commit, ..CopyOptions::default() };
    let beside = Beside { console, rows: Rows::Elsewhere, on_error: None, metrics: None };
    let outcome = job::run(&hybrid, opened.as_mut(), None, options, beside).await?;
    console.note(format_args!("{target}: {}", job::told(&outcome.summary, false)));
    Ok(outcome.status)
}

/// Lists option keys.
pub(crate) fn options(args: &OptionsArgs) -> Result<u8, Failure> {
    let keys: Vec<&OptionKey> = match &args.topic {
        None => OPTION_KEYS.iter().collect(),
        Some(topic) => options_of(topic).map_err(|e| match e {
            Error::InvalidOption { key, reason } => Fault::usage(format!("options {key}: {reason}")),
            e => e.into(),
        })?,
    };
    let mut text = String::new();
    let mut group = None;
    for option in keys {
        if group != Some(option.applies_to) {
            if group.is_some() {
                text.push('\n');
            }
            text.push_str(&format!("Options of {}:\n", option.applies_to.as_str()));
            group = Some(option.applies_to);
        }
        text.push_str(&described(option));
    }
    print(&text)?;
    Ok(0)
}

fn described(option: &OptionKey) -> String {
    let mut text = format!("  {} = {}\n      {}", option.key, option.value, option.meaning);
    if !option.default.is_empty() {
        text.push_str(&format!(" [default: {}]", option.default));
    }
    if let Some(needs) = option.needs {
        text.push_str(&format!("; with {needs}"));
    }
    if option.files_only {
        text.push_str("; of files only");
    }
    if !option.in_this_version {
        text.push_str(" (not in this version)");
    } else if !option.later_values.is_empty() {
        text.push_str(&format!(" (not in this version: {})", option.later_values.join(", ")));
    }
    text.push('\n');
    text
}

/// Prints completions for a shell.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<u8, Failure> {
    let mut text = Vec::new();
    generate(args.shell, &mut args::command(), "segue", &mut text);
    print(&String::from_utf8_lossy(&text))?;
    Ok(0)
}

/// Writes text to stdout.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    written.map_err(|e| Error::Output { target: "stdout".into(), source: Box::new(e) }.into())
}
