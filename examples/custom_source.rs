//! A source of your own: what it has to do, and how to check that it keeps the rules.
//!
//! ```sh
//! cargo run --example custom_source --features testing
//! ```
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use segue::checkpoint::{Advance, RowPositions, SourceState, SplitState, Splits};
use segue::schema::Mapping;
use segue::source::{Fitter, History, ReadRequest, SourceStream};
use segue::testing::check_source;
use segue::{Boundedness, HybridSource, ReadOptions, Source};

/// The numbers below `end`, and whether each is prime. The position in its one split is the next number.
#[derive(Debug)]
struct Numbers {
    end: u64,
}

impl Source for Numbers {
    fn name(&self) -> &str {
        "numbers"
    }

    fn connector(&self) -> &str {
        "numbers"
    }

    fn schema(&self) -> SchemaRef {
        let number = Field::new("number", DataType::Int64, false);
        Arc::new(Schema::new(vec![number, Field::new("kind", DataType::Utf8, false)]))
    }

    fn boundedness(&self) -> Boundedness {
        Boundedness::Bounded
    }

    fn position_options(&self) -> BTreeMap<String, String> {
        // Nothing that can be set changes what a position means.
        BTreeMap::new()
    }

    fn resolve<'a>(
        &'a self,
        stored: Option<SourceState>,
        _history: Option<&'a History>,
    ) -> BoxFuture<'a, segue::Result<SourceState>> {
        // What was stored stays; a fresh start begins at 0, and its end is pinned.
        let fresh = || {
            let split = SplitState::new("all".into(), 0).with_stop(Some(self.end));
            SourceState::new("numbers", "numbers", Splits::side_by_side([split]))
        };
        async move { Ok(stored.unwrap_or_else(fresh)) }.boxed()
    }

    fn open(&self, state: &SourceState, request: ReadRequest) -> segue::Result<SourceStream> {
        // Picks the columns that were asked for, and fills in where each row comes from.
        let fitter = Fitter::try_new(&self.schema(), &Mapping::default(), &request, self.name())?;
        let schema = self.schema();
        let unfinished = match &state.splits {
            Splits::SideBySide(splits) => splits.values().find(|split| !split.done).cloned(),
            Splits::OneByOne { .. } => None,
        };
        let items = stream::iter(unfinished).flat_map(move |split| {
            let (schema, fitter, step) = (schema.clone(), fitter.clone(), request.batch_rows);
            let (start, end) = (split.position, split.stop.unwrap_or(split.position));
            // At least one item, so that the split is told to be done.
            stream::iter((start..end.max(start + 1)).step_by(step)).map(move |from| {
                let to = end.min(from + step as u64);
                let positions = RowPositions::consecutive(from, (to - from) as usize);
                let advance = Advance::new(split.id.clone(), from, to).with_done(to == end);
                let failed = |e: ArrowError| segue::Error::Other { context: "numbers".into(), source: e.into() };
                fitter.item(&numbers(&schema, from..to).map_err(failed)?, positions, advance)
            })
        });
        Ok(items.boxed())
    }
}

fn numbers(schema: &SchemaRef, range: std::ops::Range<u64>) -> Result<RecordBatch, ArrowError> {
    let is_prime = |n: u64| n > 1 && (2..).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d));
    let numbers = Int64Array::from_iter_values(range.clone().map(|n| n as i64));
    let kinds = StringArray::from_iter_values(range.map(|n| if is_prime(n) { "prime" } else { "other" }));
    RecordBatch::try_new(schema.clone(), vec![Arc::new(numbers), Arc::new(kinds)])
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Cut after each row and reopened, with other threads and batch sizes, projected, dropped: all the rules.
    check_source(Numbers { end: 40 }).await?;
    check_source(Numbers { end: 0 }).await?;
    println!("every rule is kept");

    let chain = HybridSource::builder().source(Numbers { end: 10_000 }).build()?;
    let checkpoint = chain.resolve(None).await?;
    let mut stream = chain.open(checkpoint, ReadOptions::default())?;
    while let Some(item) = stream.next().await {
        println!("{:?}", item?.item.advances());
    }
    Ok(())
}
