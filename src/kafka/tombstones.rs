//! Messages without a value: left out, rows of nulls, or bad records.

use std::ops::ControlFlow;

use arrow::array::{RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::FieldRef;

use crate::error::{Error, Reason, Result};
use crate::format::{OnBadMessage, RecordDecoder, RecordFault, message_range};
use crate::schema::Mapping;

/// What becomes of a message without a value. Its position is moved past, whatever it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tombstones {
    /// It is no row.
    #[default]
    Skip,
    /// It is a row whose columns are null, and whose key, offset and so on can be had. Constants and defaults of the
    /// mapping stand in it as in every row; with a NOT NULL column it is a bad record.
    NullRow,
    /// It is a bad record.
    Fail,
}

/// What becomes of tombstones in one stream.
#[derive(Debug)]
pub(super) enum OnTombstone {
    Skip,
    NullRow,
    Bad { column: Option<String>, message: String },
}

impl OnTombstone {
    /// For rows of these columns. Which of them are NOT NULL is known before there is a tombstone.
    pub(super) fn new<'a>(
        asked: Tombstones,
        mapping: &Mapping,
        columns: impl IntoIterator<Item = &'a FieldRef>,
    ) -> Self {
        let of_message = |field: &&FieldRef| mapping.input(field.name()).is_some();
        let not_null = |field: &&FieldRef| !mapping.decoded_field(field).is_nullable();
        match asked {
            Tombstones::Skip => Self::Skip,
            Tombstones::Fail => Self::Bad { column: None, message: "a message without a value (a tombstone)".into() },
            Tombstones::NullRow => match columns.into_iter().filter(of_message).find(not_null) {
                None => Self::NullRow,
                Some(field) => Self::Bad {
                    column: Some(field.name().clone()),
                    message: "null in a NOT NULL column: the message has no value (a tombstone)".into(),
                },
            },
        }
    }

    /// Whether a tombstone is a row, be it a bad one.
    pub(super) fn is_row(&self) -> bool {
        !matches!(self, Self::Skip)
    }

    /// As [`RecordDecoder::decode_messages`], for messages of which those at `tombstones`, in rising order, have no
    /// value: the decoder never sees them.
    pub(super) fn decode_messages(
        &self,
        decoder: &mut dyn RecordDecoder,
        messages: &Messages<'_>,
        first: usize,
        on_bad: &mut OnBadMessage<'_>,
    ) -> usize {
        let Messages { values, ends, tombstones } = *messages;
        if tombstones.is_empty() {
            return decoder.decode_messages(values, ends, first, on_bad);
        }
        let mut next = first;
        for &tombstone in &tombstones[tombstones.partition_point(|row| *row < first)..] {
            if let ControlFlow::Break(next) = between(decoder, messages, (next, tombstone), on_bad) {
                return next;
            }
            next = tombstone + 1;
            if let Self::Bad { column, message } = self {
                let fault = RecordFault { column: column.clone(), ..RecordFault::new(0..0, Reason::Null, message) };
                if on_bad(tombstone, fault).is_break() {
                    return next;
                }
            }
        }
        match between(decoder, messages, (next, ends.len()), on_bad) {
            ControlFlow::Break(next) => next,
            ControlFlow::Continue(()) => ends.len(),
        }
    }

    /// Puts rows of nulls between those that were decoded: `rows` are the messages that have a row, in order.
    pub(super) fn with_null_rows(
        &self,
        decoded: RecordBatch,
        rows: impl Iterator<Item = usize>,
        tombstones: &[usize],
    ) -> Result<RecordBatch> {
        if tombstones.is_empty() || !matches!(self, Self::NullRow) {
            return Ok(decoded);
        }
        let mut num_decoded = 0..;
        let is_null = |row: usize| tombstones.binary_search(&row).is_ok();
        let places: UInt32Array = rows.map(|row| if is_null(row) { None } else { num_decoded.next() }).collect();
        // None of the columns is NOT NULL, else there were no such rows.
        let columns = decoded.columns().iter().map(|column| take(column, &places, None));
        // There may be no column at all.
        let options = RecordBatchOptions::new().with_row_count(Some(places.len()));
        let batch = columns
            .collect::<Result<_, _>>()
            .and_then(|columns| RecordBatch::try_new_with_options(decoded.schema(), columns, &options));
        batch.map_err(|e| Error::Other { context: "rows of tombstones".into(), source: Box::new(e) })
    }
}

/// Messages as decoders take them, and which of them are tombstones.
#[derive(Clone, Copy, Debug)]
pub(super) struct Messages<'a> {
    pub(super) values: &'a [u8],
    pub(super) ends: &'a [usize],
    pub(super) tombstones: &'a [usize],
}

/// Decodes the messages `first..behind`, which all have a value. Breaks as [`RecordDecoder::decode_messages`] stops.
///
/// The decoder gets nothing but them: it may look at all that it is given.
fn between(
    decoder: &mut dyn RecordDecoder,
    messages: &Messages<'_>,
    (first, behind): (usize, usize),
    on_bad: &mut OnBadMessage<'_>,
) -> ControlFlow<usize> {
    if first == behind {
        return ControlFlow::Continue(());
    }
    let start = message_range(messages.ends, first).start;
    let end =
        if behind == messages.ends.len() { messages.values.len() } else { message_range(messages.ends, behind).start };
    let ends: Vec<usize> = messages.ends[first..behind].iter().map(|end| end - start).collect();
    let mut is_stopped = false;
    let next = decoder.decode_messages(&messages.values[start..end], &ends, 0, &mut |index, fault| {
        let flow = on_bad(first + index, fault);
        is_stopped |= flow.is_break();
        flow
    });
    if is_stopped { ControlFlow::Break(first + next) } else { ControlFlow::Continue(()) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use arrow::array::AsArray;
    use arrow::datatypes::Int64Type;
    use proptest::prelude::*;

    use super::super::decoding::{DecodedMessages, Decoding};
    use super::super::micro_batch::{MicroBatch, RunKind, Wanted};
    use super::super::partition::Partition;
    use super::super::{KafkaAddress, KafkaSource};
    use super::*;
    use crate::checkpoint::{SourceState, SplitState, Splits};
    use crate::format::Format;
    use crate::schema::{Provenance, parse_schema};
    use crate::source::{BadRecords, ReadRequest, SourceBatch};

    /// What stands at an offset.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Entry {
        Value,
        Bad,
        Tombstone,
        /// A transaction marker, or what compaction left.
        Hole,
    }

    fn partitions() -> Arc<[Partition]> {
        let partition = |id: i32| Partition {
            split: format!("bids/{id}").as_str().into(),
            topic: 0,
            topic_name: "bids".into(),
            id,
        };
        [partition(0), partition(1)].into()
    }

    /// The offset tells the value.
    fn value(format: Format, offset: u64) -> String {
        match format {
            Format::Json => format!("{{\"id\":{offset}}}"),
            Format::Csv => format!("{offset},x"),
            _ => format!("{offset}"),
        }
    }

    /// A micro-batch of entries of two partitions, and how far each one goes.
    fn batch_of(format: Format, entries: &[(u32, Entry)], keeps_tombstones: bool) -> (MicroBatch, [u64; 2]) {
        let mut batch = MicroBatch::new(&partitions(), Wanted::default(), None);
        let mut next = [0; 2];
        for (partition, entry) in entries {
            let offset = next[*partition as usize];
            next[*partition as usize] += 1;
            let text = value(format, offset);
            let value = match entry {
                Entry::Value => Some(text.as_bytes()),
                Entry::Bad => Some(&b"\xff"[..]),
                Entry::Tombstone if keeps_tombstones => None,
                Entry::Tombstone | Entry::Hole => {
                    batch.push(*partition, offset, RunKind::Skip, offset + 1, Instant::now());
                    continue;
                }
            };
            batch.push_value(*partition, offset, offset, value, Instant::now());
        }
        (batch, next)
    }

    fn decoding(format: Format, tombstones: Tombstones, bad_records: BadRecords, schema: &str) -> Decoding {
        let address: KafkaAddress = "kafka://h/bids".parse().unwrap();
        let schema = Arc::new(parse_schema(schema).unwrap());
        let builder = KafkaSource::builder(&address).format(format).schema(Arc::clone(&schema)).tombstones(tombstones);
        let mut request = ReadRequest::new(schema).unwrap().with_provenance(vec![Provenance::Offset]);
        request.bad_records = bad_records;
        Decoding::try_new(&builder.build().unwrap(), &request).unwrap()
    }

    /// All items of a micro-batch, and the bad record at which it ended.
    fn decoded(decoding: &Decoding, batch: &MicroBatch) -> (Vec<SourceBatch>, Option<String>) {
        let (mut items, mut first) = (Vec::new(), 0);
        loop {
            let DecodedMessages { item, fault, rest } = decoding.decode(batch, first).unwrap();
            items.extend(item);
            match (fault, rest) {
                (Some(fault), _) => return (items, Some(fault.to_string())),
                (None, Some(rest)) => first = rest,
                (None, None) => return (items, None),
            }
        }
    }

    /// Each row as its partition, its offset, and whether it has a value, which then is the offset's.
    fn rows(items: &[SourceBatch]) -> Vec<(String, u64, bool)> {
        let mut rows = Vec::new();
        for item in items {
            let batch = item.batch();
            for row in 0..item.num_rows() {
                let offset = item.rows().position(row).unwrap();
                let split = item.advances()[item.rows().advance_index(row).unwrap()].split.to_string();
                let first = batch.column(0);
                let told = (!first.is_null(row)).then(|| match first.as_primitive_opt::<Int64Type>() {
                    Some(ids) => ids.value(row) as u64,
                    None => first.as_string::<i32>().value(row).parse().unwrap(),
                });
                assert!(told.is_none_or(|told| told == offset), "{told:?} at {offset}");
                let provenance = batch.column(batch.num_columns() - 1).as_primitive::<Int64Type>();
                assert_eq!(provenance.value(row) as u64, offset);
                rows.push((split, offset, told.is_some()));
            }
        }
        rows
    }

    /// Where both partitions stand when all of this is applied.
    fn applied(items: &[SourceBatch]) -> Vec<u64> {
        let splits =
            partitions().iter().map(|partition| SplitState::new(partition.split.clone(), 0)).collect::<Vec<_>>();
        let mut state = SourceState::new("0", "kafka", Splits::side_by_side(splits));
        items.iter().for_each(|item| state.apply(item.advances(), item.num_rows() as u64).unwrap());
        let Splits::SideBySide(splits) = state.splits else { return Vec::new() };
        splits.values().map(|split| split.position).collect()
    }

    const FORMATS: [(Format, &str); 3] = [
        (Format::Csv, "id BIGINT, name STRING"),
        (Format::Json, "id BIGINT, name STRING"),
        (Format::Raw, "value STRING"),
    ];

    proptest! {
        /// Any mix of values, bad values, tombstones and holes, under every policy, gives each offset its own, in order,
        /// moves past all of them, and can be cut after any row.
        #[test]
        fn every_offset_gives_what_its_policy_says_in_order_and_can_be_cut(
            entries in prop::collection::vec((0..2u32, prop::sample::select(vec![
                Entry::Value, Entry::Value, Entry::Bad, Entry::Tombstone, Entry::Hole,
            ])), 0..40),
            format in prop::sample::select(FORMATS.to_vec()),
            tombstones in prop::sample::select(vec![Tombstones::Skip, Tombstones::NullRow, Tombstones::Fail]),
            bad_records in prop::sample::select(vec![BadRecords::Fail, BadRecords::Skip, BadRecords::Keep]),
            cut in any::<prop::sample::Index>(),
        ) {
            let (format, schema) = format;
            let decoding = decoding(format, tombstones, bad_records, schema);
            let (batch, ends) = batch_of(format, &entries, decoding.tombstones_are_rows());
            let (items, fault) = decoded(&decoding, &batch);

            let is_bad = |entry| entry == Entry::Bad || (entry == Entry::Tombstone && tombstones == Tombstones::Fail);
            let (mut next, mut expected, mut rejected) = ([0; 2], Vec::new(), Vec::new());
            let mut first_bad = None;
            for (partition, entry) in &entries {
                let place = (format!("bids/{partition}"), next[*partition as usize]);
                if is_bad(*entry) && bad_records == BadRecords::Fail {
                    first_bad = Some((place, *entry));
                    break;
                }
                next[*partition as usize] += 1;
                match entry {
                    Entry::Value => expected.push((place.0, place.1, true)),
                    Entry::Tombstone if tombstones == Tombstones::NullRow => expected.push((place.0, place.1, false)),
                    entry if is_bad(*entry) => rejected.push((place, *entry)),
                    _ => {}
                }
            }
            prop_assert_eq!(rows(&items), expected.clone());
            let rejects = items.iter().flat_map(SourceBatch::rejects);
            let places: Vec<_> = rejects.map(|reject| {
                let entry = if reject.record.reason == Reason::Null { Entry::Tombstone } else { Entry::Bad };
                let has_raw = bad_records == BadRecords::Keep && entry == Entry::Bad;
                assert_eq!(reject.raw.is_some(), has_raw);
                ((reject.split.to_string(), reject.record.position), entry)
            }).collect();
            prop_assert_eq!(places, rejected);
            match first_bad {
                None => {
                    prop_assert_eq!(fault, None);
                    prop_assert_eq!(applied(&items), ends.to_vec());
                }
                Some(((split, offset), entry)) => {
                    let fault = fault.unwrap();
                    prop_assert!(fault.starts_with(&format!("{split} offset {offset}: ")), "{}", fault);
                    prop_assert_eq!(fault.contains("tombstone"), entry == Entry::Tombstone);
                    prop_assert_eq!(applied(&items), next.to_vec());
                }
            }
            if let Some(item) = items.first() {
                let cut = cut.index(item.num_rows() + 1);
                let (before, after) = item.split_at(cut);
                prop_assert_eq!(before.num_rows(), cut);
                let parts = [before, after];
                prop_assert_eq!(rows(&parts), rows(&items[..1]));
                prop_assert_eq!(applied(&parts), applied(&items[..1]));
            }
        }
    }

    /// What is left of a micro-batch after so many bad records that they were taken first.
    #[test]
    fn the_rest_of_a_micro_batch_begins_among_its_tombstones() {
        let decoding = decoding(Format::Raw, Tombstones::NullRow, BadRecords::Keep, "value STRING");
        let mut batch = MicroBatch::new(&partitions(), Wanted::default(), None);
        let bad = vec![0xff; crate::source::MAX_REJECT_BYTES];
        for offset in 0..12 {
            let text = value(Format::Raw, offset);
            let value = match offset % 3 {
                0 => None,
                1 => Some(bad.as_slice()),
                _ => Some(text.as_bytes()),
            };
            batch.push_value(0, offset, offset, value, Instant::now());
        }
        let (items, fault) = decoded(&decoding, &batch);
        assert_eq!((items.len(), fault), (5, None));
        let seen: Vec<(u64, bool)> =
            rows(&items).into_iter().map(|(_, offset, has_value)| (offset, has_value)).collect();
        assert_eq!(seen, [(0, false), (2, true), (3, false), (5, true), (6, false), (8, true), (9, false), (11, true)]);
        assert_eq!(items.iter().map(|item| item.rejects().len()).sum::<usize>(), 4);
        assert_eq!(applied(&items), [12, 0]);
    }

    #[test]
    fn a_null_row_of_a_not_null_column_is_a_bad_record_that_names_it() {
        let decoding = decoding(Format::Csv, Tombstones::NullRow, BadRecords::Fail, "id BIGINT, name STRING NOT NULL");
        let (batch, _) = batch_of(Format::Csv, &[(0, Entry::Value), (0, Entry::Tombstone)], true);
        let (items, fault) = decoded(&decoding, &batch);
        assert_eq!(rows(&items).len(), 1);
        let told = "bids/0 offset 1, column name: null in a NOT NULL column: the message has no value (a tombstone)";
        assert_eq!(fault.as_deref(), Some(told));
    }
}
