//! The options of one source, and the builders they make.

use std::collections::{BTreeMap, BTreeSet};

use arrow::datatypes::SchemaRef;

use super::keys::recognise;
use super::value::{OptionValue, parse_boolean, parse_count, parse_integer};
use super::{AppliesTo, OptionKey, check_value};
use crate::error::{Error, Result};
use crate::file::{FileSource, FileSourceBuilder, OnNewFiles};
use crate::format::Format;
#[cfg(feature = "kafka")]
use crate::kafka::{KafkaAddress, KafkaSource, KafkaSourceBuilder, TopicPattern, Topics};
use crate::schema::{ColumnRule, Mapping, OnExtra, OnMissing};
use crate::source::{DatagenSource, DatagenSourceBuilder, FieldKind};

/// What kind of source is described.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Connector {
    /// Files: a file, folder, glob or URL.
    Filesystem {
        /// Where they are.
        path: String,
    },
    /// Topics.
    #[cfg(feature = "kafka")]
    Kafka {
        /// Where they are.
        address: KafkaAddress,
    },
    /// Generated rows.
    Datagen,
}

impl Connector {
    /// As in the option `connector`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Filesystem { .. } => "filesystem",
            #[cfg(feature = "kafka")]
            Self::Kafka { .. } => "kafka",
            Self::Datagen => "datagen",
        }
    }
}

/// The options of one source, each checked as it is set.
#[derive(Clone, Debug)]
pub struct SourceOptions {
    connector: Connector,
    name: String,
    values: BTreeMap<String, Given>,
}

#[derive(Clone, Debug)]
struct Given {
    value: OptionValue,
    /// For this source alone, not for every one that knows the key.
    own: bool,
}

impl SourceOptions {
    /// Begins the description of a source called `name`.
    pub fn new(connector: Connector, name: impl Into<String>) -> Self {
        Self { connector, name: name.into(), values: BTreeMap::new() }
    }

    /// What kind of source it is.
    pub fn connector(&self) -> &Connector {
        &self.connector
    }

    /// The name, unique in a chain.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is a source of topics: one whose formats nothing but options can tell.
    pub fn is_topic(&self) -> bool {
        self.connector.as_str() == "kafka"
    }

    /// Sets an option of this source.
    ///
    /// # Errors
    /// [`Error::UnknownOption`], [`Error::Unsupported`] for one of a later version, [`Error::InvalidOption`]
    /// for a value that it can't have, an option of another kind of source, or one that is set already.
    pub fn set(&mut self, key: &str, value: &OptionValue) -> Result<()> {
        self.give(key, value, true)
    }

    /// Sets an option that every source has been given; one of the source's own wins.
    pub(super) fn set_for_every(&mut self, key: &str, value: &OptionValue) -> Result<()> {
        self.give(key, value, false)
    }

    fn give(&mut self, key: &str, value: &OptionValue, own: bool) -> Result<()> {
        let option = check_value(key, value)?;
        if !self.may_know(option) {
            let (whose, what) = (option.applies_to.as_str(), self.described());
            let reason = if option.files_only && self.is_topic() {
                format!("it is an option of {whose} in files, and {what}: a message has no header")
            } else {
                format!("it is an option of {whose}, and {what}")
            };
            return Err(Error::option(key, reason));
        }
        match key {
            "connector" if value.as_str() != self.connector.as_str() => {
                return Err(Error::option(key, format!("{} already", self.described())));
            }
            "path" => return Err(Error::option(key, "the source has its path already")),
            #[cfg(feature = "kafka")]
            "topic" | "topic-pattern" => self.take_topics(key, value.as_str())?,
            "name" if value.as_str().is_empty() => return Err(Error::option(key, "a name can't be empty")),
            "name" => value.as_str().clone_into(&mut self.name),
            _ => {}
        }
        match self.values.get(key) {
            Some(known) if known.own == own => return Err(Error::option(key, "it is given twice")),
            Some(known) if known.own => return Ok(()),
            _ => {}
        }
        self.values.insert(key.to_owned(), Given { value: value.clone(), own });
        Ok(())
    }

    /// Takes the topics from an option, if the address names none.
    #[cfg(feature = "kafka")]
    fn take_topics(&mut self, key: &str, text: &str) -> Result<()> {
        let is_named_otherwise = ["topic", "topic-pattern"].iter().any(|other| *other != key && self.has(other));
        let Connector::Kafka { address } = &mut self.connector else { return Ok(()) };
        if !address.topics.is_empty() || is_named_otherwise {
            return Err(Error::option(key, "the source has its topics already"));
        }
        if key == "topic" {
            address.topics = Topics::parse_names(text)?;
        }
        Ok(())
    }

    /// Whether an option can mean something here, as far as is known before anything is looked at.
    pub(super) fn may_know(&self, option: &OptionKey) -> bool {
        let is_files = matches!(self.connector, Connector::Filesystem { .. });
        let has_text = is_files || (self.is_topic() && !option.files_only);
        let may_be = |format| has_text && self.format_ahead().is_none_or(|known| known == format);
        match option.applies_to {
            AppliesTo::Source => true,
            AppliesTo::Filesystem => is_files,
            AppliesTo::Csv => may_be(Format::Csv),
            AppliesTo::Json => may_be(Format::Json),
            AppliesTo::Kafka => self.is_topic(),
            AppliesTo::Datagen => self.connector == Connector::Datagen,
            AppliesTo::Chain | AppliesTo::Sink => false,
        }
    }

    fn described(&self) -> String {
        let medium = if self.is_topic() { "messages" } else { "files" };
        match (&self.connector, self.format_ahead()) {
            (Connector::Datagen, _) | (_, None) => format!("source '{}' is {}", self.name, self.connector.as_str()),
            (_, Some(format)) => format!("source '{}' is {format} in {medium}", self.name),
        }
    }

    /// The format that was set, or that the suffix of a file or glob tells; `None` if only the files, or the source
    /// before a topic, can say.
    pub fn format_ahead(&self) -> Option<Format> {
        if let Some(format) = self.format_given() {
            return format.value.as_str().parse().ok();
        }
        match &self.connector {
            Connector::Filesystem { path } => Format::of_file(path).ok().flatten(),
            _ => None,
        }
    }

    /// What `format` says, or `value.format`, which is the same of a topic.
    fn format_given(&self) -> Option<&Given> {
        let given = ["format", "value.format"].into_iter().filter_map(|key| self.values.get(key));
        // One of the source's own wins.
        given.max_by_key(|given| given.own)
    }

    /// Whether bad records of this source are left out, whatever is asked for otherwise.
    pub fn ignores_parse_errors(&self) -> bool {
        ["csv.ignore-parse-errors", "json.ignore-parse-errors"].iter().any(|key| self.text(key) == Some("true"))
    }

    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(|given| given.value.as_str())
    }

    /// The faults of options that don't go together.
    pub(super) fn faults(&self) -> Vec<Error> {
        let mut faults = Vec::new();
        for (key, given) in &self.values {
            let Some(recognised) = recognise(key) else { continue };
            let Some((mode, wanted)) = recognised.option.needs.and_then(|needs| needs.split_once('=')) else {
                continue;
            };
            let mode = mode.replace("NAME", recognised.name);
            let default = recognise(&mode).map_or("", |mode| mode.option.default);
            // A mode of the source's own wins over what was meant for every source, and so over its value too.
            let is_beaten = !given.own && self.values.get(&mode).is_some_and(|mode| mode.own);
            if self.text(&mode).unwrap_or(default) != wanted && !is_beaten {
                faults.push(Error::option(key, format!("it means nothing without {mode}={wanted}")));
            }
        }
        if let (Some(format), Some(of_values)) = (self.values.get("format"), self.values.get("value.format"))
            && format.own == of_values.own
            && format.value != of_values.value
        {
            let (is, and) = (of_values.value.as_str(), format.value.as_str());
            faults.push(Error::option("value.format", format!("it is {is}, and format is {and}: both mean the same")));
        }
        if self.text("csv.disable-quote-character").is_some_and(|text| parse_boolean(text) == Ok(true))
            && self.values.contains_key("csv.quote-character")
        {
            faults.push(Error::option("csv.quote-character", "csv.disable-quote-character says that there is none"));
        }
        #[cfg(feature = "csv")]
        faults.extend(super::csv::csv_options(self).and_then(|csv| csv.check()).err());
        #[cfg(feature = "kafka")]
        if self.is_topic() {
            faults.extend(super::kafka::check(self).err());
        }
        faults
    }

    /// The option that makes the source endless, if it is.
    pub(super) fn unbounded_because(&self) -> Option<String> {
        let is_endless = self.text("scan.bounded.mode").is_none_or(|mode| mode == "unbounded");
        (self.is_topic() && is_endless).then(|| "scan.bounded.mode is unbounded".to_owned())
    }

    /// Says whether a topic of `target` is read by this source, on the same cluster as far as addresses tell.
    #[cfg(feature = "kafka")]
    pub fn reads(&self, target: &KafkaAddress) -> bool {
        let Connector::Kafka { address } = &self.connector else { return false };
        match self.text("topic-pattern").map(TopicPattern::try_new) {
            None => target.is_read_by(address),
            // What is no pattern is told elsewhere.
            Some(pattern) => pattern.is_ok_and(|pattern| {
                target.topics.iter().any(|topic| pattern.takes(topic)) && target.is_on_cluster_of(address)
            }),
        }
    }

    /// What a source of topics reads, in one line: their names, or the pattern that takes them.
    #[cfg(feature = "kafka")]
    pub(super) fn topics_text(&self) -> String {
        match (&self.connector, self.text("topic-pattern")) {
            (_, Some(pattern)) => pattern.to_owned(),
            (Connector::Kafka { address }, None) => address.topics.join(","),
            _ => String::new(),
        }
    }

    /// Whether an option was given, for this source or for every one.
    pub(super) fn has(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    /// The options that say nothing about `format`: each with whether it was for this source alone.
    pub(super) fn foreign_to(&self, format: Format) -> impl Iterator<Item = (&str, AppliesTo, bool)> {
        self.values.iter().filter_map(move |(key, given)| {
            let applies_to = recognise(key)?.option.applies_to;
            let is_foreign = match applies_to {
                AppliesTo::Csv => format != Format::Csv,
                AppliesTo::Json => format != Format::Json,
                _ => false,
            };
            is_foreign.then_some((key.as_str(), applies_to, given.own))
        })
    }

    /// Makes the builder of a source of files; a schema, and what was stored, are for the caller to add.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if this isn't a source of files, or for a value that can't stand.
    pub fn file_builder(&self) -> Result<FileSourceBuilder> {
        let Connector::Filesystem { path } = &self.connector else {
            return Err(Error::option("connector", format!("{}, not filesystem", self.described())));
        };
        let mut builder = FileSource::builder(path).name(&self.name).mapping(self.mapping());
        if let Some(format) = self.format_given() {
            builder = builder.format(format.value.as_str().parse()?);
        }
        if let Some(allow_empty) = self.parsed("source.allow-empty", parse_boolean)? {
            builder = builder.allow_empty(allow_empty);
        }
        if self.text("source.on-new-files") == Some("error") {
            builder = builder.on_new_files(OnNewFiles::Error);
        }
        #[cfg(feature = "csv")]
        {
            builder = builder.csv(super::csv::csv_options(self)?);
        }
        #[cfg(feature = "json")]
        {
            builder = builder.json(super::json::json_options(self)?);
        }
        Ok(builder)
    }

    /// Makes the builder of a source of topics; a schema, and the format if it is that of the source before
    /// ([`topic_format`](super::topic_format)), are for the caller to add.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if this isn't a source of topics, for a value that can't stand, or for a mode
    /// without the value that it needs.
    #[cfg(feature = "kafka")]
    pub fn kafka_builder(&self) -> Result<KafkaSourceBuilder> {
        let Connector::Kafka { address } = &self.connector else {
            return Err(Error::option("connector", format!("{}, not kafka", self.described())));
        };
        let mut builder = KafkaSource::builder(address).name(&self.name).mapping(self.mapping());
        if let Some(format) = self.format_given() {
            builder = builder.format(format.value.as_str().parse()?);
        }
        for (key, given) in &self.values {
            let Some(property) = key.strip_prefix("properties.") else { continue };
            let value = given.value.as_str();
            // Flink's word for it; the client itself commits nothing.
            if property == "commit.offsets.on.checkpoint" {
                let commits = parse_boolean(value).map_err(|reason| Error::option(key, reason))?;
                builder = builder.commit_group_offsets(commits);
                continue;
            }
            builder = match given.value.is_secret() {
                true => builder.secret_property(property, value),
                false => builder.property(property, value),
            };
        }
        #[cfg(feature = "csv")]
        {
            builder = builder.csv(super::csv::csv_options(self)?);
        }
        #[cfg(feature = "json")]
        {
            builder = builder.json(super::json::json_options(self)?);
        }
        let builder = super::kafka::with_changes(self, builder)?;
        let builder = builder.tombstones(super::kafka::tombstones(self));
        Ok(builder.start(super::kafka::start_offsets(self)?).stop(super::kafka::stop_offsets(self)?))
    }

    /// Makes the builder of a source of generated rows of `schema`.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if this isn't one, or for a value that can't stand.
    pub fn datagen_builder(&self, schema: SchemaRef) -> Result<DatagenSourceBuilder> {
        if self.connector != Connector::Datagen {
            return Err(Error::option("connector", format!("{}, not datagen", self.described())));
        }
        let mut builder = DatagenSource::builder(schema).name(&self.name).mapping(self.mapping());
        if let Some(rows) = self.parsed("number-of-rows", parse_count)? {
            builder = builder.num_rows(rows);
        }
        if let Some(rows) = self.parsed("rows-per-second", parse_count)? {
            builder = builder.rows_per_second(rows);
        }
        if let Some(seed) = self.parsed("seed", parse_count)? {
            builder = builder.seed(seed);
        }
        let fields = self.values.keys().filter(|key| key.starts_with("fields."));
        let columns: BTreeSet<&str> = fields.filter_map(|key| recognise(key)).map(|found| found.name).collect();
        for column in columns {
            builder = builder.field(column, self.field_kind(column)?);
        }
        Ok(builder)
    }

    fn field_kind(&self, column: &str) -> Result<FieldKind> {
        let key = |part: &str| format!("fields.{column}.{part}");
        if self.text(&key("kind")) == Some("sequence") {
            return Ok(FieldKind::Sequence {
                start: self.parsed(&key("start"), parse_integer)?.unwrap_or(0),
                end: self.parsed(&key("end"), parse_integer)?,
            });
        }
        Ok(FieldKind::Random {
            min: self.text(&key("min")).map(ToOwned::to_owned),
            max: self.text(&key("max")).map(ToOwned::to_owned),
            length: self.parsed(&key("length"), parse_count)?.map(|length| length as usize),
        })
    }

    /// How the source is fitted to the unified schema.
    pub fn mapping(&self) -> Mapping {
        let mut columns: BTreeMap<String, ColumnRule> = BTreeMap::new();
        for (key, given) in self.values.iter().filter(|(key, _)| key.starts_with("column.")) {
            let Some(found) = recognise(key) else { continue };
            let rule = columns.entry(found.name.to_owned()).or_default();
            let value = Some(given.value.as_str().to_owned());
            rule.is_secret |= given.value.is_secret();
            match found.option.key.rsplit_once('.').map(|(_, part)| part) {
                Some("from") => rule.from = value,
                Some("constant") => rule.constant = value,
                _ => rule.default = value,
            }
        }
        let on_missing =
            if self.text("schema.missing-column") == Some("fail") { OnMissing::Fail } else { OnMissing::Null };
        let on_extra = if self.text("schema.extra-column") == Some("fail") { OnExtra::Fail } else { OnExtra::Ignore };
        Mapping { columns, on_missing, on_extra }
    }

    pub(super) fn parsed<T>(&self, key: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Result<Option<T>> {
        self.text(key).map(parse).transpose().map_err(|reason| Error::option(key, reason))
    }

    /// Sets `place` if the option is set.
    #[cfg(any(feature = "csv", feature = "json"))]
    pub(super) fn put<T>(&self, key: &str, parse: impl FnOnce(&str) -> Result<T, String>, place: &mut T) -> Result<()> {
        if let Some(value) = self.parsed(key, parse)? {
            *place = value;
        }
        Ok(())
    }

    /// The error with stars in place of every secret of this source.
    pub fn hide_secrets(&self, error: Error) -> Error {
        let hide = |text: String| self.values.values().fold(text, |text, given| given.value.hide(&text));
        match error {
            Error::InvalidOption { key, reason } => Error::InvalidOption { key, reason: hide(reason) },
            Error::Schema(text) => Error::Schema(hide(text)),
            e => e,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, options: &[(&str, &str)]) -> SourceOptions {
        let mut source = SourceOptions::new(Connector::Filesystem { path: path.to_owned() }, "0");
        for (key, value) in options {
            source.set(key, &(*value).into()).unwrap();
        }
        source
    }

    #[test]
    fn columns_are_mapped_by_name_also_if_it_holds_dots() {
        let options = [
            ("column.a.b.from", "x"),
            ("column.run.constant", "7"),
            ("column.price.default", "0"),
            ("schema.missing-column", "fail"),
        ];
        let mapping = source("a.csv", &options).mapping();
        assert_eq!(mapping.columns["a.b"].from.as_deref(), Some("x"));
        assert_eq!(mapping.columns["run"].constant.as_deref(), Some("7"));
        assert_eq!(mapping.columns["price"].default.as_deref(), Some("0"));
        assert_eq!((mapping.on_missing, mapping.on_extra), (OnMissing::Fail, OnExtra::Ignore));
    }

    #[test]
    fn an_option_of_another_connector_is_refused() {
        let mut files = source("a.csv", &[]);
        let error = files.set("seed", &"1".into()).unwrap_err();
        assert_eq!(error.to_string(), "option 'seed': it is an option of datagen, and source '0' is csv in files");
        assert!(files.set("connector", &"filesystem".into()).is_ok());
        let error = files.set("path", &"b.csv".into()).unwrap_err();
        assert_eq!(error.to_string(), "option 'path': the source has its path already");
    }

    #[test]
    fn secrets_are_taken_out_of_errors_that_builders_make() {
        let mut source = SourceOptions::new(Connector::Datagen, "0");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "geheim").unwrap();
        let value = OptionValue::substitute("k", &format!("${{file:{}}}", file.path().display())).unwrap();
        source.set("fields.id.min", &value).unwrap();
        let schema = std::sync::Arc::new(crate::schema::parse_schema("id INT").unwrap());
        let error = source.datagen_builder(schema).and_then(|builder| builder.build()).unwrap_err();
        assert!(!source.hide_secrets(error).to_string().contains("geheim"));
    }
}
