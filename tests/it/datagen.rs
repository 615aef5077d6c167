//! Generated rows.

use std::time::{Duration, Instant};

use segue::error::Error;
use segue::hybrid::ReadOptions;
use segue::source::{Boundedness, DatagenSource, FieldKind, Source};
use segue::testing::{Suite, check_source};

use crate::common::{chain_of, limit, read, read_all, schema_of};

fn sequence(start: i64, end: Option<i64>) -> FieldKind {
    FieldKind::Sequence { start, end }
}

fn between(min: &str, max: &str) -> FieldKind {
    FieldKind::Random { min: Some(min.into()), max: Some(max.into()), length: None }
}

#[tokio::test]
async fn a_sequence_conforms_and_ends_with_its_last_value() {
    let source = DatagenSource::builder(schema_of("id BIGINT, day DATE, t TIMESTAMP(3), name STRING"))
        .field("id", sequence(-3, Some(26)))
        .field("day", sequence(0, None))
        .field("t", sequence(0, None))
        .build()
        .unwrap();
    assert_eq!(source.boundedness(), Boundedness::Bounded);
    let read = read_all(&chain_of(source.clone())).await;
    assert_eq!(read.ids(), (-3..=26).collect::<Vec<_>>());
    let lines = read.lines();
    assert!(lines[29].starts_with("26|1970-01-30|1970-01-01T00:00:29|"), "{}", lines[29]);
    check_source(source).await.unwrap();
}

#[tokio::test]
async fn the_smaller_of_rows_and_sequence_ends_it() {
    let source = |rows| {
        DatagenSource::builder(schema_of("id BIGINT")).field("id", sequence(1, Some(5))).num_rows(rows).build().unwrap()
    };
    assert_eq!(read_all(&chain_of(source(3))).await.ids(), [1, 2, 3]);
    assert_eq!(read_all(&chain_of(source(9))).await.ids(), [1, 2, 3, 4, 5]);
    assert_eq!(read_all(&chain_of(source(0))).await.num_rows(), 0);
    check_source(source(0)).await.unwrap();
}

#[tokio::test]
async fn random_columns_of_every_type_conform() {
    let schema = schema_of(
        "a TINYINT, b SMALLINT, c INT, d BIGINT, e FLOAT, f DOUBLE, g DECIMAL(9,2), h BOOLEAN, i STRING, j BYTES, k DATE, \
         l TIME(3), m TIMESTAMP(0), n TIMESTAMP(6), o TIMESTAMP_LTZ(9)",
    );
    let source = DatagenSource::builder(schema).num_rows(10_007).build().unwrap();
    Suite::new(chain_of(source)).with_max_cuts(16).run().await.unwrap();
}

#[tokio::test]
async fn an_endless_source_conforms() {
    let source = DatagenSource::builder(schema_of("id BIGINT, v DOUBLE")).build().unwrap();
    assert_eq!(source.boundedness(), Boundedness::Unbounded);
    check_source(source).await.unwrap();
}

/// Whoever stored a checkpoint, or a test's numbers, relies on a seed to mean the same rows for ever.
#[tokio::test]
async fn the_rows_of_a_seed_are_golden() {
    let schema = schema_of("i INT, d DOUBLE, b BOOLEAN, s STRING, y BYTES, t TIMESTAMP(3), n DECIMAL(6,2), day DATE");
    let source = |seed| {
        DatagenSource::builder(schema.clone())
            .field("i", between("-100", "100"))
            .field("s", FieldKind::Random { min: None, max: None, length: Some(14) })
            .field("y", FieldKind::Random { min: None, max: None, length: Some(2) })
            .seed(seed)
            .build()
            .unwrap()
    };
    let first = |seed| async move { read(&chain_of(source(seed)), None, limit(3)).await.whole().lines() };
    let golden: Vec<&str> = include_str!("../../data/datagen-seed-42.txt").lines().collect();
    assert_eq!(first(42).await, golden);
    assert_ne!(first(43).await, golden);
}

#[tokio::test]
async fn random_values_stay_within_their_bounds_and_reach_both() {
    let source = DatagenSource::builder(schema_of("id BIGINT, day DATE"))
        .field("id", between("3", "5"))
        .field("day", between("2024-02-28", "2024-03-01"))
        .num_rows(500)
        .build()
        .unwrap();
    let read = read_all(&chain_of(source)).await;
    let distinct: std::collections::BTreeSet<i64> = read.ids().into_iter().collect();
    assert_eq!(distinct.into_iter().collect::<Vec<_>>(), [3, 4, 5]);
    let days: std::collections::BTreeSet<String> =
        read.lines().iter().map(|line| line.split('|').nth(1).unwrap().to_owned()).collect();
    assert_eq!(days.into_iter().collect::<Vec<_>>(), ["2024-02-28", "2024-02-29", "2024-03-01"]);
}

#[tokio::test]
async fn rows_per_second_are_a_bound() {
    let source = DatagenSource::builder(schema_of("id BIGINT"))
        .field("id", sequence(0, None))
        .rows_per_second(200)
        .num_rows(100)
        .build()
        .unwrap();
    let began = Instant::now();
    let read = read_all(&chain_of(source)).await;
    assert_eq!(read.ids(), (0..100).collect::<Vec<_>>());
    // The last batch of 20 is due after 80 rows, at 0.4 s.
    assert!(began.elapsed() >= Duration::from_millis(390), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_job_that_had_ended_goes_on_to_a_new_end() {
    let source = |rows| {
        DatagenSource::builder(schema_of("id BIGINT")).field("id", sequence(0, None)).num_rows(rows).build().unwrap()
    };
    let first = read_all(&chain_of(source(5))).await;
    let second = read(&chain_of(source(8)), Some(first.checkpoint), ReadOptions::default()).await.whole();
    assert_eq!(second.ids(), [5, 6, 7]);
    // Stopped in between, the end stays pinned where it was.
    let stopped = read(&chain_of(source(5)), None, limit(2)).await;
    let rest = read(&chain_of(source(8)), Some(stopped.checkpoint), ReadOptions::default()).await.whole();
    assert_eq!(rest.ids(), [2, 3, 4]);
}

#[test]
fn wrong_descriptions_name_their_option() {
    let build =
        |column: &str, kind| DatagenSource::builder(schema_of("id INT, ok BOOLEAN")).field(column, kind).build();
    let error = |column: &str, kind| build(column, kind).unwrap_err().to_string();
    assert_eq!(error("x", sequence(0, None)), "option 'fields.x.kind': the schema has no column x");
    assert_eq!(error("ok", sequence(0, None)), "option 'fields.ok.kind': BOOLEAN has no sequence");
    assert_eq!(error("id", sequence(5, Some(3))), "option 'fields.id.end': it lies before the start");
    assert_eq!(error("id", between("5", "3")), "option 'fields.id.max': it lies below the minimum");
    assert_eq!(error("id", between("five", "9")), "option 'fields.id.min': 'five' is not an INT");
    let zero = DatagenSource::builder(schema_of("id INT")).rows_per_second(0).build().unwrap_err();
    assert!(matches!(zero, Error::InvalidOption { .. }), "{zero}");
}
