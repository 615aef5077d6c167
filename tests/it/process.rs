//! What may happen to the program: killed at any instant, a full disk, files it may not read.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use segue::file::FileSource;
use segue::hybrid::HybridSource;

use crate::common::{folder, parquet_bytes, read_all, schema};
use crate::nasty;

const SEGUE: &str = env!("CARGO_BIN_EXE_segue");

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn csv(range: std::ops::Range<i64>) -> String {
    let rows: String = range.map(|id| format!("{id},n{id}\n")).collect();
    format!("id,name\n{rows}")
}

/// Sorted, of every visible file of `path`.
async fn ids_of(path: &Path) -> Vec<i64> {
    let source = FileSource::builder(path.display().to_string()).schema(schema()).build().await.unwrap();
    let mut ids = read_all(&HybridSource::builder().source(source).build().unwrap()).await.ids();
    ids.sort_unstable();
    ids
}

/// Whatever the instants, what is moved past stands in the dead letters, whole.
#[tokio::test]
async fn dead_letters_are_safe_before_positions_move_past_them() {
    const RECORDS: i64 = 150_000;
    let content: String =
        (0..RECORDS).map(|id| if id % 3 == 0 { format!("bad {id},n\n") } else { format!("{id},n{id}\n") }).collect();
    let folder = folder(&[("in/1.csv", content.as_bytes())]);
    let args = [
        "copy",
        "in",
        "--schema",
        "id BIGINT, name STRING",
        "--to",
        "csv:out",
        "--checkpoint",
        "job",
        "--quiet",
        "--checkpoint-interval",
        "batch",
        "--batch-rows",
        "500",
        "--on-error",
        "dead.ndjson",
    ];
    let mut num_killed = 0;
    for kill in 0..12u64 {
        let mut child = Command::new(SEGUE).current_dir(folder.path()).args(args).spawn().unwrap();
        tokio::time::sleep(Duration::from_millis(10 + 37 * kill % 230)).await;
        num_killed += usize::from(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(num_killed > 0, "the jobs were too quick to be killed");
    let last = Command::new(SEGUE).current_dir(folder.path()).args(args).output().unwrap();
    assert!(last.status.success(), "{}", told(&last));
    let text = fs::read_to_string(folder.path().join("dead.ndjson")).unwrap();
    let raws: BTreeSet<String> = text
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["raw"].as_str().unwrap().to_owned())
        .collect();
    let expected: BTreeSet<String> = (0..RECORDS).filter(|id| id % 3 == 0).map(|id| format!("bad {id},n")).collect();
    assert!(raws == expected, "{} of {} bad records are there", raws.len(), expected.len());
    let mut ids = ids_of(&folder.path().join("out")).await;
    ids.dedup();
    assert_eq!(ids, (0..RECORDS).filter(|id| id % 3 != 0).collect::<Vec<_>>());
}

/// Whatever the instants, a job that is started again ends with every row, and a visible file is whole.
#[tokio::test]
async fn a_copy_that_is_killed_again_and_again_loses_nothing() {
    const ROWS: i64 = 120_000;
    let folder = folder(&[
        ("in/1.csv", csv(0..ROWS / 4).as_bytes()),
        ("in/2.csv.gz", &crate::common::gzip(csv(ROWS / 4..ROWS / 2).as_bytes())),
        ("more.parquet", &parquet_bytes(&[crate::common::ids(ROWS / 2..ROWS)], 10_000)),
    ]);
    for (format, kills) in [("csv", 10), ("json", 5), ("parquet", 10)] {
        let name = format!("out-{format}");
        let sink = format!("{format}:{name}");
        let checkpoint = format!("{name}.ckpt");
        let copy = || {
            let mut command = Command::new(SEGUE);
            command.current_dir(folder.path()).args(["copy", "in", "more.parquet", "--to", &sink, "--quiet"]);
            command.args(["--checkpoint", &checkpoint, "--checkpoint-interval", "batch", "--batch-rows", "500"]);
            command.stdout(Stdio::null()).stderr(Stdio::piped());
            command
        };
        let mut num_killed = 0;
        for kill in 0..kills {
            let mut child = copy().spawn().unwrap();
            // Some moments fall into the start, most into the work; which ones doesn't matter.
            tokio::time::sleep(Duration::from_millis(10 + 37 * kill % 230)).await;
            num_killed += usize::from(child.try_wait().unwrap().is_none());
            child.kill().unwrap();
            child.wait().unwrap();
            let visible = folder.path().join(&name);
            if fs::read_dir(&visible).is_ok_and(|mut files| files.any(|file| is_part(&file.unwrap().path()))) {
                let mut ids = ids_of(&visible).await;
                ids.dedup();
                assert_eq!(ids, (0..ids.len() as i64).collect::<Vec<_>>(), "{format}: a hole after kill {kill}");
            }
        }
        let output = copy().output().unwrap();
        assert!(output.status.success(), "{format}: {}", told(&output));
        let mut ids = ids_of(&folder.path().join(&name)).await;
        ids.dedup();
        assert_eq!(ids, (0..ROWS).collect::<Vec<_>>(), "{format}");
        assert!(num_killed > 0, "{format}: the jobs were too quick to be killed");
    }
}

fn is_part(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("part-"))
}

#[test]
fn any_number_of_threads_prints_the_same_bytes() {
    let data = format!("{}/data/mixed", env!("CARGO_MANIFEST_DIR"));
    let bytes = |threads: &str| {
        let output = Command::new(SEGUE)
            .args(["read", &data, "--output", "csv", "--metadata", "_split,_position", "--threads", threads, "--quiet"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", told(&output));
        output.stdout
    };
    let one = bytes("1");
    assert_eq!(one.iter().filter(|&&byte| byte == b'\n').count(), 1 + 91 + 27);
    assert!(one == bytes("2") && one == bytes("8"));
}

/// Nor does any other setting that only says with what means to read.
#[test]
fn threads_batches_and_memory_change_no_byte_of_several_megabytes() {
    let folder = folder(&[("a.csv", &nasty::csv(8_000, false).bytes), ("b.ndjson", &nasty::ndjson(2_000).bytes)]);
    let bytes = |settings: &[&str]| {
        let output = Command::new(SEGUE)
            .current_dir(folder.path())
            .args(["read", "a.csv", "b.ndjson", "--schema", nasty::CSV_SCHEMA, "--output", "csv", "--metadata", "all"])
            .args(settings)
            .arg("--quiet")
            .output()
            .unwrap();
        assert!(output.status.success(), "{settings:?}: {}", told(&output));
        output.stdout
    };
    let one = bytes(&["--threads", "1"]);
    assert!(one.len() > 5_000_000, "{} bytes", one.len());
    for threads in ["2", "3", "4", "5", "6", "7", "8"] {
        assert!(bytes(&["--threads", threads]) == one, "other bytes with {threads} threads");
    }
    for (threads, batch_rows, memory) in
        [("1", "1", "64mb"), ("2", "333", "8mb"), ("5", "8192", "8mb"), ("8", "7", "64mb"), ("8", "100000", "64mb")]
    {
        let settings = ["--threads", threads, "--batch-rows", batch_rows, "--memory", memory];
        assert!(bytes(&settings) == one, "other bytes with {settings:?}");
    }
}

#[test]
fn a_full_disk_is_told_and_leaves_nothing_half_written() {
    let folder = folder(&[("a.csv", csv(0..50_000).as_bytes())]);
    let full = fs::OpenOptions::new().write(true).open("/dev/full");
    if let Ok(full) = full {
        let output = Command::new(SEGUE)
            .current_dir(folder.path())
            .args(["read", "a.csv", "--quiet"])
            .stdout(full)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(
            told(&output).starts_with("error: stdout: cannot write\ncaused by: No space left on device"),
            "{}",
            told(&output)
        );
    }
    // A disk of 200 kB, in a namespace of its own; not every system lets us have one.
    let script = format!(
        "mkdir small && mount -t tmpfs -o size=200k none small && {{ {SEGUE} copy a.csv --to csv:small/out --quiet; \
         echo status $?; ls -A small/out; }}"
    );
    let output = Command::new("unshare").args(["-rm", "bash", "-c", &script]).current_dir(folder.path()).output();
    let Ok(output) = output else { return };
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if stdout.contains("status") {
        assert_eq!(stdout, "status 1\n_segue\n", "{}", told(&output));
        assert!(told(&output).contains("No space left on device"), "{}", told(&output));
    }
}

#[test]
fn a_file_without_the_right_to_read_it_is_told() {
    let folder = folder(&[("a.csv", b"id\n1\n")]);
    let file = folder.path().join("a.csv");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();
    let mut command = if fs::read(&file).is_ok() {
        // The superuser may read everything, so somebody else has to try.
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", SEGUE]);
        command
    } else {
        Command::new(SEGUE)
    };
    let output = command.current_dir(folder.path()).args(["read", "a.csv", "--quiet"]).output();
    // Without setpriv, or with a program that others can't reach, there is nobody else.
    let Ok(output) = output else { return };
    if told(&output).starts_with("setpriv") {
        return;
    }
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    assert!(told(&output).contains("a.csv") && told(&output).contains("Permission denied"), "{}", told(&output));
}

/// What is fetched, decoded and waiting stays within `--memory`, whether the reader keeps up or not. CASE 33:
/// one budget for all files, however many there are.
#[test]
fn memory_is_bounded_also_with_a_slow_reader_and_many_files() {
    const MEGABYTE: u64 = 1 << 20;
    let content = csv(0..1_500_000);
    let folder = folder(&[("large/a.csv", content.as_bytes())]);
    let part = &content[..=content[..content.len() / 48].rfind('\n').unwrap()];
    fs::create_dir(folder.path().join("many")).unwrap();
    for number in 0..64 {
        fs::write(folder.path().join(format!("many/{number}.csv")), part).unwrap();
    }
    for (source, is_slow) in [("large", false), ("large", true), ("many", false), ("many", true)] {
        let mut child = Command::new(SEGUE)
            .current_dir(folder.path())
            .args(["read", source, "--output", "json", "--memory", "48mb", "--threads", "2", "--quiet"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let status = format!("/proc/{}/status", child.id());
        let (mut peak, mut buffer, mut num_bytes) = (0, vec![0; 64 << 10], 0);
        loop {
            if is_slow && num_bytes < 20 * MEGABYTE as usize && num_bytes % 3 == 0 {
                std::thread::sleep(Duration::from_millis(2));
            }
            if let Ok(status) = fs::read_to_string(&status) {
                peak = peak.max(resident_bytes(&status));
            }
            match stdout.read(&mut buffer).unwrap() {
                0 => break,
                len => num_bytes += len,
            }
        }
        assert!(child.wait().unwrap().success());
        assert!(num_bytes as u64 > 40 * MEGABYTE, "{source}: {num_bytes} bytes");
        // The pages of a program without optimisation are some megabytes more.
        let allowed = (48 + 24 + if cfg!(debug_assertions) { 8 } else { 0 }) * MEGABYTE;
        assert!(peak <= allowed, "{source}, slow: {is_slow}: {} kB resident, {} kB allowed", peak >> 10, allowed >> 10);
    }
}

/// The most that was resident so far.
fn resident_bytes(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0");
    1024 * line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0)
}
