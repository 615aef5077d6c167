//! Bad records: what `--on-error` and `--max-errors` say, and what is told of them at the end.

use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use globset::GlobBuilder;

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
use super::sink::SinkTarget;

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

    /// Holds it against what is read, where rows go, and where the checkpoint is.
    pub(crate) fn check(
        &self,
        sources: &[SourceOptions],
        sink: Option<&SinkTarget>,
        checkpoint: Option<&Path>,
    ) -> Result<(), Failure> {
        let ignored = sources.iter().any(SourceOptions::ignores_parse_errors);
        if self.what == What::Fail && self.max_errors.is_some() && !ignored {
            return Err(Fault::usage("--max-errors: the first bad record ends the job anyway")
                .with_hint("add --on-error skip, or a file for dead letters: --on-error dead-letters.ndjson")
                .into());
        }
        let refused = match &self.what {
            What::Fail | What::Skip => None,
            What::File(path) => refused_file(path, sources, sink.and_then(SinkTarget::folder), checkpoint)
                .map(|why| format!("--on-error {}: {why}", path.display())),
            #[cfg(feature = "kafka")]
            What::Topic(topic) => refused_topic(topic, sources, sink).map(|why| format!("--on-error {topic}: {why}")),
        };
        refused.map_or(Ok(()), |why| Err(Fault::usage(why).into()))
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
            let topic = url.parse::<KafkaAddress>().and_then(|topic| {
                KafkaSink::builder(&topic).check()?;
                Ok(topic)
            });
            topic.map(What::Topic).map_err(|error| match error {
                Error::InvalidOption { reason, .. } => Fault::usage(format!("--on-error {url}: {reason}")),
                error => error.into(),
            })
        }
        #[cfg(not(feature = "kafka"))]
        url if url.starts_with("kafka://") => Err(Fault::without_kafka(format!("--on-error {url}"))),
        url if url.contains("://") && !url.starts_with("file://") => {
            Err(Fault::usage(format!("--on-error {url}: dead letters go into a local file or a kafka:// topic")))
        }
        path if path.contains(['/', '.']) => match path.strip_prefix("file://").unwrap_or(path) {
            "" => Err(Fault::usage(format!("--on-error {text}: it names no file"))),
            path => Ok(What::File(path.into())),
        },
        word => Err(Fault::usage(format!(
            "--on-error {word}: it is none of fail, skip, a path (with / or .), and kafka://…"
        ))),
    }
}

/// Why dead letters can't go into a file: it would be read as well, or be written over.
fn refused_file(
    path: &Path,
    sources: &[SourceOptions],
    sink_folder: Option<&Path>,
    checkpoint: Option<&Path>,
) -> Option<String> {
    let place = resolved(path);
    if let Some(checkpoint) = checkpoint.map(resolved) {
        let beside = format!("{}.", checkpoint.display());
        if place == checkpoint || place.display().to_string().starts_with(&beside) {
            return Some("the checkpoint is there".into());
        }
    }
    for source in sources {
        let Connector::Filesystem { path: read } = source.connector() else { continue };
        let read = Path::new(read.strip_prefix("file://").unwrap_or(read));
        let is_there = read.exists();
        if (is_there && place.starts_with(resolved(read))) || (!is_there && is_matched(read, &place)) {
            return Some(format!("it is among the files of source {}, and would be read as one", source.name()));
        }
    }
    sink_folder
        .is_some_and(|folder| place.starts_with(resolved(folder)))
        .then(|| "it is in the folder that rows are copied into".into())
}

/// A path without `..` and links, as far as it is there.
fn resolved(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut missing: Vec<&OsStr> = Vec::new();
    let mut there = absolute.as_path();
    loop {
        if let Ok(known) = there.canonicalize() {
            return missing.iter().rev().fold(known, |path, name| match *name == OsStr::new("..") {
                true => path.parent().map_or_else(|| path.clone(), Path::to_owned),
                false => path.join(name),
            });
        }
        // `a/..` has no file name.
        let name = there.components().next_back().map(Component::as_os_str);
        match (there.parent(), name) {
            (Some(parent), Some(name)) => {
                missing.push(name);
                there = parent;
            }
            _ => return absolute,
        }
    }
}

/// Says whether a glob takes a file.
fn is_matched(glob: &Path, place: &Path) -> bool {
    // The part before the first wildcard may have links in it.
    let is_plain = |part: &Component<'_>| !part.as_os_str().to_string_lossy().contains(['*', '?', '[', '{']);
    let base: PathBuf = glob.components().take_while(is_plain).collect();
    let rest: PathBuf = glob.components().skip_while(is_plain).collect();
    let base = resolved(if base.as_os_str().is_empty() { Path::new(".") } else { &base });
    let Ok(below) = place.strip_prefix(&base) else { return false };
    let glob = GlobBuilder::new(&rest.to_string_lossy()).literal_separator(true).build();
    glob.is_ok_and(|glob| glob.compile_matcher().is_match(below))
}

/// Why dead letters can't go into a topic.
#[cfg(feature = "kafka")]
fn refused_topic(topic: &KafkaAddress, sources: &[SourceOptions], sink: Option<&SinkTarget>) -> Option<&'static str> {
    if sources.iter().any(|source| source.reads(topic)) {
        return Some("it is read as well, and dead letters would come back as input");
    }
    match sink {
        Some(SinkTarget::Topic(rows)) if topic.is_read_by(rows) => Some("rows go into it as well"),
        _ => None,
    }
}
