//! `--metrics-addr`: a job's counters for Prometheus, as long as the job runs.
//!
//! One task listens, and each connection has one answer of its own. Whoever connects and says nothing, or reads
//! nothing, takes a place for a while; there are few places, and when all are taken the oldest is given up. So nobody
//! can fill the memory or keep others out, and the end of the job waits for nobody.

mod connection;
mod text;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use segue::error::Error;
use segue::progress::Progress;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use self::connection::answer;
use self::text::Metrics;

/// Connections at a time: scrapers are one or two, and come every few seconds.
const MAX_CONNECTIONS: usize = 16;

/// How long to wait when the system has no more connections to give: trying on at once would only burn CPU.
const PAUSE: Duration = Duration::from_millis(100);

/// Where to listen, as it was given: `127.0.0.1:9090`, `[::]:9090`, `localhost:0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MetricsAddr {
    host: String,
    port: u16,
}

impl FromStr for MetricsAddr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is not HOST:PORT, such as 127.0.0.1:9090 or [::1]:9090");
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_host =
            |host: &str| !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || "[]/@".contains(c));
        if !is_host(bare.unwrap_or(host)) || (bare.is_none() && host.contains(':')) {
            return Err(wrong());
        }
        let port = port.parse().map_err(|_| wrong())?;
        Ok(Self { host: bare.unwrap_or(host).to_owned(), port })
    }
}

/// A bound address that isn't served yet.
#[derive(Debug)]
pub(crate) struct MetricsServer {
    listener: TcpListener,
    address: SocketAddr,
}

/// Serves as long as it lives.
#[derive(Debug)]
pub(crate) struct Serving(JoinHandle<()>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl MetricsServer {
    /// Takes the address, so that whatever is wrong with it is told before the job begins.
    pub(crate) async fn bind(addr: &MetricsAddr) -> Result<Self, Error> {
        let bind = async {
            let listener = TcpListener::bind((addr.host.as_str(), addr.port)).await?;
            let address = listener.local_addr()?;
            io::Result::Ok(Self { listener, address })
        };
        let MetricsAddr { host, port } = addr;
        let path = || format!("--metrics-addr {host}:{port}");
        bind.await.map_err(|source| Error::Io { path: path(), action: "cannot listen", source })
    }

    /// Where it really listens.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/metrics", self.address)
    }

    /// Begins to answer with what `progress` says then.
    pub(crate) fn serve(self, progress: Arc<Progress>) -> Serving {
        let metrics = Arc::new(Metrics::new(progress));
        Serving(tokio::spawn(async move {
            let mut connections: VecDeque<Serving> = VecDeque::new();
            loop {
                match self.listener.accept().await {
                    Ok((stream, _)) => {
                        connections.retain(|connection| !connection.0.is_finished());
                        if connections.len() >= MAX_CONNECTIONS {
                            connections.pop_front();
                        }
                        connections.push_back(Serving(tokio::spawn(answer(stream, Arc::clone(&metrics)))));
                    }
                    Err(e) => {
                        tracing::debug!("a connection for metrics can't be taken: {e}");
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    /// Nothing here takes longer, unless it hangs.
    const PATIENCE: Duration = Duration::from_secs(30);

    async fn server() -> (SocketAddr, Serving) {
        let server = MetricsServer::bind(&"127.0.0.1:0".parse().unwrap()).await.unwrap();
        (server.address, server.serve(Arc::new(Progress::new(["0"]))))
    }

    async fn asked(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request).await.unwrap();
        let mut answer = String::new();
        tokio::time::timeout(PATIENCE, stream.read_to_string(&mut answer)).await.expect("it answers").unwrap();
        answer
    }

    #[test]
    fn an_address_is_a_host_and_a_port() {
        let addr = |host: &str, port| Ok(MetricsAddr { host: host.into(), port });
        assert_eq!("127.0.0.1:9090".parse(), addr("127.0.0.1", 9090));
        assert_eq!("localhost:0".parse(), addr("localhost", 0));
        assert_eq!("[::1]:9090".parse(), addr("::1", 9090));
        for wrong in
            ["", "9090", ":9090", "localhost", "localhost:", "h:65536", "::1:9090", "[]:1", "http://h:1", "h:-1"]
        {
            assert!(wrong.parse::<MetricsAddr>().is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn metrics_are_got_and_nothing_else() {
        let (address, _serving) = server().await;
        let answer = asked(address, b"GET /metrics?x=1 HTTP/1.1\r\nHost: h\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{answer}");
        assert!(answer.contains("\nsegue_rows_total{source=\"0\"} 0\n"), "{answer}");
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        assert!(answer.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{answer}");
        for (request, status) in [
            ("GET / HTTP/1.1\r\n\r\n", "404 Not Found"),
            ("GET /metrics/x HTTP/1.1\r\n\r\n", "404 Not Found"),
            ("POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "405 Method Not Allowed"),
            ("HEAD /metrics HTTP/1.0\r\n\r\n", "405 Method Not Allowed"),
            ("\x16\x03\x01 hello\r\n\r\n", "400 Bad Request"),
        ] {
            let answer = asked(address, request.as_bytes()).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{request}: {answer}");
            assert!(answer.ends_with("\r\n\r\n"), "{answer}");
        }
        let long = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(100_000));
        let answer = asked(address, long.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    }

    #[tokio::test]
    async fn who_says_nothing_keeps_nobody_out_and_the_oldest_is_given_up() {
        let (address, serving) = server().await;
        let mut silent = Vec::new();
        for _ in 0..3 * MAX_CONNECTIONS {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(b"GET /met").await.unwrap();
            silent.push(stream);
            let answer = asked(address, b"GET /metrics HTTP/1.1\r\n\r\n").await;
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        }
        let mut rest = Vec::new();
        let first = tokio::time::timeout(PATIENCE, silent[0].read_to_end(&mut rest)).await.expect("it is given up");
        assert!(first.is_err() || rest.is_empty(), "{rest:?}");
        drop(serving);
        let last = silent.last_mut().unwrap();
        let last = tokio::time::timeout(PATIENCE, last.read_to_end(&mut rest)).await.expect("the end takes all along");
        assert!(last.is_err() || rest.is_empty(), "{rest:?}");
    }

    #[tokio::test]
    async fn an_address_that_is_taken_is_an_error_that_names_it() {
        let (address, _serving) = server().await;
        let error = MetricsServer::bind(&address.to_string().parse().unwrap()).await.unwrap_err();
        assert!(error.to_string().starts_with(&format!("--metrics-addr {address}: cannot listen: ")), "{error}");
    }
}
