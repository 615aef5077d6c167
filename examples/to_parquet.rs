//! Copies CSV and NDJSON into a folder of whole Parquet files, with a checkpoint: run again, it goes on.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::fs;

use segue::pipeline::{CopyOptions, Stop, copy};
use segue::sink::{FolderFormat, FolderSink};
use segue::{FileCheckpointStore, FileSource, HybridSource};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(path("2019.csv"), "id,price\n1,2.5\n2,7.25\n3,\n")?;
    fs::write(path("2020.ndjson"), "{\"id\": 4, \"price\": 1.0}\n{\"price\": 0.5, \"id\": 5}\n")?;

    let old = FileSource::builder(path("2019.csv")).name("2019").build().await?;
    let new = FileSource::builder(path("2020.ndjson")).name("2020").build().await?;
    let chain = HybridSource::builder().source(old).source(new).job("archive").build()?;

    // The folder is made; one that holds somebody else's files is refused.
    let mut sink = FolderSink::builder(FolderFormat::Parquet, path("lake")).job("archive").build()?;
    let store = FileCheckpointStore::open(path("archive.json"))?;
    // Whoever holds a clone of it can ask to stop: the batch is finished and committed then.
    let stop = Stop::new();
    let summary = copy(&chain, &mut sink, Some(&store), CopyOptions::default(), &stop).await?;
    println!("{:?} rows in {} commits", summary.rows, summary.commits);
    assert_eq!(summary.rows, [3, 2]);

    let again = copy(&chain, &mut sink, Some(&store), CopyOptions::default(), &stop).await?;
    assert_eq!(again.rows, [0, 0], "everything was copied before");
    for file in fs::read_dir(path("lake"))? {
        println!("{}", file?.path().display());
    }
    Ok(())
}
