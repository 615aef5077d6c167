//! A folder that one job writes into: how it is claimed, known again, and numbered.
//!
//! ```text
//! target/
//!   part-00000.csv  part-00001.csv …     whole files, in the order in which they were written
//!   .part-00002.csv.tmp                  the one being written
//!   _segue/job.json                      whose folder it is; written before anything else
//!   _segue/lock                          held by the running copy; dies with its process
//!   _segue/next-part                     a number that no file had yet
//! ```

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use url::Url;

use crate::checkpoint::{JobLock, sync_dir, write_durably};
use crate::error::{Error, Result};

/// The version of `job.json` that this release writes, and the newest that it reads.
const JOB_VERSION: u64 = 1;

/// Digits of a part's number, at least: so names sort as text, too, up to a hundred thousand.
const NUMBER_DIGITS: usize = 5;

#[derive(Debug, Serialize, Deserialize)]
struct JobDoc {
    version: u64,
    job: String,
    format: String,
}

/// A claimed folder.
#[derive(Debug)]
pub(super) struct Target {
    folder: PathBuf,
    suffix: &'static str,
    /// No file had this number, or a higher one.
    next_number: u64,
    _lock: JobLock,
}

/// A file that nobody sees yet. Dropping it removes it.
#[derive(Debug)]
pub(super) struct Unpublished {
    hidden: PathBuf,
    is_published: bool,
}

impl Target {
    /// Claims `folder` for `job`, making it if it is missing. Nothing is touched in a folder that isn't this job's.
    ///
    /// # Errors
    /// [`Error::Target`] for a folder that holds something else, [`Error::Incompatible`] for this job in
    /// another format, [`Error::Locked`] if another copy runs, [`Error::Io`] without the rights.
    pub(super) fn claim(folder: PathBuf, job: &str, suffix: &'static str) -> Result<Self> {
        let segue = folder.join("_segue");
        let job_path = segue.join("job.json");
        let name = folder.display().to_string();
        check_owner(&folder, &job_path, job, suffix)?;
        make_folder(&folder, &segue)?;
        let lock = JobLock::acquire(&segue.join("lock"))?;
        // Another job may have claimed the folder in the meantime.
        if !check_owner(&folder, &job_path, job, suffix)? {
            let doc = JobDoc { version: JOB_VERSION, job: job.to_owned(), format: suffix.to_owned() };
            let json = serde_json::to_vec_pretty(&doc)
                .map_err(|e| Error::Other { context: name.clone(), source: Box::new(e) })?;
            write_durably(&job_path, &json)?;
        }
        let next_number = next_number(&folder, suffix)?;
        Ok(Self { folder, suffix, next_number, _lock: lock })
    }

    /// Removes hidden files that a killed run left behind.
    ///
    /// # Errors
    /// [`Error::Io`] if one can't be removed.
    pub(super) fn remove_unpublished(&self) -> Result<()> {
        for name in names(&self.folder)? {
            if name.starts_with(".part-") && name.ends_with(".tmp") {
                let path = self.folder.join(&name);
                fs::remove_file(&path).map_err(|e| Error::io(path.display(), "cannot remove", e))?;
            }
        }
        Ok(())
    }

    /// Makes a hidden file.
    ///
    /// # Errors
    /// [`Error::Io`] if it can't be made.
    pub(super) fn create(&self) -> Result<(Unpublished, File)> {
        let hidden = self.folder.join(format!(".{}.tmp", self.part_name()));
        let file = File::create(&hidden).map_err(|e| Error::io(hidden.display(), "cannot create", e))?;
        Ok((Unpublished { hidden, is_published: false }, file))
    }

    /// Makes a whole file visible, for good.
    ///
    /// # Errors
    /// [`Error::Output`] if its bytes can't be synced, [`Error::Io`] if it can't be renamed.
    pub(super) fn publish(&mut self, mut unpublished: Unpublished, file: File) -> Result<()> {
        file.sync_all()
            .map_err(|e| Error::Output { target: unpublished.hidden.display().to_string(), source: Box::new(e) })?;
        drop(file);
        // Others may have put a file of this name here.
        while self.part_path().exists() {
            self.next_number += 1;
        }
        let visible = self.part_path();
        // The number is spent before the file is seen: it stays so if somebody takes the file away.
        self.next_number += 1;
        write_durably(&self.folder.join("_segue").join("next-part"), format!("{}\n", self.next_number).as_bytes())?;
        fs::rename(&unpublished.hidden, &visible).map_err(|e| Error::io(visible.display(), "cannot rename", e))?;
        unpublished.is_published = true;
        sync_dir(&self.folder)
    }

    fn part_name(&self) -> String {
        format!("part-{:0NUMBER_DIGITS$}.{}", self.next_number, self.suffix)
    }

    fn part_path(&self) -> PathBuf {
        self.folder.join(self.part_name())
    }
}

impl Unpublished {
    pub(super) fn path(&self) -> &Path {
        &self.hidden
    }
}

impl Drop for Unpublished {
    fn drop(&mut self) {
        if self.is_published {
            return;
        }
        if let Err(error) = fs::remove_file(&self.hidden) {
            // The next run removes it.
            tracing::debug!(path = %self.hidden.display(), %error, "an unfinished file stays");
        }
    }
}

/// The local folder that a text means: a path, or a `file://` URL.
///
/// # Errors
/// [`Error::Unsupported`] for any other URL.
pub(super) fn local_folder(text: &str) -> Result<PathBuf> {
    if !text.contains("://") {
        return Ok(PathBuf::from(text));
    }
    let local = Url::parse(text).ok().filter(|url| url.scheme() == "file").and_then(|url| url.to_file_path().ok());
    local.ok_or_else(|| Error::Unsupported(format!("{text}: writing to object stores is not in this version")))
}

/// Says whether the folder is this job's already; if not, it may be claimed.
fn check_owner(folder: &Path, job_path: &Path, job: &str, suffix: &str) -> Result<bool> {
    let refused = |reason: String| Error::Target { target: folder.display().to_string(), reason };
    let json = match fs::read(job_path) {
        Ok(json) => json,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            if folder.exists() && !folder.is_dir() {
                return Err(refused("it is not a folder".into()));
            }
            return match names(folder)?.into_iter().find(|name| !name.starts_with(['_', '.'])) {
                None => Ok(false),
                Some(name) => Err(refused(format!("it isn't empty ({name}), and no job of segue has written it"))),
            };
        }
        Err(e) => return Err(Error::io(job_path.display(), "cannot read", e)),
    };
    let doc: JobDoc =
        serde_json::from_slice(&json).map_err(|e| refused(format!("its _segue/job.json can't be read: {e}")))?;
    if doc.version > JOB_VERSION {
        return Err(refused(format!("it was written by a newer version of segue (format {})", doc.version)));
    }
    if doc.job != job {
        return Err(refused(format!("it belongs to the job '{}', not to '{job}'", doc.job)));
    }
    if doc.format != suffix {
        return Err(Error::Incompatible {
            what: "the format of the sink".into(),
            stored: doc.format,
            now: suffix.into(),
        });
    }
    Ok(true)
}

/// Makes `_segue` and the folders above it, so that they survive a crash.
fn make_folder(folder: &Path, segue: &Path) -> Result<()> {
    if segue.is_dir() {
        return Ok(());
    }
    let is_new = !folder.exists();
    fs::create_dir_all(segue).map_err(|e| Error::io(segue.display(), "cannot create", e))?;
    sync_dir(folder)?;
    match folder.parent() {
        Some(parent) if is_new && parent.as_os_str().is_empty() => sync_dir(Path::new(".")),
        Some(parent) if is_new => sync_dir(parent),
        _ => Ok(()),
    }
}

fn next_number(folder: &Path, suffix: &str) -> Result<u64> {
    let path = folder.join("_segue").join("next-part");
    let spent = match fs::read_to_string(&path) {
        Ok(text) => text.trim().parse().map_err(|_| Error::Target {
            target: path.display().to_string(),
            reason: "it holds no number; put there a number higher than that of any part".into(),
        })?,
        Err(e) if e.kind() == ErrorKind::NotFound => 0,
        Err(e) => return Err(Error::io(path.display(), "cannot read", e)),
    };
    let after = |name: String| {
        let number = name.strip_prefix("part-")?.strip_suffix(suffix)?.strip_suffix('.')?;
        number.parse::<u64>().ok()?.checked_add(1)
    };
    let visible = names(folder)?.into_iter().filter_map(after).max().unwrap_or(0);
    Ok(visible.max(spent))
}

/// The names in a folder; none if it isn't there.
fn names(folder: &Path) -> Result<Vec<String>> {
    let failed = |e| Error::io(folder.display(), "cannot list", e);
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(failed(e)),
    };
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry.map_err(failed)?.file_name().to_string_lossy().into_owned());
    }
    Ok(names)
}
