//! Inputs and situations that once went wrong: each of these failed before it was mended.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use crate::cli::{Ran, dir, segue, segue_in};

#[track_caller]
fn prints(ran: &Ran, stdout: &str) {
    assert_eq!((ran.stdout.as_str(), ran.status), (stdout, 0), "{}", ran.stderr);
}

/// They were refused: object_store's paths know no `..`.
#[test]
fn paths_may_go_up() {
    let dir = dir(&[("d/a.csv", "id\n1\n"), ("x/y/z", "")]);
    for path in ["../../d/a.csv", "../../d", "../../d/*.csv", "../y/../../d/a.csv"] {
        prints(&segue_in(&dir.path().join("x/y"), &["read", path]), "id\n1\n");
    }
}

/// Their size of 0 was believed: no rows, and exit 0.
#[test]
fn a_pipe_is_no_file() {
    let dir = dir(&[]);
    assert!(Command::new("mkfifo").arg(dir.path().join("f.csv")).status().unwrap().success());
    for path in ["f.csv", "csv:/dev/stdin", "csv:/dev/zero"] {
        let ran = segue(&dir, &["read", path, "--schema", "id INT"]);
        assert_eq!(ran.status, 2, "{path}: {}", ran.stderr);
        assert!(ran.stderr.contains("neither a file nor a folder"), "{path}: {}", ran.stderr);
    }
    let ran = segue(&dir, &["read", "csv:-"]);
    assert!(ran.status == 2 && ran.stderr.contains("stdin can't be read"), "{}", ran.stderr);
    let ran = segue(&dir, &["read", "x.csv", "--checkpoint", "/dev/zero"]);
    assert!(ran.status == 1 && ran.stderr.contains("it isn't a file"), "{}", ran.stderr);
}

/// The sample for inference held no record then: rows or header were lost, and exit 0.
#[test]
fn a_first_record_longer_than_the_sample_asks_for_a_schema() {
    let long = "9".repeat(17 << 20);
    let dir = dir(&[
        ("a.json", &format!("{{\"v\":1,\"x\":\"{long}\"}}\n{{\"v\":2}}\n")),
        ("a.csv", &format!("{long},1\n2,3\n")),
    ]);
    for path in ["a.json", "a.csv"] {
        let ran = segue(&dir, &["read", path]);
        assert_eq!(ran.status, 2, "{}", ran.stderr);
        assert!(ran.stderr.contains("its first record is longer than 16 MiB: give a schema"), "{}", ran.stderr);
    }
}

/// The header was looked for in the blank lines, and not found.
#[test]
fn blank_lines_before_the_header_are_passed_over() {
    let blank = "\n".repeat(200_000);
    let dir = dir(&[
        ("a.csv", &format!("\u{feff}{blank}id,v\n1,a\n")),
        ("a.json", &format!("{blank}{{\"id\":1}}\n{{\"id\":x}}\n")),
    ]);
    prints(&segue(&dir, &["read", "a.csv"]), "id,v\n1,a\n");
    prints(&segue(&dir, &["read", "a.csv", "--schema", "id INT, v STRING"]), "id,v\n1,a\n");
    let ran = segue(&dir, &["read", "a.json"]);
    assert!(ran.stderr.contains("a.json line 200002 (byte 200009)"), "{}", ran.stderr);
}

/// Rows that were committed before were left out, and exit 0.
#[test]
fn a_target_that_was_emptied_is_not_gone_on_with() {
    let dir = dir(&[("a.csv", "id\n1\n2\n3\n")]);
    let copy = ["copy", "a.csv", "--to", "csv:out", "--checkpoint", "c.json"];
    assert_eq!(segue(&dir, &[&copy[..], &["--limit", "1"]].concat()).status, 0);
    fs::remove_dir_all(dir.path().join("out")).unwrap();
    let ran = segue(&dir, &copy);
    assert_eq!(ran.status, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("1 rows written into it, and it knows nothing of this job"), "{}", ran.stderr);
    assert!(!dir.path().join("out").exists());
}

/// A batch's own costs were not counted: 200 MB for a few MB of rows.
#[test]
#[cfg(target_os = "linux")]
fn batches_of_one_row_stay_within_the_memory() {
    let rows: String = (0..300_000).map(|id| format!("{id},x\n")).collect();
    let dir = dir(&[("a.csv", &format!("id,v\n{rows}"))]);
    let script = format!(
        "ulimit -v unlimited; {} read a.csv -q --memory 48mb --batch-rows 1 --output csv > out.csv & \
         p=$!; peak=0; while kill -0 $p 2>/dev/null; do \
         now=$(awk '/^VmHWM/ {{print $2}}' /proc/$p/status 2>/dev/null || true); peak=${{now:-$peak}}; sleep 0.01; done; echo $peak",
        env!("CARGO_BIN_EXE_segue")
    );
    let output = Command::new("bash").args(["-c", &script]).current_dir(dir.path()).output().unwrap();
    let peak_kb: u64 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    assert!(peak_kb < 90 << 10, "{peak_kb} kB");
    assert_eq!(fs::read_to_string(dir.path().join("out.csv")).unwrap(), format!("id,v\n{rows}"));
}

/// It was asked of the allocator, which ended the program.
#[test]
fn generated_texts_have_a_longest_length() {
    let dir = dir(&[]);
    let ran = segue(&dir, &["gen", "--schema", "s STRING", "--rows", "1", "-o", "fields.s.length=99999999999"]);
    assert_eq!((ran.status, ran.stderr.as_str()), (2, "error: option 'fields.s.length': it is 1048576 at most\n"));
    let ran = segue(&dir, &["gen", "--schema", "i TINYINT", "--rows", "200", "-o", "fields.i.kind=sequence"]);
    assert_eq!(ran.status, 1, "a sequence that leaves its type was null");
    // These began anew at the other end of their type.
    for (schema, start) in
        [("d DATE", "2147483647"), ("d BIGINT", "9223372036854775807"), ("d TIMESTAMP(9)", "9223372036")]
    {
        let start = format!("fields.d.start={start}");
        let ran =
            segue(&dir, &["gen", "--schema", schema, "--rows", "2", "-o", "fields.d.kind=sequence", "-o", &start]);
        assert_eq!((ran.status, ran.stdout.lines().count()), (1, 1), "{schema}: {}", ran.stdout);
    }
}

/// Threads were started until the machine stood still.
#[test]
fn threads_have_a_limit() {
    assert_eq!(segue(&dir(&[]), &["read", "a.csv", "--threads", "100000"]).status, 2);
}

/// The inode was part of a file's identity.
#[test]
fn a_file_put_back_with_its_times_is_the_same_file() {
    let dir = dir(&[("a.csv", "id\n1\n2\n")]);
    let read = ["read", "a.csv", "--checkpoint", "c.json", "--limit", "1"];
    prints(&segue(&dir, &read), "id\n1\n");
    let copied =
        Command::new("sh").args(["-c", "cp -p a.csv b && rm a.csv && mv b a.csv"]).current_dir(dir.path()).status();
    assert!(copied.unwrap().success());
    prints(&segue(&dir, &read), "id\n2\n");
}

/// One odd name, also a hidden one, made the whole folder unreadable.
#[test]
fn names_that_are_not_read_do_not_disturb() {
    let dir = dir(&[("d/a.csv", "id\n1\n"), ("d/notes\there.txt", "x"), ("d/_hidden/x.csv", "y")]);
    symlink(dir.path().join("d/_hidden"), dir.path().join("d/_hidden/loop")).unwrap();
    symlink(dir.path().join("d"), dir.path().join("d/loop")).unwrap();
    symlink("nowhere", dir.path().join("d/dangling.csv")).unwrap();
    fs::write(dir.path().join("d").join(std::ffi::OsStr::new("plain.md")), "x").unwrap();
    prints(&segue(&dir, &["read", "d"]), "id\n1\n");
}

/// The link was replaced by a file, and did not share the lock.
#[test]
fn a_linked_checkpoint_is_the_one_it_stands_for() {
    let dir = dir(&[("a.csv", "id\n1\n2\n3\n"), ("k/real", "")]);
    fs::remove_file(dir.path().join("k/real")).unwrap();
    let read = |path: &str| segue(&dir, &["read", "a.csv", "--checkpoint", path, "--limit", "1"]);
    prints(&read("k/real.json"), "id\n1\n");
    symlink("k/real.json", dir.path().join("link.json")).unwrap();
    prints(&read("link.json"), "id\n2\n");
    assert!(fs::symlink_metadata(dir.path().join("link.json")).unwrap().is_symlink());
    prints(&read("k/real.json"), "id\n3\n");
}

/// The value was part of the message.
#[test]
fn a_constant_from_the_environment_is_not_shown() {
    let dir = dir(&[("a.csv", "id,v\n1,a\n"), ("secret", "hunter2")]);
    let args = ["read", "a.csv", "--schema", "id INT, v STRING", "-o", "column.id.constant=${file:secret}"];
    let ran = segue(&dir, &args);
    assert_eq!(ran.status, 2);
    assert!(!ran.stderr.contains("hunter2") && !ran.stdout.contains("hunter2"), "{}", ran.stderr);

    let read = |constant: &str| {
        let args =
            ["read", "a.csv", "--schema", "id INT, v STRING", "--checkpoint", "c.json", "--limit", "0", "-o", constant];
        segue(&dir, &args)
    };
    prints(&read("column.v.constant=${file:secret}"), "id,v\n");
    assert!(!fs::read_to_string(dir.path().join("c.json")).unwrap().contains("hunter2"));
    prints(&read("column.v.constant=${file:secret}"), "id,v\n");
    let changed = read("column.v.constant=other");
    assert!(changed.status == 2 && !changed.stderr.contains("hunter2"), "{}", changed.stderr);
}

/// A header of UTF-16 was printed as columns first.
#[test]
fn utf_32_is_refused_before_anything_is_printed() {
    let dir = dir(&[]);
    fs::write(dir.path().join("a.csv"), b"\xff\xfe\0\0i\0\0\0\n\0\0\0").unwrap();
    let ran = segue(&dir, &["read", "a.csv"]);
    assert_eq!(
        (ran.status, ran.stdout.as_str(), ran.stderr.as_str()),
        (2, "", "error: a.csv: text in UTF-32 is not read: write it as UTF-8\n")
    );
}

/// Only the path of a single file was looked at.
#[test]
fn tabs_separate_the_fields_of_tsv_files_in_folders_too() {
    let dir = dir(&[("d/a.tsv", "id\tv\n1\ta,b\n"), ("e/a.tsv", "id\tv\n"), ("e/b.csv", "id,v\n")]);
    prints(&segue(&dir, &["read", "d"]), "id,v\n1,\"a,b\"\n");
    let ran = segue(&dir, &["read", "e"]);
    assert!(ran.status == 2 && ran.stderr.contains("1 of 2 files are tab-separated"), "{}", ran.stderr);
}

/// The small share of a source before its turn was taken for all there is: an error now and then.
#[test]
fn parquet_read_page_by_page_before_its_turn_is_no_error() {
    let dir = dir(&[("a.csv", "s\nx\n")]);
    let generated = segue(
        &dir,
        &["gen", "--schema", "s STRING, t STRING", "--rows", "60000", "-o", "fields.s.length=100", "--to", "parquet:p"],
    );
    assert_eq!(generated.status, 0, "{}", generated.stderr);
    let ran = segue(&dir, &["read", "a.csv", "p", "--memory", "8mb", "--output", "none", "--schema", "s STRING"]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
}
