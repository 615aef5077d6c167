//! Which topics a source reads: those that are named, or all that a pattern takes.

use std::fmt;

use regex::Regex;

use super::address::check_topic;
use crate::error::{Error, Result};

/// Topics that belong to the cluster itself, which no pattern takes: as Kafka's own consumers see it.
const INTERNAL: [&str; 4] = ["__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"];

/// Which topics a source reads.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Topics {
    /// These, in this order.
    Named(Vec<String>),
    /// All whose whole name the pattern takes, also those that are made later.
    Pattern(TopicPattern),
}

/// A regular expression that takes whole names of topics; those of the cluster itself are never taken.
#[derive(Clone, Debug)]
pub struct TopicPattern {
    text: String,
    regex: Regex,
}

impl TopicPattern {
    /// Reads a regular expression, in the syntax of the crate `regex`.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] of `topic-pattern`, if it is none.
    pub fn try_new(text: &str) -> Result<Self> {
        let wrong = |reason: String| Error::option("topic-pattern", reason);
        if text.is_empty() {
            return Err(wrong("it is empty".into()));
        }
        // By itself first: what closes a group too many must not close ours.
        Regex::new(text).map_err(|e| wrong(told(&e)))?;
        // A comment of `(?x)` at its end would take our end with it, unless a line ends it.
        let whole = Regex::new(&format!("^(?:{text})$")).or_else(|_| Regex::new(&format!("^(?:{text}\n)$")));
        let regex = whole.map_err(|e| wrong(told(&e)))?;
        Ok(Self { text: text.to_owned(), regex })
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Says whether it takes a topic of this name.
    pub fn takes(&self, topic: &str) -> bool {
        !INTERNAL.contains(&topic) && self.regex.is_match(topic)
    }
}

/// The last line of what the library says, which is the reason; those before draw where.
fn told(error: &regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    format!("it is no regular expression: {}", last.strip_prefix("error: ").unwrap_or(last))
}

impl PartialEq for TopicPattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for TopicPattern {}

impl Topics {
    /// Reads names as the option `topic` has them, `;` between several.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] of `topic` for a name that no topic can have, or that stands there twice.
    pub fn parse_names(text: &str) -> Result<Vec<String>> {
        let wrong = |reason| Error::option("topic", reason);
        let mut names: Vec<String> = Vec::new();
        for name in text.split(';').map(str::trim) {
            check_topic(name).map_err(wrong)?;
            if names.iter().any(|known| known == name) {
                return Err(wrong(format!("topic {name} stands there twice")));
            }
            names.push(name.to_owned());
        }
        Ok(names)
    }

    /// Says whether a topic of this name is read.
    pub fn takes(&self, topic: &str) -> bool {
        match self {
            Self::Named(names) => names.iter().any(|name| name == topic),
            Self::Pattern(pattern) => pattern.takes(topic),
        }
    }
}

/// `bids, asks`, or `topics that match bids-.*`.
impl fmt::Display for Topics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(names) => f.write_str(&names.join(", ")),
            Self::Pattern(pattern) => write!(f, "topics that match {}", pattern.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_takes_whole_names_and_none_of_the_clusters_own() {
        let pattern = TopicPattern::try_new("bids|asks-[0-9]+").unwrap();
        let taken: Vec<_> =
            ["bids", "asks-7", "bids-7", "my-bids", "asks-"].into_iter().filter(|name| pattern.takes(name)).collect();
        assert_eq!(taken, ["bids", "asks-7"]);
        assert!(TopicPattern::try_new("(?x) bi ds # whole").unwrap().takes("bids"));
        let every = TopicPattern::try_new(".*").unwrap();
        assert!(every.takes("__mine") && !every.takes("__consumer_offsets"));
    }

    #[test]
    fn what_is_no_pattern_says_why() {
        for (text, why) in
            [("", "it is empty"), ("a(", "unclosed group"), ("a)(b", "unopened group"), ("*", "repetition")]
        {
            let error = TopicPattern::try_new(text).unwrap_err().to_string();
            assert!(error.starts_with("option 'topic-pattern': ") && error.contains(why), "{error}");
        }
    }

    #[test]
    fn names_stand_between_semicolons() {
        assert_eq!(Topics::parse_names("bids; asks").unwrap(), ["bids", "asks"]);
        for wrong in ["", "bids;", "bids;bids", "a b"] {
            Topics::parse_names(wrong).unwrap_err();
        }
    }
}
