//! `segue plan`: what would be read, and whether the log still has it.

use std::fmt::{self, Display};

use segue::checkpoint::{Checkpoint, SourceState, SplitState, Splits};
use segue::schema::format_schema;
use segue::source::Boundedness;
use serde_json::{Value, json};

use super::args::PlanArgs;
use super::chain::{self, Chain, ChainParts, ChainSource, Described, header_word};
use super::commands::print;
use super::console::{Console, bytes, counted};
use super::fault::Failure;

/// The exit status for offsets that are wanted and that the log doesn't have.
const GAP: u8 = 3;

/// Shows what would be read.
pub(crate) async fn plan(args: &PlanArgs, console: &Console) -> Result<u8, Failure> {
    let described = Described::new(&args.input, None, console)?;
    let stored = chain::stored(args.job.checkpoint.as_deref())?;
    let resume_from = stored.as_ref().map(|stored| stored.checkpoint.clone());
    // A plan is for any job: one that is named, or that of the checkpoint.
    let job = args.job.job_id.clone().unwrap_or_default();
    let parts = ChainParts { job, stored, tells_gaps: true, ..ChainParts::default() };
    let chain = described.build(parts, &console.silent()).await?;
    let plan = Plan::new(&chain, &chain.hybrid.resolve(resume_from).await?);
    let text = if args.json { format!("{:#}\n", plan.to_json()) } else { plan.to_string() };
    print(&text)?;
    Ok(if plan.gaps.is_empty() { 0 } else { GAP })
}

/// What is left to read.
struct Plan {
    schema: String,
    sources: Vec<PlannedSource>,
    gaps: Vec<Gap>,
}

struct PlannedSource {
    source: ChainSource,
    state: SourceState,
    /// Splits that aren't done.
    left: Vec<SplitState>,
}

/// An offset that is wanted, and isn't in the log.
struct Gap {
    split: String,
    wanted: u64,
    /// The nearest offset that the log has.
    available: u64,
}

impl Plan {
    fn new(chain: &Chain, checkpoint: &Checkpoint) -> Self {
        let planned = |(source, state): (&ChainSource, &SourceState)| PlannedSource {
            source: source.clone(),
            state: state.clone(),
            left: left(state),
        };
        let sources: Vec<_> = chain.sources.iter().zip(&checkpoint.sources).map(planned).collect();
        let gaps = sources.iter().flat_map(|source| &source.left).filter_map(Gap::of).collect();
        Self { schema: format_schema(&chain.hybrid.schema()), sources, gaps }
    }

    /// What is known of the place where files end and a topic goes on.
    fn seam(&self) -> Option<String> {
        let live = match self.sources.as_slice() {
            [.., history, live] if history.is_files() && !live.is_files() => live,
            _ => return None,
        };
        let topic = live.place();
        let is_passed_over = |split: &SplitState| live.source.passes_over_gap(split);
        let is_gap = |split: &&SplitState| Gap::of(split).is_some();
        Some(match (self.gaps.is_empty(), live.left.iter().filter(is_gap).all(is_passed_over)) {
            (true, _) => format!("no gap in the log of {topic}; rows that the files have too would come twice"),
            (false, true) => format!("a gap in the log of {topic}: what is lost would be left out"),
            (false, false) => format!("a gap in the log of {topic}: nothing would be read"),
        })
    }

    fn to_json(&self) -> Value {
        let gaps =
            self.gaps.iter().map(|gap| json!({ "split": gap.split, "wanted": gap.wanted, "available": gap.available }));
        json!({
            "schema": self.schema,
            "sources": self.sources.iter().map(PlannedSource::to_json).collect::<Vec<_>>(),
            "seam": { "gaps": gaps.collect::<Vec<_>>(), "overlaps": [] },
        })
    }
}

/// What is left of a source, split by split.
fn left(state: &SourceState) -> Vec<SplitState> {
    match &state.splits {
        Splits::OneByOne { list, done, current } => {
            let untouched = usize::from(current.is_some()) + done;
            current.iter().cloned().chain(list.iter().skip(untouched).map(|entry| entry.to_state())).collect()
        }
        Splits::SideBySide(splits) => {
            splits.values().filter(|split| !split.done || Gap::of(split).is_some()).cloned().collect()
        }
    }
}

impl Gap {
    fn of(split: &SplitState) -> Option<Self> {
        let (wanted, begin, end) = (split.position, split.log_start()?, split.end()?);
        let available = if wanted < begin && !split.done {
            begin
        } else if wanted > end {
            // Also of a partition that is done: what was read of it is of another log.
            end
        } else {
            return None;
        };
        Some(Self { split: split.id.to_string(), wanted, available })
    }
}

impl Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { split, wanted, available } = self;
        let verb = if wanted < available { "begins" } else { "ends" };
        write!(f, "gap: {split}: offset {wanted} is wanted, the log {verb} at {available}")
    }
}

impl Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "schema: {}", self.schema)?;
        let mut total = Total::default();
        for source in &self.sources {
            write!(f, "{source}")?;
            total.add(source.total());
        }
        for gap in &self.gaps {
            writeln!(f, "{gap}")?;
        }
        if let Some(seam) = self.seam() {
            writeln!(f, "seam: {seam}")?;
        }
        writeln!(f, "total: {total}")
    }
}

/// How much is left, of one source or of all.
#[derive(Clone, Copy, Default)]
struct Total {
    num_files: u64,
    num_bytes: u64,
    num_partitions: u64,
    /// Offsets: messages at most, since transaction markers and compacted messages have offsets too.
    num_offsets: u64,
}

impl Total {
    fn add(&mut self, other: Self) {
        self.num_files += other.num_files;
        self.num_bytes += other.num_bytes;
        self.num_partitions += other.num_partitions;
        self.num_offsets += other.num_offsets;
    }

    fn files(self) -> (String, String) {
        (counted(self.num_files, "file"), bytes(self.num_bytes))
    }

    fn partitions(self) -> (String, String) {
        (counted(self.num_partitions, "partition"), format!("{} at most", counted(self.num_offsets, "message")))
    }
}

impl Display for Total {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files = (self.num_files > 0 || self.num_partitions == 0).then(|| self.files());
        let partitions = (self.num_partitions > 0).then(|| self.partitions());
        let parts = files.into_iter().chain(partitions).map(|(count, amount)| format!("{count}, {amount}"));
        f.write_str(&parts.collect::<Vec<_>>().join("; "))
    }
}

/// How many offsets of a partition can be read by now, and how many are still to come before its stop.
fn ahead(split: &SplitState) -> Option<(u64, u64)> {
    let (begin, end) = (split.log_start()?, split.end()?);
    let from = split.position.max(begin);
    let stop = split.stop.unwrap_or(end);
    Some((stop.min(end).saturating_sub(from), stop.saturating_sub(end.max(from))))
}

/// The options that say where a source is.
const PLACES: [&str; 3] = ["path", "topic", "topic-pattern"];

impl PlannedSource {
    /// The path, the topics, or the pattern that takes them.
    fn place(&self) -> &str {
        let options = &self.state.options;
        PLACES.iter().find_map(|key| options.get(*key)).unwrap_or(&self.state.name)
    }

    fn is_files(&self) -> bool {
        matches!(self.source, ChainSource::Files(_))
    }

    fn total(&self) -> Total {
        let (num_splits, none) = (self.left.len() as u64, Total::default());
        if self.is_files() {
            let num_bytes = self.left.iter().filter_map(|split| split.identity.size).sum();
            Total { num_files: num_splits, num_bytes, ..none }
        } else {
            let num_offsets = self.left.iter().filter_map(ahead).map(|(now, _)| now).sum();
            Total { num_partitions: num_splits, num_offsets, ..none }
        }
    }

    fn num_done(&self) -> usize {
        match &self.state.splits {
            Splits::OneByOne { done, .. } => *done,
            Splits::SideBySide(splits) => splits.len() - self.left.len(),
        }
    }

    fn to_json(&self) -> Value {
        let source = self.source.shared();
        let splits = self.left.iter().map(|split| {
            json!({
                "split": split.id.as_str(),
                "start": split.position,
                "stop": split.stop,
                "log_start": split.log_start(),
                "end": split.end(),
                "size": split.identity.size,
            })
        });
        json!({
            "name": source.name(),
            "connector": source.connector(),
            "format": self.source.format().as_str(),
            "header": self.source.header(),
            "bounded": source.boundedness() != Boundedness::Unbounded,
            "splits": splits.collect::<Vec<_>>(),
        })
    }
}

impl Display for PlannedSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "source {}: ", self.state.name)?;
        for key in PLACES {
            if let Some(place) = self.state.options.get(key) {
                write!(f, "{place}: ")?;
            }
        }
        let (count, amount) = if self.is_files() { self.total().files() } else { self.total().partitions() };
        let done = match self.num_done() {
            0 => String::new(),
            done => format!(" ({done} done)"),
        };
        let format = header_word(self.source.format(), self.source.header());
        writeln!(f, "{format}: {count}{done}, {amount}")?;
        let width = self.left.iter().map(|split| split.id.as_str().chars().count()).max().unwrap_or(0);
        for split in &self.left {
            let told = if self.is_files() { file_told(split) } else { partition_told(split) };
            writeln!(f, "  {:width$}  {told}", split.id.as_str())?;
        }
        Ok(())
    }
}

fn file_told(split: &SplitState) -> String {
    let size = split.identity.size.map(bytes).unwrap_or_default();
    let from = if split.position > split.start { format!("  from position {}", split.position) } else { String::new() };
    format!("{size:>9}{from}")
}

fn partition_told(split: &SplitState) -> String {
    let mut told = format!("from {}", split.position);
    match split.stop {
        Some(stop) => told.push_str(&format!(" to {stop}")),
        None => told.push_str(", no end"),
    }
    if let (Some(begin), Some(end)) = (split.log_start(), split.end()) {
        told.push_str(&format!(", the log has {begin} to {end}"));
    }
    match ahead(split) {
        Some((now, 0)) => told.push_str(&format!(": {now} to read")),
        Some((now, later)) => told.push_str(&format!(": {now} to read, {later} to come")),
        None => {}
    }
    told
}

#[cfg(feature = "kafka")]
#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use segue::checkpoint::Identity;
    use segue::hybrid::HybridSource;
    use segue::kafka::KafkaSource;

    use super::*;

    /// A partition with its position, stop, and what the log has.
    fn partition(id: &str, position: u64, stop: Option<u64>, log: (u64, u64)) -> SplitState {
        let other = [("log_start".to_owned(), log.0.into()), ("end".to_owned(), log.1.into())].into_iter().collect();
        let identity = Identity { other, ..Identity::default() };
        SplitState::new(id.into(), position).with_stop(stop).with_identity(identity)
    }

    fn planned(splits: Vec<SplitState>) -> Plan {
        let topics = Arc::new(KafkaSource::builder(&"kafka://h/bids".parse().unwrap()).name("0").build().unwrap());
        let hybrid = HybridSource::builder().shared(topics.clone()).build().unwrap();
        let options: BTreeMap<_, _> = [("topic".to_owned(), "bids".to_owned())].into();
        let state = SourceState::new("0", "kafka", Splits::side_by_side(splits)).with_options(options);
        let chain = Chain { hybrid, sources: vec![ChainSource::Topics(topics)] };
        Plan::new(&chain, &Checkpoint { sources: vec![state], ..Checkpoint::default() })
    }

    #[test]
    fn a_topic_is_planned_partition_by_partition() {
        let mut done = partition("bids/3", 5, Some(5), (7, 9));
        (done.start, done.done) = (0, true);
        let splits = vec![
            partition("bids/0", 17, None, (0, 40)),
            partition("bids/1", 0, Some(40), (0, 40)),
            partition("bids/2", 40, Some(50), (0, 40)),
            done,
        ];
        assert_eq!(
            planned(splits).to_string(),
            "schema: value STRING\n\
             source 0: bids: raw: 3 partitions (1 done), 63 messages at most\n\
             \u{20} bids/0  from 17, no end, the log has 0 to 40: 23 to read\n\
             \u{20} bids/1  from 0 to 40, the log has 0 to 40: 40 to read\n\
             \u{20} bids/2  from 40 to 50, the log has 0 to 40: 0 to read, 10 to come\n\
             total: 3 partitions, 63 messages at most\n"
        );
    }

    #[test]
    fn an_offset_that_the_log_has_not_is_a_gap() {
        let mut at_once = partition("bids/4", 9, Some(1), (0, 1));
        at_once.done = true;
        let plan = planned(vec![
            at_once,
            partition("bids/0", 17, None, (40, 50)),
            partition("bids/1", 17, Some(20), (0, 12)),
            partition("bids/2", 12, None, (0, 12)),
            partition("bids/3", 40, None, (40, 50)),
        ]);
        let text = plan.to_string();
        assert!(
            text.contains(
                "gap: bids/0: offset 17 is wanted, the log begins at 40\n\
                 gap: bids/1: offset 17 is wanted, the log ends at 12\n\
                 gap: bids/4: offset 9 is wanted, the log ends at 1\n\
                 total: "
            ),
            "{text}"
        );
        let json = plan.to_json();
        assert_eq!(
            json["seam"]["gaps"],
            json!([
                {"split": "bids/0", "wanted": 17, "available": 40},
                {"split": "bids/1", "wanted": 17, "available": 12},
                {"split": "bids/4", "wanted": 9, "available": 1},
            ])
        );
        assert_eq!(
            json["sources"][0]["splits"][0],
            json!({"split": "bids/0", "start": 17, "stop": null, "log_start": 40, "end": 50, "size": null})
        );
        assert_eq!(json["sources"][0]["bounded"], false);
    }
}
