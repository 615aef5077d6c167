//! Bad input: a clear message with the place, the good rows before it, and nothing after it.

use std::fs;
use std::path::Path;

use segue::error::Error;
use segue::file::{FileSource, FileSourceBuilder};
use segue::hybrid::ReadOptions;
use segue::testing::Suite;

use crate::common::{chain_of, folder, gzip, ids, limit, parquet_bytes, read, schema, schema_of, told};

fn source(path: &Path) -> FileSourceBuilder {
    FileSource::builder(path.display().to_string())
}

/// Reads one file of the columns `schema` until it fails: the rows before, and the error without the folder.
async fn failing(name: &str, content: impl AsRef<[u8]>, schema: &str) -> (Vec<String>, String) {
    let folder = folder(&[(name, content.as_ref())]);
    let in_folder = format!("{}/", folder.path().display());
    let source = match source(&folder.path().join(name)).schema(schema_of(schema)).build().await {
        Ok(source) => source,
        Err(e) => return (Vec::new(), told(&e).replace(&in_folder, "")),
    };
    let chain = chain_of(source);
    let read = read(&chain, None, ReadOptions::default()).await;
    let error = read.error.as_ref().map_or_else(|| "no error".to_owned(), told);
    if !error.starts_with("no error") {
        // The place doesn't depend on threads and batches, and a resume comes to the same end.
        Suite::new(chain).failure(&error).await.unwrap();
    }
    (read.lines(), error.replace(&in_folder, ""))
}

async fn message(name: &str, content: impl AsRef<[u8]>, schema: &str) -> String {
    failing(name, content, schema).await.1
}

/// CASE 10: a wrong path is an error, and never a job that ends well without rows.
#[tokio::test]
async fn a_missing_path_is_an_error() {
    let folder = folder(&[("readme.txt", b"x")]);
    let error = |name: &str| {
        let path = folder.path().join(name);
        async move { source(&path).build().await.unwrap_err() }
    };
    let at = folder.path().display();
    assert_eq!(error("nope.csv").await.to_string(), format!("{at}/nope.csv: no such file or folder"));
    assert_eq!(
        error("*.csv").await.to_string(),
        format!("{at}/*.csv: no matching files (source.allow-empty=true lets it pass)")
    );
    assert_eq!(
        error("").await.to_string(),
        format!("{at}: no matching files: 1 of other suffixes are there, and --format would take them")
    );
    assert!(matches!(error("nope.csv").await, Error::NotFound { .. }));
    let allowed = source(folder.path()).allow_empty(true).schema(schema()).build().await.unwrap();
    assert_eq!(read(&chain_of(allowed), None, ReadOptions::default()).await.num_rows(), 0);
}

#[tokio::test]
async fn a_mix_of_formats_is_an_error() {
    let folder = folder(&[("a.csv", b"id\n1\n"), ("b.ndjson", b"{}")]);
    let error = source(folder.path()).build().await.unwrap_err().to_string();
    assert!(
        error.ends_with("files of two formats, a.csv (csv) and b.ndjson (json); take one by a glob or --format"),
        "{error}"
    );
}

#[tokio::test]
async fn a_header_of_which_only_some_columns_are_known_is_an_error() {
    let error = message("a.csv", "id,nam\n1,x\n", "id INT, name STRING").await;
    assert_eq!(
        error,
        "a.csv: the first record names some columns of the schema (id) and not others (name); it has id, nam; set csv.header to true or false"
    );
}

#[tokio::test]
async fn a_header_without_any_known_column_is_an_error() {
    let folder = folder(&[("1.csv", b"id,name\n1,x\n"), ("2.csv", b"a,b\n2,y\n")]);
    let chain = chain_of(source(folder.path()).schema(schema()).build().await.unwrap());
    let read = read(&chain, None, ReadOptions::default()).await;
    assert_eq!(read.lines(), ["1|x"]);
    let error = read.error.unwrap().to_string();
    assert!(error.ends_with("2.csv: its header names none of the columns id, name"), "{error}");
}

#[tokio::test]
async fn a_row_that_is_too_short_or_too_long_is_an_error() {
    let (rows, error) = failing("a.csv", "id,name\n1,x\n2\n3,z\n", "id INT, name STRING").await;
    assert_eq!(rows, ["1|x"]);
    assert_eq!(error, "a.csv line 3 (byte 12): 1 field where 2 are expected");
    let (rows, error) = failing("a.csv", "id,name\n1,x\n\n2,\"y\n\",extra\n", "id INT, name STRING").await;
    assert_eq!(rows, ["1|x"]);
    assert_eq!(error, "a.csv line 4 (byte 13): 3 fields where 2 are expected");
}

/// The line is where the record starts, header counted; also after quoted newlines, and after a resume.
#[tokio::test]
async fn a_bad_number_is_told_with_file_line_byte_column_and_value() {
    let (rows, error) = failing("n.csv", "id,v\n1,2.5\n2,x7\n3,1\n", "id INT, v DOUBLE").await;
    assert_eq!(rows, ["1|2.5"]);
    assert_eq!(error, "n.csv line 3 (byte 11), column v: 'x7' is not a DOUBLE");
    let (rows, error) = failing("n.csv", "1,\"a\nb\"\n2,c\n3000000000,d\n", "id INT, name STRING").await;
    assert_eq!(rows, ["1|a\nb", "2|c"]);
    assert_eq!(error, "n.csv line 4 (byte 12), column id: '3000000000' is out of range for INT");
    let compressed = gzip(b"id,v\n1,2.5\n2,x7\n");
    assert_eq!(
        message("n.csv.gz", compressed, "id INT, v DOUBLE").await,
        "n.csv.gz line 3 (byte 11), column v: 'x7' is not a DOUBLE"
    );
}

#[tokio::test]
async fn a_bad_value_in_the_first_line_hints_at_a_header() {
    let folder = folder(&[("a.csv", b"key,label\n1,x\n")]);
    let chain = chain_of(source(folder.path()).schema(schema()).build().await.unwrap());
    let error = read(&chain, None, ReadOptions::default()).await.error.unwrap();
    assert!(error.to_string().ends_with("a.csv line 1 (byte 0), column id: 'key' is not a BIGINT"), "{error}");
    assert_eq!(error.hint().unwrap(), "it looks like a header: set csv.header=true");
}

/// CASE 26: a value with more digits than the column holds is an error with its place, and not null.
#[tokio::test]
async fn a_decimal_with_too_many_digits_is_an_error() {
    let error = message("a.csv", "d\n1.25\n123.45\n", "d DECIMAL(4,2)").await;
    assert_eq!(error, "a.csv line 3 (byte 7), column d: '123.45' is out of range for DECIMAL(4,2)");
}

#[tokio::test]
async fn null_where_none_may_be_is_an_error() {
    let (rows, error) = failing("a.csv", "id,name\n1,x\n,y\n", "id INT NOT NULL, name STRING").await;
    assert_eq!(rows, ["1|x"]);
    assert_eq!(error, "a.csv line 3 (byte 12), column id: null in a NOT NULL column (INT)");
}

#[tokio::test]
async fn broken_quotes_are_an_error_and_swallow_nothing() {
    let (rows, error) = failing("a.csv", "id,name\n1,x\n2,\"open\n3,z\n", "id INT, name STRING").await;
    assert_eq!(rows, ["1|x"]);
    assert_eq!(error, "a.csv line 3 (byte 12): the quote at byte 2 of the record isn't closed: '2,\"open'");
    let (rows, error) = failing("a.csv", "id,name\n1,x\n2,\"y\"z\n3,z\n", "id INT, name STRING").await;
    assert_eq!(rows, ["1|x"]);
    assert_eq!(error, "a.csv line 3 (byte 12): text behind a closing quote, at byte 5 of the record: '2,\"y\"z'");
}

#[tokio::test]
async fn text_that_is_not_utf8_is_an_error() {
    let (rows, error) = failing("a.csv", b"id,name\n1,x\n2,\xff\n", "id INT, name STRING").await;
    assert_eq!(rows, ["1|x"]);
    assert_eq!(error, "a.csv line 3 (byte 12): invalid UTF-8: byte 0xff at byte 2 of the record");
}

/// CASE 30: what stands before and after one bad record never changes; here, what stands before it.
#[tokio::test]
async fn the_rows_before_a_bad_record_are_the_same_whatever_the_chunks() {
    let rows: String = (0..200_000).map(|id| format!("{id},n{id}\n")).collect();
    let content = format!("id,name\n{rows}bad,x\n{rows}");
    let (rows, error) = failing("a.csv", content, "id BIGINT, name STRING").await;
    assert_eq!(rows.len(), 200_000);
    assert!(error.starts_with("a.csv line 200002 (byte "), "{error}");
}

#[tokio::test]
async fn a_limit_before_a_bad_record_never_meets_it() {
    let folder = folder(&[("a.csv", b"id,name\n1,x\n2,y\nthree,z\n")]);
    let chain = chain_of(source(folder.path()).schema(schema()).build().await.unwrap());
    assert_eq!(read(&chain, None, limit(2)).await.whole().lines(), ["1|x", "2|y"]);
}

#[tokio::test]
async fn truncated_compressed_files_are_an_error() {
    let rows: String = (0..50_000).map(|id| format!("{id},n{}\n", id * 7919)).collect();
    let content = format!("id,name\n{rows}");
    for (name, whole, kind) in
        [("a.csv.gz", gzip(content.as_bytes()), "gzip"), ("a.csv.zst", crate::common::zstd(content.as_bytes()), "zstd")]
    {
        let folder = folder(&[(name, &whole[..whole.len() / 2])]);
        let chain = chain_of(source(folder.path()).schema(schema()).build().await.unwrap());
        let read = read(&chain, None, ReadOptions::default()).await;
        let error = read.error.as_ref().map(Error::to_string).unwrap();
        assert!(error.ends_with(&format!("{name}: the {kind} data is truncated")), "{error}");
    }
    let error = message("a.csv.gz", "this is no gzip, and longer than its header", "id INT").await;
    assert!(error.starts_with("a.csv.gz: the gzip data can't be read"), "{error}");
}

#[tokio::test]
async fn a_parquet_file_that_is_none_is_an_error() {
    let folder = folder(&[("a.parquet", b"PAR0 this is no Parquet file, though its name says so")]);
    let error = source(folder.path()).build().await.unwrap_err();
    assert!(
        error.to_string().ends_with("a.parquet: not a Parquet file, or truncated: it doesn't end with PAR1"),
        "{error}"
    );

    let whole = parquet_bytes(&[ids(0..100)], 10);
    let truncated = crate::common::folder(&[("a.parquet", &whole[..whole.len() / 2])]);
    let error = source(truncated.path()).build().await.unwrap_err();
    assert!(matches!(error, Error::BadFile { .. }), "{error}");
}

/// A file that was listed and begun must still be what it was when the job goes on.
#[tokio::test]
async fn a_file_that_changed_between_checkpoint_and_resume_is_an_error() {
    let content = "id,name\n1,x\n2,y\n3,z\n";
    let change = |how: fn(&Path)| async move {
        let folder = folder(&[("a.csv", content.as_bytes()), ("b.csv", content.as_bytes())]);
        let path = folder.path().join("a.csv");
        let chain = chain_of(source(folder.path()).schema(schema()).build().await.unwrap());
        let stopped = read(&chain, None, limit(2)).await.whole().checkpoint;
        how(&path);
        let error = match chain.resolve(Some(stopped)).await {
            Err(e) => e,
            Ok(resumed) => read(&chain, Some(resumed), ReadOptions::default()).await.error.unwrap(),
        };
        error.to_string().replace(&format!("{}/", folder.path().display()), "")
    };
    let replaced = change(|path| {
        let other = path.with_file_name("c.tmp");
        fs::write(&other, "id,name\n7,x\n8,y\n9,z\n").unwrap();
        fs::rename(other, path).unwrap();
    });
    assert!(replaced.await.starts_with("a.csv: the file has changed since it was listed: "));
    let rewritten = change(|path| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        fs::write(path, "id,name\n7,x\n8,y\n9,z\n").unwrap();
    });
    assert!(rewritten.await.starts_with("a.csv: the file has changed since it was listed: "));
    let truncated = change(|path| fs::write(path, "id,name\n1,x\n").unwrap());
    assert_eq!(truncated.await, "a.csv: the file has changed since it was listed: size was 20 bytes, now 12 bytes");
    let appended = change(|path| fs::write(path, "id,name\n1,x\n2,y\n3,z\n4,w\n").unwrap());
    assert_eq!(appended.await, "a.csv: the file has changed since it was listed: size was 20 bytes, now 24 bytes");
    let removed = change(|path| fs::remove_file(path).unwrap());
    assert_eq!(removed.await, "a.csv: no such file: it was begun and is gone");
}

/// So must a file that was listed and not yet begun.
#[tokio::test]
async fn a_listed_file_that_changed_before_its_turn_is_an_error() {
    for (what, how) in [
        ("a file that went", (|path| fs::remove_file(path).unwrap()) as fn(&Path)),
        ("a file that grew", |path| fs::write(path, "id,name\n7,x\n8,y\n9,z\n10,v\n").unwrap()),
    ] {
        let folder = folder(&[("a.csv", b"id,name\n1,x\n2,y\n"), ("b.csv", b"id,name\n7,x\n8,y\n")]);
        let chain = chain_of(source(folder.path()).schema(schema()).build().await.unwrap());
        let stopped = read(&chain, None, limit(1)).await.whole().checkpoint;
        how(&folder.path().join("b.csv"));
        let rest = read(&chain, Some(stopped), ReadOptions::default()).await;
        assert_eq!(rest.ids(), [2], "{what}");
        let error = rest.error.unwrap().to_string();
        assert!(error.contains("b.csv: the file "), "{what}: {error}");
    }
}

#[tokio::test]
async fn a_file_that_is_deleted_while_reading_is_an_error() {
    let rows: String = (0..400_000).map(|id| format!("{id},n{id}\n")).collect();
    let folder = folder(&[("a.csv", b"id,name\n1,x\n"), ("b.csv", format!("id,name\n{rows}").as_bytes())]);
    let chain = chain_of(source(folder.path()).schema(schema()).build().await.unwrap());
    let from = chain.resolve(None).await.unwrap();
    let options = ReadOptions { memory_bytes: 1 << 20, num_threads: 1, ..ReadOptions::default() };
    let mut stream = chain.open(from, options).unwrap();
    stream.next().await.unwrap().unwrap();
    fs::remove_file(folder.path().join("b.csv")).unwrap();
    let mut outcome = None;
    while let Some(item) = stream.next().await {
        if let Err(e) = item {
            outcome = Some(e.to_string());
        }
    }
    let error = outcome.unwrap();
    assert!(error.ends_with("b.csv: the file was listed and is gone"), "{error}");
}

#[tokio::test]
async fn types_that_cannot_be_unified_are_an_error() {
    let folder = folder(&[("a.csv", b"id,v\n1,x\n"), ("b.csv", b"id,v\nx,1\n")]);
    let file = |name: &str| source(&folder.path().join(name)).name(name).build();
    let (a, b) = (file("a.csv").await.unwrap(), file("b.csv").await.unwrap());
    let error = segue::hybrid::HybridSource::builder().source(a).source(b).build().unwrap_err();
    assert_eq!(error.to_string(), "column id: BIGINT (a.csv) and STRING (b.csv) can't be unified");
}
