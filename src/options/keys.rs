//! Every option key there is: Flink SQL's words where Flink has one.

use std::fmt;

use crate::error::{Error, Result};

/// What an option's value may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// Any text.
    Text,
    /// `true` or `false`.
    Boolean,
    /// A whole number from 0.
    Count,
    /// A whole number.
    Integer,
    /// `64 mb`: see [`parse_size`](super::parse_size).
    Size,
    /// `10 s`: see [`parse_duration`](super::parse_duration).
    Duration,
    /// One character, or `\t`, `\u0001`.
    Character,
    /// One of these words.
    OneOf(&'static [&'static str]),
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text => f.write_str("text"),
            Self::Boolean => f.write_str("true|false"),
            Self::Count | Self::Integer => f.write_str("number"),
            Self::Size => f.write_str("size"),
            Self::Duration => f.write_str("duration"),
            Self::Character => f.write_str("character"),
            Self::OneOf(words) => f.write_str(&words.join("|")),
        }
    }
}

/// What an option belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppliesTo {
    /// Every source.
    Source,
    /// Sources of files.
    Filesystem,
    /// Text with separators, in files and messages.
    Csv,
    /// JSON, in files and messages.
    Json,
    /// Topics.
    Kafka,
    /// Generated rows.
    Datagen,
    /// A chain of sources.
    Chain,
    /// Where rows are written to.
    Sink,
}

impl AppliesTo {
    /// As `segue options` takes and shows it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Filesystem => "filesystem",
            Self::Csv => "csv",
            Self::Json => "json",
            Self::Kafka => "kafka",
            Self::Datagen => "datagen",
            Self::Chain => "chain",
            Self::Sink => "sink",
        }
    }
}

/// One option: how it is written, and what it means.
///
/// `NAME` in a key stands for a column, a `*` at its end for the rest of the key.
#[derive(Clone, Copy, Debug)]
pub struct OptionKey {
    /// The key.
    pub key: &'static str,
    /// What its value may be.
    pub value: ValueType,
    /// What holds without it; empty if nothing does.
    pub default: &'static str,
    /// What it belongs to.
    pub applies_to: AppliesTo,
    /// What it means, in one line.
    pub meaning: &'static str,
    /// The option, and its value, without which this one means nothing: `scan.startup.mode=timestamp`.
    pub needs: Option<&'static str>,
    /// Whether it is about files, and never about messages, though their format is the same.
    pub files_only: bool,
    /// Whether this version knows what to do with it.
    pub in_this_version: bool,
    /// Words of [`ValueType::OneOf`] that this version doesn't know what to do with.
    pub later_values: &'static [&'static str],
}

const fn key(
    applies_to: AppliesTo,
    key: &'static str,
    value: ValueType,
    default: &'static str,
    meaning: &'static str,
) -> OptionKey {
    OptionKey {
        key,
        value,
        default,
        applies_to,
        meaning,
        needs: None,
        files_only: false,
        in_this_version: true,
        later_values: &[],
    }
}

impl OptionKey {
    const fn later(mut self) -> Self {
        self.in_this_version = false;
        self
    }

    const fn later_values(mut self, words: &'static [&'static str]) -> Self {
        self.later_values = words;
        self
    }

    const fn files_only(mut self) -> Self {
        self.files_only = true;
        self
    }

    const fn needs(mut self, other: &'static str) -> Self {
        self.needs = Some(other);
        self
    }

    /// The column that `key` names, if it is a spelling of this option; `Some("")` for one without a name.
    fn matches<'a>(&self, key: &'a str) -> Option<&'a str> {
        if let Some((before, after)) = self.key.split_once("NAME") {
            let name = key.strip_prefix(before)?.strip_suffix(after)?;
            return Some(name).filter(|name| !name.is_empty());
        }
        if let Some(before) = self.key.strip_suffix('*') {
            return key.strip_prefix(before).filter(|rest| !rest.is_empty());
        }
        (self.key == key).then_some("")
    }
}

use AppliesTo::{Chain, Csv, Datagen, Filesystem, Json, Kafka, Sink, Source};
use ValueType::{Boolean, Character, Count, Duration, Integer, OneOf, Size, Text};

/// Every option key, in the order in which `segue options` shows them.
pub static OPTION_KEYS: &[OptionKey] = &[
    key(Source, "connector", OneOf(&["filesystem", "kafka", "datagen"]), "", "what kind of source it is"),
    key(Source, "name", Text, "the index", "names the source: in _source, in the checkpoint and in NAME.KEY"),
    key(
        Source,
        "format",
        OneOf(&["csv", "json", "parquet", "raw", "avro", "arrow", "delta"]),
        "by suffix; a topic's is that of the source before",
        "how the bytes are to be understood",
    )
    .later_values(&["avro", "arrow", "delta"]),
    key(Source, "column.NAME.from", Text, "NAME", "the source's column that column NAME of the schema is taken from"),
    key(Source, "column.NAME.constant", Text, "", "a value that column NAME has in every row of the source"),
    key(Source, "column.NAME.default", Text, "", "a value in place of null in column NAME"),
    key(
        Source,
        "schema.missing-column",
        OneOf(&["null", "fail"]),
        "null",
        "a column of the schema that the source lacks",
    ),
    key(
        Source,
        "schema.extra-column",
        OneOf(&["ignore", "fail"]),
        "ignore",
        "a column of the source that the schema lacks",
    ),
    key(Filesystem, "path", Text, "", "the file, folder, glob or URL"),
    key(Filesystem, "source.allow-empty", Boolean, "false", "lets a folder or a glob match no file"),
    key(
        Filesystem,
        "source.on-new-files",
        OneOf(&["ignore", "read", "error"]),
        "ignore",
        "files that appear after the list was made",
    )
    .later_values(&["read"]),
    key(
        Filesystem,
        "source.monitor-interval",
        Duration,
        "",
        "looks for new files so often; the source has no end then",
    )
    .later(),
    key(Filesystem, "source.identity", Text, "", "what tells a file from its later self").later(),
    key(
        Csv,
        "csv.header",
        OneOf(&["auto", "true", "false"]),
        "auto",
        "whether the first record of each file names its columns",
    )
    .files_only(),
    key(Csv, "csv.ignore-first-line", Boolean, "false", "drops the first record of each file; columns go by position")
        .files_only(),
    key(
        Csv,
        "csv.field-delimiter",
        Character,
        ", (a tab in .tsv files)",
        "separates fields: any character, \\t, \\u0001",
    ),
    key(Csv, "csv.quote-character", Character, "\"", "encloses fields that hold delimiters or line ends"),
    key(Csv, "csv.disable-quote-character", Boolean, "false", "takes quotes as data"),
    key(Csv, "csv.escape-character", Character, "", "makes the character after it data, within quotes and without"),
    key(Csv, "csv.allow-comments", Boolean, "false", "skips lines that begin with #"),
    key(Csv, "csv.null-literal", Text, "", "an unquoted text that is null"),
    key(Csv, "csv.ignore-parse-errors", Boolean, "false", "skips bad records and counts them"),
    key(
        Csv,
        "csv.timestamp-format",
        Text,
        "ISO 8601",
        "how TIMESTAMP and TIMESTAMP_LTZ are written, by strftime: %d.%m.%Y %H:%M:%S%.f; DATE and TIME stay ISO 8601",
    ),
    key(
        Csv,
        "csv.decimal-rounding",
        Boolean,
        "false",
        "rounds digits that a DECIMAL has no place for, instead of failing",
    ),
    key(Csv, "csv.bytes-format", OneOf(&["base64", "hex"]), "base64", "how BYTES are written"),
    key(Csv, "csv.missing-fields", OneOf(&["fail", "null"]), "fail", "a record with too few fields"),
    key(Csv, "csv.extra-fields", OneOf(&["fail", "ignore"]), "fail", "a record with too many fields"),
    key(
        Csv,
        "csv.max-record-bytes",
        Size,
        "1 mb",
        "a quoted field still open so far behind its record's start has a stray quote, and the record ends with its line",
    ),
    key(
        Csv,
        "csv.charset",
        Text,
        "UTF-8; UTF-16 by a file's byte order mark",
        "how characters are written: latin1, windows-1252, utf-16le, shift_jis …; positions count bytes as UTF-8",
    ),
    key(Json, "json.ignore-parse-errors", Boolean, "false", "skips bad records and counts them"),
    key(Json, "json.fail-on-missing-field", Boolean, "false", "a record without one of the schema's keys is bad"),
    key(
        Json,
        "json.case-insensitive-names",
        Boolean,
        "false",
        "matches keys and columns whatever their case; as always, of a key that stands twice the last value counts",
    ),
    key(Json, "json.coerce", Boolean, "false", "takes numbers out of strings, and text out of numbers"),
    key(Json, "json.max-depth", Count, "64", "how deep a record may be nested"),
    key(Datagen, "number-of-rows", Count, "endless", "how many rows there are; on the command line --rows says it"),
    key(Datagen, "rows-per-second", Count, "as fast as it goes", "how many rows are made in a second, at most"),
    key(Datagen, "seed", Count, "42", "the same seed gives the same rows"),
    key(
        Datagen,
        "fields.NAME.kind",
        OneOf(&["random", "sequence"]),
        "random",
        "how the values of column NAME are made",
    ),
    key(Datagen, "fields.NAME.start", Integer, "", "the first value").needs("fields.NAME.kind=sequence"),
    key(Datagen, "fields.NAME.end", Integer, "none", "the last value, inclusive; the source ends with it")
        .needs("fields.NAME.kind=sequence"),
    key(Datagen, "fields.NAME.min", Text, "the type's", "the smallest value").needs("fields.NAME.kind=random"),
    key(Datagen, "fields.NAME.max", Text, "the type's", "the largest value, inclusive")
        .needs("fields.NAME.kind=random"),
    key(Datagen, "fields.NAME.length", Count, "16", "characters of text, bytes of BYTES")
        .needs("fields.NAME.kind=random"),
    key(Kafka, "topic", Text, "", "the topics, ';' between several, if the address names none: kafka://HOST"),
    key(
        Kafka,
        "topic-pattern",
        Text,
        "",
        "a regular expression: every topic is read whose whole name it matches, if the address names none: kafka://HOST",
    ),
    key(Kafka, "value.format", OneOf(&["csv", "json", "raw", "avro"]), "", "the same as format")
        .later_values(&["avro"]),
    key(
        Kafka,
        "properties.commit.offsets.on.checkpoint",
        Boolean,
        "true",
        "commits positions to the group properties.group.id when the checkpoint is, for whoever watches its lag",
    ),
    key(Kafka, "properties.*", Text, "", "a setting of the client, by librdkafka's name: properties.fetch.wait.max.ms"),
    key(
        Kafka,
        "scan.startup.mode",
        OneOf(&["earliest-offset", "latest-offset", "timestamp", "specific-offsets", "group-offsets", "from-history"]),
        "earliest-offset",
        "where reading begins, the first time; --from is short for it",
    )
    .later_values(&["from-history"]),
    key(
        Kafka,
        "scan.startup.timestamp-millis",
        Count,
        "",
        "the first message of this time or a later one is the first, in ms since the epoch",
    )
    .needs("scan.startup.mode=timestamp"),
    key(
        Kafka,
        "scan.startup.specific-offsets",
        Text,
        "",
        "the first offset of every partition: partition:0,offset:42;partition:1,offset:300",
    )
    .needs("scan.startup.mode=specific-offsets"),
    key(
        Kafka,
        "scan.startup.specific-offsets.default",
        OneOf(&["earliest-offset", "latest-offset"]),
        "none",
        "the start of partitions that aren't named; an error without",
    )
    .needs("scan.startup.mode=specific-offsets"),
    key(
        Kafka,
        "scan.startup.group-offsets.default",
        OneOf(&["earliest-offset", "latest-offset"]),
        "none",
        "the start of partitions of which the group (properties.group.id) has committed nothing; an error without",
    )
    .needs("scan.startup.mode=group-offsets"),
    key(Kafka, "scan.startup.history.*", Text, "", "where the files before say that the topic goes on")
        .needs("scan.startup.mode=from-history")
        .later(),
    key(
        Kafka,
        "scan.bounded.mode",
        OneOf(&["unbounded", "latest-offset", "timestamp", "specific-offsets"]),
        "unbounded",
        "where reading ends; --until is short for it",
    ),
    key(
        Kafka,
        "scan.bounded.timestamp-millis",
        Count,
        "",
        "the first message of this time or a later one isn't read any more, in ms since the epoch",
    )
    .needs("scan.bounded.mode=timestamp"),
    key(
        Kafka,
        "scan.bounded.specific-offsets",
        Text,
        "",
        "the end of every partition, exclusive: partition:0,offset:42;partition:1,offset:300",
    )
    .needs("scan.bounded.mode=specific-offsets"),
    key(
        Kafka,
        "scan.on-data-loss",
        OneOf(&["fail", "earliest", "latest", "refill"]),
        "fail; earliest for a start at earliest-offset of which nothing was read",
        "what to do when the log no longer has the next offset",
    )
    .later_values(&["refill"]),
    key(Kafka, "scan.retention-watch", OneOf(&["fail", "spill"]), "", "when retention is about to overtake the start")
        .later(),
    key(Kafka, "scan.spill-limit", Size, "", "how much may be spilled").later(),
    key(
        Kafka,
        "scan.on-topic-deleted",
        OneOf(&["fail", "finish"]),
        "fail",
        "a topic that is deleted while it is read, or between two runs",
    ),
    key(
        Kafka,
        "scan.tombstone",
        OneOf(&["skip", "null-row", "fail"]),
        "skip",
        "messages without a value: no row, a row of nulls with its key and offset, or a bad record",
    ),
    key(
        Kafka,
        "scan.topic-partition-discovery.interval",
        Duration,
        "30 s",
        "how often new partitions, and new topics of a pattern, are looked for while reading has no end; 0 for never",
    ),
    key(Chain, "sources", Text, "", "the tables that make the chain, in order").later(),
    key(Chain, "source-identifiers", Text, "", "the names of the chain's sources").later(),
    key(Chain, "schema-field-mappings", Text, "", "which column of which source goes where").later(),
    key(Sink, "sink.rolling-policy.file-size", Size, "128 mb", "a file is closed after the record that reaches it"),
    key(Sink, "sink.rolling-policy.rollover-interval", Duration, "none", "a file is closed after so long"),
    key(Sink, "sink.csv.header", Boolean, "true", "whether CSV files begin with the names of the columns"),
    key(Sink, "sink.partition-by", Text, "", "columns that make folders").later(),
    key(Sink, "sink.format", OneOf(&["csv", "json"]), "csv", "how a row is written into a message; csv has no header"),
    key(Sink, "sink.partitions", Count, "1", "the partitions of a topic that has to be made"),
    key(Sink, "sink.properties.*", Text, "", "settings of a topic's client, by librdkafka's names"),
    key(
        Sink,
        "sink.parquet.compression",
        OneOf(&["zstd", "snappy", "lz4", "gzip", "uncompressed"]),
        "zstd",
        "how Parquet pages are compressed",
    ),
    key(Sink, "sink.parquet.row-group-rows", Count, "1048576", "rows of a Parquet row group, at most"),
];

/// An option key as it was written, recognised.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recognised<'a> {
    pub(crate) option: &'static OptionKey,
    /// The column, or the rest of the key, that stands for `NAME` or `*`; else empty.
    pub(crate) name: &'a str,
}

/// Finds the option of a key without a scope, in this version or not.
pub(crate) fn recognise(key: &str) -> Option<Recognised<'_>> {
    OPTION_KEYS.iter().find_map(|option| option.matches(key).map(|name| Recognised { option, name }))
}

/// The error for a key that nobody knows, with the nearest one that somebody does.
pub(crate) fn unknown(key: &str) -> Error {
    Error::UnknownOption { key: key.to_owned(), nearest: nearest(key) }
}

/// The options of a connector, a format, or `source`, `chain`, `sink`: its own first.
///
/// # Errors
/// [`Error::InvalidOption`] if no option belongs to it.
pub fn options_of(topic: &str) -> Result<Vec<&'static OptionKey>> {
    let with_source = ["filesystem", "kafka", "datagen"].contains(&topic);
    let mut keys: Vec<_> = OPTION_KEYS
        .iter()
        .filter(|option| {
            let applies_to = option.applies_to;
            applies_to.as_str() == topic
                || (with_source && applies_to == Source)
                || (topic == "kafka" && matches!(applies_to, Csv | Json) && !option.files_only)
                || option
                    .key
                    .strip_prefix("sink.")
                    .and_then(|rest| rest.strip_prefix(topic))
                    .is_some_and(|rest| rest.starts_with('.'))
        })
        .collect();
    if keys.is_empty() {
        let known = "filesystem, kafka, datagen, csv, json, parquet, source, chain, sink";
        return Err(Error::option(topic, format!("no option belongs to it; there are options of {known}")));
    }
    keys.sort_by_key(|option| option.applies_to.as_str() != topic);
    Ok(keys)
}

fn nearest(key: &str) -> Option<String> {
    // A scope that doesn't exist in front of a key that does.
    if let Some((_, rest)) = key.split_once('.').filter(|(_, rest)| recognise(rest).is_some()) {
        return Some(rest.to_owned());
    }
    // A part of a key, in the same group: `csv.delimiter`, `csv.quote`, `header`.
    let (group, word) = key.rsplit_once('.').unwrap_or(("", key));
    let is_part = |option: &&OptionKey| {
        let (begins, dashed, dotted) = (format!("{key}-"), format!("-{word}"), format!(".{word}"));
        let ends = option.key.ends_with(&dashed) || option.key.ends_with(&dotted);
        option.key.starts_with(&begins) || (ends && option.key.starts_with(group))
    };
    if let Some(option) = OPTION_KEYS.iter().find(is_part) {
        return Some(option.key.to_owned());
    }
    // Farther than a third of its length, a key is another word.
    let allowed = (key.len() / 3).max(2);
    OPTION_KEYS
        .iter()
        .filter(|option| !option.key.ends_with('*'))
        .map(|option| (strsim::damerau_levenshtein(key, &named_alike(option.key, key)), option))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, option)| named_alike(option.key, key))
}

/// `fields.NAME.kind` with the name that `key` has in that place.
fn named_alike(option: &str, key: &str) -> String {
    match key.split('.').collect::<Vec<_>>().as_slice() {
        [_, name @ .., _] if !name.is_empty() => option.replace("NAME", &name.join(".")),
        _ => option.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_key_is_known_by_its_exact_spelling() {
        assert_eq!(recognise("csv.header").unwrap().option.key, "csv.header");
        assert_eq!(recognise("fields.a.b.kind").unwrap().name, "a.b");
        assert_eq!(recognise("properties.sasl.mechanism").unwrap().name, "sasl.mechanism");
        for wrong in ["csv.headers", "kafkax.topic", "fields..kind", "fields.kind", "properties.", "column.NAME", ""] {
            assert!(recognise(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn the_nearest_key_is_suggested() {
        let near = |key: &str| nearest(key);
        assert_eq!(near("csv.heder").as_deref(), Some("csv.header"));
        assert_eq!(near("kafkax.topic").as_deref(), Some("topic"));
        assert_eq!(near("fields.id.kin").as_deref(), Some("fields.id.kind"));
        assert_eq!(near("csv.delimiter").as_deref(), Some("csv.field-delimiter"));
        assert_eq!(near("csv.quote").as_deref(), Some("csv.quote-character"));
        assert_eq!(near("header").as_deref(), Some("csv.header"));
        assert_eq!(near("number-of-row").as_deref(), Some("number-of-rows"));
        assert_eq!(near("colour"), None);
    }

    #[test]
    fn keys_are_unique_and_every_mode_that_is_needed_is_a_key() {
        let keys: BTreeSet<_> = OPTION_KEYS.iter().map(|option| option.key).collect();
        assert_eq!(keys.len(), OPTION_KEYS.len());
        for needed in OPTION_KEYS.iter().filter_map(|option| option.needs) {
            let (mode, value) = needed.split_once('=').unwrap();
            let mode = OPTION_KEYS.iter().find(|option| option.key == mode).unwrap();
            assert!(matches!(mode.value, OneOf(words) if words.contains(&value)), "{needed}");
        }
    }
}
