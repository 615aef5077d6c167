//! Bad records, as users meet them: skipped and counted, as dead letters, and within what is allowed.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use parquet::arrow::ArrowWriter;
use segue::checkpoint::Checkpoint;
use serde_json::Value;
use tempfile::TempDir;

use crate::cli::{Ran, dir, fails, rows, segue};

const SCHEMA: &str = "id INT, v DOUBLE";

/// Line 3 has a bad value, line 5 too many fields, line 7 broken quotes.
const SOME_BAD: &str = "id,v\n1,1\n2,x7\n3,3\n4,4,4\n5,5\n6,\"6\"6\n7,7\n";

fn read(dir: &TempDir, args: &[&str]) -> Ran {
    segue(dir, &[&["read", "--schema", SCHEMA], args].concat())
}

fn letters(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn skipped_records_are_counted_by_reason_and_told_with_the_first_of_each() {
    let dir = dir(&[("n.csv", SOME_BAD)]);
    let ran = read(&dir, &["n.csv", "--on-error", "skip"]);
    assert_eq!((ran.status, ran.stdout.as_str()), (0, "id,v\n1,1.0\n3,3.0\n5,5.0\n7,7.0\n"));
    assert_eq!(
        ran.stderr,
        "warning: 3 bad records were left out\n  \
         1 with a value that is none of its column's type, the first: n.csv byte 9, column v: 'x7' is not a DOUBLE\n  \
         1 with another number of fields, the first: n.csv byte 18: 3 fields where 2 are expected\n  \
         1 with broken quotes, the first: n.csv byte 28: text behind a closing quote, at byte 5 of the record: '6,\"6\"6'\n  \
         hint: csv.extra-fields=ignore lets such records pass\n  \
         hint: a quote within quotes is written twice, or behind csv.escape-character; csv.disable-quote-character=true makes quotes plain characters\n"
    );
    // One word for the other: the source's own option.
    let of_source = read(&dir, &["n.csv", "-o", "csv.ignore-parse-errors=true"]);
    assert_eq!(of_source, ran);
}

#[test]
fn each_format_goes_on_behind_its_bad_records() {
    let dir = dir(&[
        ("a.json", "{\"id\":1,\"v\":1}\n{\"id\":2,\n[3]\n\n{\"id\":\"4\"}\n{\"id\":5,\"v\":5}\n"),
        ("b.csv", "6,6\n\n\"7\n8,8\n"),
    ]);
    fs::write(
        dir.path().join("a.json"),
        [fs::read(dir.path().join("a.json")).unwrap(), b"\xff\n{\"id\":6}".into()].concat(),
    )
    .unwrap();
    let args = ["a.json", "b.csv", "--on-error", "skip", "--metadata", "_split,_position"];
    assert_eq!(
        rows(&dir, &[&["read", "--schema", SCHEMA], &args[..]].concat()),
        "id,v,_split,_position\n1,1.0,a.json,0\n5,5.0,a.json,40\n6,,a.json,57\n6,6.0,b.csv,0\n8,8.0,b.csv,8\n"
    );
}

#[test]
fn a_row_of_a_typed_file_that_does_not_fit_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let id: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), Some(1 << 40), None, Some(4)]));
    let batch = RecordBatch::try_from_iter([("id", id)]).unwrap();
    let file = fs::File::create(dir.path().join("a.parquet")).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let args = ["read", "a.parquet", "--schema", "id INT NOT NULL", "--metadata", "_position"];
    let ran = segue(&dir, &[&args[..], &["--on-error", "dead.ndjson"]].concat());
    assert_eq!((ran.status, ran.stdout.as_str()), (0, "id,_position\n1,0\n4,3\n"));
    assert!(ran.stderr.contains("2 bad records were left out; dead letters are in dead.ndjson"), "{}", ran.stderr);
    assert_eq!(
        fs::read_to_string(dir.path().join("dead.ndjson")).unwrap(),
        "{\"source\":\"0\",\"phase\":\"bounded\",\"split\":\"a.parquet\",\"position\":1,\"column\":\"id\",\"reason\":\"range\",\"message\":\"'1099511627776' is out of range for INT\",\"raw\":null}\n\
         {\"source\":\"0\",\"phase\":\"bounded\",\"split\":\"a.parquet\",\"position\":2,\"column\":\"id\",\"reason\":\"null\",\"message\":\"null in a NOT NULL column (INT)\",\"raw\":null}\n"
    );
}

#[test]
fn dead_letters_have_all_that_is_needed_to_mend_them() {
    let dir = dir(&[("in/n.csv", SOME_BAD)]);
    fs::write(dir.path().join("in/o.csv"), b"id,v\r\n8,\xff\r\n9,9\r\n").unwrap();
    let ran = read(&dir, &["in", "--on-error", "dead.ndjson"]);
    assert_eq!((ran.status, ran.stdout.lines().count()), (0, 6), "{}", ran.stderr);
    let text = fs::read_to_string(dir.path().join("dead.ndjson")).unwrap();
    assert_eq!(
        text.lines().collect::<Vec<_>>(),
        [
            r#"{"source":"0","phase":"bounded","split":"n.csv","position":9,"column":"v","reason":"type","message":"'x7' is not a DOUBLE","raw":"2,x7"}"#,
            r#"{"source":"0","phase":"bounded","split":"n.csv","position":18,"column":null,"reason":"fields","message":"3 fields where 2 are expected","raw":"4,4,4"}"#,
            r#"{"source":"0","phase":"bounded","split":"n.csv","position":28,"column":null,"reason":"quotes","message":"text behind a closing quote, at byte 5 of the record: '6,\"6\"6'","raw":"6,\"6\"6"}"#,
            r#"{"source":"0","phase":"bounded","split":"o.csv","position":6,"column":null,"reason":"encoding","message":"invalid UTF-8: byte 0xff at byte 2 of the record","raw_base64":"OCz/"}"#,
        ]
    );
    // The next job appends.
    read(&dir, &["in/n.csv", "--on-error", "dead.ndjson"]);
    assert_eq!(letters(&dir.path().join("dead.ndjson")).len(), 7);
}

#[test]
fn what_was_allowed_ends_the_job_at_the_next_bad_record_and_again_when_it_goes_on() {
    let dir = dir(&[("n.csv", SOME_BAD)]);
    let all = ["n.csv", "--on-error", "dead.ndjson", "--checkpoint", "job.json", "--max-errors"];
    let ran = read(&dir, &[&all[..], &["2"]].concat());
    assert_eq!((ran.status, ran.stdout.as_str()), (1, "id,v\n1,1.0\n3,3.0\n5,5.0\n"));
    assert!(
        ran.stderr.ends_with(
            "error: 3 bad records, and 2 are allowed\n\
             caused by: n.csv byte 28: text behind a closing quote, at byte 5 of the record: '6,\"6\"6'\n\
             hint: what came before stays; with --checkpoint the same command goes on under a higher --max-errors\n"
        ),
        "{}",
        ran.stderr
    );
    let stored = checkpoint(&dir);
    assert_eq!((stored.sources[0].rows, stored.sources[0].rejected), (3, 2));
    assert_eq!(letters(&dir.path().join("dead.ndjson")).len(), 2);
    // The count is the job's, not the run's.
    let again = read(&dir, &[&all[..], &["2"]].concat());
    assert_eq!((again.status, again.stdout.as_str()), (1, "id,v\n"));
    let more = read(&dir, &[&all[..], &["3"]].concat());
    assert_eq!((more.status, more.stdout.as_str()), (0, "id,v\n7,7.0\n"));
    assert_eq!(checkpoint(&dir).sources[0].rejected, 3);
    assert_eq!(letters(&dir.path().join("dead.ndjson")).len(), 3);
}

fn checkpoint(dir: &TempDir) -> Checkpoint {
    let text = fs::read(dir.path().join("job.json")).unwrap();
    let document: Value = serde_json::from_slice(&text).unwrap();
    let source = |field: &str| document[field]["0"].as_u64().unwrap();
    let mut checkpoint = Checkpoint::default();
    let splits = segue::checkpoint::Splits::side_by_side([]);
    let mut state = segue::checkpoint::SourceState::new("0", "filesystem", splits);
    (state.rows, state.rejected) = (source("rows"), source("rejected"));
    checkpoint.sources.push(state);
    checkpoint
}

#[test]
fn a_share_is_judged_from_a_thousand_records_on_and_at_the_end() {
    let records = |num: usize, bad: &[usize]| -> String {
        (1..=num).map(|record| if bad.contains(&record) { "x,\n".to_owned() } else { format!("{record},\n") }).collect()
    };
    let first_ten: Vec<usize> = (1..=10).collect();
    let cases = [
        // Ten of a thousand are one percent; before, they were more.
        (records(1000, &first_ten), "1%", 0, 990),
        // One more is too many at the thousandth record, which is good.
        (records(2000, &(1..=11).collect::<Vec<_>>()), "1%", 1, 989),
        // Too many at a bad record.
        (records(2000, &[&first_ten[..], &[1050]].concat()), "1%", 1, 1039),
        // At the end.
        (records(500, &first_ten), "1%", 1, 490),
        (records(500, &first_ten), "2%", 0, 490),
        (records(500, &[]), "0%", 0, 500),
        (records(500, &[7]), "0", 1, 6),
    ];
    for (content, allowed, status, num_rows) in cases {
        let dir = dir(&[("n.csv", &content)]);
        for batch_rows in ["8192", "7"] {
            let args =
                ["n.csv", "--on-error", "skip", "--no-header", "--max-errors", allowed, "--batch-rows", batch_rows];
            let ran = read(&dir, &args);
            let got = (ran.status, ran.stdout.lines().count());
            assert_eq!(got, (status, num_rows), "{allowed} of {} lines: {}", content.lines().count(), ran.stderr);
        }
    }
}

#[test]
fn a_limit_counts_rows_and_not_what_is_left_out() {
    let dir = dir(&[("n.csv", SOME_BAD)]);
    let args = ["n.csv", "--on-error", "dead.ndjson", "--checkpoint", "job.json", "--limit", "1"];
    let all: Vec<String> = (0..5).map(|_| read(&dir, &[&args[..], &["--no-header"]].concat()).stdout).collect();
    assert_eq!(all, ["1,1.0\n", "3,3.0\n", "5,5.0\n", "7,7.0\n", ""]);
    // A limit isn't the end at which a share is judged.
    let few = read(&dir, &["n.csv", "--on-error", "skip", "--max-errors", "1%", "--limit", "2", "--no-header"]);
    assert_eq!((few.status, few.stdout.as_str()), (0, "1,1.0\n3,3.0\n"));
    // Each bad record once, though every run ended in between.
    assert_eq!(letters(&dir.path().join("dead.ndjson")).len(), 3);
    assert_eq!(checkpoint(&dir).sources[0].rejected, 3);
}

#[test]
fn what_can_not_go_together_is_refused_before_anything_is_read() {
    let dir = dir(&[("in/a.csv", "id\n1\n"), ("data.csv", "id\n1\n")]);
    let read = |args: &[&str], status, stderr: &str| fails(&dir, &[&["read"], args].concat(), status, stderr);
    read(
        &["in", "--on-error", "ignore"],
        2,
        "error: --on-error ignore: it is none of fail, skip, a path (with / or .), and kafka://…\n",
    );
    read(
        &["in", "--max-errors", "5"],
        2,
        "error: --max-errors: the first bad record ends the job anyway\n\
         hint: add --on-error skip, or a file for dead letters: --on-error dead-letters.ndjson\n",
    );
    read(
        &["in", "--on-error", "skip", "--max-errors", "many"],
        2,
        "error: --max-errors: 'many' is neither a number nor a percentage, as 10 or 1%\n",
    );
    read(
        &["in", "--on-error", "in/dead.ndjson"],
        2,
        "error: --on-error in/dead.ndjson: it is among the files of source 0, and would be read as one\n",
    );
    read(
        &["in", "--schema", "id INT", "--on-error", "data.csv"],
        2,
        "error: data.csv: it holds something else than dead letters\n\
         hint: give a file of this job's own, one that isn't there yet or that has dead letters\n",
    );
    assert_eq!(fs::read_to_string(dir.path().join("data.csv")).unwrap(), "id\n1\n");
    let at_home = |place: &str| {
        let args = ["copy", "in", "--to", "csv:out", "--checkpoint", "job", "--on-error", place];
        let ran = segue(&dir, &args);
        assert_eq!((ran.status, ran.stdout.as_str()), (2, ""), "{place}: {}", ran.stderr);
        ran.stderr
    };
    for place in ["./job", "job.lock", "in/../job"] {
        assert!(at_home(place).contains("the checkpoint is there"), "{place}");
    }
    // Also as long as the folder isn't there.
    for place in ["out/dead.ndjson", "no/../out/dead.ndjson"] {
        assert!(at_home(place).contains("it is in the folder that rows are copied into"), "{place}");
    }
    read(
        &["in/*.ndjson", "--on-error", "in/dead.ndjson"],
        2,
        "error: --on-error in/dead.ndjson: it is among the files of source 0, and would be read as one\n",
    );
    read(&["in", "--on-error", "file://"], 2, "error: --on-error file://: it names no file\n");
    read(
        &["in", "--on-error", "/dev/full", "--schema", "id INT"],
        2,
        "error: /dev/full: it isn't a regular file\n\
         hint: give a file of this job's own, one that isn't there yet or that has dead letters\n",
    );
    let no_folder = segue(&dir, &["read", "in", "--schema", "id INT", "--on-error", "no/dead.ndjson"]);
    assert_eq!((no_folder.status, no_folder.stdout.as_str()), (1, ""));
    assert!(no_folder.stderr.starts_with("error: no/dead.ndjson: cannot open: "), "{}", no_folder.stderr);
}

#[test]
fn the_types_are_found_in_spite_of_bad_records() {
    let dir = dir(&[("a.json", "{\"id\":\n{\"id\":1}\n"), ("b.json", "[1]\n[2]\n")]);
    let ran = segue(&dir, &["read", "a.json", "--on-error", "skip"]);
    assert_eq!((ran.status, ran.stdout.as_str()), (0, "id\n1\n"));
    assert!(ran.stderr.contains("1 with broken JSON, the first: a.json byte 0:"), "{}", ran.stderr);
    let ran = segue(&dir, &["read", "b.json", "--on-error", "skip"]);
    assert_eq!(ran.status, 1);
    assert!(ran.stderr.contains("an array where an object is expected"), "{}", ran.stderr);
}

/// A chunk of nothing but bad records is decoded in pieces, as they are taken.
#[test]
fn a_file_of_bad_records_is_left_out_whole_with_any_number_of_threads() {
    let content: String =
        (0..200_000).map(|id| if id % 1000 == 0 { format!("{id},1\n") } else { "x\n".into() }).collect();
    let dir = dir(&[("n.csv", &content)]);
    let args = ["n.csv", "--on-error", "dead.ndjson", "--metadata", "_position", "--memory", "16mb"];
    let mut first = None;
    for threads in ["1", "4"] {
        let _ = fs::remove_file(dir.path().join("dead.ndjson"));
        let ran = read(&dir, &[&args[..], &["--threads", threads]].concat());
        assert_eq!((ran.status, ran.stdout.lines().count()), (0, 201));
        let letters = letters(&dir.path().join("dead.ndjson"));
        let positions: Vec<u64> = letters.iter().map(|letter| letter["position"].as_u64().unwrap()).collect();
        assert_eq!(positions.len(), 199_800);
        assert!(positions.is_sorted());
        let got = (ran.stdout, positions);
        assert_eq!(first.get_or_insert_with(|| got.clone()), &got);
    }
}

#[test]
fn records_that_are_left_out_say_nothing_of_types_and_later_files_do() {
    let torn = dir(&[("a.csv", "id,at\n1,2024-01-01\ntorn\n2,x,y\n3,2024-01-03\n")]);
    let ran = segue(&torn, &["read", "a.csv", "--on-error", "skip"]);
    assert_eq!((ran.status, ran.stdout.as_str()), (0, "id,at\n1,2024-01-01\n3,2024-01-03\n"));
    assert!(ran.stderr.contains("--schema 'id BIGINT, at DATE'"), "{}", ran.stderr);
    let files = dir(&[
        ("in/a.csv", "id,v\n1,1\n"),
        ("in/b.csv", "v,id\n1.5,2\n"),
        ("js/a.json", "{\"v\":1}\n"),
        ("js/b.json", "{\"v\":1.5,\"w\":2}\n"),
    ]);
    assert_eq!(rows(&files, &["read", "in"]), "id,v\n1,1.0\n2,1.5\n");
    assert_eq!(rows(&files, &["read", "js"]), "v,w\n1.0,\n1.5,2\n");
}

#[test]
fn a_header_in_another_charset_is_told_with_the_option_for_it() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.csv"), b"id,Stra\xdfe\n1,5\n").unwrap();
    for more in [&[][..], &["--on-error", "skip"], &["--schema", "id INT, `Straße` INT"], &["-o", "csv.header=true"]] {
        let ran = segue(&dir, &[&["read", "a.csv"], more].concat());
        assert_eq!((ran.status, ran.stdout.as_str()), (1, ""), "{more:?}");
        let expected = "invalid UTF-8: byte 0xdf at byte 7 of the record\n\
                        hint: csv.charset says how a file is written, such as windows-1252\n";
        assert!(ran.stderr.ends_with(expected), "{more:?}: {}", ran.stderr);
    }
    assert_eq!(rows(&dir, &["read", "a.csv", "-o", "csv.charset=latin1"]), "id,Straße\n1,5\n");
}

#[test]
fn dead_letters_are_only_claimed_where_there_are_some() {
    let dir = dir(&[("a.csv", "x,1\n1,1\n"), ("b.csv", "y,1\n2,2\n")]);
    let args = ["a.csv", "b.csv", "-o", "0.csv.ignore-parse-errors=true", "--on-error", "dead.ndjson"];
    let ran = read(&dir, &args);
    assert_eq!((ran.status, ran.stdout.as_str()), (0, "id,v\n1,1.0\n2,2.0\n"));
    assert!(
        ran.stderr.starts_with("warning: 2 bad records were left out; 1 dead letter in dead.ndjson\n"),
        "{}",
        ran.stderr
    );
    let letters = letters(&dir.path().join("dead.ndjson"));
    assert_eq!(letters.iter().map(|letter| letter["raw"].as_str().unwrap()).collect::<Vec<_>>(), ["y,1"]);
}

#[test]
fn a_broken_first_record_decides_nothing_about_headers() {
    let dir = dir(&[("in/a.csv", "v,\"id\"x\n1,2\n"), ("in/b.csv", "v,id\n1,2\n")]);
    let ran = read(&dir, &["in", "--on-error", "skip"]);
    assert_eq!((ran.status, ran.stdout.as_str()), (1, ""));
    assert!(ran.stderr.starts_with("error: in/a.csv line 1 (byte 0): text behind a closing quote"), "{}", ran.stderr);
    assert_eq!(
        rows(&dir, &["read", "in", "--schema", "v INT, id INT", "-o", "csv.ignore-first-line=true"]),
        "v,id\n1,2\n1,2\n"
    );
}

#[test]
fn a_share_that_was_passed_ends_the_job_again_at_once() {
    let content: String =
        (0..3000).map(|id| if id % 50 == 7 { "x,\n".to_owned() } else { format!("{id},\n") }).collect();
    let dir = dir(&[("n.csv", &content)]);
    let args = ["n.csv", "--no-header", "--on-error", "skip", "--checkpoint", "job.json", "--max-errors"];
    let first = read(&dir, &[&args[..], &["1%"]].concat());
    assert_eq!((first.status, first.stdout.lines().count()), (1, 980));
    let again = read(&dir, &[&args[..], &["1%"]].concat());
    assert_eq!((again.status, again.stdout.as_str()), (1, ""), "{}", again.stderr);
    let more = read(&dir, &[&args[..], &["5%"]].concat());
    assert_eq!((more.status, more.stdout.lines().count()), (0, 1960), "{}", more.stderr);
}
