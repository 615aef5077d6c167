//! Reads a folder of files, then generated rows, as one stream: where each row comes from, and where the
//! stream stands.
//!
//! ```sh
//! cargo run --example quickstart
//! ```
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::fs;

use arrow::util::pretty::pretty_format_batches;
use segue::source::{DatagenSource, FieldKind, Source};
use segue::{FileSource, HybridSource, Provenance, ReadOptions};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("part-9.csv"), "id,price\n1,2.5\n2,7.25\n")?;
    fs::write(folder.path().join("part-10.csv"), "id,price\n3,\n")?;

    // Lists the files, and infers header and schema.
    let history = FileSource::builder(folder.path().display().to_string()).name("history").build().await?;
    // Stands for a live source: rows of the same schema, from the next id on.
    let live = DatagenSource::builder(history.schema())
        .name("live")
        .field("id", FieldKind::Sequence { start: 4, end: Some(5) })
        .build()?;
    let provenance = [Provenance::Source, Provenance::Split];
    let chain = HybridSource::builder().source(history).source(live).provenance(provenance).build()?;

    // Pins what there is to read: nothing that appears later changes what this job reads.
    let checkpoint = chain.resolve(None).await?;
    let mut stream = chain.open(checkpoint, ReadOptions::default())?;
    while let Some(item) = stream.next().await {
        let item = item?.item;
        println!("{:?}", item.advances());
        println!("{}", pretty_format_batches(&[item.into_batch()])?);
    }
    // Store it with what was made of the rows, and the next run goes on from here.
    println!("{}", stream.checkpoint().to_json()?);
    Ok(())
}
