//! Options as they are given for a whole chain: `KEY`, `N.KEY`, `NAME.KEY` and `sink.KEY`.

use std::fs;

use super::keys::{recognise, unknown};
use super::value::OptionValue;
use super::{SinkOptions, SourceOptions, check_value};
use crate::error::{Error, Result};

/// One `KEY=VALUE`.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// The key, with its scope if it has one.
    pub key: String,
    /// The value.
    pub value: OptionValue,
}

impl Assignment {
    /// Sets `key`, which may have a scope, to `value` as it stands: nothing is put into it.
    pub fn new(key: impl Into<String>, value: &str) -> Self {
        Self { key: key.into(), value: value.into() }
    }

    /// Reads `KEY=VALUE`. Blanks around the key don't count; those of the value do.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] without `=` or a key, and as [`OptionValue::substitute`].
    pub fn parse(text: &str) -> Result<Self> {
        let (key, value) =
            text.split_once('=').ok_or_else(|| Error::option(text, "it has no value; write KEY=VALUE"))?;
        let key = key.trim();
        if key.is_empty() {
            return Err(Error::option(text, "it has no key; write KEY=VALUE"));
        }
        Ok(Self { key: key.to_owned(), value: OptionValue::substitute(key, value)? })
    }

    /// Reads a file of lines of `KEY=VALUE`; empty lines and those that begin with `#` don't count.
    ///
    /// # Errors
    /// [`Error::Io`] if the file can't be read; else every line that can't be understood.
    pub fn read_file(path: &str) -> Result<Vec<Self>, Vec<Error>> {
        let text = fs::read_to_string(path).map_err(|e| vec![Error::io(path, "cannot read", e)])?;
        let (mut assignments, mut faults) = (Vec::new(), Vec::new());
        for (index, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.trim_start().starts_with('#') {
                continue;
            }
            match Self::parse(line) {
                Ok(assignment) => assignments.push(assignment),
                Err(Error::InvalidOption { key, reason }) => {
                    faults.push(Error::option(key, format!("{reason} ({path} line {})", index + 1)));
                }
                Err(e) => faults.push(e),
            }
        }
        if faults.is_empty() { Ok(assignments) } else { Err(faults) }
    }
}

/// Whom an assignment is for.
enum Scope {
    Source(usize),
    /// Every source that knows the key.
    Every,
    Sink,
}

/// Gives each source and the sink what is theirs.
///
/// `N.KEY` (N from 0, in chain order) and `NAME.KEY` are for one source and win over a bare `KEY`, which is
/// for every source that knows it. Keys of the sink begin with `sink.`.
///
/// # Errors
/// Every fault there is: [`Error::UnknownOption`], [`Error::Unsupported`] for an option that is not in this
/// version, [`Error::InvalidOption`] for a wrong value, a key given twice, one that no source knows, one that
/// needs another, or one of a sink where there is none.
pub fn assign(
    sources: &mut [SourceOptions],
    mut sink: Option<&mut SinkOptions>,
    assignments: &[Assignment],
) -> Result<(), Vec<Error>> {
    let mut faults = Vec::new();
    let names = names(sources, assignments);
    let mut scoped: Vec<_> =
        assignments.iter().map(|assignment| (scope(&assignment.key, &names), assignment)).collect();
    // The format says which of the other options a source knows.
    scoped.sort_by_key(|((_, key), _)| !matches!(*key, "format" | "value.format"));
    for ((scope, key), assignment) in scoped {
        let set = match (scope, &mut sink) {
            (Scope::Source(index), _) if index < sources.len() => sources[index].set(key, &assignment.value),
            (Scope::Source(index), _) => Err(no_source(&assignment.key, index, sources.len())),
            (Scope::Every, _) => for_every(sources, key, &assignment.value),
            (Scope::Sink, Some(sink)) => sink.set(key, &assignment.value),
            (Scope::Sink, None) => match recognise(key) {
                Some(_) => Err(Error::option(key, "there is no sink to set it for; `copy --to` has one")),
                None => Err(unknown(key)),
            },
        };
        faults.extend(set.map_err(|e| with_scope(e, key, &assignment.key)).err());
    }
    faults.extend(sources.iter().flat_map(SourceOptions::faults));
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// The names that sources will have, looked up before anything is set: `NAME.KEY` may stand before `N.name`.
fn names(sources: &[SourceOptions], assignments: &[Assignment]) -> Vec<String> {
    let mut names: Vec<String> = sources.iter().map(|source| source.name().to_owned()).collect();
    for Assignment { key, value } in assignments {
        let index = key.strip_suffix(".name").and_then(|index| index.parse::<usize>().ok());
        if let Some(name) = index.and_then(|index| names.get_mut(index)) {
            *name = value.as_str().to_owned();
        } else if let ("name", [name]) = (key.as_str(), names.as_mut_slice()) {
            *name = value.as_str().to_owned();
        }
    }
    names
}

fn scope<'a>(key: &'a str, names: &[String]) -> (Scope, &'a str) {
    if key.starts_with("sink.") {
        return (Scope::Sink, key);
    }
    if recognise(key).is_some() {
        return (Scope::Every, key);
    }
    // A name may hold dots, so it isn't simply what stands before the first one.
    let named = names.iter().enumerate().filter_map(|(index, name)| {
        let rest = key.strip_prefix(name.as_str())?.strip_prefix('.')?;
        Some((name.len(), Scope::Source(index), rest))
    });
    if let Some((_, scope, rest)) = named.max_by_key(|(len, ..)| *len) {
        return (scope, rest);
    }
    match key.split_once('.').map(|(index, rest)| (index.parse::<usize>(), rest)) {
        Some((Ok(index), rest)) => (Scope::Source(index), rest),
        _ => (Scope::Every, key),
    }
}

fn for_every(sources: &mut [SourceOptions], key: &str, value: &OptionValue) -> Result<()> {
    let Some(recognised) = recognise(key) else { return Err(unknown(key)) };
    let option = recognised.option;
    check_value(key, value)?;
    let mut known = false;
    for source in sources.iter_mut().filter(|source| source.may_know(option)) {
        known = true;
        source.set_for_every(key, value)?;
    }
    if known {
        return Ok(());
    }
    let is_for_files = option.files_only && sources.iter().any(SourceOptions::is_topic);
    let place = if is_for_files { " in files" } else { "" };
    let whose = option.applies_to.as_str();
    Err(Error::option(key, format!("it is an option of {whose}{place}, and no source here knows it")))
}

fn no_source(key: &str, index: usize, num_sources: usize) -> Error {
    let there_are = match num_sources {
        1 => "there is one source, 0".to_owned(),
        n => format!("the sources are 0 to {}", n - 1),
    };
    Error::option(key, format!("there is no source {index}; {there_are}"))
}

/// The error with the key as it was given, scope included.
fn with_scope(error: Error, key: &str, given: &str) -> Error {
    let scoped = |text: String| if text == key { given.to_owned() } else { text };
    match error {
        Error::InvalidOption { key, reason } => Error::InvalidOption { key: scoped(key), reason },
        Error::UnknownOption { key: unknown, nearest } => {
            let scope = given.strip_suffix(key).unwrap_or_default();
            Error::UnknownOption { key: scoped(unknown), nearest: nearest.map(|near| format!("{scope}{near}")) }
        }
        Error::Unsupported(text) => Error::Unsupported(text.replace(&format!("'{key}'"), &format!("'{given}'"))),
        e => e,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Connector;

    fn files(paths: &[&str]) -> Vec<SourceOptions> {
        let source = |(index, path): (usize, &&str)| {
            SourceOptions::new(Connector::Filesystem { path: (*path).to_owned() }, index.to_string())
        };
        paths.iter().enumerate().map(source).collect()
    }

    fn assigned(sources: &mut [SourceOptions], texts: &[&str]) -> Vec<String> {
        let assignments: Vec<_> = texts.iter().map(|text| Assignment::parse(text).unwrap()).collect();
        let mut sink = SinkOptions::default();
        let faults = assign(sources, Some(&mut sink), &assignments).err().unwrap_or_default();
        faults.iter().map(ToString::to_string).collect()
    }

    #[track_caller]
    fn check(paths: &[&str], texts: &[&str], faults: &[&str]) {
        assert_eq!(assigned(&mut files(paths), texts), faults, "{texts:?}");
    }

    #[test]
    fn an_option_for_one_source_wins_whatever_the_order() {
        for texts in [["csv.null-literal=a", "1.csv.null-literal=b"], ["1.csv.null-literal=b", "csv.null-literal=a"]] {
            let mut sources = files(&["x.csv", "y.csv"]);
            assert!(assigned(&mut sources, &texts).is_empty());
            assert_eq!(sources[0].text("csv.null-literal"), Some("a"));
            assert_eq!(sources[1].text("csv.null-literal"), Some("b"));
        }
    }

    #[test]
    fn a_source_is_known_by_its_index_and_by_its_name() {
        let mut sources = files(&["x", "y"]);
        let texts = ["new.live.csv.header=false", "1.name=new.live", "0.csv.header=true", "0.name=old"];
        assert_eq!(assigned(&mut sources, &texts), [""; 0]);
        assert_eq!((sources[0].name(), sources[1].name()), ("old", "new.live"));
        assert_eq!((sources[0].text("csv.header"), sources[1].text("csv.header")), (Some("true"), Some("false")));
    }

    #[test]
    fn a_bare_key_is_for_every_source_that_knows_it() {
        let mut sources = files(&["x.json", "y.csv", "z.bin"]);
        assert_eq!(assigned(&mut sources, &["csv.header=true", "2.format=raw"]), [""; 0]);
        assert_eq!(
            sources.iter().map(|source| source.text("csv.header")).collect::<Vec<_>>(),
            [None, Some("true"), None]
        );

        check(
            &["x.json"],
            &["csv.header=true"],
            &["option 'csv.header': it is an option of csv, and no source here knows it"],
        );
        check(
            &["x.csv"],
            &["scan.startup.mode=latest-offset", "0.topic=t"],
            &[
                "option 'scan.startup.mode': it is an option of kafka, and no source here knows it",
                "option '0.topic': it is an option of kafka, and source '0' is csv in files",
            ],
        );
        check(&["x"], &["seed=1"], &["option 'seed': it is an option of datagen, and no source here knows it"]);
    }

    #[test]
    fn every_fault_is_told() {
        check(
            &["x.csv"],
            &["csv.heder=true", "csv.field-delimiter=||", "7.csv.header=false", "0.kafkax.topic=t", "csv.header=maybe"],
            &[
                "unknown option 'csv.heder'",
                "option 'csv.field-delimiter': '||' is not one character (or \\t, \\u0001)",
                "option '7.csv.header': there is no source 7; there is one source, 0",
                "unknown option '0.kafkax.topic'",
                "option 'csv.header': 'maybe' is none of auto, true, false",
            ],
        );
    }

    #[test]
    fn a_key_given_twice_is_a_fault_also_by_index_and_name() {
        check(&["x"], &["format=csv", "format=csv"], &["option 'format': it is given twice"]);
        check(&["x"], &["0.name=a", "0.format=csv", "a.format=json"], &["option 'a.format': it is given twice"]);
        check(
            &["x"],
            &["sink.csv.header=true", "sink.csv.header=true"],
            &["option 'sink.csv.header': it is given twice"],
        );
    }

    #[test]
    fn what_is_not_built_yet_says_so_unless_it_changes_nothing() {
        check(&["x.csv"], &["source.identity=x"], &["option 'source.identity' is not in this version"]);
        check(&["x.csv"], &["csv.charset=utf-8", "csv.ignore-parse-errors=false"], &[]);
        check(
            &["x.csv"],
            &["0.format=avro", "source.on-new-files=read"],
            &[
                "option '0.format': avro is not in this version",
                "option 'source.on-new-files': read is not in this version",
            ],
        );
    }

    #[test]
    fn options_that_contradict_each_other_are_faults() {
        check(
            &["x.csv"],
            &["csv.quote-character='", "csv.disable-quote-character=true"],
            &["option 'csv.quote-character': csv.disable-quote-character says that there is none"],
        );
    }

    #[test]
    fn a_value_without_its_mode_names_the_mode() {
        let mut source = SourceOptions::new(Connector::Datagen, "0");
        let fault = assigned(std::slice::from_mut(&mut source), &["fields.id.start=5"]);
        assert_eq!(fault, ["option 'fields.id.start': it means nothing without fields.id.kind=sequence"]);
    }

    #[test]
    fn without_a_sink_its_options_are_faults() {
        let assignment = Assignment::new("sink.csv.header", "true");
        let faults = assign(&mut files(&["x"]), None, &[assignment]).unwrap_err();
        assert_eq!(
            faults[0].to_string(),
            "option 'sink.csv.header': there is no sink to set it for; `copy --to` has one"
        );
    }

    #[test]
    fn a_file_of_options_has_comments_and_tells_the_line_of_a_fault() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        fs::write(path, "# for the old files\n\ncsv.field-delimiter = \nbroken\n").unwrap();
        let faults = Assignment::read_file(path).unwrap_err();
        assert_eq!(faults[0].to_string(), format!("option 'broken': it has no value; write KEY=VALUE ({path} line 4)"));

        fs::write(path, "csv.field-delimiter = \n").unwrap();
        let assignments = Assignment::read_file(path).unwrap();
        assert_eq!((assignments[0].key.as_str(), assignments[0].value.as_str()), ("csv.field-delimiter", " "));
    }
}
