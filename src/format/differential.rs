//! Records by the million, read by more than one reader: what the runs for CSV and JSON have in common.
//!
//! `SEGUE_DIFFERENTIAL_RECORDS` says how many records of both formats together, `SEGUE_DIFFERENTIAL_SEED` where the
//! numbers begin that decide everything: a run that failed is the same again with its seed.

pub(super) mod values;

use std::collections::BTreeMap;
use std::env;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::DataType;
use arrow::util::display::array_value_to_string;

use crate::schema::BytesFormat;

/// Numbers that look random, and are the same in every run (xorshift64*).
pub(super) struct Noise(u64);

impl Noise {
    pub(super) fn new(seed: u64) -> Self {
        // Spread over all bits; and never 0, at which it would stay.
        Self(seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// From 0 to `bound`, exclusive.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// True once in `times`.
    pub(super) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Bytes replaced, put in and taken out: here many, there few.
    pub(super) fn mutated(&mut self, bytes: &[u8], others: &[u8]) -> Vec<u8> {
        let mut mutated = Vec::with_capacity(bytes.len());
        let rarely = 20 + self.below(2000);
        for byte in bytes {
            if !self.once_in(rarely) {
                mutated.push(*byte);
                continue;
            }
            let other = self.pick(others);
            match self.below(3) {
                0 => mutated.push(other),
                1 => mutated.extend([other, *byte]),
                _ => {}
            }
        }
        mutated
    }
}

/// How far a run has come, and of what kinds its records were.
pub(super) struct Run {
    seed: u64,
    wanted: u64,
    num_records: u64,
    num_batches: u64,
    counts: BTreeMap<String, u64>,
}

impl Run {
    /// A run of half the records of both formats together.
    pub(super) fn from_environment(default_records: u64) -> Self {
        let number = |key: &str| env::var(key).ok().map(|text| text.parse::<u64>().unwrap());
        Self::new(
            number("SEGUE_DIFFERENTIAL_SEED").unwrap_or(42),
            number("SEGUE_DIFFERENTIAL_RECORDS").unwrap_or(default_records) / 2,
        )
    }

    pub(super) fn new(seed: u64, wanted: u64) -> Self {
        Self { seed, wanted, num_records: 0, num_batches: 0, counts: BTreeMap::new() }
    }

    /// The next batch's noise; `None` if there were enough records.
    pub(super) fn next_batch(&mut self) -> Option<Noise> {
        if self.num_records >= self.wanted {
            return None;
        }
        self.num_batches += 1;
        Some(Noise::new(self.seed.wrapping_mul(1_000_003).wrapping_add(self.num_batches)))
    }

    /// What a failure needs to be found again.
    pub(super) fn place(&self) -> String {
        format!("seed {}, batch {}", self.seed, self.num_batches)
    }

    pub(super) fn add_records(&mut self, num_records: usize) {
        self.num_records += num_records as u64;
    }

    pub(super) fn count(&mut self, what: impl Into<String>, records: usize) {
        *self.counts.entry(what.into()).or_default() += records as u64;
    }

    pub(super) fn print(&self, format: &str) {
        println!("{format}: {} records in {} batches, seed {}", self.num_records, self.num_batches, self.seed);
        for (what, count) in &self.counts {
            println!("  {count:>12} {what}");
        }
    }
}

/// Says what differs between our column and that of another reader, if something does. A reader that has no bytes was
/// given their text; one that knows no empty text has null for it if `empty_is_null`.
pub(super) fn difference(
    ours: &ArrayRef,
    theirs: &ArrayRef,
    bytes_format: BytesFormat,
    empty_is_null: bool,
) -> Option<String> {
    if ours.len() != theirs.len() {
        return Some(format!("{} values and {}", ours.len(), theirs.len()));
    }
    let text_of_bytes = |bytes: &[u8]| values::text_of_bytes(bytes, bytes_format);
    let texts: Option<Vec<Option<String>>> = match ours.data_type() {
        DataType::Binary => Some(ours.as_binary::<i32>().iter().map(|value| value.map(text_of_bytes)).collect()),
        DataType::LargeBinary => Some(ours.as_binary::<i64>().iter().map(|value| value.map(text_of_bytes)).collect()),
        DataType::Utf8 => Some(ours.as_string::<i32>().iter().map(|value| value.map(str::to_owned)).collect()),
        DataType::LargeUtf8 => Some(ours.as_string::<i64>().iter().map(|value| value.map(str::to_owned)).collect()),
        DataType::Utf8View => Some(ours.as_string_view().iter().map(|value| value.map(str::to_owned)).collect()),
        _ => None,
    };
    let Some(texts) = texts else {
        let row = (0..ours.len()).find(|row| ours.slice(*row, 1) != theirs.slice(*row, 1));
        return (ours != theirs).then(|| {
            let shown = |array: &ArrayRef| row.map(|row| array_value_to_string(array, row).unwrap());
            format!("row {row:?}: {:?} and {:?}", shown(ours), shown(theirs))
        });
    };
    let their_texts: Vec<Option<&str>> = match theirs.data_type() {
        DataType::Utf8 => theirs.as_string::<i32>().iter().collect(),
        DataType::LargeUtf8 => theirs.as_string::<i64>().iter().collect(),
        _ => theirs.as_string_view().iter().collect(),
    };
    let row = texts.iter().zip(&their_texts).position(|(ours, theirs)| {
        let ours = ours.as_deref();
        ours != *theirs && !(empty_is_null && ours == Some("") && theirs.is_none())
    })?;
    Some(format!("row {row}: {:?} and {:?}", texts[row], their_texts[row]))
}

/// Both batches hold the same, column by column; else where they differ.
pub(super) fn check_batches(
    ours: &RecordBatch,
    theirs: &RecordBatch,
    bytes_format: BytesFormat,
    empty_is_null: bool,
    place: &str,
) {
    assert_eq!(ours.num_rows(), theirs.num_rows(), "{place}: rows");
    for ((ours, theirs), field) in ours.columns().iter().zip(theirs.columns()).zip(ours.schema_ref().fields()) {
        if let Some(difference) = difference(ours, theirs, bytes_format, empty_is_null) {
            panic!("{place}: column {field}: {difference}");
        }
    }
}
