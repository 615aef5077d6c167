//! One connection: a request's head, one answer, and the end. The head is parsed by `httparse`; there is no body that
//! anybody would want, and every answer closes the connection.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::text::{CONTENT_TYPE, Metrics};

/// How long a connection may take from its first byte to its last; Prometheus gives up after 10 s.
const CONNECTION_TIME: Duration = Duration::from_secs(10);

/// A request's head, at most: scrapers send a few hundred bytes.
const MAX_HEAD_BYTES: usize = 8 << 10;

/// Headers of a request, at most.
const MAX_HEADERS: usize = 64;

/// What is read, and thrown away, behind a request's head, at most.
const MAX_REST_BYTES: usize = 1 << 20;

/// Answers one request; what goes wrong is the other side's to notice.
pub(super) async fn answer(mut stream: TcpStream, metrics: Arc<Metrics>) {
    let outcome = timeout(CONNECTION_TIME, async {
        let Some(request) = read_request(&mut stream).await? else { return Ok(()) };
        stream.write_all(response(&request, &metrics).as_bytes()).await?;
        stream.shutdown().await?;
        read_rest(&mut stream).await
    });
    match outcome.await {
        Ok(Ok(())) => {}
        Ok(Err(e)) => tracing::debug!("a connection for metrics broke: {e}"),
        Err(_) => tracing::debug!("a connection for metrics took too long"),
    }
}

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    Of { method: String, path: String },
    TooLarge,
    Broken,
}

/// Reads a request's head; `None` if the other side goes before it has sent one.
async fn read_request(stream: &mut TcpStream) -> io::Result<Option<Request>> {
    let mut head = [0; MAX_HEAD_BYTES];
    let mut len = 0;
    while len < head.len() {
        let newly = stream.read(&mut head[len..]).await?;
        if newly == 0 {
            return Ok(None);
        }
        len += newly;
        if let Some(request) = parse(&head[..len]) {
            return Ok(Some(request));
        }
    }
    Ok(Some(Request::TooLarge))
}

/// Parses a head; `None` as long as it isn't whole.
fn parse(head: &[u8]) -> Option<Request> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Partial) => None,
        Ok(httparse::Status::Complete(_)) => {
            // Whoever asks through a proxy names the host as well (RFC 9112, 3.2.2).
            let target = request.path.unwrap_or_default();
            let path = match target.split_once("://") {
                Some((_, rest)) => rest.find('/').map_or("/", |start| &rest[start..]),
                None => target,
            };
            let path = path.split_once('?').map_or(path, |(path, _)| path);
            Some(Request::Of { method: request.method.unwrap_or_default().to_owned(), path: path.to_owned() })
        }
        Err(httparse::Error::TooManyHeaders) => Some(Request::TooLarge),
        Err(_) => Some(Request::Broken),
    }
}

fn response(request: &Request, metrics: &Metrics) -> String {
    let (status, header, body) = match request {
        Request::Of { path, .. } if path != "/metrics" => ("404 Not Found", String::new(), String::new()),
        Request::Of { method, .. } if method != "GET" => {
            ("405 Method Not Allowed", "Allow: GET\r\n".to_owned(), String::new())
        }
        Request::Of { .. } => match metrics.text() {
            Ok(text) => ("200 OK", format!("Content-Type: {CONTENT_TYPE}\r\n"), text),
            Err(_) => ("500 Internal Server Error", String::new(), String::new()),
        },
        Request::TooLarge => ("431 Request Header Fields Too Large", String::new(), String::new()),
        Request::Broken => ("400 Bad Request", String::new(), String::new()),
    };
    format!("HTTP/1.1 {status}\r\n{header}Content-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}

/// Waits until the other side closes. Closing on what it still sends would take the answer away from it.
async fn read_rest(stream: &mut TcpStream) -> io::Result<()> {
    let mut rest = [0; 4 << 10];
    let mut len = 0;
    while len < MAX_REST_BYTES {
        match stream.read(&mut rest).await? {
            0 => break,
            newly => len += newly,
        }
    }
    Ok(())
}
