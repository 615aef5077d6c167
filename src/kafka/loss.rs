//! What becomes of offsets that are wanted and that the log, or the topic, no longer has.

use std::ops::Range;

use serde_json::Value;
use tracing::warn;

use super::{END, LOST, TOPIC_ID};
use crate::checkpoint::SplitState;
use crate::error::{Error, Result};

/// What to do when offsets that are wanted are gone from the beginning of the log.
///
/// A log that ends before a position, was cut, or is another one of the same name is an error whatever stands here:
/// what was read of it can't be taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDataLoss {
    /// [`Error::OffsetOutOfRange`].
    Fail,
    /// It goes on at the first offset that the log still has, with a warning; what is lost is counted.
    Earliest,
    /// It goes on at the end of the log, as it is then, with a warning; what is left out is counted.
    Latest,
}

/// What to do of a position that is gone, as the split stands now: what was asked for, or else it fails, unless it was
/// to begin where the log does and nothing of it was read yet.
pub(super) fn policy(asked: Option<OnDataLoss>, split: &SplitState, is_plain_start: bool) -> OnDataLoss {
    let is_untouched = is_plain_start && split.position == split.start;
    asked.unwrap_or(if is_untouched { OnDataLoss::Earliest } else { OnDataLoss::Fail })
}

/// Where to go on, if the position is gone from the beginning of the log and that may be; what is left out is told,
/// and counted in the split's state.
pub(super) fn go_on_at(split: &mut SplitState, log: &Range<u64>, policy: OnDataLoss) -> Result<Option<u64>> {
    let wanted = split.position;
    if wanted >= log.start {
        return Ok(None);
    }
    let target = match policy {
        OnDataLoss::Fail => return Err(out_of_range(split, log)),
        OnDataLoss::Earliest => log.start,
        OnDataLoss::Latest => log.end,
    };
    // What lies behind the stop isn't wanted.
    let to = split.stop.map_or(target, |stop| stop.clamp(wanted, target));
    let lost = to - wanted;
    let before = split.lost();
    split.identity.other.insert(LOST.into(), before.saturating_add(lost).into());
    warn!("{}: the log begins at offset {} now: {lost} offsets from {wanted} on are left out", split.id, log.start);
    if wanted == split.start {
        // Nothing is read yet, so that it still may begin later.
        split.start = to;
    }
    Ok(Some(to))
}

/// A topic is gone: says what was read of the split, and counts what wasn't.
pub(super) fn of_deleted(split: &mut SplitState) {
    let unread = split.lag().unwrap_or(0);
    split.done = true;
    if unread == 0 {
        warn!(
            "{}: the topic was deleted; it was read up to offset {}, its end as far as is known",
            split.id, split.position
        );
        return;
    }
    let lost = split.lost().saturating_add(unread);
    split.identity.other.insert(LOST.into(), lost.into());
    split.identity.other.insert(END.into(), split.position.into());
    warn!("{}: the topic was deleted; {unread} offsets from {} on were never read", split.id, split.position);
}

/// Whether a split is done only since its topic was deleted: before its stop, or without one.
pub(super) fn is_deleted(split: &SplitState) -> bool {
    split.done && split.stop.is_none_or(|stop| split.position < stop)
}

/// Checks that the topic whose id is `now` is the one that was read, as far as both ids are known.
pub(super) fn check_topic(split: &SplitState, now: Option<&str>) -> Result<()> {
    let stored = split.identity.other.get(TOPIC_ID).and_then(Value::as_str);
    match (stored, now) {
        (Some(stored), Some(now)) if stored != now => {
            let (split, stored, now) = (split.id.to_string(), stored.to_owned(), now.to_owned());
            Err(Error::TopicRecreated { split, stored, now })
        }
        _ => Ok(()),
    }
}

pub(super) fn out_of_range(split: &SplitState, log: &Range<u64>) -> Error {
    Error::OffsetOutOfRange { split: split.id.to_string(), wanted: split.position, available: log.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(start: u64, position: u64, stop: Option<u64>) -> SplitState {
        let mut split = SplitState::new("t/0".into(), start).with_stop(stop);
        split.position = position;
        split
    }

    #[test]
    fn each_policy_goes_on_where_it_says_and_counts_what_is_lost() {
        for (policy, stop, to, lost) in [
            (OnDataLoss::Earliest, None, 10, 6),
            (OnDataLoss::Latest, None, 40, 36),
            (OnDataLoss::Latest, Some(20), 20, 16),
            (OnDataLoss::Earliest, Some(7), 7, 3),
        ] {
            let mut split = split(0, 4, stop);
            assert_eq!(go_on_at(&mut split, &(10..40), policy).unwrap(), Some(to));
            assert_eq!(split.lost(), lost);
        }
        let error = go_on_at(&mut split(0, 4, None), &(10..40), OnDataLoss::Fail).unwrap_err();
        assert_eq!(error.to_string(), "t/0: offset 4 is wanted, and the log has 10 up to 40");
    }

    #[test]
    fn what_is_there_is_not_lost() {
        let mut split = split(0, 10, None);
        assert_eq!(go_on_at(&mut split, &(10..40), OnDataLoss::Latest).unwrap(), None);
        assert_eq!(split.lost(), 0);
    }
}
