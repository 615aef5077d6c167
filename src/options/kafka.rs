//! The options of topics: where reading begins and ends.

use super::SourceOptions;
use super::value::{parse_duration, parse_millis};
use crate::error::{Error, Result};
use crate::kafka::{
    DefaultStart, KafkaSourceBuilder, OnDataLoss, OnTopicDeleted, PartitionOffsets, StartOffsets, StopOffsets,
    Tombstones,
};

/// Where reading begins, by the options of a source.
///
/// # Errors
/// [`Error::InvalidOption`] for a mode without the value that it needs, or a value that can't stand.
pub(super) fn start_offsets(source: &SourceOptions) -> Result<StartOffsets> {
    Ok(match given(source, "scan.startup")? {
        Given::Mode("latest-offset") => StartOffsets::Latest,
        Given::Mode("group-offsets") => {
            StartOffsets::Group { default: default_start(source, "scan.startup.group-offsets.default") }
        }
        Given::Mode(_) => StartOffsets::Earliest,
        Given::Timestamp(millis) => StartOffsets::Timestamp(millis),
        Given::Offsets(offsets) => {
            StartOffsets::At { offsets, default: default_start(source, "scan.startup.specific-offsets.default") }
        }
    })
}

/// Where a partition begins of which nothing is said.
fn default_start(source: &SourceOptions, key: &str) -> Option<DefaultStart> {
    source.text(key).map(|word| match word {
        "latest-offset" => DefaultStart::Latest,
        _ => DefaultStart::Earliest,
    })
}

/// What is said of topics that change while they are read, or between two runs.
///
/// # Errors
/// [`Error::InvalidOption`] for a value that can't stand.
pub(super) fn with_changes(source: &SourceOptions, mut builder: KafkaSourceBuilder) -> Result<KafkaSourceBuilder> {
    if let Some(pattern) = source.text("topic-pattern") {
        builder = builder.topic_pattern(pattern);
    }
    if let Some(word) = source.text("scan.on-data-loss") {
        builder = builder.on_data_loss(match word {
            "earliest" => OnDataLoss::Earliest,
            "latest" => OnDataLoss::Latest,
            _ => OnDataLoss::Fail,
        });
    }
    if source.text("scan.on-topic-deleted") == Some("finish") {
        builder = builder.on_topic_deleted(OnTopicDeleted::Finish);
    }
    if let Some(interval) = source.parsed("scan.topic-partition-discovery.interval", parse_duration)? {
        builder = builder.discovery_interval(interval);
    }
    Ok(builder)
}

/// Where reading ends, by the options of a source.
///
/// # Errors
/// As [`start_offsets`].
pub(super) fn stop_offsets(source: &SourceOptions) -> Result<StopOffsets> {
    Ok(match given(source, "scan.bounded")? {
        Given::Mode("latest-offset") => StopOffsets::Latest,
        Given::Mode(_) => StopOffsets::Never,
        Given::Timestamp(millis) => StopOffsets::Timestamp(millis),
        Given::Offsets(offsets) => StopOffsets::At(offsets),
    })
}

/// What becomes of messages without a value.
pub(super) fn tombstones(source: &SourceOptions) -> Tombstones {
    match source.text("scan.tombstone") {
        Some("null-row") => Tombstones::NullRow,
        Some("fail") => Tombstones::Fail,
        _ => Tombstones::Skip,
    }
}

/// Checks what doesn't depend on format and schema.
pub(super) fn check(source: &SourceOptions) -> Result<()> {
    source.kafka_builder().and_then(|builder| builder.check()).map_err(|error| source.hide_secrets(error))
}

/// What the options of a start or of a stop say.
enum Given<'a> {
    /// A mode that needs no value; empty if there is none.
    Mode(&'a str),
    Timestamp(i64),
    Offsets(PartitionOffsets),
}

/// Reads the keys that begin with `group`.
fn given<'a>(source: &'a SourceOptions, group: &str) -> Result<Given<'a>> {
    let value = |part: &str| format!("{group}.{part}");
    Ok(match source.text(&value("mode")).unwrap_or_default() {
        "timestamp" => Given::Timestamp(needed(source, group, "timestamp-millis", parse_millis)?),
        "specific-offsets" => Given::Offsets(needed(source, group, "specific-offsets", str::parse)?),
        mode => Given::Mode(mode),
    })
}

fn needed<T>(
    source: &SourceOptions,
    group: &str,
    part: &str,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T> {
    let (key, mode) = (format!("{group}.{part}"), format!("{group}.mode"));
    let value = source.parsed(&key, parse)?;
    value.ok_or_else(|| {
        Error::option(&mode, format!("{} needs {key} beside it", source.text(&mode).unwrap_or_default()))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::{Assignment, Connector, assign};
    use std::sync::Arc;

    use super::*;
    use crate::kafka::Topics;
    use crate::source::{Boundedness, Source};

    fn topic(options: &[&str]) -> Result<SourceOptions, String> {
        let connector = Connector::Kafka { address: "kafka://h/bids".parse().unwrap() };
        let mut source = SourceOptions::new(connector, "0");
        let assignments: Vec<Assignment> = options.iter().map(|text| Assignment::parse(text).unwrap()).collect();
        match assign(std::slice::from_mut(&mut source), None, &assignments) {
            Ok(()) => Ok(source),
            Err(faults) => Err(faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")),
        }
    }

    fn offsets(of: &[(i32, u64)]) -> PartitionOffsets {
        PartitionOffsets(of.iter().copied().collect::<BTreeMap<_, _>>())
    }

    #[test]
    fn every_start_and_stop_reaches_its_builder() {
        for (options, start) in [
            (&[][..], StartOffsets::Earliest),
            (&["scan.startup.mode=earliest-offset"], StartOffsets::Earliest),
            (&["scan.startup.mode=latest-offset"], StartOffsets::Latest),
            (&["scan.startup.mode=timestamp", "scan.startup.timestamp-millis=7"], StartOffsets::Timestamp(7)),
            (
                &["scan.startup.mode=specific-offsets", "scan.startup.specific-offsets=partition:0,offset:4"],
                StartOffsets::At { offsets: offsets(&[(0, 4)]), default: None },
            ),
            (
                &[
                    "scan.startup.mode=specific-offsets",
                    "scan.startup.specific-offsets=partition:0,offset:4",
                    "scan.startup.specific-offsets.default=latest-offset",
                ],
                StartOffsets::At { offsets: offsets(&[(0, 4)]), default: Some(DefaultStart::Latest) },
            ),
            (&["scan.startup.mode=group-offsets", "properties.group.id=g"], StartOffsets::Group { default: None }),
            (
                &[
                    "scan.startup.mode=group-offsets",
                    "properties.group.id=g",
                    "scan.startup.group-offsets.default=earliest-offset",
                ],
                StartOffsets::Group { default: Some(DefaultStart::Earliest) },
            ),
        ] {
            assert_eq!(start_offsets(&topic(options).unwrap()).unwrap(), start);
        }
        for (options, stop) in [
            (&[][..], StopOffsets::Never),
            (&["scan.bounded.mode=unbounded"], StopOffsets::Never),
            (&["scan.bounded.mode=latest-offset"], StopOffsets::Latest),
            (&["scan.bounded.mode=timestamp", "scan.bounded.timestamp-millis=7"], StopOffsets::Timestamp(7)),
            (
                &["scan.bounded.mode=specific-offsets", "scan.bounded.specific-offsets=partition:1,offset:4"],
                StopOffsets::At(offsets(&[(1, 4)])),
            ),
        ] {
            assert_eq!(stop_offsets(&topic(options).unwrap()).unwrap(), stop);
        }
    }

    #[test]
    fn the_builder_knows_name_format_and_end() {
        let options = ["name=live", "value.format=json", "format=json", "scan.bounded.mode=latest-offset"];
        let schema = Arc::new(crate::schema::parse_schema("id INT").unwrap());
        let source = topic(&options).unwrap().kafka_builder().unwrap().schema(schema).build().unwrap();
        assert_eq!((source.name(), source.format().as_str()), ("live", "json"));
        assert_eq!(source.topics(), &Topics::Named(vec!["bids".into()]));
        assert_eq!(source.boundedness(), Boundedness::LiveUntilStop);
    }

    #[test]
    fn tombstones_are_what_the_option_says() {
        for (options, expected) in [
            (&[][..], Tombstones::Skip),
            (&["scan.tombstone=skip"], Tombstones::Skip),
            (&["scan.tombstone=null-row"], Tombstones::NullRow),
            (&["scan.tombstone=fail"], Tombstones::Fail),
        ] {
            assert_eq!(tombstones(&topic(options).unwrap()), expected);
        }
    }

    #[test]
    fn a_mode_and_its_value_stand_together() {
        for (options, fault) in [
            (
                &["scan.startup.mode=timestamp"][..],
                "option 'scan.startup.mode': timestamp needs scan.startup.timestamp-millis beside it",
            ),
            (
                &["scan.bounded.mode=specific-offsets"],
                "option 'scan.bounded.mode': specific-offsets needs scan.bounded.specific-offsets beside it",
            ),
            (
                &["scan.startup.timestamp-millis=7"],
                "option 'scan.startup.timestamp-millis': it means nothing without scan.startup.mode=timestamp",
            ),
            (
                &["scan.bounded.mode=latest-offset", "scan.bounded.timestamp-millis=7"],
                "option 'scan.bounded.timestamp-millis': it means nothing without scan.bounded.mode=timestamp",
            ),
            (
                &["scan.startup.mode=specific-offsets", "scan.startup.specific-offsets=0:4"],
                "option 'scan.startup.specific-offsets': '0:4' is not partition:N,offset:N",
            ),
            (
                &["scan.startup.mode=timestamp", "scan.startup.timestamp-millis=18446744073709551615"],
                "option 'scan.startup.timestamp-millis': '18446744073709551615' is too far in the future",
            ),
        ] {
            assert_eq!(topic(options).unwrap_err(), fault);
        }
    }

    #[test]
    fn what_is_not_the_topics_to_say_is_refused() {
        for (options, fault) in [
            (&["0.topic=bids"][..], "option '0.topic': the source has its topics already"),
            (&["0.path=x"], "option '0.path': it is an option of filesystem, and source '0' is kafka"),
            (
                &["format=csv", "0.csv.header=true"],
                "option '0.csv.header': it is an option of csv in files, and source '0' is csv in messages: a message has no header",
            ),
            (
                &["format=csv", "csv.ignore-first-line=true"],
                "option 'csv.ignore-first-line': it is an option of csv in files, and no source here knows it",
            ),
            (
                &["format=csv", "json.coerce=true"],
                "option 'json.coerce': it is an option of json, and no source here knows it",
            ),
            (
                &["format=csv", "value.format=json"],
                "option 'value.format': it is json, and format is csv: both mean the same",
            ),
            (&["format=parquet"], "option 'format': messages can't be parquet; csv, json or raw"),
            (&["scan.startup.mode=from-history"], "option 'scan.startup.mode': from-history is not in this version"),
            (
                &["0.scan.startup.mode=group-offsets"],
                "option 'scan.startup.mode': group-offsets needs properties.group.id beside it",
            ),
            (
                &["scan.startup.group-offsets.default=latest-offset"],
                "option 'scan.startup.group-offsets.default': it means nothing without scan.startup.mode=group-offsets",
            ),
            (&["0.topic-pattern=b.*"], "option '0.topic-pattern': the source has its topics already"),
            (&["scan.on-data-loss=refill"], "option 'scan.on-data-loss': refill is not in this version"),
            (&["scan.tombstone=null"], "option 'scan.tombstone': 'null' is none of skip, null-row, fail"),
            (
                &["properties.bootstrap.servers=x"],
                "option 'properties.bootstrap.servers': it can't be set: the address names the brokers",
            ),
        ] {
            assert_eq!(topic(options).unwrap_err(), fault);
        }
        for holds_anyway in ["scan.tombstone=skip", "scan.on-data-loss=fail", "scan.on-topic-deleted=fail"] {
            topic(&[holds_anyway]).unwrap();
        }
    }

    #[test]
    fn an_address_without_topics_takes_them_from_an_option() {
        let of = |options: &[&str]| {
            let connector = Connector::Kafka { address: "kafka://h".parse().unwrap() };
            let mut source = SourceOptions::new(connector, "0");
            let assignments: Vec<Assignment> = options.iter().map(|text| Assignment::parse(text).unwrap()).collect();
            match assign(std::slice::from_mut(&mut source), None, &assignments) {
                Ok(()) => Ok(source.kafka_builder().unwrap().build().unwrap().topics().clone()),
                Err(faults) => Err(faults[0].to_string()),
            }
        };
        assert_eq!(of(&["topic=bids;asks"]).unwrap(), Topics::Named(vec!["bids".into(), "asks".into()]));
        assert_eq!(of(&["topic-pattern=b.*"]).unwrap().to_string(), "topics that match b.*");
        for (options, fault) in [
            (&[][..], "option 'topic': no topic is named; write kafka://HOST/TOPIC, or set topic-pattern"),
            (&["topic=a b"], "option 'topic': 'a b' can't be a topic"),
            (&["topic-pattern=a("], "option 'topic-pattern': it is no regular expression"),
            (&["topic=a", "topic-pattern=a"], "the source has its topics already"),
            (
                &[
                    "topic-pattern=a",
                    "scan.startup.mode=specific-offsets",
                    "scan.startup.specific-offsets=partition:0,offset:4",
                ],
                "offsets are of one topic's partitions",
            ),
        ] {
            let told = of(options).unwrap_err();
            assert!(told.contains(fault), "{told}");
        }
    }

    #[test]
    fn options_of_the_format_reach_the_messages() {
        let source = topic(&["value.format=csv", "csv.field-delimiter=|", "json.coerce=true"]);
        assert_eq!(source.unwrap_err(), "option 'json.coerce': it is an option of json, and no source here knows it");
        let source = topic(&["value.format=csv", "csv.field-delimiter=|"]).unwrap();
        let schema = Arc::new(crate::schema::parse_schema("id INT").unwrap());
        let options = source.kafka_builder().unwrap().schema(schema).build().unwrap().position_options();
        assert_eq!(options["csv.field-delimiter"], "|");
    }

    #[test]
    fn a_start_of_the_sources_own_wins_over_one_for_every_source() {
        let given =
            ["scan.startup.mode=timestamp", "scan.startup.timestamp-millis=7", "0.scan.startup.mode=latest-offset"];
        assert_eq!(start_offsets(&topic(&given).unwrap()).unwrap(), StartOffsets::Latest);
        let given =
            ["scan.startup.mode=timestamp", "scan.startup.timestamp-millis=7", "0.scan.startup.timestamp-millis=8"];
        assert_eq!(start_offsets(&topic(&given).unwrap()).unwrap(), StartOffsets::Timestamp(8));
    }

    #[test]
    fn secrets_of_the_client_are_never_shown() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "geheim").unwrap();
        let secret = format!("${{file:{}}}", file.path().display());
        let source = topic(&[&format!("properties.client.id={secret}")]).unwrap();
        let built = source.kafka_builder().unwrap().build().unwrap();
        assert!(!format!("{source:?} {built:?}").contains("geheim"), "{source:?} {built:?}");
        assert!(format!("{built:?}").contains("client.id=***"), "{built:?}");
        let fault = topic(&[&format!("properties.fetch.wait.max.ms={secret}")]).unwrap_err();
        assert!(!fault.contains("geheim"), "{fault}");
    }

    #[test]
    fn a_job_is_known_by_its_topics_and_not_by_its_brokers() {
        let job = |address: &str| {
            let connector = Connector::Kafka { address: address.parse().unwrap() };
            super::super::job_id(&SourceOptions::new(connector, "0"), "stdout")
        };
        assert_eq!(job("kafka://a/bids,asks"), job("kafka://b:1,c/bids,asks"));
        assert_ne!(job("kafka://a/bids"), job("kafka://a/asks"));
    }
}
