//! Reads a folder of files, then a topic, as one stream: where each row comes from, and where the stream stands.
//!
//! ```sh
//! cargo run --example quickstart
//! ```
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::fs;
use std::time::Duration;

use arrow::util::pretty::pretty_format_batches;
use rdkafka::ClientConfig;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use segue::kafka::{KafkaAddress, KafkaSource, StopOffsets};
use segue::source::Source;
use segue::{FileSource, Format, HybridSource, Provenance, ReadOptions};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("part-9.csv"), "id,price\n1,2.5\n2,7.25\n")?;
    fs::write(folder.path().join("part-10.csv"), "id,price\n3,\n")?;

    // Stands for a real cluster, whose address would be kafka://HOST/bids.
    let cluster = MockCluster::new(1)?;
    cluster.create_topic("bids", 1, 1)?;
    let address: KafkaAddress = format!("kafka://{}/bids", cluster.bootstrap_servers()).parse()?;
    let producer: BaseProducer = ClientConfig::new().set("bootstrap.servers", address.bootstrap_servers()).create()?;
    for value in ["4,1.5", "5,"] {
        producer.send(BaseRecord::<str, str>::to("bids").payload(value)).map_err(|(e, _)| e)?;
    }
    producer.flush(Duration::from_secs(10))?;

    // Lists the files, and infers header and schema.
    let history = FileSource::builder(folder.path().display().to_string()).name("history").build().await?;
    // Values say nothing of their types: the schema is that of the files. Without a stop it would have no end.
    let live = KafkaSource::builder(&address)
        .name("live")
        .format(Format::Csv)
        .schema(history.schema())
        .stop(StopOffsets::Latest)
        .build()?;
    let provenance = [Provenance::Source, Provenance::Phase, Provenance::Split, Provenance::Position];
    let chain = HybridSource::builder().source(history).source(live).provenance(provenance).build()?;

    // Pins what there is to read, and where the topic begins: nothing that happens later changes it.
    let checkpoint = chain.resolve(None).await?;
    let mut stream = chain.open(checkpoint, ReadOptions::default())?;
    let mut rows = 0;
    while let Some(item) = stream.next().await {
        let item = item?.item;
        rows += item.num_rows();
        println!("{:?}", item.advances());
        println!("{}", pretty_format_batches(&[item.into_batch()])?);
    }
    // Store it with what was made of the rows, and the next run goes on from here.
    println!("{}", stream.checkpoint().to_json()?);
    assert_eq!(rows, 5);
    Ok(())
}
