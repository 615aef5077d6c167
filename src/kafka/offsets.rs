//! Where reading begins and ends, as it is asked for and as numbers.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::error::Result;

/// An offset for each partition of a topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionOffsets(pub BTreeMap<i32, u64>);

impl fmt::Display for PartitionOffsets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (partition, offset)) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { ";" };
            write!(f, "{separator}partition:{partition},offset:{offset}")?;
        }
        Ok(())
    }
}

impl FromStr for PartitionOffsets {
    type Err = String;

    /// Reads `partition:0,offset:42;partition:1,offset:300`, as Flink writes it.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut offsets = BTreeMap::new();
        for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            let wrong = || format!("'{part}' is not partition:N,offset:N");
            let (partition, offset) = part.split_once(',').ok_or_else(wrong)?;
            let number = |word: &str, name: &str| {
                word.trim()
                    .strip_prefix(name)
                    .and_then(|rest| rest.trim().strip_prefix(':'))
                    .map(|rest| rest.trim().to_owned())
            };
            let partition = number(partition, "partition").and_then(|text| text.parse::<i32>().ok());
            let offset = number(offset, "offset").and_then(|text| text.parse::<u64>().ok());
            let (Some(partition @ 0..), Some(offset)) = (partition, offset) else { return Err(wrong()) };
            if i64::try_from(offset).is_err() {
                return Err(wrong());
            }
            if offsets.insert(partition, offset).is_some() {
                return Err(format!("partition {partition} stands there twice"));
            }
        }
        if offsets.is_empty() {
            return Err("it names no partition; write partition:0,offset:42;partition:1,offset:300".into());
        }
        Ok(Self(offsets))
    }
}

/// Where reading begins, the first time. A restart goes on from its checkpoint instead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartOffsets {
    /// At the first message that the log still has.
    #[default]
    Earliest,
    /// At the end, as it is when the job starts for the first time.
    Latest,
    /// At the first message with this timestamp or a later one, in ms since the epoch, inclusive; at the end if
    /// there is none.
    Timestamp(i64),
    /// At these offsets, inclusive.
    At {
        /// Where each partition begins.
        offsets: PartitionOffsets,
        /// Where those begin that aren't named; an error without.
        default: Option<DefaultStart>,
    },
    /// Where the consumer group (`group.id`) has committed that it is, inclusive.
    Group {
        /// Where partitions begin of which it has committed nothing; an error without.
        default: Option<DefaultStart>,
    },
}

/// Each of these partitions, and no other.
impl From<PartitionOffsets> for StartOffsets {
    fn from(offsets: PartitionOffsets) -> Self {
        Self::At { offsets, default: None }
    }
}

/// Where a partition begins of which nothing is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultStart {
    /// At the first message that the log still has.
    Earliest,
    /// At the end, as it is when the job starts for the first time.
    Latest,
}

impl DefaultStart {
    /// As it stands in options.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Earliest => "earliest-offset",
            Self::Latest => "latest-offset",
        }
    }
}

/// Where reading ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopOffsets {
    /// Nowhere.
    #[default]
    Never,
    /// At the end, as it is when the job starts.
    Latest,
    /// Before the first message with this timestamp or a later one, in ms since the epoch; at the end, as it is
    /// when the job starts, if there is none.
    Timestamp(i64),
    /// At these offsets, exclusive, one for every partition.
    At(PartitionOffsets),
}

impl fmt::Display for StartOffsets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Earliest => f.write_str("earliest-offset"),
            Self::Latest => f.write_str("latest-offset"),
            Self::Timestamp(millis) => write!(f, "timestamp {millis}"),
            Self::At { offsets, default } => {
                write!(f, "specific-offsets {offsets}")?;
                default.map_or(Ok(()), |default| write!(f, ", else {}", default.as_str()))
            }
            Self::Group { default } => {
                f.write_str("group-offsets")?;
                default.map_or(Ok(()), |default| write!(f, ", else {}", default.as_str()))
            }
        }
    }
}

impl fmt::Display for StopOffsets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never => f.write_str("unbounded"),
            Self::Latest => f.write_str("latest-offset"),
            Self::Timestamp(millis) => write!(f, "timestamp {millis}"),
            Self::At(offsets) => write!(f, "specific-offsets {offsets}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partition_offsets_are_read_as_flink_writes_them() {
        let offsets: PartitionOffsets = "partition:0,offset:42; partition:10 , offset: 300;".parse().unwrap();
        assert_eq!(offsets.0, BTreeMap::from([(0, 42), (10, 300)]));
        assert_eq!(offsets.to_string(), "partition:0,offset:42;partition:10,offset:300");
        for wrong in
            ["", "0:42", "partition:0", "partition:-1,offset:0", "partition:0,offset:-1", "partition:0,offset:x"]
        {
            assert!(wrong.parse::<PartitionOffsets>().is_err(), "{wrong}");
        }
        let twice = "partition:0,offset:1;partition:0,offset:2".parse::<PartitionOffsets>().unwrap_err();
        assert_eq!(twice, "partition 0 stands there twice");
    }
}
