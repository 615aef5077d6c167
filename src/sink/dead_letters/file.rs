//! A file of dead letters, one a line, that grows.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use arrow::array::{AsArray, RecordBatch};
use serde_json::Value;

use crate::checkpoint::sync_dir;
use crate::error::{Error, Result};
use crate::sink::thread::Output;

/// Longer lines aren't looked at as letters.
const MAX_LETTER_BYTES: u64 = 256 << 20;

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
        let refused = |reason| Error::DeadLetters { path: self.path.display().to_string(), reason };
        // Opening a pipe would wait for its reader.
        if fs::metadata(&self.path).is_ok_and(|meta| !meta.is_file()) {
            return Err(refused("it isn't a regular file"));
        }
        let mut options = OpenOptions::new();
        let mut file = options.read(true).append(true).create(true).open(&self.path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(refused("another job writes its dead letters there")),
            Err(TryLockError::Error(e)) => return Err(Error::io(self.path.display(), "cannot lock", e)),
        }
        match ending(&mut file).map_err(failed)? {
            Ending::Whole => {}
            // A run that was killed can have left a piece of a letter, which comes again.
            Ending::Torn { whole } => file.set_len(whole).map_err(failed)?,
            Ending::Unended => self.buffer.push(b'\n'),
            Ending::Foreign => return Err(refused("it holds something else than dead letters")),
        }
        self.file = Some(file);
        Ok(())
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        for piece in batch.column(0).as_string::<i32>().iter().flatten() {
            self.buffer.extend_from_slice(piece.as_bytes());
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

/// How a file of dead letters ends.
#[derive(Debug, PartialEq, Eq)]
enum Ending {
    /// With a line end, or it is empty.
    Whole,
    /// With a piece of a letter behind so many bytes.
    Torn { whole: u64 },
    /// With a letter whose line end is missing.
    Unended,
    /// It doesn't begin with a dead letter.
    Foreign,
}

/// Looks at the first line and at the last one.
fn ending(file: &mut File) -> std::io::Result<Ending> {
    let len = file.metadata()?.len();
    if len == 0 {
        return Ok(Ending::Whole);
    }
    let mut first = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    BufReader::new(Read::by_ref(file).take(MAX_LETTER_BYTES)).read_until(b'\n', &mut first)?;
    if first.pop_if(|byte| *byte == b'\n').is_none() {
        return Ok(match first.len() as u64 == len {
            true if is_letter(&first) => Ending::Unended,
            // Nothing but the beginning of a letter is taken for one.
            true if is_beginning(&first) => Ending::Torn { whole: 0 },
            _ => Ending::Foreign,
        });
    }
    if !is_letter(&first) {
        return Ok(Ending::Foreign);
    }
    // The last line end, looked for from behind.
    let (mut end, mut piece) = (len, vec![0; 64 << 10]);
    let whole = loop {
        let start = end.saturating_sub(piece.len() as u64);
        let bytes = &mut piece[..(end - start) as usize];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(bytes)?;
        match memchr::memrchr(b'\n', bytes) {
            Some(at) => break start + at as u64 + 1,
            None => end = start,
        }
    };
    if whole == len {
        return Ok(Ending::Whole);
    }
    let mut last = Vec::new();
    file.seek(SeekFrom::Start(whole))?;
    Read::by_ref(file).take(MAX_LETTER_BYTES).read_to_end(&mut last)?;
    Ok(if is_letter(&last) { Ending::Unended } else { Ending::Torn { whole } })
}

fn is_letter(line: &[u8]) -> bool {
    let Ok(Value::Object(letter)) = serde_json::from_slice(line) else { return false };
    ["source", "phase", "split", "position", "reason", "message"].iter().all(|key| letter.contains_key(*key))
}

/// Says whether a line begins as letters do, far enough that it can be nothing else.
fn is_beginning(line: &[u8]) -> bool {
    let has = |part: &[u8]| memchr::memmem::find(line, part).is_some();
    line.starts_with(b"{\"source\":\"")
        && (has(b"\",\"phase\":\"bounded\",\"split\":\"") || has(b"\",\"phase\":\"unbounded\",\"split\":\""))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, StringArray};

    use super::*;

    const LETTER: &str = r#"{"source":"0","phase":"bounded","split":"a.csv","position":9,"column":null,"reason":"type","message":"x","raw":"y"}"#;

    fn write(path: &Path) -> Result<()> {
        let letters: ArrayRef = Arc::new(StringArray::from(vec![format!("{LETTER}\n")]));
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
        for piece in ["", "{", "{\"source\":\"0\",\"pha", &LETTER[..LETTER.len() - 1]] {
            let before = fs::read_to_string(&path).unwrap();
            fs::write(&path, format!("{before}{piece}")).unwrap();
            write(&path).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), format!("{before}{LETTER}\n"), "{piece}");
        }
        fs::write(&path, &LETTER[..60]).unwrap();
        write(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{LETTER}\n"));
        // A whole letter only lacks its line end.
        for before in [LETTER.to_owned(), format!("{LETTER}\n{LETTER}")] {
            fs::write(&path, &before).unwrap();
            write(&path).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), format!("{before}\n{LETTER}\n"));
        }
    }

    #[test]
    fn what_is_none_of_ours_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data.csv");
        let long = format!("{{\"a\":\"{}\"}}\nmore\n", "x".repeat(5 << 20));
        let foreign = ["id,v\n1,2\n", "{\"id\":1}\n", "x", "{", "{\"source\":\"my config\",\"important\":true}", &long];
        for content in foreign {
            fs::write(&path, content).unwrap();
            let error = write(&path).unwrap_err().to_string();
            assert!(error.ends_with("it holds something else than dead letters"), "{error}");
            assert!(fs::read_to_string(&path).unwrap() == content);
        }
        assert!(write(dir.path()).unwrap_err().to_string().ends_with("it isn't a regular file"));
        assert!(write(&dir.path().join("no/dead.ndjson")).is_err());
    }

    #[test]
    fn a_second_job_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("dead.ndjson");
        let mut first = LetterFile::new(&path);
        first.recover().unwrap();
        let error = write(&path).unwrap_err().to_string();
        assert!(error.ends_with("another job writes its dead letters there"), "{error}");
        drop(first);
        write(&path).unwrap();
    }
}
