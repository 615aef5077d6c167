//! What the options of several sources mean together: names, ends, formats.

use std::collections::{BTreeMap, BTreeSet};

use super::{AppliesTo, SourceOptions};
use crate::error::{Error, Result};
use crate::format::Format;
use crate::hybrid::endless;

/// Checks what can be said of a chain before anything is looked at: no name twice, none that is another source's
/// index, and an end for every source but the last.
///
/// # Errors
/// Every [`Error::Chain`] there is.
pub fn check_chain(sources: &[SourceOptions]) -> Result<(), Vec<Error>> {
    let mut faults = Vec::new();
    let mut names = BTreeSet::new();
    for (index, source) in sources.iter().enumerate() {
        let name = source.name();
        if !names.insert(name) {
            faults.push(Error::Chain(format!("two sources are called '{name}'")));
        }
        if name.parse::<usize>().is_ok_and(|number| number != index) {
            faults.push(Error::Chain(format!(
                "source {index} can't be called '{name}': that number is another source's"
            )));
        }
    }
    if let Some((last, before)) = sources.split_last() {
        for source in before {
            if let Some(because) = source.unbounded_because() {
                faults.push(endless(source.name(), Some(&because), last.name()));
            }
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// The format of a topic: its own, or else that of the source before it, if messages can have it.
///
/// # Errors
/// [`Error::InvalidOption`] that names the `format` to set.
pub fn topic_format(topic: &SourceOptions, before: Option<Format>) -> Result<Format> {
    match (topic.format_ahead(), before) {
        (Some(own), _) => Ok(own),
        (None, Some(before @ (Format::Csv | Format::Json))) => Ok(before),
        (None, before) => {
            let why = match before {
                Some(before) => format!("the source before is {before}"),
                None => "no source before tells it".to_owned(),
            };
            let key = format!("{}.format", topic.name());
            Err(Error::option(key, format!("it isn't set, and {why}; the messages of a topic are csv, json or raw")))
        }
    }
}

/// The format of each source as far as it is known before anything is looked at; `None` where only files can say.
///
/// A lone topic of which nothing is said, no schema either, is raw.
///
/// # Errors
/// As [`topic_format`], for every topic.
pub fn formats_ahead(sources: &[SourceOptions], has_schema: bool) -> Result<Vec<Option<Format>>, Vec<Error>> {
    if let ([topic], false) = (sources, has_schema)
        && topic.is_topic()
    {
        return Ok(vec![Some(topic.format_ahead().unwrap_or(Format::Raw))]);
    }
    let (mut formats, mut faults) = (Vec::with_capacity(sources.len()), Vec::new());
    for source in sources {
        let format = match (source.format_ahead(), formats.last().copied()) {
            // Files that weren't looked at yet may tell it.
            (None, Some(None)) => Ok(None),
            (None, before) if source.is_topic() => topic_format(source, before.flatten()).map(Some),
            (known, _) => Ok(known),
        };
        formats.push(format.map_err(|fault| faults.push(fault)).ok().flatten());
    }
    if faults.is_empty() { Ok(formats) } else { Err(faults) }
}

/// Checks options of formats once the formats are known: what was set for one source must be of its format,
/// and what was set for every source must be of one of them.
///
/// # Errors
/// Every [`Error::InvalidOption`] there is.
pub fn check_formats(sources: &[(&SourceOptions, Format)]) -> Result<(), Vec<Error>> {
    let mut faults = Vec::new();
    let mut known_by_none: BTreeMap<&str, AppliesTo> = BTreeMap::new();
    for (source, format) in sources {
        for (key, applies_to, own) in source.foreign_to(*format) {
            if own {
                let reason =
                    format!("it is an option of {}, and source '{}' is {format}", applies_to.as_str(), source.name());
                faults.push(Error::option(key, reason));
            } else {
                known_by_none.insert(key, applies_to);
            }
        }
    }
    known_by_none.retain(|key, _| {
        !sources
            .iter()
            .any(|(source, format)| source.has(key) && source.foreign_to(*format).all(|(foreign, ..)| foreign != *key))
    });
    for (key, applies_to) in known_by_none {
        faults.push(Error::option(
            key,
            format!("it is an option of {}, and no source here is that", applies_to.as_str()),
        ));
    }
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

#[cfg(test)]
mod tests {
    use super::super::Connector;
    use super::*;

    fn files(path: &str, name: &str) -> SourceOptions {
        SourceOptions::new(Connector::Filesystem { path: path.to_owned() }, name)
    }

    #[test]
    fn once_formats_are_known_an_option_that_nobody_takes_is_a_fault() {
        let (mut folder, other) = (files("a", "0"), files("b", "1"));
        folder.set_for_every("csv.header", &"true".into()).unwrap();
        folder.set("json.coerce", &"true".into()).unwrap();
        let told = |formats: [Format; 2]| -> Vec<String> {
            let faults = check_formats(&[(&folder, formats[0]), (&other, formats[1])]).err().unwrap_or_default();
            faults.iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            told([Format::Csv, Format::Json]),
            ["option 'json.coerce': it is an option of json, and source '0' is csv"]
        );
        assert_eq!(
            told([Format::Json, Format::Json]),
            ["option 'csv.header': it is an option of csv, and no source here is that"]
        );
    }

    #[test]
    fn names_are_told_apart_and_numbers_are_indexes() {
        let told = |names: &[&str]| -> Vec<String> {
            let sources: Vec<_> = names.iter().map(|name| files("a", name)).collect();
            check_chain(&sources).err().unwrap_or_default().iter().map(ToString::to_string).collect()
        };
        assert_eq!(told(&["old", "1"]), [""; 0]);
        assert_eq!(told(&["a", "a"]), ["two sources are called 'a'"]);
        assert_eq!(told(&["1", "a"]), ["source 0 can't be called '1': that number is another source's"]);
    }

    #[cfg(feature = "kafka")]
    mod topics {
        use super::*;

        fn topic(name: &str, options: &[(&str, &str)]) -> SourceOptions {
            let mut source = SourceOptions::new(Connector::Kafka { address: "kafka://h/t".parse().unwrap() }, name);
            for (key, value) in options {
                source.set(key, &(*value).into()).unwrap();
            }
            source
        }

        fn told(faults: Vec<Error>) -> Vec<String> {
            faults.iter().map(ToString::to_string).collect()
        }

        #[test]
        fn a_topic_takes_the_format_of_the_source_before() {
            for (path, expected) in [("a.csv", Some(Format::Csv)), ("a.ndjson.gz", Some(Format::Json)), ("dir", None)] {
                let sources =
                    [files(path, "0"), topic("1", &[("scan.bounded.mode", "latest-offset")]), topic("2", &[])];
                let formats = formats_ahead(&sources, true).unwrap();
                assert_eq!(formats, [expected, expected, expected], "{path}");
            }
            assert_eq!(topic_format(&topic("1", &[("format", "raw")]), Some(Format::Csv)).unwrap(), Format::Raw);
        }

        #[test]
        fn a_topic_whose_format_nothing_tells_is_a_fault_that_names_the_option() {
            let faults = formats_ahead(&[files("a.parquet", "0"), topic("live", &[])], false).unwrap_err();
            let fault = "option 'live.format': it isn't set, and the source before is parquet; the messages of a topic are csv, json or raw";
            assert_eq!(told(faults), [fault]);
            let faults = formats_ahead(&[topic("0", &[])], true).unwrap_err();
            let fault = "option '0.format': it isn't set, and no source before tells it; the messages of a topic are csv, json or raw";
            assert_eq!(told(faults), [fault]);
        }

        #[test]
        fn a_lone_topic_without_format_and_schema_is_raw() {
            assert_eq!(formats_ahead(&[topic("0", &[])], false).unwrap(), [Some(Format::Raw)]);
            assert_eq!(formats_ahead(&[topic("0", &[("format", "json")])], false).unwrap(), [Some(Format::Json)]);
        }

        /// CASE 22: an endless source before the last is refused, with the option that made it so.
        #[test]
        fn an_endless_topic_before_the_last_source_names_its_option() {
            let faults = check_chain(&[topic("live", &[]), files("a.csv", "1")]).unwrap_err();
            let fault = "source 'live' has no end: scan.bounded.mode is unbounded; only the last of a chain may be endless, and '1' comes after it";
            assert_eq!(told(faults), [fault]);
            let ended = topic("live", &[("scan.bounded.mode", "latest-offset")]);
            check_chain(&[ended, files("a.csv", "1")]).unwrap();
            check_chain(&[files("a.csv", "0"), topic("1", &[])]).unwrap();
        }

        #[test]
        fn what_is_said_of_headers_is_for_the_files_before_a_topic() {
            let mut sources = [files("a.csv", "0"), topic("1", &[])];
            let header = super::super::super::Assignment::new("csv.header", "true");
            super::super::super::assign(&mut sources, None, &[header]).unwrap();
            let formats = [(&sources[0], Format::Csv), (&sources[1], Format::Csv)];
            check_formats(&formats).unwrap();
            assert!(sources[0].has("csv.header") && !sources[1].has("csv.header"));
        }
    }
}
