//! Scripted batches and errors, for tests, docs and examples.
//!
//! Each split is a script of batches; splits are read side by side in the order in which their batches
//! were added. Positions are row numbers.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};

use super::{Boundedness, Fitter, History, ReadRequest, Source, SourceBatch, SourceStream};
use crate::checkpoint::{Advance, RowPositions, SourceState, SplitId, SplitState, Splits};
use crate::error::{BadRecord, Error, PositionUnit, Reason, Result};
use crate::schema::Mapping;

/// A source whose rows and errors are written down beforehand.
#[derive(Debug, Clone)]
pub struct MemorySource {
    name: String,
    schema: SchemaRef,
    boundedness: Boundedness,
    script: Arc<[Step]>,
    mapping: Mapping,
}

#[derive(Debug, Clone)]
enum Step {
    /// Rows of one split; the number is the position of the first.
    Rows(SplitId, u64, RecordBatch),
    Fail(SplitId, u64, String),
}

/// Writes the script of a [`MemorySource`].
#[derive(Debug)]
pub struct MemorySourceBuilder {
    source: MemorySource,
    script: Vec<Step>,
    ends: BTreeMap<SplitId, u64>,
}

impl MemorySource {
    /// Begins a script of rows of `schema`.
    pub fn builder(schema: SchemaRef) -> MemorySourceBuilder {
        let source = Self {
            name: "memory".into(),
            schema,
            boundedness: Boundedness::Bounded,
            script: Arc::new([]),
            mapping: Mapping::default(),
        };
        MemorySourceBuilder { source, script: Vec::new(), ends: BTreeMap::new() }
    }

    fn ends(&self) -> BTreeMap<SplitId, u64> {
        let mut ends = BTreeMap::new();
        for step in self.script.iter() {
            match step {
                Step::Rows(split, first, rows) => ends.insert(split.clone(), first + rows.num_rows() as u64),
                Step::Fail(split, at, _) => ends.insert(split.clone(), *at),
            };
        }
        ends
    }
}

impl MemorySourceBuilder {
    /// Sets the name; `memory` without.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.source.name = name.into();
        self
    }

    /// Says that the source is live: with a stop, or without an end, in which case it waits behind its script.
    #[must_use]
    pub fn boundedness(mut self, boundedness: Boundedness) -> Self {
        self.source.boundedness = boundedness;
        self
    }

    /// Sets how the source is fitted to the unified schema.
    #[must_use]
    pub fn mapping(mut self, mapping: Mapping) -> Self {
        self.source.mapping = mapping;
        self
    }

    /// Adds a batch of the split `split`.
    #[must_use]
    pub fn batch(mut self, split: &str, rows: RecordBatch) -> Self {
        let split = SplitId::from(split);
        let end = self.ends.entry(split.clone()).or_insert(0);
        let first = *end;
        *end += rows.num_rows() as u64;
        self.script.push(Step::Rows(split, first, rows));
        self
    }

    /// Adds a bad record of the split `split`, with which reading ends.
    #[must_use]
    pub fn fail(mut self, split: &str, message: impl Into<String>) -> Self {
        let split = SplitId::from(split);
        let at = *self.ends.entry(split.clone()).or_insert(0);
        self.script.push(Step::Fail(split, at, message.into()));
        self
    }

    /// Finishes the script.
    pub fn build(self) -> MemorySource {
        MemorySource { script: self.script.into(), ..self.source }
    }
}

impl Source for MemorySource {
    fn name(&self) -> &str {
        &self.name
    }

    fn connector(&self) -> &str {
        "memory"
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn boundedness(&self) -> Boundedness {
        self.boundedness
    }

    fn position_options(&self) -> BTreeMap<String, String> {
        self.mapping.to_options()
    }

    fn unbounded_because(&self) -> Option<String> {
        (self.boundedness == Boundedness::Unbounded).then(|| "MemorySourceBuilder::boundedness".into())
    }

    fn resolve<'a>(
        &'a self,
        stored: Option<SourceState>,
        _history: Option<&'a History>,
    ) -> BoxFuture<'a, Result<SourceState>> {
        let fresh = || {
            let has_end = self.boundedness.has_end();
            let splits =
                self.ends().into_iter().map(|(id, end)| SplitState::new(id, 0).with_stop(has_end.then_some(end)));
            SourceState::new(&self.name, "memory", Splits::side_by_side(splits)).with_options(self.position_options())
        };
        let state = stored.unwrap_or_else(fresh);
        async move { Ok(state) }.boxed()
    }

    fn open(&self, state: &SourceState, request: ReadRequest) -> Result<SourceStream> {
        let Splits::SideBySide(splits) = &state.splits else {
            return Err(Error::Chain(format!("source {} has splits side by side", self.name)));
        };
        let fitter = Fitter::try_new(&self.schema, &self.mapping, &request, &self.name)?;
        let ends = self.ends();
        let has_end = self.boundedness.has_end();
        let mut items: Vec<Result<SourceBatch>> = Vec::new();
        // Splits that end without a row to carry it.
        for split in splits
            .values()
            .filter(|split| !split.done && has_end && ends.get(&split.id).is_none_or(|end| *end <= split.position))
        {
            let failing = self.script.iter().any(|step| matches!(step, Step::Fail(id, ..) if *id == split.id));
            if !failing {
                let end = Advance::new(split.id.clone(), split.position, split.position).with_done(true);
                items.push(Ok(fitter.progress(end)));
            }
        }
        for step in self.script.iter() {
            match step {
                Step::Fail(split, at, message) => {
                    if splits.get(split).is_some_and(|split| !split.done) {
                        items.push(Err(Error::BadRecord(Box::new(BadRecord::new(
                            split.as_str(),
                            *at,
                            PositionUnit::Sequence,
                            Reason::Type,
                            message,
                        )))));
                        break;
                    }
                }
                Step::Rows(id, first, rows) => {
                    let end = first + rows.num_rows() as u64;
                    let Some(split) = splits.get(id).filter(|split| !split.done) else { continue };
                    let from = split.position.max(*first);
                    // Read before; or empty, which would end the split a second time.
                    if from >= end {
                        continue;
                    }
                    let is_last = has_end
                        && ends.get(id) == Some(&end)
                        && !self.script.iter().any(|step| matches!(step, Step::Fail(failing, ..) if failing == id));
                    let advance = Advance::new(id.clone(), from, end).with_done(is_last);
                    let wanted = rows.slice((from - first) as usize, (end - from) as usize);
                    let positions = RowPositions::consecutive(from, wanted.num_rows());
                    match fitter.item(&wanted, positions, advance) {
                        Ok(item) => items.extend(item.into_batches(request.batch_rows).into_iter().map(Ok)),
                        Err(e) => {
                            items.push(Err(e));
                            break;
                        }
                    }
                }
            }
        }
        let failed = items.last().is_some_and(Result::is_err);
        let script = stream::iter(items);
        Ok(if has_end || failed { script.boxed() } else { script.chain(stream::pending()).boxed() })
    }
}
