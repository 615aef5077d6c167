//! Bytes of files, by range, checked to be of the file that was listed.

use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use flate2::read::MultiGzDecoder;
use object_store::{GetOptions, GetRange, ObjectStore};
use tokio::runtime::Handle;

#[cfg(feature = "csv")]
use super::charset::CharsetRead;
use super::discover::Location;
use super::plan::{Coding, Compression};
use crate::checkpoint::{Identity, SplitId};
use crate::error::{Error, Result};

/// One listed file, as what reads it sees it.
#[derive(Debug, Clone)]
pub(crate) struct ListedFile {
    pub(crate) id: SplitId,
    /// The path or URL, as the user would write it.
    pub(crate) url: Arc<str>,
    /// What it was when it was listed.
    pub(crate) identity: Identity,
    path: object_store::path::Path,
    location: Location,
}

impl ListedFile {
    pub(crate) fn try_new(location: &Location, id: &SplitId, identity: &Identity) -> Result<Self> {
        Ok(Self {
            id: id.clone(),
            url: location.display(id).into(),
            identity: identity.clone(),
            path: location.path(id)?,
            location: location.clone(),
        })
    }

    /// Its length in bytes, as stored.
    pub(crate) fn size(&self) -> u64 {
        self.identity.size.unwrap_or(0)
    }

    /// Reads a range. The file must still be what was listed: that is looked at with every read.
    ///
    /// # Errors
    /// [`Error::Changed`] if it isn't, [`Error::NotFound`] if it is gone, else [`Error::Store`].
    pub(crate) async fn read(&self, range: Range<u64>) -> Result<Bytes> {
        let wanted = range.end - range.start;
        if wanted == 0 {
            return Ok(Bytes::new());
        }
        let options = GetOptions {
            range: Some(GetRange::Bounded(range)),
            if_match: self.identity.etag.as_deref().map(ToOwned::to_owned),
            ..GetOptions::default()
        };
        let got = match self.location.store.get_opts(&self.path, options).await {
            Ok(got) => got,
            Err(source) => return Err(self.error(source).await),
        };
        if let Some(difference) = self.identity.difference(&self.location.identity(&got.meta)) {
            return Err(self.changed(difference));
        }
        let bytes = match got.bytes().await {
            Ok(bytes) => bytes,
            Err(source) => return Err(self.error(source).await),
        };
        if bytes.len() as u64 != wanted {
            return Err(self.changed(format!("{} bytes came where {wanted} were asked for", bytes.len())));
        }
        Ok(bytes)
    }

    async fn error(&self, source: object_store::Error) -> Error {
        match source {
            object_store::Error::NotFound { .. } => {
                Error::NotFound { what: format!("{}: the file was listed and is gone", self.url) }
            }
            object_store::Error::Precondition { .. } => self.changed("its etag is another".into()),
            // A file that was cut short says that there is no such range; why is what helps.
            source => {
                let now = self.location.head(&self.id).await.ok();
                match now.and_then(|meta| self.identity.difference(&self.location.identity(&meta))) {
                    Some(difference) => self.changed(difference),
                    None => Error::Store { url: self.url.to_string(), action: "read", source },
                }
            }
        }
    }

    fn changed(&self, difference: String) -> Error {
        Error::Changed { path: self.url.to_string(), difference }
    }
}

/// Bytes that are read at once by those who read a file from the start, one range after the other.
const SEQUENTIAL_BYTES: u64 = 1 << 20;

/// Reads a file from its start, for those who may block: never on a thread of the runtime.
pub(crate) struct SequentialRead {
    file: ListedFile,
    runtime: Handle,
    next: u64,
    buffer: Bytes,
}

impl SequentialRead {
    pub(crate) fn new(file: ListedFile, runtime: Handle) -> Self {
        Self { file, runtime, next: 0, buffer: Bytes::new() }
    }
}

impl Read for SequentialRead {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.buffer.is_empty() {
            let end = self.file.size().min(self.next + SEQUENTIAL_BYTES);
            self.buffer = self.runtime.block_on(self.file.read(self.next..end)).map_err(io::Error::other)?;
            self.next = end;
        }
        let len = out.len().min(self.buffer.len());
        self.buffer.copy_to_slice(&mut out[..len]);
        Ok(len)
    }
}

/// The largest window of zstd files, as a power of two: 8 MiB, as much as every level makes by itself.
const MAX_WINDOW_LOG: u32 = 23;

/// Reads the text of a file, whose stored bytes are read from their beginning: decompresses, and decodes its charset.
pub(crate) fn text_of<'a>(
    coding: Coding,
    url: &Arc<str>,
    stored: impl Read + Send + 'a,
) -> io::Result<Box<dyn Read + Send + 'a>> {
    let decompressed = decompressed(coding.compression, stored)?;
    #[cfg(feature = "csv")]
    if let Some(charset) = coding.charset {
        return Ok(Box::new(CharsetRead::new(Arc::clone(url), charset, decompressed)));
    }
    let _ = url;
    Ok(decompressed)
}

fn decompressed<'a>(compression: Compression, stored: impl Read + Send + 'a) -> io::Result<Box<dyn Read + Send + 'a>> {
    Ok(match compression {
        Compression::None => Box::new(stored),
        Compression::Gzip => Box::new(MultiGzDecoder::new(stored)),
        Compression::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::new(stored)?;
            // A window is memory that a file claims. More than this is only made on request (`zstd --long`).
            decoder.window_log_max(MAX_WINDOW_LOG)?;
            Box::new(decoder)
        }
    })
}

/// Tells an error of reading: one of ours that came through a reader, or one of the compression.
pub(crate) fn read_error(url: &str, compression: Compression, error: io::Error) -> Error {
    let reason = match error.kind() {
        io::ErrorKind::UnexpectedEof => format!("the {compression} data is truncated"),
        _ if error.to_string().contains("too much memory") => {
            "it was compressed with a window of more than 8 MiB (zstd --long), which is not read".to_owned()
        }
        _ => format!("the {compression} data can't be read"),
    };
    match error.downcast::<Error>() {
        Ok(ours) => ours,
        Err(error) => Error::BadFile { path: url.to_owned(), reason, source: Some(error.into()) },
    }
}

/// Reads into `buffer` until it is full or the data ends; returns how much came.
pub(crate) fn fill(reader: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    match fill_up_to_fault(reader, buffer) {
        (filled, None) => Ok(filled),
        (_, Some(fault)) => Err(fault),
    }
}

/// Reads into `buffer` until it is full or the data ends; returns how much came, and what ended it too early.
pub(crate) fn fill_up_to_fault(reader: &mut dyn Read, buffer: &mut [u8]) -> (usize, Option<io::Error>) {
    let mut filled = 0;
    while filled < buffer.len() {
        match reader.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(len) => filled += len,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return (filled, Some(e)),
        }
    }
    (filled, None)
}

/// The line, from 1, in which the byte at `position` of the file's text lies.
pub(crate) async fn line_of(file: ListedFile, coding: Coding, position: u64) -> Result<u64> {
    let runtime = Handle::current();
    let count = move || -> Result<u64> {
        let url = Arc::clone(&file.url);
        let failed = |e| read_error(&url, coding.compression, e);
        let mut reader = text_of(coding, &url, SequentialRead::new(file, runtime)).map_err(failed)?;
        let mut buffer = vec![0; 64 << 10];
        let (mut left, mut line) = (position, 1);
        while left > 0 {
            let wanted = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let len = fill(&mut reader, &mut buffer[..wanted]).map_err(failed)?;
            if len == 0 {
                break;
            }
            line += memchr::memchr_iter(b'\n', &buffer[..len]).count() as u64;
            left -= len as u64;
        }
        Ok(line)
    };
    match tokio::task::spawn_blocking(count).await {
        Ok(line) => line,
        Err(e) => Err(Error::Worker { message: e.to_string() }),
    }
}
