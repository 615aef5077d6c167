//! The checkpoint's JSON, version 1. A golden file in `tests/it` holds it still.

use std::collections::BTreeMap;

use chrono::{DateTime, SecondsFormat};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{CHECKPOINT_VERSION, Checkpoint, Identity, SourceState, SplitId, SplitList, SplitState, Splits};
use crate::error::{Error, Result};

#[derive(Serialize, Deserialize)]
struct CheckpointDoc {
    version: u64,
    job: String,
    epoch: u64,
    written: String,
    schema: String,
    sources: Vec<SourceDoc>,
    rows: Map<String, Value>,
    rejected: Map<String, Value>,
}

#[derive(Serialize, Deserialize)]
struct SourceDoc {
    name: String,
    connector: String,
    options: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    done_through: Option<String>,
    splits: BTreeMap<String, SplitDoc>,
    #[serde(flatten)]
    notes: BTreeMap<String, Value>,
}

#[derive(Serialize, Deserialize)]
struct SplitDoc {
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<u64>,
    position: u64,
    // Absent means a split without an end of its own; null an end that isn't known.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    stop: Option<Option<u64>>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    done: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    modified: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    etag: Option<String>,
    #[serde(flatten)]
    other: Map<String, Value>,
}

fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Option<Option<u64>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

impl Checkpoint {
    /// Writes the JSON of this checkpoint, ending with a newline.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if a note can't be written as JSON.
    pub fn to_json(&self) -> Result<String> {
        let counts = |count: fn(&SourceState) -> u64| {
            self.sources.iter().map(|source| (source.name.clone(), count(source).into())).collect::<Map<_, _>>()
        };
        let doc = CheckpointDoc {
            version: CHECKPOINT_VERSION,
            job: self.job.clone(),
            epoch: self.epoch,
            written: self.written.clone(),
            schema: self.schema.clone(),
            sources: self.sources.iter().map(SourceDoc::new).collect(),
            rows: counts(|source| source.rows),
            rejected: counts(|source| source.rejected),
        };
        let json = serde_json::to_string_pretty(&doc).map_err(|e| broken("", format!("can't be written: {e}")))?;
        Ok(json + "\n")
    }

    /// Reads a checkpoint; the lists of files that it names are yet to be loaded.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if `json` is truncated, no checkpoint, or of a newer version. `path` is
    /// named in the error.
    pub(crate) fn from_json(path: &str, json: &[u8]) -> Result<PartialCheckpoint> {
        let value: Value = serde_json::from_slice(json).map_err(|e| {
            let reason = if json.is_empty() {
                "it is empty".into()
            } else if e.is_eof() {
                format!("it is truncated after {} bytes", json.len())
            } else {
                format!("it isn't JSON: {e}")
            };
            broken(path, reason)
        })?;
        match value.get("version").and_then(Value::as_u64) {
            None => return Err(broken(path, "it isn't a checkpoint: it has no version".into())),
            Some(CHECKPOINT_VERSION) => {}
            Some(version) => {
                let reason = format!(
                    "it was written by another version of segue (format {version}, this one reads {CHECKPOINT_VERSION})"
                );
                return Err(broken(path, reason));
            }
        }
        let doc: CheckpointDoc =
            serde_json::from_value(value).map_err(|e| broken(path, format!("it is damaged: {e}")))?;
        let count = |counts: &Map<String, Value>, name: &str| match counts.get(name) {
            None => Ok(0),
            Some(value) => value
                .as_u64()
                .ok_or_else(|| broken(path, format!("it is damaged: {value} is no count of source {name}"))),
        };
        let mut sources = Vec::with_capacity(doc.sources.len());
        let mut done_through = Vec::with_capacity(doc.sources.len());
        for source in doc.sources {
            let rows = count(&doc.rows, &source.name)?;
            let rejected = count(&doc.rejected, &source.name)?;
            done_through.push(source.done_through.clone());
            sources.push(SourceState { rows, rejected, ..source.into_state(path)? });
        }
        let checkpoint =
            Checkpoint { job: doc.job, epoch: doc.epoch, written: doc.written, schema: doc.schema, sources };
        Ok(PartialCheckpoint { checkpoint, done_through })
    }
}

/// A checkpoint whose lists of files are still names.
#[derive(Debug)]
pub(crate) struct PartialCheckpoint {
    checkpoint: Checkpoint,
    done_through: Vec<Option<String>>,
}

impl PartialCheckpoint {
    /// The names of the lists that [`Self::complete`] wants.
    pub(crate) fn lists(&self) -> Vec<String> {
        let list = |source: &SourceState| match &source.splits {
            Splits::OneByOne { list, .. } => Some(list.hash().to_owned()),
            Splits::SideBySide(_) => None,
        };
        self.checkpoint.sources.iter().filter_map(list).collect()
    }

    /// Puts the lists where their names stand.
    pub(crate) fn complete(self, path: &str, loaded: &BTreeMap<String, SplitList>) -> Result<Checkpoint> {
        let mut checkpoint = self.checkpoint;
        for (source, through) in checkpoint.sources.iter_mut().zip(self.done_through) {
            let Splits::OneByOne { list, done, current } = &mut source.splits else { continue };
            let full =
                loaded.get(list.hash()).ok_or_else(|| broken(path, format!("list {} isn't loaded", list.hash())))?;
            *list = full.clone();
            *done = match through {
                None => 0,
                Some(name) => {
                    list.iter().position(|entry| entry.id.as_str() == name).map(|index| index + 1).ok_or_else(|| {
                        broken(path, format!("done_through names {name}, which isn't in its list of files"))
                    })?
                }
            };
            let next = list.get(*done).map(|entry| &entry.id);
            if let Some(split) = current.as_ref().filter(|split| Some(&split.id) != next) {
                return Err(broken(
                    path,
                    format!("split {} isn't the one that follows in its list of files", split.id),
                ));
            }
        }
        Ok(checkpoint)
    }
}

impl SourceDoc {
    fn new(source: &SourceState) -> Self {
        let (files, done_through, splits) = match &source.splits {
            Splits::OneByOne { list, done, current } => (
                Some(list.hash().to_owned()),
                done.checked_sub(1).and_then(|last| list.get(last)).map(|entry| entry.id.to_string()),
                current.iter().map(|split| (split.id.to_string(), SplitDoc::one_by_one(split))).collect(),
            ),
            Splits::SideBySide(splits) => (
                None,
                None,
                splits.values().map(|split| (split.id.to_string(), SplitDoc::side_by_side(split))).collect(),
            ),
        };
        Self {
            name: source.name.clone(),
            connector: source.connector.clone(),
            options: source.options.clone(),
            files,
            done_through,
            splits,
            notes: source.notes.clone(),
        }
    }

    fn into_state(self, path: &str) -> Result<SourceState> {
        let splits =
            self.splits.into_iter().map(|(id, split)| split.into_state(path, id)).collect::<Result<Vec<_>>>()?;
        let splits = match self.files {
            None => Splits::side_by_side(splits),
            Some(_) if splits.len() > 1 => {
                return Err(broken(path, format!("source {} has several unfinished files", self.name)));
            }
            Some(hash) => {
                Splits::OneByOne { list: SplitList::unloaded(&hash), done: 0, current: splits.into_iter().next() }
            }
        };
        Ok(SourceState {
            notes: self.notes,
            ..SourceState::new(self.name, self.connector, splits).with_options(self.options)
        })
    }
}

impl SplitDoc {
    fn one_by_one(split: &SplitState) -> Self {
        let identity = &split.identity;
        Self {
            start: None,
            position: split.position,
            stop: None,
            done: split.done,
            size: identity.size,
            modified: identity
                .modified_ns
                .map(|ns| DateTime::from_timestamp_nanos(ns).to_rfc3339_opts(SecondsFormat::Nanos, true)),
            etag: identity.etag.as_deref().map(Into::into),
            other: identity.other.clone(),
        }
    }

    fn side_by_side(split: &SplitState) -> Self {
        Self { start: Some(split.start), stop: Some(split.stop), ..Self::one_by_one(split) }
    }

    fn into_state(self, path: &str, id: String) -> Result<SplitState> {
        let modified_ns = match &self.modified {
            None => None,
            Some(text) => Some(
                DateTime::parse_from_rfc3339(text)
                    .ok()
                    .and_then(|time| time.timestamp_nanos_opt())
                    .ok_or_else(|| broken(path, format!("split {id}: '{text}' isn't a time")))?,
            ),
        };
        let identity = Identity { size: self.size, modified_ns, etag: self.etag.map(Into::into), other: self.other };
        Ok(SplitState {
            id: SplitId::new(id),
            start: self.start.unwrap_or(0),
            position: self.position,
            stop: self.stop.flatten(),
            done: self.done,
            identity,
        })
    }
}

fn broken(path: &str, reason: String) -> Error {
    Error::Checkpoint { path: path.into(), reason }
}
