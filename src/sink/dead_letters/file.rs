//! A file of dead letters, one a line, that grows.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use arrow::array::{AsArray, RecordBatch};
use serde_json::Value;

use crate::checkpoint::sync_dir;
use crate::error::{Error, Result};
use crate::sink::thread::Output;

/// Bytes that are collected before they are written.
const BUFFER_BYTES: usize = 64 << 10;

/// What the thread works on.
#[derive(Debug)]
pub(super) struct LetterFile {
    path: PathBuf,
    file: Option<File>,
    buffer: Vec<u8>,
    /// Whether its name is on the disk for certain.
    is_named: bool,
}

impl LetterFile {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), file: None, buffer: Vec::new(), is_named: false }
    }

    fn failed(&self, source: std::io::Error) -> Error {
        Error::Output { target: self.path.display().to_string(), source: Box::new(source) }
    }

    fn flush(&mut self) -> Result<()> {
        if let (Some(file), false) = (&mut self.file, self.buffer.is_empty()) {
            let written = file.write_all(&self.buffer);
            self.buffer.clear();
            written.map_err(|e| self.failed(e))?;
        }
        Ok(())
    }
}

impl Output for LetterFile {
    fn recover(&mut self) -> Result<()> {
        let failed = |e| Error::io(self.path.display(), "cannot open", e);
        let refused = || Error::NotDeadLetters { path: self.path.display().to_string() };
        if self.path.is_dir() {
            return Err(refused());
        }
        let mut options = OpenOptions::new();
        let mut file = options.read(true).append(true).create(true).open(&self.path).map_err(failed)?;
        // A run that was killed can have left a piece of a letter, which comes again.
        let whole = whole_letters(&mut file).map_err(failed)?.ok_or_else(refused)?;
        file.set_len(whole).map_err(failed)?;
        self.file = Some(file);
        Ok(())
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        for letter in batch.column(0).as_string::<i32>().iter().flatten() {
            self.buffer.extend_from_slice(letter.as_bytes());
            self.buffer.push(b'\n');
            if self.buffer.len() >= BUFFER_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        self.flush()?;
        if let Some(file) = &self.file {
            file.sync_data().map_err(|e| self.failed(e))?;
            if !self.is_named {
                match self.path.parent() {
                    Some(folder) if !folder.as_os_str().is_empty() => sync_dir(folder)?,
                    _ => sync_dir(Path::new("."))?,
                }
                self.is_named = true;
            }
        }
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        self.commit()
    }
}

/// The length of the whole letters in a file; `None` if it holds something else.
fn whole_letters(file: &mut File) -> std::io::Result<Option<u64>> {
    let len = file.metadata()?.len();
    let mut first = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    Read::by_ref(file).take(len.min(4 << 20)).read_to_end(&mut first)?;
    if let Some(end) = memchr::memchr(b'\n', &first)
        && !is_letter(&first[..end])
    {
        return Ok(None);
    }
    // The last line end, looked for from behind.
    let (mut end, mut piece) = (len, vec![0; 64 << 10]);
    while end > 0 {
        let start = end.saturating_sub(piece.len() as u64);
        let bytes = &mut piece[..(end - start) as usize];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(bytes)?;
        if let Some(at) = memchr::memrchr(b'\n', bytes) {
            return Ok(Some(start + at as u64 + 1));
        }
        end = start;
    }
    // Without any line end it is the beginning of a letter, or nothing of ours.
    Ok((first.is_empty() || b"{\"source\":".starts_with(&first[..first.len().min(10)])).then_some(0))
}

fn is_letter(line: &[u8]) -> bool {
    let Ok(Value::Object(letter)) = serde_json::from_slice(line) else { return false };
    ["source", "split", "position", "reason"].iter().all(|key| letter.contains_key(*key))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, StringArray};

    use super::*;

    const LETTER: &str = r#"{"source":"0","phase":"bounded","split":"a.csv","position":9,"reason":"type"}"#;

    fn write(path: &Path) -> Result<()> {
        let letters: ArrayRef = Arc::new(StringArray::from(vec![LETTER]));
        let mut file = LetterFile::new(path);
        file.recover()?;
        file.write(&RecordBatch::try_from_iter([("letter", letters)]).unwrap())?;
        file.commit()
    }

    #[test]
    fn letters_are_appended_and_a_piece_of_one_is_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("dead.ndjson");
        write(&path).unwrap();
        for piece in ["", "{", "{\"source\":\"0\",\"pha"] {
            let before = std::fs::read_to_string(&path).unwrap();
            std::fs::write(&path, format!("{before}{piece}")).unwrap();
            write(&path).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{before}{LETTER}\n"));
        }
        std::fs::write(&path, "{\"sour").unwrap();
        write(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{LETTER}\n"));
    }

    #[test]
    fn what_is_none_of_ours_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data.csv");
        for content in ["id,v\n1,2\n", "{\"id\":1}\n", "x"] {
            std::fs::write(&path, content).unwrap();
            let error = write(&path).unwrap_err().to_string();
            assert!(error.ends_with("it holds something else than dead letters"), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
        }
        assert!(write(dir.path()).is_err());
        assert!(write(&dir.path().join("no/dead.ndjson")).is_err());
    }
}
