//! Chains of sources.

use std::collections::BTreeMap;

use arrow::datatypes::SchemaRef;
use futures::future::BoxFuture;
use segue::checkpoint::{Checkpoint, CheckpointStore, FileCheckpointStore, SourceState};
use segue::error::{Error, Result};
use segue::hybrid::{HybridSource, ReadOptions};
use segue::schema::Provenance;
use segue::source::{Boundedness, DatagenSource, FieldKind, History, MemorySource, ReadRequest, Source, SourceStream};
use segue::testing::Suite;

use crate::common::{batches, chain_of, ids, limit, memory, read, read_all, schema, schema_of};

/// A chain of `num_sources` sources of seven rows each, memory and datagen in turn.
fn chain(num_sources: i64) -> HybridSource {
    let mut builder = HybridSource::builder();
    for index in 0..num_sources {
        let range = 7 * index..7 * (index + 1);
        builder = match index % 2 {
            0 => builder.source(memory(&index.to_string(), range)),
            _ => builder.source(sequence(&index.to_string(), range)),
        };
    }
    builder.build().unwrap()
}

fn sequence(name: &str, range: std::ops::Range<i64>) -> DatagenSource {
    DatagenSource::builder(schema())
        .name(name)
        .field("id", FieldKind::Sequence { start: range.start, end: Some(range.end - 1) })
        .build()
        .unwrap()
}

/// CASES 2 and 27: a middle source's end isn't the end of the whole, and there may be more than ten of them.
#[tokio::test]
async fn chains_of_1_2_3_and_12_sources_conform() {
    for num_sources in [1, 2, 3, 12] {
        let chain = chain(num_sources);
        assert_eq!(read_all(&chain).await.ids(), (0..7 * num_sources).collect::<Vec<_>>());
        Suite::new(chain).with_max_cuts(84).run().await.unwrap();
    }
}

#[tokio::test]
async fn a_chain_whose_last_source_is_endless_conforms() {
    let live = DatagenSource::builder(schema()).name("live").build().unwrap();
    let chain = HybridSource::builder().source(memory("0", 0..7)).source(live).build().unwrap();
    assert_eq!(chain.boundedness(), Boundedness::Unbounded);
    Suite::new(chain).with_first_rows(30).run().await.unwrap();
}

/// A source that can be described and resolved, and not opened.
#[derive(Debug)]
struct Shut(MemorySource, fn() -> Error);

impl Source for Shut {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn connector(&self) -> &str {
        self.0.connector()
    }

    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }

    fn boundedness(&self) -> Boundedness {
        self.0.boundedness()
    }

    fn position_options(&self) -> BTreeMap<String, String> {
        self.0.position_options()
    }

    fn resolve<'a>(
        &'a self,
        stored: Option<SourceState>,
        history: Option<&'a History>,
    ) -> BoxFuture<'a, Result<SourceState>> {
        self.0.resolve(stored, history)
    }

    fn open(&self, _state: &SourceState, _request: ReadRequest) -> Result<SourceStream> {
        Err((self.1)())
    }
}

#[tokio::test]
async fn a_source_that_fails_to_open_fails_when_its_turn_comes_and_the_rows_before_it_stay() {
    let shut = Shut(memory("1", 7..9), || Error::NotFound { what: "the broker is gone".into() });
    let chain = HybridSource::builder().source(memory("0", 0..7)).source(shut).build().unwrap();
    let read = read(&chain, None, ReadOptions::default()).await;
    assert_eq!(read.ids(), (0..7).collect::<Vec<_>>());
    assert_eq!(read.error.unwrap().to_string(), "the broker is gone");
    assert_eq!(read.checkpoint.active(), Some(1), "a restart begins there");
}

/// History may take hours: what was asked for wrongly is told before its first row.
#[tokio::test]
async fn a_source_that_can_never_be_opened_fails_before_the_first_row() {
    let shut = Shut(memory("1", 7..9), || Error::Schema("column x is missing".into()));
    let chain = HybridSource::builder().source(memory("0", 0..7)).source(shut).build().unwrap();
    let pinned = chain.resolve(None).await.unwrap();
    assert_eq!(chain.open(pinned, ReadOptions::default()).unwrap_err().to_string(), "column x is missing");
}

#[tokio::test]
async fn sources_without_rows_are_passed_wherever_they_stand() {
    let empty = |name: &str| MemorySource::builder(schema()).name(name).build();
    let no_rows = |name: &str| MemorySource::builder(schema()).name(name).batch("a", ids([])).build();
    let chain = HybridSource::builder()
        .source(empty("0"))
        .source(memory("1", 0..5))
        .source(no_rows("2"))
        .source(empty("3"))
        .source(memory("4", 5..9))
        .source(no_rows("5"))
        .build()
        .unwrap();
    Suite::new(chain).with_expected([ids(0..9)]).run().await.unwrap();
}

/// CASE 1: restoring works with the checkpoint in any source, active or done. CASE 3: numbers stay the
/// same after any number of restarts. CASE 4: a checkpoint before the first row equals the one restored.
#[tokio::test]
async fn a_job_that_is_stopped_after_every_row_reads_each_row_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint.json");
    let chain = chain(3);
    let mut seen = Vec::new();
    loop {
        let store = FileCheckpointStore::open(&path).unwrap();
        let resolved = chain.resolve(store.load().await.unwrap()).await.unwrap();
        store.save(&resolved).await.unwrap();
        let restored = store.load().await.unwrap().unwrap();
        let without_time = |checkpoint: &Checkpoint| Checkpoint { written: String::new(), ..checkpoint.clone() };
        assert_eq!(without_time(&restored), without_time(&resolved));

        let read = read(&chain, Some(restored.clone()), limit(1)).await.whole();
        store.save(&read.checkpoint).await.unwrap();
        if read.num_rows() == 0 {
            assert!(read.checkpoint.is_done());
            break;
        }
        seen.extend(read.ids());
    }
    assert_eq!(seen, (0..21).collect::<Vec<_>>());
}

#[tokio::test]
async fn the_checkpoint_before_the_first_item_is_the_one_that_was_opened() {
    let chain = chain(2);
    let stopped = read(&chain, None, limit(3)).await.checkpoint;
    let stream = chain.open(stopped.clone(), ReadOptions::default()).unwrap();
    assert_eq!(*stream.checkpoint(), stopped);
}

#[tokio::test]
async fn a_limit_ends_exactly_behind_its_row() {
    let chain = chain(3);
    for rows in 0..25 {
        let read = read(&chain, None, limit(rows)).await.whole();
        assert_eq!(read.num_rows() as u64, rows.min(21));
        assert_eq!(read.checkpoint.sources.iter().map(|source| source.rows).sum::<u64>(), rows.min(21));
        let rest = crate::common::read(&chain, Some(read.checkpoint), ReadOptions::default()).await.whole();
        assert_eq!(rest.ids(), (rows as i64..21).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn sources_can_be_added_at_the_end_of_a_finished_job() {
    let finished = read_all(&chain(2)).await.checkpoint;
    let longer = read(&chain(3), Some(finished.clone()), ReadOptions::default()).await.whole();
    assert_eq!(longer.ids(), (14..21).collect::<Vec<_>>());
    assert_eq!(longer.checkpoint.sources.len(), 3);

    let half = read(&chain(2), None, limit(9)).await.checkpoint;
    let longer = read(&chain(3), Some(half), ReadOptions::default()).await.whole();
    assert_eq!(longer.ids(), (9..21).collect::<Vec<_>>());

    let shorter = chain(1).resolve(Some(finished)).await.unwrap_err();
    assert_eq!(shorter.to_string(), "the checkpoint doesn't fit: the number of sources was 2, now 1");
}

#[tokio::test]
async fn a_checkpoint_that_does_not_fit_is_refused_with_the_difference() {
    let build = |source: MemorySource| HybridSource::builder().source(source).job("j").build().unwrap();
    let stored = build(memory("0", 0..5)).resolve(None).await.unwrap();
    let error = |chain: HybridSource, stored: Checkpoint| async move {
        let error = chain.resolve(Some(stored)).await.unwrap_err();
        assert!(error.is_usage(), "{error}");
        error.to_string().strip_prefix("the checkpoint doesn't fit: ").unwrap().to_owned()
    };

    let other_job = HybridSource::builder().source(memory("0", 0..5)).job("k").build().unwrap();
    assert_eq!(error(other_job, stored.clone()).await, "the job was j, now k");
    assert_eq!(error(build(memory("z", 0..5)), stored.clone()).await, "the name of a source was 0, now z");
    let other_kind = HybridSource::builder().source(sequence("0", 0..5)).job("j").build().unwrap();
    assert_eq!(error(other_kind, stored.clone()).await, "source 0: connector was 'memory', now 'datagen'");
    let other_schema =
        HybridSource::builder().source(memory("0", 0..5)).schema(schema_of("id BIGINT")).job("j").build().unwrap();
    assert_eq!(error(other_schema, stored).await, "the schema was id BIGINT, name STRING, now id BIGINT");

    let seeded = |seed| chain_of(DatagenSource::builder(schema()).seed(seed).num_rows(3).build().unwrap());
    let stored = seeded(1).resolve(None).await.unwrap();
    assert_eq!(error(seeded(2), stored).await, "source datagen: seed was '1', now '2'");
}

/// CASE 22: the error of an endless source before the last names the option that made it so.
#[test]
fn chains_that_cannot_be_are_refused() {
    let error = |builder: segue::hybrid::HybridSourceBuilder| {
        let error = builder.build().unwrap_err();
        assert!(error.is_usage(), "{error}");
        error.to_string()
    };
    assert_eq!(error(HybridSource::builder()), "a chain needs at least one source");
    let twice = HybridSource::builder().source(memory("a", 0..1)).source(memory("b", 0..1)).source(memory("a", 0..1));
    assert_eq!(error(twice), "two sources are called 'a'");
    let endless = DatagenSource::builder(schema()).name("gen").build().unwrap();
    assert_eq!(
        error(HybridSource::builder().source(endless).source(memory("m", 0..1))),
        "source 'gen' has no end: number-of-rows isn't set; only the last of a chain may be endless, and 'm' comes after it"
    );
    let text = MemorySource::builder(schema_of("id STRING")).name("t").build();
    assert_eq!(
        error(HybridSource::builder().source(memory("m", 0..1)).source(text)),
        "column id: BIGINT (m) and STRING (t) can't be unified"
    );
    let clash = MemorySource::builder(schema_of("_source STRING")).build();
    assert_eq!(
        error(HybridSource::builder().source(clash).provenance([Provenance::Source])),
        "column _source stands in the schema and in the columns of provenance"
    );
}

#[tokio::test]
async fn rows_say_which_source_and_phase_they_are_of() {
    let live = |boundedness| {
        MemorySource::builder(schema()).name("live").boundedness(boundedness).batch("a", ids(5..7)).build()
    };
    let lines = |source: MemorySource| async move {
        let chain = HybridSource::builder()
            .source(memory("history", 0..2))
            .source(source)
            .provenance([Provenance::Source, Provenance::Phase, Provenance::Position])
            .build()
            .unwrap();
        read_all(&chain).await.lines()
    };
    let with_stop = lines(live(Boundedness::LiveUntilStop)).await;
    assert_eq!(
        with_stop,
        ["0|n0|history|bounded|0", "1|n1|history|bounded|1", "5|n5|live|unbounded|0", "6|n6|live|unbounded|1"]
    );
    assert_eq!(lines(live(Boundedness::Bounded)).await[2], "5|n5|live|bounded|0");
}

#[tokio::test]
async fn sources_of_different_schemas_are_fitted_to_one() {
    let wide = MemorySource::builder(schema_of("name STRING, extra DOUBLE, id INT")).name("wide");
    let rows = arrow::array::RecordBatch::try_new(
        schema_of("name STRING, extra DOUBLE, id INT"),
        vec![
            std::sync::Arc::new(arrow::array::StringArray::from(vec!["x"])),
            std::sync::Arc::new(arrow::array::Float64Array::from(vec![0.5])),
            std::sync::Arc::new(arrow::array::Int32Array::from(vec![9])),
        ],
    )
    .unwrap();
    let chain =
        HybridSource::builder().source(memory("m", 0..1)).source(wide.batch("a", rows).build()).build().unwrap();
    assert_eq!(segue::schema::format_schema(&chain.schema()), "id BIGINT, name STRING, extra DOUBLE");
    assert_eq!(read_all(&chain).await.lines(), ["0|n0|null", "9|x|0.5"]);
    Suite::new(chain).run().await.unwrap();
}

#[tokio::test]
async fn a_projection_names_its_columns() {
    let chain = chain(1);
    let resolved = chain.resolve(None).await.unwrap();
    let options = |names: &[&str]| ReadOptions {
        projection: Some(names.iter().map(|&name| name.to_owned()).collect()),
        ..ReadOptions::default()
    };
    let error = chain.open(resolved, options(&["nam"])).unwrap_err();
    assert_eq!(error.to_string(), "the schema has no column nam");
    let read = read(&chain, None, options(&["name"])).await.whole();
    assert_eq!(read.lines()[..2], ["n0", "n1"]);
}

#[tokio::test]
async fn an_error_stands_behind_the_rows_before_it_and_is_the_end() {
    let failing = MemorySource::builder(schema()).name("f").batch("a", ids(7..9)).fail("a", "no more").build();
    let chain =
        HybridSource::builder().source(memory("0", 0..7)).source(failing).source(memory("2", 20..30)).build().unwrap();
    let suite = Suite::new(chain).with_expected([ids(0..9)]);
    suite.failure("a sequence 2: no more").await.unwrap();
}

#[tokio::test]
async fn batches_alone_leave_out_what_has_no_rows() {
    let chain = HybridSource::builder()
        .source(MemorySource::builder(schema()).name("0").batch("a", ids([])).build())
        .source(memory("1", 0..6))
        .build()
        .unwrap();
    let batches = batches(&chain).await;
    assert_eq!(batches.iter().map(|batch| batch.num_rows()).collect::<Vec<_>>(), [4, 2]);
}

#[tokio::test]
async fn dropping_a_pending_next_loses_nothing() {
    use futures::FutureExt;
    let chain = chain(12);
    let from = chain.resolve(None).await.unwrap();
    let mut stream = chain.open(from, ReadOptions { batch_rows: 2, ..ReadOptions::default() }).unwrap();
    let mut rows = 0;
    loop {
        let item = match stream.next().now_or_never() {
            Some(item) => item,
            None => {
                tokio::task::yield_now().await;
                continue;
            }
        };
        let Some(item) = item else { break };
        rows += item.unwrap().item.num_rows();
    }
    assert_eq!(rows, 84);
}

#[test]
fn an_error_of_a_chain_is_no_accident() {
    let error = HybridSource::builder().build().unwrap_err();
    assert!(matches!(error, Error::Chain(_)) && !error.is_retryable());
}

#[test]
fn sources_keep_their_names_and_order() {
    let chain = chain(3);
    assert_eq!(chain.sources().iter().map(|source| source.name()).collect::<Vec<_>>(), ["0", "1", "2"]);
}
