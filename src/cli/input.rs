//! What SOURCE, `-o`, `--from` and `--until` say.

use segue::options::{Assignment, Connector, SourceOptions};

use super::args::{SourceArgs, StartWord, StopWord};
use super::fault::Fault;

/// The words that may stand in front of a source, before a colon.
const FORMATS: [&str; 7] = ["csv", "json", "parquet", "raw", "avro", "arrow", "delta"];

/// Understands one SOURCE.
pub(super) fn source(index: usize, text: &str) -> Result<SourceOptions, Fault> {
    if text == "-" {
        return Err(stdin(text));
    }
    if text.starts_with("kafka:") {
        return Ok(SourceOptions::new(topics(text)?, index.to_string()));
    }
    if text.split_once(':').is_some_and(|(format, path)| FORMATS.contains(&format) && path == "-") {
        return Err(stdin(text));
    }
    let (format, path) = match text.split_once(':') {
        Some((format, path)) if FORMATS.contains(&format) && !path.starts_with("//") => (Some(format), path),
        _ => (None, text),
    };
    let connector =
        if path.starts_with("kafka://") { topics(path)? } else { Connector::Filesystem { path: path.to_owned() } };
    let mut source = SourceOptions::new(connector, index.to_string());
    if let Some(format) = format {
        source.set("format", &format.into())?;
    }
    Ok(source)
}

#[cfg(feature = "kafka")]
fn topics(text: &str) -> Result<Connector, Fault> {
    let address = text.parse().map_err(|error| match error {
        segue::error::Error::InvalidOption { key, reason } => Fault::usage(format!("source '{key}': {reason}")),
        error => error.into(),
    })?;
    Ok(Connector::Kafka { address })
}

#[cfg(not(feature = "kafka"))]
fn topics(text: &str) -> Result<Connector, Fault> {
    Err(Fault::without_kafka(format!("source '{text}'")))
}

fn stdin(text: &str) -> Fault {
    let what = "stdin can't be read, since nothing that was read from it can be read again";
    Fault::usage(format!("source '{text}': {what}")).with_hint("write it into a file first")
}

/// Reads every `-o`, and `--format` as what it is short for.
pub(super) fn assignments(options: &[String], format: Option<&str>, faults: &mut Vec<Fault>) -> Vec<Assignment> {
    let mut assignments: Vec<Assignment> = format.map(|format| Assignment::new("format", format)).into_iter().collect();
    for option in options {
        if let Some(path) = option.strip_prefix('@') {
            match Assignment::read_file(path) {
                Ok(read) => assignments.extend(read),
                Err(errors) => faults.extend(errors.into_iter().map(Fault::from)),
            }
            continue;
        }
        match Assignment::parse(option) {
            Ok(assignment) => assignments.push(assignment),
            Err(e) if option.contains('=') => faults.push(e.into()),
            Err(e) => faults.push(Fault::from(e).with_hint(format!(
                "-o sets an option; rows go to stdout (`> {option}`), or into a folder with `copy --to csv:FOLDER`"
            ))),
        }
    }
    assignments
}

/// Reads `--from`, `--until` and `--bounded` as what they are short for: bare keys, for every source of topics.
///
/// A bare key that `given` sets too is a fault, and so is a flag where there are no topics.
pub(super) fn reach(
    args: &SourceArgs,
    sources: &[SourceOptions],
    given: &[Assignment],
    faults: &mut Vec<Fault>,
) -> Vec<Assignment> {
    let (start, stop) = ("scan.startup", "scan.bounded");
    let mut flags = Vec::new();
    match args.from {
        None => {}
        Some(StartWord::Earliest) => flags.push(("--from", mode(start, "earliest-offset"))),
        Some(StartWord::Latest) => flags.push(("--from", mode(start, "latest-offset"))),
        Some(StartWord::History) => faults.push(Fault::later("--from history")),
        Some(StartWord::At(millis)) => flags.push(("--from", time(start, millis))),
    }
    match args.until {
        None if args.bounded => flags.push(("--bounded", mode(stop, "latest-offset"))),
        None => {}
        Some(StopWord::Now) => flags.push(("--until", mode(stop, "latest-offset"))),
        Some(StopWord::At(millis)) => flags.push(("--until", time(stop, millis))),
    }
    if let Some((flag, _)) = flags.first()
        && !sources.iter().any(SourceOptions::is_topic)
    {
        faults.push(Fault::usage(format!("{flag} is for Kafka sources, and there is none here")));
        return Vec::new();
    }
    for (flag, assignments) in &flags {
        let twice = assignments.iter().find(|assignment| given.iter().any(|other| other.key == assignment.key));
        if let Some(Assignment { key, .. }) = twice {
            faults.push(Fault::usage(format!("{flag} sets {key}, and so does -o; one of them has to go")));
        }
    }
    flags.into_iter().flat_map(|(_, assignments)| assignments).collect()
}

fn mode(group: &str, word: &str) -> Vec<Assignment> {
    vec![Assignment::new(format!("{group}.mode"), word)]
}

fn time(group: &str, millis: i64) -> Vec<Assignment> {
    let mut assignments = mode(group, "timestamp");
    assignments.push(Assignment::new(format!("{group}.timestamp-millis"), &millis.to_string()));
    assignments
}
