//! Where a topic is: `kafka://HOST[:PORT][,HOST…][/TOPIC[,TOPIC…]]`.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use percent_encoding::percent_decode_str;

use crate::error::{Error, Result};

const SCHEME: &str = "kafka://";

/// The port of a broker that is named without one.
const DEFAULT_PORT: u16 = 9092;

/// Brokers to ask first, and topics of their cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaAddress {
    /// `HOST:PORT` of each broker named.
    pub brokers: Vec<String>,
    /// The topics, none twice; none at all where an option says what is read.
    pub topics: Vec<String>,
}

impl KafkaAddress {
    /// Says whether a topic of this address is one of `source`'s, on the same cluster as far as addresses tell.
    pub fn is_read_by(&self, source: &Self) -> bool {
        self.topics.iter().any(|topic| source.topics.contains(topic)) && self.is_on_cluster_of(source)
    }

    /// Says whether both name the same cluster, as far as addresses tell.
    pub fn is_on_cluster_of(&self, other: &Self) -> bool {
        let is_known = |broker| self.brokers.contains(broker);
        other.brokers.iter().any(is_known) || {
            // One host may have several names. What can't be looked up now will be told when it is connected to.
            let hosts = |brokers: &[String]| -> BTreeSet<SocketAddr> {
                brokers.iter().filter_map(|broker| broker.to_socket_addrs().ok()).flatten().collect()
            };
            !hosts(&other.brokers).is_disjoint(&hosts(&self.brokers))
        }
    }

    /// The brokers as librdkafka takes them: `a:9092,b:9092`.
    pub fn bootstrap_servers(&self) -> String {
        self.brokers.join(",")
    }
}

impl fmt::Display for KafkaAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.bootstrap_servers())?;
        if self.topics.is_empty() { Ok(()) } else { write!(f, "/{}", self.topics.join(",")) }
    }
}

impl FromStr for KafkaAddress {
    type Err = Error;

    /// Reads an address; topics are percent-decoded.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for a user, a query, a broker that is none, or a name that no topic can have.
    fn from_str(text: &str) -> Result<Self> {
        let wrong = |reason: String| Error::option(without_user(text), reason);
        let rest = text
            .strip_prefix(SCHEME)
            .ok_or_else(|| wrong("it is not kafka://HOST[:9092][,HOST…]/TOPIC[,TOPIC…]".into()))?;
        if rest.contains(['?', '#']) {
            return Err(wrong("it has no query string; settings of the client are -o properties.KEY=VALUE".into()));
        }
        let (brokers, topics) = rest.split_once('/').unwrap_or((rest, ""));
        if brokers.contains('@') {
            return Err(wrong(
                "it has no user; -o properties.sasl.username and -o properties.sasl.password say who asks".into(),
            ));
        }
        let brokers = brokers.split(',').map(|broker| with_port(broker).map_err(wrong)).collect::<Result<Vec<_>>>()?;
        let mut names: Vec<String> = Vec::new();
        // None is named at all, or each is.
        for topic in topics.split(',').filter(|_| !topics.is_empty()) {
            let name = percent_decode_str(topic).decode_utf8_lossy().into_owned();
            check_topic(&name).map_err(wrong)?;
            if names.contains(&name) {
                return Err(wrong(format!("topic {name} stands there twice")));
            }
            names.push(name);
        }
        Ok(Self { brokers, topics: names })
    }
}

/// The address as it may be shown: a password that was put in it isn't.
fn without_user(text: &str) -> String {
    match text.rsplit_once('@') {
        Some((_, rest)) => format!("{SCHEME}***@{rest}"),
        None => text.to_owned(),
    }
}

/// A broker with its port; IPv6 addresses stand in brackets.
fn with_port(broker: &str) -> Result<String, String> {
    let (host, port) = match broker.rsplit_once(':') {
        Some((host, port)) if !broker.ends_with(']') => (host, Some(port)),
        _ => (broker, None),
    };
    let is_host = if let Some(inside) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        inside.parse::<std::net::Ipv6Addr>().is_ok()
    } else {
        !host.is_empty() && !host.contains([':', '[', ']', ' '])
    };
    let port = match port {
        None => Some(DEFAULT_PORT),
        Some(port) => port.parse::<u16>().ok().filter(|port| *port > 0),
    };
    match (is_host, port) {
        (true, Some(port)) => Ok(format!("{host}:{port}")),
        _ => Err(format!("'{broker}' is not HOST or HOST:PORT")),
    }
}

/// What Kafka allows as a name: letters, digits, `.`, `_` and `-`, at most 249 of them.
pub(crate) fn check_topic(name: &str) -> Result<(), String> {
    const MAX_CHARS: usize = 249;
    let legal = |c: char| c.is_ascii_alphanumeric() || ['.', '_', '-'].contains(&c);
    if name.is_empty() || name.len() > MAX_CHARS || name == "." || name == ".." || !name.chars().all(legal) {
        return Err(format!(
            "'{name}' can't be a topic: letters, digits, '.', '_' and '-' make one, {MAX_CHARS} at most"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_have_ports_and_topics_are_decoded() {
        let address: KafkaAddress = "kafka://a,b:19092,[::1]:9093/bids,old%2Ebids".parse().unwrap();
        assert_eq!(address.brokers, ["a:9092", "b:19092", "[::1]:9093"]);
        assert_eq!(address.topics, ["bids", "old.bids"]);
        assert_eq!(address.to_string(), "kafka://a:9092,b:19092,[::1]:9093/bids,old.bids");
        assert_eq!("kafka://[::1]/t".parse::<KafkaAddress>().unwrap().brokers, ["[::1]:9092"]);
    }

    #[test]
    fn an_address_may_name_no_topic() {
        for text in ["kafka://h", "kafka://h/"] {
            let address: KafkaAddress = text.parse().unwrap();
            assert!(address.topics.is_empty() && address.to_string() == "kafka://h:9092", "{address}");
        }
    }

    #[test]
    fn a_password_in_an_address_is_not_shown() {
        let error = "kafka://me:geheim@h/t".parse::<KafkaAddress>().unwrap_err().to_string();
        assert!(error.contains("'kafka://***@h/t'") && !error.contains("geheim"), "{error}");
    }

    #[test]
    fn what_is_no_address_says_why() {
        for (text, why) in [
            ("kafka:h/t", "it is not kafka://"),
            ("kafka://h/,a", "'' can't be a topic"),
            ("kafka://u:p@h/t", "it has no user"),
            ("kafka://h/t?group.id=x", "it has no query string"),
            ("kafka:///t", "'' is not HOST or HOST:PORT"),
            ("kafka://h:0/t", "'h:0' is not"),
            ("kafka://h:x/t", "'h:x' is not"),
            ("kafka://::1/t", "'::1' is not"),
            ("kafka://h,/t", "'' is not"),
            ("kafka://h/t,t", "topic t stands there twice"),
            ("kafka://h/a b", "'a b' can't be a topic"),
            ("kafka://h/a/b", "'a/b' can't be a topic"),
            ("kafka://h/..", "'..' can't be a topic"),
        ] {
            let error = text.parse::<KafkaAddress>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
