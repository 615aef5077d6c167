//! The whole story on an embedded broker.

use std::path::Path;
use std::process::{Command, Output};

fn demo(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_segue")).arg("demo").args(args).output().unwrap()
}

fn told(output: &Output) -> (String, String) {
    (String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn every_row_comes_once_history_first_and_the_seam_is_shown() {
    let output = demo(&[]);
    let (stdout, stderr) = told(&output);
    assert_eq!((output.status.code(), stderr.as_str()), (Some(0), ""), "{stdout}");
    for line in [
        "rows      10000 bounded + 10000 unbounded = 20000\n",
        "check     ids 1 to 20000 came once each, history first: ok\n",
        "the seam: files end, the topic goes on",
    ] {
        assert!(stdout.contains(line), "{line}: {stdout}");
    }
    let row = |id: &str| stdout.lines().find(|line| line.split_whitespace().next() == Some(id)).unwrap_or_default();
    for (id, phase, split) in
        [("1", "bounded", "part-00000.csv"), ("10000", "bounded", "part-0000"), ("10001", "unbounded", "bids/0"), ("20000", "unbounded", "bids/0")]
    {
        assert!(row(id).contains(&format!(" {phase} ")) && row(id).contains(split), "{id}: {}", row(id));
    }
}

/// More than a partition of the embedded broker keeps: several partitions.
#[test]
fn more_rows_make_more_partitions_and_a_kept_folder_holds_the_history() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept");
    let output = demo(&["--rows", "200001", "--keep", kept.to_str().unwrap()]);
    let (stdout, stderr) = told(&output);
    assert_eq!((output.status.code(), stderr.as_str()), (Some(0), ""), "{stdout}");
    assert!(stdout.contains("rows      100001 bounded + 100000 unbounded = 200001\n"), "{stdout}");
    assert!(stdout.contains("segue gen --schema"), "{stdout}");
    let rows: usize = csv_files(&kept).iter().map(|file| std::fs::read_to_string(file).unwrap().lines().count() - 1).sum();
    assert_eq!(rows, 100_001);

    // What is kept isn't written over.
    let again = demo(&["--keep", kept.to_str().unwrap()]);
    assert_eq!(again.status.code(), Some(2), "{}", told(&again).1);
    assert!(told(&again).1.contains("it isn't empty"));
    assert_eq!(demo(&["--rows", "1"]).status.code(), Some(2));
}

fn csv_files(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| match path.is_dir() {
            true => csv_files(&path),
            false => vec![path],
        })
        .filter(|path| path.extension().is_some_and(|suffix| suffix == "csv"))
        .collect()
}
