//! Stops in the middle of a file, and goes on there in what could be another process: each row once.
//!
//! What is made of the rows, here a sum, belongs into one transaction with the checkpoint behind them. That
//! is what makes it *exactly once*: a kill at any instant leaves either both or neither.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use object_store::memory::InMemory;
use segue::checkpoint::ObjectCheckpointStore;
use segue::schema::parse_schema;
use segue::{CheckpointStore, FileSource, HybridSource, ReadOptions};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    for part in 0..3 {
        let rows: String = (0..1000).map(|row| format!("{},{}\n", part * 1000 + row, row % 7)).collect();
        fs::write(folder.path().join(format!("part-{part}.csv")), format!("id,value\n{rows}"))?;
    }
    // Or a file (`FileCheckpointStore`), or a row of your database beside your data.
    let store = ObjectCheckpointStore::new(Arc::new(InMemory::new()), "job.json".into());

    let (mut runs, mut sum) = (0, 0);
    while let Some(sum_of_run) = run(folder.path(), &store).await? {
        sum += sum_of_run;
        runs += 1;
        if runs == 2 {
            // It was finished: nobody needs it any more. And this one came too late for this job.
            fs::remove_file(folder.path().join("part-0.csv"))?;
            fs::write(folder.path().join("part-0b.csv"), "id,value\n1000000,0\n")?;
        }
    }
    println!("{runs} runs, sum of all ids: {sum}");
    assert_eq!((runs, sum), (5, (0..3000).sum::<i64>()));
    Ok(())
}

/// Reads 700 rows more, as if it was stopped then; `None` if there were none.
async fn run(folder: &Path, store: &dyn CheckpointStore) -> Result<Option<i64>, Box<dyn Error>> {
    let stored = store.load().await?;
    let mut parts = FileSource::builder(folder.display().to_string()).name("parts");
    if let Some(checkpoint) = &stored {
        // Header and schema stay what they were found to be: a restart never infers.
        parts = parts.schema(Arc::new(parse_schema(&checkpoint.schema)?));
        if let Some(state) = checkpoint.source("parts") {
            parts = parts.stored(state.clone());
        }
    }
    let chain = HybridSource::builder().source(parts.build().await?).job("sum of ids").build()?;
    let pinned = chain.resolve(stored).await?;
    // Before the first row is used: whatever happens now, the next run reads the same files.
    store.save(&pinned).await?;

    let (mut sum, mut rows) = (0, 0);
    let mut stream = chain.open(pinned, ReadOptions { limit: Some(700), ..ReadOptions::default() })?;
    while let Some(item) = stream.next().await {
        let batch = item?.item.into_batch();
        sum += batch.column(0).as_primitive::<Int64Type>().values().iter().sum::<i64>();
        rows += batch.num_rows();
    }
    store.save(stream.checkpoint()).await?;
    Ok((rows > 0).then_some(sum))
}
