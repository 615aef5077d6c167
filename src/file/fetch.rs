//! Bytes of files, by range, checked to be of the file that was listed.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use flate2::read::MultiGzDecoder;
use object_store::{GetOptions, GetRange, GetResult, GetResultPayload, ObjectStore};
use tokio::runtime::Handle;

#[cfg(feature = "csv")]
use super::charset::CharsetRead;
use super::discover::Location;
use super::piece::{Buffer, Buffers, Piece};
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
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let got = self.get(range.clone()).await?;
        self.bytes(got, range).await
    }

    /// As [`Self::read`]. A local file is read into one of `buffers`.
    pub(crate) async fn read_piece(&self, range: Range<u64>, buffers: &Arc<Buffers>) -> Result<Piece> {
        if range.is_empty() {
            return Ok(Piece::Shared(Bytes::new()));
        }
        let got = self.get(range.clone()).await?;
        self.piece(got, range, buffers).await
    }

    /// Asks for a range, which isn't empty, and looks whether the file still is what was listed.
    async fn get(&self, range: Range<u64>) -> Result<GetResult> {
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
        Ok(got)
    }

    /// All the bytes of a range that was asked for.
    async fn bytes(&self, got: GetResult, range: Range<u64>) -> Result<Bytes> {
        let wanted = range.end - range.start;
        let bytes = match got.bytes().await {
            Ok(bytes) => bytes,
            Err(source) => return Err(self.error(source).await),
        };
        if bytes.len() as u64 != wanted {
            return Err(self.changed(format!("{} bytes came where {wanted} were asked for", bytes.len())));
        }
        Ok(bytes)
    }

    /// The same, read into a buffer if the store leaves the reading to us.
    async fn piece(&self, mut got: GetResult, range: Range<u64>, buffers: &Arc<Buffers>) -> Result<Piece> {
        if let GetResultPayload::File(file, path) = got.payload {
            let buffer = buffers.take((range.end - range.start) as usize);
            let (file, filled) = filled(file, range.start, buffer).await?;
            if let Some(buffer) = filled {
                return Ok(Piece::Buffered(buffer));
            }
            // What is wrong with the file is the store's to say.
            got.payload = GetResultPayload::File(file, path);
        }
        self.bytes(got, range).await.map(Piece::Shared)
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

/// Fills a buffer with the bytes of a local file from `start` on; `None` if they can't all be had.
async fn filled(mut file: File, start: u64, mut buffer: Buffer) -> Result<(File, Option<Buffer>)> {
    let fill = move || {
        let read = file.seek(SeekFrom::Start(start)).and_then(|_| file.read_exact(buffer.as_mut_slice()));
        (file, read.is_ok().then_some(buffer))
    };
    tokio::task::spawn_blocking(fill).await.map_err(|e| Error::Worker { message: e.to_string() })
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

#[cfg(test)]
mod tests {
    use std::fs;

    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;

    use super::*;

    const TEXT: &[u8] = b"0123456789abcdef";

    async fn listed(location: &Location) -> ListedFile {
        let meta = location.list().await.unwrap().remove(0);
        ListedFile::try_new(location, &meta.id, &meta.identity).unwrap()
    }

    async fn local(folder: &tempfile::TempDir) -> (ListedFile, std::path::PathBuf) {
        let path = folder.path().join("a.csv");
        fs::write(&path, TEXT).unwrap();
        (listed(&Location::parse(path.to_str().unwrap()).unwrap()).await, path)
    }

    #[tokio::test]
    async fn a_piece_of_a_local_file_comes_in_a_buffer_and_one_of_a_store_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let (file, _) = local(&folder).await;
        let buffers = Arc::default();
        let piece = file.read_piece(3..7, &buffers).await.unwrap();
        assert!(matches!(piece, Piece::Buffered(_)));
        assert_eq!(piece.into_bytes(), file.read(3..7).await.unwrap());

        let store = InMemory::new();
        store.put(&"a.csv".into(), TEXT.into()).await.unwrap();
        let file = listed(&Location::in_store(Arc::new(store), "a.csv").unwrap()).await;
        let piece = file.read_piece(3..7, &buffers).await.unwrap();
        assert!(matches!(piece, Piece::Shared(_)));
        assert_eq!(piece.into_bytes(), TEXT[3..7]);
    }

    #[tokio::test]
    async fn a_file_that_is_cut_short_between_look_and_read_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let buffers = Arc::default();
        for left in [5, 2, 0] {
            let (file, path) = local(&folder).await;
            let got = file.get(3..7).await.unwrap();
            fs::File::options().write(true).open(&path).unwrap().set_len(left).unwrap();
            let error = file.piece(got, 3..7, &buffers).await.unwrap_err();
            assert!(matches!(&error, Error::Changed { .. }), "{error}");
            assert!(error.to_string().ends_with(&format!("size was 16 bytes, now {left} bytes")), "{error}");
        }
    }

    #[tokio::test]
    async fn a_read_that_fails_names_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let (file, path) = local(&folder).await;
        let mut got = file.get(3..7).await.unwrap();
        // It can be opened, but not read.
        got.payload = GetResultPayload::File(File::open(folder.path()).unwrap(), path);
        let error = file.piece(got, 3..7, &Arc::default()).await.unwrap_err();
        assert!(matches!(&error, Error::Store { url, .. } if *url == *file.url), "{error}");
    }
}
