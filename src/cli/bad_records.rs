//! Bad records: what `--on-error` and `--max-errors` say, and what is told of them at the end.

use std::path::{Path, PathBuf};

use segue::error::Error;
use segue::hybrid::MaxErrors;
use segue::options::{Connector, SourceOptions};
use segue::pipeline::CopyOptions;
use segue::progress::RejectCounts;
use segue::sink::DeadLetters;
use segue::source::BadRecords;

use super::args::RunArgs;
use super::console::{Console, counted};
use super::fault::{Failure, Fault};

#[cfg(feature = "kafka")]
use {segue::kafka::KafkaAddress, segue::sink::KafkaSink};

/// What the letters on their way to a topic may take.
#[cfg(feature = "kafka")]
const TOPIC_MEMORY_BYTES: usize = 4 << 20;

/// Kinds of bad records that are told one by one: nobody reads more.
const MAX_REASONS: usize = 12;

/// What was asked for.
#[derive(Debug, Clone)]
pub(crate) struct OnError {
    what: What,
    max_errors: Option<MaxErrors>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    Fail,
    Skip,
    /// Dead letters go into a file.
    File(PathBuf),
    /// Dead letters go into a topic.
    #[cfg(feature = "kafka")]
    Topic(KafkaAddress),
}

impl OnError {
    /// Understands the arguments.
    pub(crate) fn parse(args: &RunArgs) -> Result<Self, Vec<Fault>> {
        let mut faults = Vec::new();
        let what = what(&args.on_error).map_err(|fault| faults.push(fault));
        let max_errors = args.max_errors.as_deref().map(str::parse::<MaxErrors>).transpose().map_err(|error| {
            faults.push(match error {
                Error::InvalidOption { reason, .. } => Fault::usage(format!("--max-errors: {reason}")),
                error => error.into(),
            });
        });
        match (what, max_errors) {
            (Ok(what), Ok(max_errors)) => Ok(Self { what, max_errors }),
            _ => Err(faults),
        }
    }

    /// Holds it against what is read, and where rows go.
    pub(crate) fn check(&self, sources: &[SourceOptions], sink_folder: Option<&Path>) -> Result<(), Failure> {
        let ignored = sources.iter().any(SourceOptions::ignores_parse_errors);
        if self.what == What::Fail && self.max_errors.is_some() && !ignored {
            return Err(Fault::usage("--max-errors: the first bad record ends the job anyway")
                .with_hint("add --on-error skip, or a file for dead letters: --on-error dead-letters.ndjson")
                .into());
        }
        match &self.what {
            What::Fail | What::Skip => Ok(()),
            What::File(path) => check_file(path, sources, sink_folder),
            #[cfg(feature = "kafka")]
            What::Topic(topic) => check_topic(topic, sources),
        }
    }

    /// Sets how bad records are dealt with.
    pub(crate) fn apply(&self, options: &mut CopyOptions) -> Result<(), Failure> {
        options.read.max_errors = self.max_errors;
        match &self.what {
            What::Fail => {}
            What::Skip => options.read.bad_records = BadRecords::Skip,
            What::File(path) => options.dead_letters = Some(DeadLetters::to_file(path)?),
            #[cfg(feature = "kafka")]
            What::Topic(topic) => {
                let sink = KafkaSink::builder(topic).memory_bytes(TOPIC_MEMORY_BYTES);
                options.dead_letters = Some(DeadLetters::to_topic(sink)?);
            }
        }
        Ok(())
    }

    /// Says what was left out, if anything was.
    pub(crate) fn tell(&self, rejected: &RejectCounts, console: &Console) {
        if rejected.total() == 0 {
            return;
        }
        let were = if rejected.total() == 1 { "was" } else { "were" };
        let mut text = format!("warning: {} {were} left out", counted(rejected.total(), "bad record"));
        let place = match &self.what {
            What::Fail | What::Skip => None,
            What::File(path) => Some(path.display().to_string()),
            #[cfg(feature = "kafka")]
            What::Topic(topic) => Some(topic.to_string()),
        };
        match (place, rejected.num_kept()) {
            (None, _) => {}
            (Some(place), kept) if kept == rejected.total() => text.push_str(&format!("; dead letters are in {place}")),
            // A source's own option skips.
            (Some(place), kept) => text.push_str(&format!("; {} in {place}", counted(kept, "dead letter"))),
        }
        let (mut hints, mut num_more): (Vec<&str>, _) = (Vec::new(), 0);
        for (index, (reason, alike)) in rejected.iter().enumerate() {
            if index >= MAX_REASONS {
                num_more += alike.count;
                continue;
            }
            text.push_str(&format!("\n  {} with {}, the first: {}", alike.count, reason.describe(), alike.first));
            let hint = alike.first.hint.as_deref();
            hints.extend(hint.filter(|hint| !hints.contains(hint)));
        }
        if num_more > 0 {
            text.push_str(&format!("\n  {num_more} with others"));
        }
        for hint in hints {
            text.push_str(&format!("\n  hint: {hint}"));
        }
        console.note(text);
    }
}

fn what(text: &str) -> Result<What, Fault> {
    match text {
        "fail" => Ok(What::Fail),
        "skip" => Ok(What::Skip),
        #[cfg(feature = "kafka")]
        url if url.starts_with("kafka://") => {
            let topic: KafkaAddress = url.parse()?;
            KafkaSink::builder(&topic).check().map_err(Fault::from)?;
            Ok(What::Topic(topic))
        }
        #[cfg(not(feature = "kafka"))]
        url if url.starts_with("kafka://") => Err(Fault::without_kafka(format!("--on-error {url}"))),
        url if url.contains("://") && !url.starts_with("file://") => {
            Err(Fault::usage(format!("--on-error {url}: dead letters go into a local file or a kafka:// topic")))
        }
        path if path.contains(['/', '.']) => Ok(What::File(path.strip_prefix("file://").unwrap_or(path).into())),
        word => Err(Fault::usage(format!(
            "--on-error {word}: it is none of fail, skip, a path (with / or .), and kafka://…"
        ))),
    }
}

/// A file among those that are read would be read as well.
fn check_file(path: &Path, sources: &[SourceOptions], sink_folder: Option<&Path>) -> Result<(), Failure> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    // A folder that isn't there is found out when the file is opened.
    let Ok(folder) = folder.canonicalize() else { return Ok(()) };
    let place = path.file_name().map_or_else(|| folder.clone(), |name| folder.join(name));
    let refuse = |why: String| Err(Fault::usage(format!("--on-error {}: {why}", path.display())).into());
    for source in sources {
        let Connector::Filesystem { path: read } = source.connector() else { continue };
        let Ok(read) = Path::new(read.strip_prefix("file://").unwrap_or(read)).canonicalize() else { continue };
        if place.starts_with(&read) {
            return refuse(format!("it is among the files of source {}, and would be read as one", source.name()));
        }
    }
    if let Some(Ok(sink)) = sink_folder.map(Path::canonicalize)
        && place.starts_with(&sink)
    {
        return refuse("it is in the folder that rows are copied into".into());
    }
    Ok(())
}

#[cfg(feature = "kafka")]
fn check_topic(topic: &KafkaAddress, sources: &[SourceOptions]) -> Result<(), Failure> {
    for source in sources {
        let Connector::Kafka { address } = source.connector() else { continue };
        if topic.is_read_by(address) {
            let what = "it is read as well, and dead letters would come back as input";
            return Err(Fault::usage(format!("--on-error {topic}: {what}")).into());
        }
    }
    Ok(())
}
