//! The program, run as users run it: its bytes, its messages, its exit status.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// What a run gave.
#[derive(Debug, PartialEq)]
pub(crate) struct Ran {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) fn command(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
    command.current_dir(dir).args(args).stdin(Stdio::null());
    command
}

pub(crate) fn segue(dir: &TempDir, args: &[&str]) -> Ran {
    segue_in(dir.path(), args)
}

pub(crate) fn segue_in(folder: &Path, args: &[&str]) -> Ran {
    let output = command(folder, args).output().unwrap();
    Ran {
        status: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A folder with these files.
pub(crate) fn dir(files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    dir
}

/// Runs with `--quiet`; nothing may be said.
#[track_caller]
pub(crate) fn rows(dir: &TempDir, args: &[&str]) -> String {
    let ran = segue(dir, &[args, &["--quiet"]].concat());
    assert_eq!((ran.status, ran.stderr.as_str()), (0, ""), "{args:?}");
    ran.stdout
}

#[track_caller]
pub(crate) fn fails(dir: &TempDir, args: &[&str], status: i32, stderr: &str) {
    let ran = segue(dir, &[args, &["--quiet"]].concat());
    assert_eq!((ran.stderr.as_str(), ran.status, ran.stdout.as_str()), (stderr, status, ""), "{args:?}");
}

const BIDS: &str = "id,price,at\n1,2.5,2023-01-01 10:00:00.5\n2,,2023-01-02 00:00:00\n";

#[test]
fn read_prints_csv_into_a_pipe_and_says_the_schema_ready_to_paste() {
    let dir = dir(&[("bids.csv", BIDS)]);
    let ran = segue(&dir, &["read", "bids.csv"]);
    assert_eq!(ran.stdout, "id,price,at\n1,2.5,2023-01-01 10:00:00.500\n2,,2023-01-02 00:00:00.000\n");
    assert_eq!(ran.stderr, "schema inferred from bids.csv: --schema 'id BIGINT, price DOUBLE, at TIMESTAMP(3)'\n");
    assert_eq!(ran.status, 0);
    let given = segue(&dir, &["read", "bids.csv", "--schema", "price DOUBLE, id INT", "--output", "json"]);
    assert_eq!(
        (given.stdout.as_str(), given.stderr.as_str()),
        ("{\"price\":2.5,\"id\":1}\n{\"price\":null,\"id\":2}\n", "")
    );
}

#[test]
fn sources_come_one_after_the_other_with_where_their_rows_are_from() {
    let dir = dir(&[("new/2.csv", "id\n3\n"), ("new/10.csv", "id\n4\n"), ("old.json", "{\"id\":1}\n{\"id\":2}\n")]);
    let got = rows(
        &dir,
        &["read", "old.json", "new/*.csv", "--metadata", "_source,_split,_position,_path", "-o", "1.name=new"],
    );
    assert_eq!(
        got,
        "id,_source,_split,_position,_path\n\
         1,0,old.json,0,old.json\n\
         2,0,old.json,9,old.json\n\
         3,new,2.csv,3,new/2.csv\n\
         4,new,10.csv,3,new/10.csv\n"
    );
}

#[test]
fn the_first_source_with_types_gives_the_schema() {
    let dir = dir(&[("a.csv", "v,id\nx,1\n")]);
    segue(&dir, &["gen", "--schema", "id INT", "--rows", "1", "-o", "fields.id.kind=sequence", "--to", "parquet:p"]);
    let ran = segue(&dir, &["read", "a.csv", "p"]);
    assert_eq!(
        ran.stderr,
        "schema of p: --schema 'id INT'\n\
         warning: a.csv: column v isn't in the inferred schema and isn't read (said once); --schema can name more\n"
    );
    assert_eq!(ran.stdout, "id\n1\n0\n");
}

#[test]
fn empty_files_have_no_rows() {
    let dir = dir(&[("empty.csv", ""), ("header.csv", "a,b\n"), ("full.csv", "id\n7\n")]);
    assert_eq!(rows(&dir, &["read", "header.csv", "--schema", "b INT, a INT"]), "b,a\n");
    assert_eq!(rows(&dir, &["read", "empty.csv", "--schema", "id INT"]), "id\n");
    assert_eq!(rows(&dir, &["read", "empty.csv", "full.csv"]), "id\n7\n");
    let ran = segue(&dir, &["read", "empty.csv", "--output", "json"]);
    assert_eq!((ran.status, ran.stdout.as_str()), (0, ""));
    assert_eq!(ran.stderr, "warning: there are no records, and so no columns; --schema gives them\n");
}

#[test]
fn limit_cuts_after_a_row_and_the_checkpoint_stands_there() {
    let dir = dir(&[("a.csv", "id\n1\n2\n3\n"), ("b.csv", "id\n4\n5\n")]);
    assert_eq!(rows(&dir, &["read", "a.csv", "--limit", "0"]), "id\n");
    let args = |limit| ["read", "*.csv", "--checkpoint", "job", "--no-header", "--limit", limit];
    assert_eq!(rows(&dir, &args("2")), "1\n2\n");
    assert_eq!(rows(&dir, &args("2")), "3\n4\n");
    let ran = segue(&dir, &args("9"));
    assert_eq!(ran.stdout, "5\n");
    assert_eq!(ran.stderr, "the job goes on from its checkpoint, with its positions (commit 2)\n");
    assert_eq!(rows(&dir, &args("9")), "");
}

#[test]
fn a_checkpoint_of_another_job_or_with_other_meaning_is_refused_with_the_difference() {
    let dir = dir(&[("a.csv", "id\n1\n"), ("b.csv", "id\n1\n")]);
    rows(&dir, &["read", "a.csv", "--checkpoint", "job", "--limit", "1"]);
    let ran = segue(&dir, &["read", "a.csv", "--checkpoint", "job", "--schema", "id INT"]);
    assert_eq!(
        (ran.status, ran.stderr.as_str()),
        (2, "error: the checkpoint doesn't fit: the schema was id BIGINT, now id INT\n")
    );
    let ran = segue(&dir, &["read", "b.csv", "--checkpoint", "job", "--quiet"]);
    assert_eq!(ran.status, 2);
    assert!(ran.stderr.starts_with("error: the checkpoint doesn't fit: the job was "), "{}", ran.stderr);
    let ran = segue(&dir, &["read", "a.csv", "--checkpoint", "job", "-o", "csv.quote-character='", "--quiet"]);
    assert_eq!(ran.status, 2);
    assert!(ran.stderr.contains("csv.quote-character"), "{}", ran.stderr);

    fs::write(dir.path().join("job"), "{\"version\":1,").unwrap();
    fails(
        &dir,
        &["read", "a.csv", "--checkpoint", "job"],
        1,
        "error: checkpoint job: it is truncated after 13 bytes\n",
    );
    fails(
        &dir,
        &["read", "a.csv", "--checkpoint", "no/such/job"],
        1,
        "error: no/such: the folder of the checkpoint doesn't exist\n",
    );
}

#[test]
fn a_bad_value_is_told_with_its_place() {
    let dir = dir(&[("n.csv", "v\n1\n22\nx7\n3\n")]);
    let ran = segue(&dir, &["read", "n.csv", "--schema", "v DOUBLE"]);
    assert_eq!(ran.stderr, "error: n.csv line 4 (byte 7), column v: 'x7' is not a DOUBLE\n");
    assert_eq!(ran.status, 1);
    assert!(["v\n", "v\n1.0\n22.0\n"].contains(&ran.stdout.as_str()), "{}", ran.stdout);
}

#[test]
fn option_keys_are_checked_before_files_and_every_fault_is_told() {
    let dir = dir(&[]);
    fails(
        &dir,
        &["read", "missing.csv", "-o", "csv.heder=true", "-o", "csv.field-delimiter=||", "-o", "json.coerce=true"],
        2,
        "error: unknown option 'csv.heder'\n\
         error: option 'csv.field-delimiter': '||' is not one character (or \\t, \\u0001)\n\
         error: option 'json.coerce': it is an option of json, and no source here knows it\n\
         hint: did you mean 'csv.header'?\n",
    );
    fails(
        &dir,
        &["read", "a.csv", "b.csv", "-o", "1.name=0"],
        2,
        "error: two sources are called '0'\nerror: source 1 can't be called '0': that number is another source's\n",
    );
    fails(
        &dir,
        &["read", "a.csv", "--schema", "id NUMBER"],
        2,
        "error: schema: column id: 'NUMBER' is no type; there are TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, \
         DECIMAL(p,s), BOOLEAN, STRING, BYTES, DATE, TIME(p), TIMESTAMP(p), TIMESTAMP_LTZ(p), ARRAY<t>, MAP<k, v>, ROW<name t>\n",
    );
    fails(
        &dir,
        &["read", "a.csv", "--format", "xml"],
        2,
        "error: option 'format': 'xml' is none of csv, json, parquet, raw, avro, arrow, delta\n",
    );
}

#[test]
fn every_missing_path_is_told() {
    let dir = dir(&[("empty/x.txt", "")]);
    fails(
        &dir,
        &["read", "a.csv", "empty", "b*.csv"],
        1,
        "error: a.csv: no such file or folder\n\
         error: empty: no matching files: 1 of other suffixes are there, and --format would take them\n\
         error: b*.csv: no matching files (source.allow-empty=true lets it pass)\n",
    );
}

#[test]
fn an_option_without_a_value_gets_the_hint_where_rows_go() {
    fails(
        &dir(&[]),
        &["read", "a.csv", "-o", "out.csv"],
        2,
        "error: option 'out.csv': it has no value; write KEY=VALUE\n\
         hint: -o sets an option; rows go to stdout (`> out.csv`), or into a folder with `copy --to csv:FOLDER`\n",
    );
}

#[test]
fn what_can_not_be_read_is_refused_with_the_reason() {
    let dir = dir(&[("a.csv", "id\n1\n")]);
    fails(
        &dir,
        &["read", "-"],
        2,
        "error: source '-': stdin can't be read, since nothing that was read from it can be read again\n\
         hint: write it into a file first\n",
    );
    fails(&dir, &["read", "a.csv", "--bounded"], 2, "error: --bounded is for Kafka sources, and there is none here\n");
    for (args, what) in [
        (["sql", "-c", "SELECT 1"], "sql"),
        (["rewind", "a", "b=1"], "rewind"),
        (["status", "parquet:out", "--json"], "status parquet:out: the status of a parquet sink"),
    ] {
        fails(&dir, &args, 2, &format!("error: {what} is not in this version\n"));
    }
    fails(
        &dir,
        &["read", "a.csv", "--metadata", "_path", "--schema", "_path INT"],
        2,
        "error: column _path stands in the schema and in the columns of provenance\n",
    );
}

#[test]
fn a_wrong_command_line_is_told_in_one_line() {
    let dir = dir(&[]);
    fails(
        &dir,
        &["read", "a.csv", "--limt", "3"],
        2,
        "error: unexpected argument '--limt' found\nhint: did you mean '--limit'?\n",
    );
    fails(
        &dir,
        &["read"],
        2,
        "error: the following required arguments were not provided: <SOURCE>...\n\
         hint: `segue help COMMAND` shows what a command takes\n",
    );
    fails(
        &dir,
        &["read", "a.csv", "--memory", "lots"],
        2,
        "error: invalid value 'lots' for '--memory <SIZE>': 'lots' is not a size such as 64 mb (units b, kb, mb, gb)\n\
         hint: `segue help COMMAND` shows what a command takes\n",
    );
}

#[test]
fn what_came_from_the_environment_is_never_shown() {
    let dir = dir(&[("a.csv", "id\n1\n"), ("secret", "geheim\n")]);
    for value in ["${env:SEGUE_TEST_SECRET}", "x${file:secret}"] {
        let output = command(dir.path(), &["read", "a.csv", "-v", "-o", &format!("csv.header={value}")])
            .env("SEGUE_TEST_SECRET", "geheim")
            .output()
            .unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(stderr, "error: option 'csv.header': its value is no auto|true|false\n");
    }
}

#[test]
fn options_may_stand_in_a_file() {
    let dir = dir(&[
        ("a.txt", "1|x\n"),
        ("opts", "# how old dumps are\nformat=csv\ncsv.field-delimiter=|\n\ncsv.header=false\n"),
    ]);
    assert_eq!(rows(&dir, &["read", "a.txt", "-o", "@opts"]), "f0,f1\n1,x\n");
}

#[test]
fn many_files_by_name_get_the_hint_to_quote_the_glob() {
    let names: Vec<String> = (0..9).map(|i| format!("{i}.csv")).collect();
    let files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "id\n1\n")).collect();
    let args: Vec<&str> = std::iter::once("read").chain(names.iter().map(String::as_str)).collect();
    let ran = segue(&dir(&files), &args);
    assert_eq!((ran.status, ran.stdout.lines().count()), (0, 10));
    let first = ran.stderr.lines().next().unwrap();
    assert_eq!(
        first,
        "hint: 9 files are 9 sources; quote the glob ('logs/*.csv'), and its files are one source in natural order"
    );
}

#[test]
fn copy_writes_whole_files_and_goes_on_at_its_checkpoint() {
    let dir = dir(&[("a.csv", "id\n1\n2\n3\n")]);
    let args = |limit| ["copy", "a.csv", "--to", "csv:out", "--checkpoint", "job", "--limit", limit];
    rows(&dir, &args("2"));
    let ran = segue(&dir, &args("9"));
    assert_eq!(ran.status, 0);
    let told = ran.stderr.lines().last().unwrap();
    assert!(told.starts_with("csv:out: 1 row in "), "{told}");
    let content = |name: &str| fs::read_to_string(dir.path().join("out").join(name)).unwrap();
    assert_eq!((content("part-00000.csv").as_str(), content("part-00001.csv").as_str()), ("id\n1\n2\n", "id\n3\n"));

    // Done is done.
    rows(&dir, &args("9"));
    assert!(!dir.path().join("out/part-00002.csv").exists());
}

#[test]
fn copy_refuses_a_folder_whose_files_it_knows_nothing_of() {
    let dir = dir(&[("a.csv", "id\n1\n"), ("full/x", "")]);
    let ran = segue(&dir, &["copy", "a.csv", "--to", "csv:full", "--quiet"]);
    assert_eq!(ran.status, 2, "{}", ran.stderr);
    assert!(
        ran.stderr.ends_with("hint: give an empty folder, or one that this job has written before\n"),
        "{}",
        ran.stderr
    );

    rows(&dir, &["copy", "a.csv", "--to", "json:out"]);
    fails(
        &dir,
        &["copy", "a.csv", "--to", "json:out"],
        2,
        "error: json:out: it holds files of this job, and without a checkpoint nobody knows how far they go\n\
         hint: give an empty folder, and --checkpoint to be able to go on\n",
    );
    fails(
        &dir,
        &["copy", "a.csv", "--to", "out2"],
        2,
        "error: --to 'out2': it is neither FORMAT:FOLDER, with csv, json, arrow or parquet for FORMAT, nor kafka://HOST/TOPIC\n\
         hint: to write csv files into that folder: --to csv:out2\n",
    );
    fails(&dir, &["copy", "a.csv", "--to", "delta:out2"], 2, "error: --to delta:out2: delta is not in this version\n");
    fails(
        &dir,
        &["copy", "a.csv", "--to", "json:out2", "-o", "sink.csv.header=false"],
        2,
        "error: option 'sink.csv.header': it is an option of csv, and the sink is json\n",
    );
}

#[test]
fn gen_gives_the_same_rows_every_time_and_rolls_files() {
    let dir = dir(&[]);
    let args = [
        "gen",
        "--schema",
        "id INT, name STRING",
        "--rows",
        "3",
        "-o",
        "fields.id.kind=sequence",
        "-o",
        "fields.id.start=7",
    ];
    let got = rows(&dir, &args);
    assert_eq!(got.lines().map(|line| line.split(',').next().unwrap()).collect::<Vec<_>>(), ["id", "7", "8", "9"]);
    assert_eq!(rows(&dir, &args), got);
    assert_ne!(rows(&dir, &[&args[..], &["-o", "seed=43"]].concat()), got);

    rows(&dir, &["gen", "--schema", "id BIGINT", "--rows", "5000", "--to", "csv:out", "--roll-size", "16 kb"]);
    assert!(dir.path().join("out/part-00002.csv").exists());
    assert_eq!(rows(&dir, &["read", "out", "--no-header"]).lines().count(), 5000);
    fails(
        &dir,
        &["gen", "--schema", "id INT", "--rows", "1", "-o", "fields.id.start=3"],
        2,
        "error: option 'fields.id.start': it means nothing without fields.id.kind=sequence\n",
    );
}

#[test]
fn plan_shows_what_would_be_read_and_what_is_left() {
    let dir = dir(&[("d/2.csv", "id\n1\n2\n"), ("d/10.csv", "id\n3\n")]);
    assert_eq!(
        rows(&dir, &["plan", "d"]),
        "schema: id BIGINT\n\
         source 0: d: csv, header yes: 2 files, 12 B\n\
         \u{20} 2.csv         7 B\n\
         \u{20} 10.csv        5 B\n\
         total: 2 files, 12 B\n"
    );
    rows(&dir, &["read", "d", "--checkpoint", "job", "--limit", "1"]);
    let json: serde_json::Value =
        serde_json::from_str(&rows(&dir, &["plan", "d", "--checkpoint", "job", "--json"])).unwrap();
    assert_eq!(
        json,
        serde_json::json!({
            "schema": "id BIGINT",
            "sources": [{
                "name": "0", "connector": "filesystem", "format": "csv", "header": true, "bounded": true,
                "splits": [
                    {"split": "2.csv", "start": 5, "stop": null, "log_start": null, "end": null, "size": 7},
                    {"split": "10.csv", "start": 0, "stop": null, "log_start": null, "end": null, "size": 5},
                ],
            }],
            "seam": {"gaps": [], "overlaps": []},
        })
    );
}

#[test]
fn status_shows_a_checkpoint_to_people_and_to_programs() {
    let dir = dir(&[("d/2.csv", "id\n1\n2\n"), ("d/10.csv", "id\n3\n")]);
    rows(&dir, &["read", "d", "--checkpoint", "job", "--limit", "1", "--job-id", "j"]);
    let text = rows(&dir, &["status", "job"]);
    assert!(text.starts_with("job j, commit "), "{text}");
    assert!(
        text.ends_with(
            "schema: id BIGINT\nsource 0 (filesystem, d, csv): 1 row, 0 rejected\n  0 of 2 files done\n  2.csv: next position 5, a file of 7 B\n"
        ),
        "{text}"
    );
    let json: serde_json::Value = serde_json::from_str(&rows(&dir, &["status", "job", "--json"])).unwrap();
    assert_eq!((&json["job"], &json["rows"]["0"], &json["lag"]), (&"j".into(), &1.into(), &serde_json::Value::Null));
    assert!(json["age_ms"].as_u64().unwrap() < 600_000);
    fails(&dir, &["status", "none"], 1, "error: none: there is no checkpoint\n");
}

#[test]
fn schema_prints_what_can_be_pasted_behind_the_flag() {
    let dir = dir(&[("a.csv", BIDS)]);
    let schema = rows(&dir, &["schema", "a.csv"]);
    assert_eq!(schema, "id BIGINT, price DOUBLE, at TIMESTAMP(3)\n");
    fs::write(dir.path().join("s"), schema).unwrap();
    assert_eq!(rows(&dir, &["read", "a.csv", "--schema", "@s", "--limit", "0"]), "id,price,at\n");
}

#[test]
fn help_options_version_and_completions_are_printed() {
    let dir = dir(&[]);
    let help = rows(&dir, &[]);
    assert!(help.contains("Usage: segue") && help.contains("segue read 'logs/*.csv'"), "{help}");
    assert!(rows(&dir, &["read", "--help"]).contains("--memory <SIZE>"));
    assert!(rows(&dir, &["--version"]).starts_with(concat!(
        "segue ",
        env!("CARGO_PKG_VERSION"),
        " (features: csv, json, parquet"
    )));
    let csv = rows(&dir, &["options", "csv"]);
    assert!(
        csv.contains("  csv.missing-fields = fail|null\n      a record with too few fields [default: fail]\n"),
        "{csv}"
    );
    assert!(!csv.contains("json.coerce"), "{csv}");
    assert!(rows(&dir, &["options"]).contains("json.coerce"));
    fails(
        &dir,
        &["options", "xml"],
        2,
        "error: options xml: no option belongs to it; there are options of filesystem, kafka, datagen, csv, json, parquet, source, chain, sink\n",
    );
    assert!(rows(&dir, &["completions", "bash"]).contains("complete -F _segue"));
}

#[test]
fn a_closed_stdout_ends_quietly() {
    let dir = dir(&[]);
    let args = ["gen", "--schema", "id BIGINT, t STRING", "--rows", "100000000"];
    let mut child = command(dir.path(), &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut start = [0; 5];
    child.stdout.take().unwrap().read_exact(&mut start).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8(output.stderr).unwrap().as_str()), (Some(0), ""));
}

/// A job of a thousand seconds, after its first rows.
fn slow_job(dir: &TempDir) -> Child {
    let args = [
        "gen",
        "--schema",
        "id BIGINT",
        "--rows",
        "10000",
        "-o",
        "rows-per-second=10",
        "-o",
        "fields.id.kind=sequence",
    ];
    let mut child = command(dir.path(), &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut start = [0; 5];
    child.stdout.as_mut().unwrap().read_exact(&mut start).unwrap();
    assert_eq!(&start, b"id\n0\n");
    child
}

#[test]
fn a_signal_ends_a_job_after_its_batch_with_the_status_that_shells_know() {
    for (signal, status) in [("INT", 130), ("TERM", 143)] {
        let dir = dir(&[]);
        let child = slow_job(&dir);
        // Waiting is the child's: the test only sends the signal, and waits for its end.
        Command::new("kill").args([format!("-{signal}"), child.id().to_string()]).status().unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{signal}");
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
        assert!(output.stdout.is_empty() || output.stdout.ends_with(b"\n"));
    }
}

#[test]
fn a_second_signal_ends_a_job_that_nobody_reads_from() {
    let dir = dir(&[]);
    let args = ["gen", "--schema", "id BIGINT, t STRING", "--rows", "100000000"];
    let mut child = command(dir.path(), &args).stdout(Stdio::piped()).spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 5]).unwrap();
    // The pipe is full, and so the batch is never finished: only the second signal ends it.
    let kill = |signal: &str, child: &Child| {
        Command::new("kill").args([signal.to_owned(), child.id().to_string()]).status().unwrap();
    };
    kill("-INT", &child);
    // Two within a moment are one request, so the second one may have to be asked again.
    let mut ended = None;
    for _ in 0..200 {
        kill("-TERM", &child);
        std::thread::sleep(std::time::Duration::from_millis(50));
        ended = child.try_wait().unwrap();
        if ended.is_some() {
            break;
        }
    }
    if ended.is_none() {
        child.kill().unwrap();
    }
    let status = ended.and_then(|status| status.code());
    assert!([Some(130), Some(143)].contains(&status), "{status:?}");
}

#[test]
fn a_signal_ends_a_read_whose_output_nobody_takes_and_moves_no_position_past_it() {
    let dir = dir(&[]);
    let gen_args = ["gen", "--schema", "id BIGINT", "--rows", "200000", "-o", "fields.id.kind=sequence"];
    rows(&dir, &[&gen_args[..], &["--to", "csv:in"]].concat());
    let args = ["read", "in", "--checkpoint", "job", "--checkpoint-interval", "batch"];
    let mut child = command(dir.path(), &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut start = [0; 5];
    child.stdout.as_mut().unwrap().read_exact(&mut start).unwrap();
    Command::new("kill").args(["-TERM".to_owned(), child.id().to_string()]).status().unwrap();
    let mut status = None;
    for _ in 0..600 {
        status = child.try_wait().unwrap();
        if status.is_some() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    if status.is_none() {
        child.kill().unwrap();
    }
    assert_eq!(status.and_then(|status| status.code()), Some(143));
    // What went into the pipe before its end is what counts as printed, at most.
    let mut printed = String::from_utf8(start.to_vec()).unwrap();
    child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    let rest = rows(&dir, &["read", "in", "--checkpoint", "job", "--no-header"]);
    let next: i64 = rest.lines().next().unwrap().parse().unwrap();
    let last: i64 = printed[..=printed.rfind('\n').unwrap()].lines().last().unwrap().parse().unwrap();
    assert!(next <= last + 1, "row {next} is next, and {last} was printed last");
}

#[test]
fn a_second_copy_of_a_job_is_refused() {
    let dir = dir(&[("a.csv", "id\n1\n")]);
    let lock = segue::checkpoint::FileCheckpointStore::open(dir.path().join("job")).unwrap();
    let ran = segue(&dir, &["read", "a.csv", "--checkpoint", "job"]);
    assert_eq!(ran.status, 2);
    assert_eq!(ran.stderr.lines().next(), Some("error: job.lock: another copy of this job is running"));
    drop(lock);
    // A process that another test was just starting may still have a copy of the lock's file, until it is begun.
    let held = |ran: &Ran| ran.stderr.contains("another copy");
    let mut ran = segue(&dir, &["read", "a.csv", "--checkpoint", "job"]);
    for _ in 0..200 {
        if !held(&ran) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
        ran = segue(&dir, &["read", "a.csv", "--checkpoint", "job"]);
    }
    assert_eq!((ran.status, ran.stdout.as_str()), (0, "id\n1\n"), "{}", ran.stderr);
}
