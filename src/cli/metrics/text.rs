//! A job's counters as Prometheus reads them.
//!
//! Series are a few for each source and for each partition; files, which may be many thousands, have no series of
//! their own. README.md lists them all.

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeLabelSet, MetricEncoder, NoLabelSet, prometheus_text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use segue::progress::{PartitionSnapshot, Progress, ProgressUnit, Snapshot, SourceSnapshot};

pub(super) use prometheus_client::encoding::prometheus_text::CONTENT_TYPE;

/// The metrics of one job.
#[derive(Debug)]
pub(super) struct Metrics(Registry);

impl Metrics {
    pub(super) fn new(progress: Arc<Progress>) -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Job { progress, started: SystemTime::now() }));
        Self(registry)
    }

    /// The counters of this moment.
    pub(super) fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        prometheus_text::encode(&mut text, &self.0)?;
        Ok(text)
    }
}

#[derive(Debug)]
struct Job {
    progress: Arc<Progress>,
    started: SystemTime,
}

impl Collector for Job {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let snapshot = self.progress.snapshot();
        let mut families = Families(encoder);
        families.process(self.started)?;
        families.job(&snapshot)?;
        families.sources(&snapshot)?;
        families.partitions(&snapshot)
    }
}

/// Writes one family of series after the other.
struct Families<'a>(DescriptorEncoder<'a>);

impl Families<'_> {
    fn process(&mut self, started: SystemTime) -> fmt::Result {
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        self.gauges("segue_build_info", "The version of segue; always 1", [(version, 1u64)])?;
        self.gauge("process_start_time_seconds", "When the job was started, since the epoch", since_epoch(started))?;
        match resident_bytes() {
            Some(bytes) => self.gauge("process_resident_memory_bytes", "Memory of the process", bytes),
            None => Ok(()),
        }
    }

    fn job(&mut self, snapshot: &Snapshot) -> fmt::Result {
        self.counters("segue_commits", "Commits of this run", [(NO_LABELS, snapshot.commits)])?;
        if let Some(time) = snapshot.last_commit {
            let help = "When the last commit was made, since the epoch";
            self.gauge("segue_last_commit_timestamp_seconds", help, since_epoch(time))?;
        }
        if let Some(eta) = snapshot.eta {
            let help = "How long the rest of what has an end will take at the speed so far";
            self.gauge("segue_remaining_seconds", help, eta.as_secs_f64())?;
        }
        Ok(())
    }

    fn sources(&mut self, snapshot: &Snapshot) -> fmt::Result {
        let active = snapshot.sources.get(snapshot.active).map(|source| Arc::clone(&source.name));
        let each = |value: &dyn Fn(&SourceSnapshot) -> Option<u64>| {
            let series = |source: &SourceSnapshot| Some(([("source", source.name.to_string())], value(source)?));
            snapshot.sources.iter().filter_map(series).collect::<Vec<_>>()
        };
        let bytes = |source: &SourceSnapshot| source.unit == ProgressUnit::Bytes;
        self.counters("segue_rows", "Rows delivered by this run", each(&|source| Some(source.rows)))?;
        self.counters("segue_rejected", "Bad records that this run has left out", rejected(snapshot))?;
        self.gauges(
            "segue_source_active",
            "1 for the source that is being read",
            each(&|source| Some(u64::from(active.as_ref() == Some(&source.name) && !source.is_done))),
        )?;
        self.gauges(
            "segue_source_done",
            "1 for a source of which nothing is left to read",
            each(&|source| Some(u64::from(source.is_done))),
        )?;
        self.gauges("segue_files", "Files of a source", each(&|source| Some(source.files?.total)))?;
        self.gauges("segue_files_done", "Files that are read to their end", each(&|source| Some(source.files?.done)))?;
        self.gauges(
            "segue_size_bytes",
            "Size of a source's files, as stored",
            each(&|source| source.total.filter(|_| bytes(source))),
        )?;
        self.gauges(
            "segue_done_bytes",
            "What is read of them, earlier runs included; of compressed files when they are done",
            each(&|source| Some(source.done).filter(|_| bytes(source))),
        )?;
        self.gauges(
            "segue_fetch_queue_messages",
            "Messages that were fetched and that nobody took yet",
            each(&|source| Some(source.fetch_queue?.messages)),
        )?;
        self.gauges(
            "segue_fetch_queue_bytes",
            "Payload of the messages that were fetched and that nobody took yet",
            each(&|source| Some(source.fetch_queue?.bytes)),
        )
    }

    fn partitions(&mut self, snapshot: &Snapshot) -> fmt::Result {
        let each = |value: &dyn Fn(&PartitionSnapshot) -> Option<u64>| {
            let partitions =
                snapshot.sources.iter().flat_map(|source| source.partitions.iter().map(move |split| (source, split)));
            let series = |(source, partition): (&SourceSnapshot, &PartitionSnapshot)| {
                let labels = [("source", source.name.to_string()), ("split", partition.split.to_string())];
                Some((labels, value(partition)?))
            };
            partitions.filter_map(series).collect::<Vec<_>>()
        };
        self.counters("segue_split_rows", "Rows of a partition, of this run", each(&|split| Some(split.rows)))?;
        self.counters(
            "segue_lost_offsets",
            "Offsets left out since the log no longer had them, over the job's life",
            each(&|split| Some(split.lost)),
        )?;
        self.gauges("segue_position", "The next offset to be delivered", each(&|split| Some(split.position)))?;
        self.gauges("segue_stop_offset", "Where a partition ends for this job, exclusive", each(&|split| split.stop))?;
        self.gauges("segue_end_offset", "The end of a partition's log as of the last fetch", each(&|split| split.end))?;
        self.gauges("segue_lag", "How far the position is behind the end; 0 is caught up", each(&|split| split.lag))?;
        self.gauges(
            "segue_fetched_offsets",
            "How far fetching is ahead of what was taken",
            each(&|split| split.fetched),
        )
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl EncodeGaugeValue) -> fmt::Result {
        self.gauges(name, help, [(NO_LABELS, value)])
    }

    fn gauges<L: EncodeLabelSet, V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = (L, V)>,
    ) -> fmt::Result {
        self.family(name, help, MetricType::Gauge, series, |mut encoder, value| encoder.encode_gauge(value))
    }

    /// The names end with `_total`, which is added here.
    fn counters<L: EncodeLabelSet, V: EncodeCounterValue>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = (L, V)>,
    ) -> fmt::Result {
        let encode =
            |mut encoder: MetricEncoder<'_>, value: &V| encoder.encode_counter::<NoLabelSet, _, u64>(value, None);
        self.family(name, help, MetricType::Counter, series, encode)
    }

    fn family<L: EncodeLabelSet, V>(
        &mut self,
        name: &str,
        help: &str,
        metric: MetricType,
        series: impl IntoIterator<Item = (L, V)>,
        encode: impl Fn(MetricEncoder<'_>, &V) -> fmt::Result,
    ) -> fmt::Result {
        let mut series = series.into_iter().peekable();
        // A family without series says nothing.
        if series.peek().is_none() {
            return Ok(());
        }
        let mut family = self.0.encode_descriptor(name, help, None, metric)?;
        series.try_for_each(|(labels, value)| encode(family.encode_family(&labels)?, &value))
    }
}

const NO_LABELS: [(&str, &str); 0] = [];

/// Bad records by source and reason, over all columns.
fn rejected(snapshot: &Snapshot) -> Vec<([(&'static str, String); 2], u64)> {
    let mut series: Vec<([(&'static str, String); 2], u64)> = Vec::new();
    for source in &snapshot.sources {
        for (reason, alike) in source.rejected.iter() {
            let labels = [("source", source.name.to_string()), ("reason", reason.to_string())];
            // Reasons come in order, each with its columns.
            match series.last_mut().filter(|(last, _)| *last == labels) {
                Some((_, count)) => *count += alike.count,
                None => series.push((labels, alike.count)),
            }
        }
    }
    series
}

fn since_epoch(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// The memory of this process; `None` where the system doesn't say.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes << 10)
}
