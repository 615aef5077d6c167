//! Files: every format, compressed or not, alone and in chains.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use object_store::memory::InMemory;
use object_store::throttle::{ThrottleConfig, ThrottledStore};
use object_store::{ObjectStore, ObjectStoreExt};
use segue::file::FileSource;
use segue::format::Format;
use segue::hybrid::{HybridSource, ReadOptions};
use segue::schema::Provenance;
use segue::source::{DatagenSource, FieldKind};
use segue::testing::Suite;

use crate::common::{
    Read, chain_of, folder, gzip, ids, limit, memory, parquet_bytes, read, read_all, schema, schema_of, zstd,
};

/// The catalogue in `data/README.md` tells what each of these files is for.
fn data(path: &str) -> String {
    format!("{}/data/{path}", env!("CARGO_MANIFEST_DIR"))
}

async fn chain(path: impl AsRef<Path>) -> HybridSource {
    chain_of(FileSource::builder(path.as_ref().display().to_string()).build().await.unwrap())
}

async fn lines_of(name: &str, content: &str) -> Vec<String> {
    let folder = folder(&[(name, content.as_bytes())]);
    read_all(&chain(folder.path().join(name)).await).await.lines()
}

/// Rows of [`schema`] as CSV: names with quotes, commas and newlines.
fn csv(range: std::ops::Range<i64>) -> String {
    let name = |id: i64| match id % 4 {
        0 => format!("n{id}"),
        1 => format!("\"a, {id}\""),
        2 => format!("\"two\nlines of {id}\""),
        _ => format!("\"\"\"{id}\"\" quoted\""),
    };
    let rows: String = range.map(|id| format!("{id},{}\n", name(id))).collect();
    format!("id,name\n{rows}")
}

fn ndjson(range: std::ops::Range<i64>) -> String {
    range.map(|id| format!("{{\"name\": \"n\\n{id}\", \"id\": {id}}}\n")).collect()
}

#[tokio::test]
async fn csv_conforms() {
    let folder = folder(&[("a.csv", csv(0..23).as_bytes())]);
    Suite::new(chain(folder.path()).await).run().await.unwrap();
}

#[tokio::test]
async fn csv_without_header_and_last_line_end_conforms() {
    let folder = folder(&[("a.csv", b"1,2.5,x\n2,,\"y\nz\"\n\n3,1e3,")]);
    let chain = chain(folder.path()).await;
    assert_eq!(segue::schema::format_schema(&chain.schema()), "f0 BIGINT, f1 DOUBLE, f2 STRING");
    assert_eq!(read_all(&chain).await.lines(), ["1|2.5|x", "2|null|y\nz", "3|1000.0|"]);
    Suite::new(chain).run().await.unwrap();
}

#[tokio::test]
async fn ndjson_conforms() {
    let folder = folder(&[("a.ndjson", ndjson(0..23).as_bytes())]);
    Suite::new(chain(folder.path()).await).run().await.unwrap();
}

#[tokio::test]
async fn nested_ndjson_conforms() {
    let line = |id: i64| format!("{{\"id\":{id},\"tags\":[\"a\",\"b{id}\"],\"at\":{{\"x\":{id},\"y\":[1.5]}}}}\n");
    let content: String = (0..17).map(line).collect();
    let folder = folder(&[("a.jsonl", content.as_bytes())]);
    let schema = schema_of("id INT, tags ARRAY<STRING>, at ROW<x INT, y ARRAY<DOUBLE>>");
    let source = FileSource::builder(folder.path().display().to_string()).schema(schema).build().await.unwrap();
    Suite::new(chain_of(source)).run().await.unwrap();
}

#[tokio::test]
async fn parquet_conforms() {
    let folder = folder(&[
        ("a.parquet", &parquet_bytes(&[ids(0..40)], 7)),
        ("b.parquet", &parquet_bytes(&[ids([])], 7)),
        ("c.parquet", &parquet_bytes(&[ids(40..43)], 100)),
    ]);
    Suite::new(chain(folder.path()).await).with_expected([ids(0..43)]).run().await.unwrap();
}

#[tokio::test]
async fn raw_lines_conform() {
    let folder = folder(&[("a.log", b"one\n\n  three, \"3\" \nfour\r\nfive"), ("b.txt", b"six\n")]);
    let source = FileSource::builder(folder.path().display().to_string()).format(Format::Raw).build().await.unwrap();
    let chain = chain_of(source);
    assert_eq!(read_all(&chain).await.lines(), ["one", "", "  three, \"3\" ", "four", "five", "six"]);
    Suite::new(chain).run().await.unwrap();
}

/// CASE 9: each row once, whether a compressed file is cut in its middle or not.
#[tokio::test]
async fn compressed_files_conform() {
    for (name, content) in [
        ("a.csv.gz", gzip(csv(0..23).as_bytes())),
        ("a.csv.zst", zstd(csv(0..23).as_bytes())),
        ("a.ndjson.gz", gzip(ndjson(0..23).as_bytes())),
        ("a.ndjson.zst", zstd(ndjson(0..23).as_bytes())),
    ] {
        let folder = folder(&[(name, &content)]);
        Suite::new(chain(folder.path()).await).run().await.unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}

#[tokio::test]
async fn compressed_files_of_several_members_are_read_to_their_end() {
    let gzipped = [gzip(csv(0..5).as_bytes()), gzip(b"5,five\n")].concat();
    let zstandard = [zstd(csv(0..5).as_bytes()), zstd(b"5,five\n")].concat();
    for (name, content) in [("a.csv.gz", gzipped), ("a.csv.zst", zstandard)] {
        let folder = folder(&[(name, &content)]);
        let read = read_all(&chain(folder.path()).await).await;
        assert_eq!(read.ids(), [0, 1, 2, 3, 4, 5], "{name}");
    }
}

/// CASES 13 and 16; a folder of thirteen files, nested, two compressed, with all that CSV allows.
#[tokio::test]
async fn a_mixed_folder_conforms_in_natural_order() {
    let chain = chain(data("mixed")).await;
    let read = read_all(&chain).await;
    assert_eq!(read.ids(), (0..91).collect::<Vec<_>>());
    let lines = read.lines();
    assert_eq!(lines[1], "1|n1|1.25|with, comma");
    assert_eq!(lines[2], "2|n2|2.5|with \"quotes\"");
    assert_eq!(lines[3], "3|n3|null|two\nlines");
    assert_eq!(lines[5], "5|n5|6.25|crlf\r\ninside");
    assert_eq!(lines[6], "6|n6|7.5|a 6\" nail");
    Suite::new(chain).with_max_cuts(91).run().await.unwrap();
}

#[tokio::test]
async fn splits_are_named_relative_to_their_root() {
    let splits = |path: String| async move {
        let source = FileSource::builder(path).build().await.unwrap();
        let chain = HybridSource::builder().source(source).provenance([Provenance::Split]).build().unwrap();
        let lines = read_all(&chain).await.lines();
        let mut names: Vec<String> = lines.iter().map(|line| line.rsplit('|').next().unwrap().to_owned()).collect();
        names.dedup();
        names
    };
    let all = splits(data("mixed")).await;
    assert_eq!(
        all,
        [
            "2019/part-1.csv",
            "2019/part-2.csv",
            "2019/part-9.csv",
            "2019/part-10.csv",
            "2019/part-11.csv.gz",
            "2020/a.csv",
            "2020/q1/part-1.csv",
            "2020/q1/part-2.csv.zst",
            "2020/q2/part-1.csv",
            "2021/part-1.csv",
            "2021/part-2.csv",
            "2021/part-3.csv",
            "last.csv"
        ]
    );
    assert_eq!(splits(data("mixed/last.csv")).await, ["last.csv"]);
    assert_eq!(splits(data("mixed/2019/part-1*.csv")).await, ["part-1.csv", "part-10.csv"]);
    assert_eq!(
        splits(data("mixed/**/part-1.csv")).await,
        ["2019/part-1.csv", "2020/q1/part-1.csv", "2020/q2/part-1.csv", "2021/part-1.csv"]
    );
    assert_eq!(splits(format!("file://{}", data("mixed/last.csv"))).await, ["last.csv"]);
}

/// Large enough for many chunks: quoted newlines stand on the chunks' edges wherever those are.
#[tokio::test]
async fn text_of_many_chunks_conforms() {
    let content = csv(0..150_000);
    assert!(content.len() > 3 << 20);
    let folder = folder(&[
        ("1.csv", content.as_bytes()),
        ("2.csv.gz", &gzip(csv(150_000..200_000).as_bytes())),
        ("3.csv", csv(200_000..200_010).as_bytes()),
    ]);
    let chain = chain(folder.path()).await;
    assert_eq!(read_all(&chain).await.ids(), (0..200_010).collect::<Vec<_>>());
    let suite = Suite::new(chain).with_max_cuts(6);
    suite.items().await.unwrap();
    suite.determinism().await.unwrap();
    suite.cut_anywhere().await.unwrap();
    suite.drop_ends_threads().await.unwrap();
}

#[tokio::test]
async fn parquet_of_many_row_groups_conforms() {
    let folder = folder(&[("a.parquet", &parquet_bytes(&[ids(0..60_000)], 5_000))]);
    let chain = chain(folder.path()).await;
    let suite = Suite::new(chain).with_max_cuts(6).with_expected([ids(0..60_000)]);
    suite.run().await.unwrap();
}

/// One record that is longer than any chunk.
#[tokio::test]
async fn a_record_longer_than_a_chunk_is_one_record() {
    let long = "x\n".repeat(450_000);
    let content = format!("id,name\n1,a\n2,\"{long}\"\n3,c\n");
    let folder = folder(&[("a.csv", content.as_bytes())]);
    let chain = chain(folder.path()).await;
    let read = read(&chain, None, ReadOptions { memory_bytes: 1 << 20, ..ReadOptions::default() }).await.whole();
    assert_eq!(read.ids(), [1, 2, 3]);
    Suite::new(chain).run().await.unwrap();
}

/// CASE 12: no rows, no error.
#[tokio::test]
async fn empty_files_and_files_with_only_a_header_have_no_rows() {
    let folder = folder(&[
        ("1.csv", b""),
        ("2.csv", csv(0..3).as_bytes()),
        ("3.csv", b"id,name\n"),
        ("4.csv", b"id,name"),
        ("5.csv", b""),
    ]);
    let chain = chain(folder.path()).await;
    assert_eq!(read_all(&chain).await.ids(), [0, 1, 2]);
    Suite::new(chain).run().await.unwrap();
    for (name, content) in [
        ("a.csv", ""),
        ("a.csv", "\n"),
        ("a.csv", "id,name\n"),
        ("a.csv", "id,name"),
        ("a.ndjson", ""),
        ("a.ndjson", "\n\n"),
    ] {
        let folder = crate::common::folder(&[(name, content.as_bytes())]);
        let path = folder.path().display().to_string();
        let source = FileSource::builder(path).schema(schema()).build().await.unwrap();
        let chain = chain_of(source);
        assert_eq!(read_all(&chain).await.num_rows(), 0, "{name} {content:?}");
        Suite::new(chain).run().await.unwrap();
    }
}

/// CASE 14: an empty cell is null for every type but text.
#[tokio::test]
async fn an_empty_cell_is_null_except_in_text() {
    let folder = folder(&[("a.csv", b"i,d,b,t,s\n,,,,\n\"\",\"\",\"\",\"\",\"\"\n")]);
    let schema = schema_of("i INT, d DOUBLE, b BOOLEAN, t TIMESTAMP(3), s STRING");
    let source = FileSource::builder(folder.path().display().to_string()).schema(schema).build().await.unwrap();
    assert_eq!(read_all(&chain_of(source)).await.lines(), ["null|null|null|null|", "null|null|null|null|"]);
}

/// CASE 11: a column that one Parquet file lacks is null there, and only there.
#[tokio::test]
async fn a_column_missing_in_one_file_is_null_only_there() {
    let narrow = ids(3..6).project(&[0]).unwrap();
    let folder = folder(&[
        ("1.parquet", &parquet_bytes(&[ids(0..3)], 10)),
        ("2.parquet", &parquet_bytes(&[narrow], 10)),
        ("3.parquet", &parquet_bytes(&[ids(6..9)], 10)),
    ]);
    let chain = chain(folder.path()).await;
    let lines = read_all(&chain).await.lines();
    assert_eq!(lines, ["0|n0", "1|n1", "2|n2", "3|null", "4|null", "5|null", "6|n6", "7|n7", "8|n8"]);
    Suite::new(chain).run().await.unwrap();
}

/// CASE 29: digits beyond the declared precision are cut.
#[tokio::test]
async fn digits_beyond_the_precision_of_a_time_are_cut() {
    let folder = folder(&[("a.csv", b"t\n2023-08-15 14:37:35.987654\n")]);
    let source = FileSource::builder(folder.path().display().to_string())
        .schema(schema_of("t TIMESTAMP(2)"))
        .build()
        .await
        .unwrap();
    assert_eq!(read_all(&chain_of(source)).await.lines(), ["2023-08-15T14:37:35.980"]);
}

/// CASE 32: positions are rows of the file, so a resume with another batch size reads each row once.
#[tokio::test]
async fn a_resume_with_another_batch_size_reads_each_row_once() {
    for (name, content) in [
        ("a.csv", csv(0..100).into_bytes()),
        ("a.ndjson", ndjson(0..100).into_bytes()),
        ("a.parquet", parquet_bytes(&[ids(0..100)], 30)),
    ] {
        let folder = folder(&[(name, &content)]);
        let chain = chain(folder.path()).await;
        let first = read(&chain, None, ReadOptions { batch_rows: 7, ..limit(45) }).await.whole();
        let options = ReadOptions { batch_rows: 11, num_threads: 1, ..ReadOptions::default() };
        let second = read(&chain, Some(first.checkpoint.clone()), options).await.whole();
        assert_eq!([first.ids(), second.ids()].concat(), (0..100).collect::<Vec<_>>(), "{name}");
    }
}

#[tokio::test]
async fn chains_over_every_format_conform() {
    let folder = folder(&[
        ("0.csv", csv(0..6).as_bytes()),
        ("1.parquet", &parquet_bytes(&[ids(6..12)], 4)),
        ("2.ndjson.gz", &gzip(ndjson(12..18).as_bytes())),
        ("3.csv.zst", &zstd(csv(18..24).as_bytes())),
    ]);
    for num_sources in [2, 3, 12] {
        let mut builder = HybridSource::builder().schema(schema());
        for index in 0..num_sources {
            let name = index.to_string();
            let path = |file: &str| folder.path().join(file).display().to_string();
            let file = |file: &str| FileSource::builder(path(file)).name(&name).schema(schema());
            builder = match index % 6 {
                0 => builder.source(file("0.csv").build().await.unwrap()),
                1 => builder.source(file("1.parquet").build().await.unwrap()),
                2 => builder.source(file("2.ndjson.gz").build().await.unwrap()),
                3 => builder.source(file("3.csv.zst").build().await.unwrap()),
                4 => builder.source(memory(&name, 24..30)),
                _ => {
                    let kind = FieldKind::Sequence { start: 30, end: Some(35) };
                    builder.source(DatagenSource::builder(schema()).name(&name).field("id", kind).build().unwrap())
                }
            };
        }
        let chain = builder.build().unwrap();
        let expected: Vec<i64> = (0..num_sources).flat_map(|index| (index % 6) * 6..(index % 6 + 1) * 6).collect();
        assert_eq!(read_all(&chain).await.ids(), expected);
        Suite::new(chain).with_max_cuts(72).run().await.unwrap();
    }
}

async fn put(store: &dyn ObjectStore, path: &str, content: &[u8]) {
    store.put(&path.into(), content.to_vec().into()).await.unwrap();
}

#[tokio::test]
async fn object_stores_conform() {
    let store = InMemory::new();
    put(&store, "bids/a.csv", csv(0..20).as_bytes()).await;
    put(&store, "bids/b.csv.gz", &gzip(csv(20..40).as_bytes())).await;
    put(&store, "bids/_hidden/c.csv", b"nothing").await;
    put(&store, "lake/x.parquet", &parquet_bytes(&[ids(0..30)], 8)).await;
    let config = ThrottleConfig { wait_get_per_call: Duration::from_millis(1), ..ThrottleConfig::default() };
    let store: Arc<dyn ObjectStore> = Arc::new(ThrottledStore::new(store, config));
    for (path, num_rows) in [("bids", 40), ("bids/*.csv", 20), ("lake/", 30), ("lake/x.parquet", 30)] {
        let source = FileSource::builder(path).store(Arc::clone(&store)).build().await.unwrap();
        let chain = chain_of(source);
        assert_eq!(read_all(&chain).await.ids(), (0..num_rows).collect::<Vec<_>>(), "{path}");
        Suite::new(chain).with_max_cuts(12).run().await.unwrap_or_else(|e| panic!("{path}: {e}"));
    }
}

/// History is what was listed at the start; files that were finished may be gone.
#[tokio::test]
async fn a_restart_reads_the_list_of_the_first_start() {
    let folder =
        folder(&[("a.csv", csv(0..5).as_bytes()), ("b.csv", csv(5..10).as_bytes()), ("c.csv", csv(10..15).as_bytes())]);
    let first = read(&chain(folder.path()).await, None, limit(7)).await.whole();
    std::fs::remove_file(folder.path().join("a.csv")).unwrap();
    std::fs::write(folder.path().join("aa.csv"), csv(100..110)).unwrap();
    std::fs::write(folder.path().join("d.csv"), csv(100..110)).unwrap();
    let rest = read(&chain(folder.path()).await, Some(first.checkpoint), ReadOptions::default()).await.whole();
    assert_eq!(rest.ids(), (7..15).collect::<Vec<_>>());
}

/// The header is decided once and kept, and the schema with it: a restart looks at no file for them.
#[tokio::test]
async fn a_restart_never_infers() {
    let folder = folder(&[("a.csv", csv(0..5).as_bytes()), ("b.csv", csv(5..10).as_bytes())]);
    let chain = chain(folder.path()).await;
    let first = read(&chain, None, limit(5)).await.whole();
    std::fs::remove_file(folder.path().join("a.csv")).unwrap();
    let source = FileSource::builder(folder.path().display().to_string())
        .schema(chain.schema())
        .stored(first.checkpoint.sources[0].clone())
        .build()
        .await
        .unwrap();
    let rest = read(&chain_of(source), Some(first.checkpoint), ReadOptions::default()).await.whole();
    assert_eq!(rest.ids(), (5..10).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_file_that_grows_while_it_is_read_is_read_as_it_was_listed() {
    let folder = folder(&[("a.csv", csv(0..5).as_bytes())]);
    let chain = chain(folder.path()).await;
    let from = chain.resolve(None).await.unwrap();
    let mut file = std::fs::OpenOptions::new().append(true).open(folder.path().join("a.csv")).unwrap();
    file.write_all(b"5,late\n").unwrap();
    let mut stream = chain.open(from, ReadOptions::default()).unwrap();
    let mut outcome = Vec::new();
    while let Some(item) = stream.next().await {
        outcome.push(item.map(|item| item.item.num_rows()).map_err(|e| e.to_string()));
    }
    // Either is sound: the five rows that were listed, or an error that the file has changed. Never the sixth.
    let rows: usize = outcome.iter().filter_map(|item| item.as_ref().ok()).sum();
    let changed = outcome.iter().any(|item| item.as_ref().is_err_and(|e| e.contains("has changed")));
    assert!(rows == 5 || (rows == 0 && changed), "{outcome:?}");
}

#[tokio::test]
async fn quotes_and_line_ends_follow_rfc_4180() {
    let lines = lines_of("a.csv", "a,b,n\r\n\"x\r\ny\",\"\"\"\",1\r\n6\" nail,\"a,b\",2\r\n\r\nlast,\"\",3").await;
    assert_eq!(lines, ["x\r\ny|\"|1", "6\" nail|a,b|2", "last||3"]);
}

#[tokio::test]
async fn an_unused_column_is_not_read() {
    let folder = folder(&[("a.csv", b"id,junk,name\n1,not a number,x\n")]);
    let source = FileSource::builder(folder.path().display().to_string()).schema(schema()).build().await.unwrap();
    let read: Read = read_all(&chain_of(source)).await;
    assert_eq!(read.lines(), ["1|x"]);
}
