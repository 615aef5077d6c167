//! Sources that break the rules are caught: by the stream of a chain, and by the conformance suite.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use segue::checkpoint::{Advance, RowPositions, SourceState, SplitId, SplitState, Splits};
use segue::error::{BadRecord, PositionUnit, Reason, Result};
use segue::source::{Boundedness, History, ReadRequest, Reject, Source, SourceBatch, SourceStream};
use segue::testing::{Suite, Violation};

use crate::common::{chain_of, ids, read, schema};

/// A source of one split that gives the items written down, whatever it is asked.
#[derive(Debug, Clone)]
struct Scripted(Vec<SourceBatch>);

impl Source for Scripted {
    fn name(&self) -> &str {
        "s"
    }

    fn connector(&self) -> &str {
        "scripted"
    }

    fn schema(&self) -> SchemaRef {
        schema()
    }

    fn boundedness(&self) -> Boundedness {
        Boundedness::Bounded
    }

    fn position_options(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    fn resolve<'a>(
        &'a self,
        stored: Option<SourceState>,
        _: Option<&'a History>,
    ) -> BoxFuture<'a, Result<SourceState>> {
        let fresh = || SourceState::new("s", "scripted", Splits::side_by_side([SplitState::new("a".into(), 0)]));
        async move { Ok(stored.unwrap_or_else(fresh)) }.boxed()
    }

    fn open(&self, _: &SourceState, _: ReadRequest) -> Result<SourceStream> {
        Ok(stream::iter(self.0.clone()).map(Ok).boxed())
    }
}

fn item(rows: RecordBatch, from: u64, to: u64, done: bool) -> SourceBatch {
    let positions = RowPositions::consecutive(from, rows.num_rows());
    SourceBatch::try_new(rows, positions, vec![Advance::new("a".into(), from, to).with_done(done)]).unwrap()
}

async fn stream_error(items: Vec<SourceBatch>) -> (Vec<i64>, String) {
    let read = read(&chain_of(Scripted(items)), None, Default::default()).await;
    (
        read.ids(),
        read.error.map_or_else(String::new, |e| {
            let cause = std::error::Error::source(&e).map_or_else(String::new, |cause| format!(": {cause}"));
            format!("{e}{cause}")
        }),
    )
}

async fn violation(items: Vec<SourceBatch>) -> Violation {
    Suite::new(chain_of(Scripted(items))).run().await.unwrap_err()
}

#[tokio::test]
async fn a_gap_is_an_error_before_the_row_behind_it_is_delivered() {
    let items = vec![item(ids(0..3), 0, 3, false), item(ids(4..6), 4, 6, true)];
    let (rows, error) = stream_error(items.clone()).await;
    assert_eq!(rows, [0, 1, 2]);
    assert_eq!(error, "split a: gap at position 3: an advance starts at 4");
    assert_eq!(violation(items).await.rule, "chain");
}

#[tokio::test]
async fn an_overlap_is_an_error_before_a_row_is_delivered_twice() {
    let items = vec![item(ids(0..3), 0, 3, false), item(ids(2..6), 2, 6, true)];
    let (rows, error) = stream_error(items.clone()).await;
    assert_eq!(rows, [0, 1, 2]);
    assert_eq!(error, "split a: overlap at position 3: an advance starts at 2");
    assert_eq!(violation(items).await.rule, "order");
}

#[tokio::test]
async fn an_end_before_the_splits_are_done_is_an_error() {
    let items = vec![item(ids(0..3), 0, 3, false)];
    let (rows, error) = stream_error(items.clone()).await;
    assert_eq!(rows, [0, 1, 2]);
    assert_eq!(error, "source s: its stream ended before its splits were done");
    assert_eq!(violation(items).await.rule, "end");
}

#[tokio::test]
async fn rows_of_an_unknown_or_finished_split_are_an_error() {
    let mut stranger = item(ids(0..3), 0, 3, false);
    let advance = Advance::new(SplitId::from("z"), 0, 3);
    stranger = SourceBatch::try_new(stranger.into_batch(), RowPositions::consecutive(0, 3), vec![advance]).unwrap();
    assert_eq!(stream_error(vec![stranger]).await.1, "split z: it is none of this source's splits");

    let items = vec![item(ids(0..3), 0, 3, true), item(ids(3..5), 3, 5, true)];
    assert_eq!(stream_error(items.clone()).await, (vec![0, 1, 2], "split a: it is done and can't move".into()));
    assert_eq!(violation(items).await.rule, "chain");
}

#[tokio::test]
async fn positions_outside_of_their_advance_or_falling_are_found() {
    let rows = RowPositions::starts([0, 5, 3]);
    let falling = SourceBatch::try_new(ids(0..3), rows, vec![Advance::new("a".into(), 0, 9).with_done(true)]).unwrap();
    let found = violation(vec![falling]).await;
    assert_eq!(found.to_string(), "rule 'order' is broken: split a: position 3 comes after 5");

    let rows = RowPositions::starts([0, 1, 9]);
    let outside = SourceBatch::try_new(ids(0..3), rows, vec![Advance::new("a".into(), 0, 9).with_done(true)]).unwrap();
    assert_eq!(violation(vec![outside]).await.rule, "order");
}

#[tokio::test]
async fn a_bad_record_that_no_advance_moves_over_is_found() {
    let rejects = |position| {
        let record = BadRecord::new("a", position, PositionUnit::Sequence, Reason::Type, "bad");
        vec![Reject { split: "a".into(), record, is_kept: false, raw: None }]
    };
    let found = violation(vec![item(ids(0..3), 0, 3, true).with_rejects(rejects(3))]).await;
    assert_eq!(found.to_string(), "rule 'order' is broken: no advance moves over the bad record at 3 of a");
    let (before, after) = item(ids(0..3), 0, 3, true).with_rejects(rejects(1)).split_at(1);
    assert_eq!((before.rejects().len(), after.rejects().len()), (0, 1));
}

#[tokio::test]
async fn an_item_without_rows_and_progress_is_found() {
    let nothing = SourceBatch::progress(schema(), Vec::new());
    assert_eq!(violation(vec![nothing, item(ids(0..3), 0, 3, true)]).await.rule, "empty");
}

#[tokio::test]
async fn another_schema_than_asked_for_is_found() {
    let narrow = ids(0..3).project(&[0]).unwrap();
    assert_eq!(violation(vec![item(narrow, 0, 3, true)]).await.rule, "schema");
    // This one is right as long as all columns are asked for.
    assert_eq!(violation(vec![item(ids(0..3), 0, 3, true)]).await.rule, "schema");
}

/// A source that is right until it is opened a second time: it always begins at its beginning.
#[tokio::test]
async fn a_source_that_ignores_its_state_fails_to_be_cut() {
    let suite = Suite::new(chain_of(Scripted(vec![item(ids(0..3), 0, 3, true)])));
    suite.items().await.unwrap();
    let found = suite.cut_anywhere().await.unwrap_err();
    assert_eq!(found.rule, "cut anywhere");
    assert!(found.detail.contains("overlap at position 1"), "{found}");
}

/// A source whose thread outlives its stream.
#[tokio::test]
async fn a_thread_that_is_left_is_found() {
    #[derive(Debug)]
    struct Leaking(segue::ordered::DecodePool, Scripted);

    impl Source for Leaking {
        fn name(&self) -> &str {
            "s"
        }
        fn connector(&self) -> &str {
            "scripted"
        }
        fn schema(&self) -> SchemaRef {
            schema()
        }
        fn boundedness(&self) -> Boundedness {
            Boundedness::Bounded
        }
        fn position_options(&self) -> BTreeMap<String, String> {
            BTreeMap::new()
        }
        fn resolve<'a>(
            &'a self,
            stored: Option<SourceState>,
            history: Option<&'a History>,
        ) -> BoxFuture<'a, Result<SourceState>> {
            self.1.resolve(stored, history)
        }
        fn open(&self, state: &SourceState, request: ReadRequest) -> Result<SourceStream> {
            // A copy that is never given back keeps the pool's threads for ever.
            std::mem::forget(request.pool.clone());
            let _ = &self.0;
            self.1.open(state, request)
        }
    }

    let source = Leaking(segue::ordered::DecodePool::new(1).unwrap(), Scripted(vec![item(ids(0..3), 0, 3, true)]));
    let suite = Suite::new(chain_of(source)).with_patience(std::time::Duration::from_millis(200));
    let found = suite.drop_ends_threads().await.unwrap_err();
    assert_eq!(found.rule, "drop");
    assert!(found.detail.contains("segue-decode-0"), "{found}");
}

#[test]
fn an_item_whose_positions_do_not_match_its_rows_cannot_be_made() {
    let advance = vec![Advance::new("a".into(), 0, 3)];
    let error = SourceBatch::try_new(ids(0..3), RowPositions::consecutive(0, 2), advance).unwrap_err();
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "2 positions for 3 rows");
    assert!(SourceBatch::try_new(ids(0..3), RowPositions::consecutive(0, 3), Vec::new()).is_err());
    let _: Arc<dyn Source> = Arc::new(Scripted(Vec::new()));
}
