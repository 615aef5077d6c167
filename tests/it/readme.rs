//! The commands of the README run as they stand, one after the other, in one empty folder.

use std::fs;
use std::path::Path;
use std::process::Command;

use rdkafka::mocking::MockCluster;

/// The blocks of one language.
fn blocks(language: &str) -> Vec<String> {
    let readme = include_str!("../../README.md");
    let fence = format!("```{language}\n");
    readme.split(&fence).skip(1).filter_map(|rest| rest.split_once("```")).map(|(block, _)| block.to_owned()).collect()
}

#[test]
fn every_command_of_the_readme_works() {
    let folder = tempfile::tempdir().unwrap();
    let bin = folder.path().join("bin");
    fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_segue"), bin.join("segue")).unwrap();
    let work = folder.path().join("work");
    fs::create_dir(&work).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    // Stands for the broker of the README.
    let cluster = MockCluster::new(1).unwrap();
    let broker = cluster.bootstrap_servers();
    let scripts = blocks("sh");
    assert!(scripts.len() >= 2, "the README shows how to start, and the command line");
    for script in scripts {
        // The first run builds; here it is built already.
        let script = script.replace("cargo run --release -- ", "segue ").replace("localhost:9092", &broker);
        let output = Command::new("bash")
            .args(["-euo", "pipefail", "-c", &script])
            .current_dir(&work)
            .env("PATH", &path)
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script}\n{stderr}");
    }
    let rows = |name: &str| -> Vec<String> {
        let text = fs::read_to_string(Path::new(&work).join(name)).unwrap();
        text.lines().skip(1).map(|line| line.split(',').next().unwrap().to_owned()).collect()
    };
    let ids = |range: std::ops::RangeInclusive<u32>| range.map(|id| id.to_string()).collect::<Vec<_>>();
    assert_eq!((rows("first.csv"), rows("second.csv")), (ids(0..=9), ids(10..=19)));
}
