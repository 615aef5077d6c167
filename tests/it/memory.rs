//! The source of scripted batches.

use segue::schema::{ColumnRule, Mapping};
use segue::source::{Boundedness, MemorySource};
use segue::testing::{Suite, check_source};

use crate::common::{chain_of, ids, memory, schema, schema_of};

#[tokio::test]
async fn one_split_conforms() {
    Suite::new(chain_of(memory("m", 0..11))).with_expected([ids(0..11)]).run().await.unwrap();
}

#[tokio::test]
async fn splits_that_take_turns_conform() {
    let source = MemorySource::builder(schema())
        .batch("a", ids(0..3))
        .batch("b", ids(100..102))
        .batch("a", ids(3..10))
        .batch("c", ids([]))
        .batch("b", ids(102..109))
        .batch("b", ids([]))
        .build();
    let expected = [ids(0..3), ids(100..102), ids(3..10), ids(102..109)];
    Suite::new(chain_of(source)).with_expected(expected).run().await.unwrap();
}

#[tokio::test]
async fn sources_without_rows_conform() {
    check_source(MemorySource::builder(schema()).build()).await.unwrap();
    check_source(MemorySource::builder(schema()).batch("a", ids([])).build()).await.unwrap();
}

#[tokio::test]
async fn a_live_source_with_a_stop_conforms() {
    let source = MemorySource::builder(schema()).boundedness(Boundedness::LiveUntilStop).batch("a", ids(0..9)).build();
    Suite::new(chain_of(source)).with_expected([ids(0..9)]).run().await.unwrap();
}

#[tokio::test]
async fn an_endless_source_conforms_as_far_as_its_script_goes() {
    let source = MemorySource::builder(schema()).boundedness(Boundedness::Unbounded).batch("a", ids(0..9)).build();
    Suite::new(chain_of(source)).with_first_rows(9).with_expected([ids(0..9)]).run().await.unwrap();
}

#[tokio::test]
async fn a_mapped_source_conforms() {
    let mut mapping = Mapping::default();
    let from = |column: &str| ColumnRule { from: Some(column.into()), ..ColumnRule::default() };
    let constant = |text: &str| ColumnRule { constant: Some(text.into()), ..ColumnRule::default() };
    mapping.columns.insert("key".into(), from("id"));
    mapping.columns.insert("kind".into(), constant("x"));
    let source = MemorySource::builder(schema()).mapping(mapping).batch("a", ids(0..9)).build();
    let chain = segue::hybrid::HybridSource::builder()
        .source(source)
        .schema(schema_of("kind STRING, key INT, name STRING, absent DOUBLE"))
        .build()
        .unwrap();
    Suite::new(chain).run().await.unwrap();
}

#[tokio::test]
async fn a_bad_record_ends_reading_behind_the_rows_before_it() {
    let source = MemorySource::builder(schema())
        .batch("a", ids(0..10))
        .batch("b", ids(50..53))
        .fail("b", "the disk sings")
        .batch("b", ids(53..60))
        .build();
    let suite = Suite::new(chain_of(source)).with_expected([ids(0..10), ids(50..53)]);
    suite.failure("b sequence 3: the disk sings").await.unwrap();
}
