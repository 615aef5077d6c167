//! Where checkpoints are kept: a local file, or an object.
//!
//! Both write the lists of files first, under the names of their hashes, and then the checkpoint that
//! names them. Whatever the instant of a kill, the last complete checkpoint is there.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::{SecondsFormat, Utc};
use futures::future::BoxFuture;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};

use super::{Checkpoint, SplitList, Splits};
use crate::error::{Error, Result};

/// Keeps the one checkpoint of a job.
pub trait CheckpointStore: Debug + Send + Sync {
    /// Reads the checkpoint; `None` only if nothing was ever saved.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if what is there can't be read: it must never count as a fresh start.
    fn load(&self) -> BoxFuture<'_, Result<Option<Checkpoint>>>;

    /// Replaces the checkpoint; once this returns, it survives a crash of the machine.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Store`]; the checkpoint before is still there then.
    ///
    /// # Cancel safety
    /// Dropped before it ends, either the checkpoint before or the new one is there, whole.
    fn save<'a>(&'a self, checkpoint: &'a Checkpoint) -> BoxFuture<'a, Result<()>>;
}

/// A checkpoint in a local file, with a lock beside it that dies with the process.
#[derive(Debug)]
pub struct FileCheckpointStore {
    path: PathBuf,
    _lock: JobLock,
}

impl FileCheckpointStore {
    /// Claims `path`, whose folder must exist; the file itself need not.
    ///
    /// # Errors
    /// [`Error::Locked`] if another copy of the job holds it, [`Error::NotFound`] without the folder,
    /// [`Error::Io`] without the right to write there.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let path = behind_link(&path.into());
        let folder = folder_of(&path);
        if !folder.is_dir() {
            return Err(Error::NotFound {
                what: format!("{}: the folder of the checkpoint doesn't exist", folder.display()),
            });
        }
        if path.is_dir() {
            return Err(Error::Checkpoint { path: path.display().to_string(), reason: "it is a folder".into() });
        }
        let lock = JobLock::acquire(&with_suffix(&path, ".lock"))?;
        Ok(Self { path, _lock: lock })
    }

    /// Reads the checkpoint at `path` without claiming it.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if it can't be understood, [`Error::Io`] if it can't be read.
    pub fn read(path: &Path) -> Result<Option<Checkpoint>> {
        let path = &behind_link(path);
        let Some(json) = read_if_there(path)? else { return Ok(None) };
        let name = path.display().to_string();
        let partial = Checkpoint::from_json(&name, &json)?;
        let mut lists = BTreeMap::new();
        for hash in partial.lists() {
            let list_path = with_suffix(path, &format!(".files-{hash}"));
            let bytes = read_if_there(&list_path)?.ok_or_else(|| Error::Checkpoint {
                path: name.clone(),
                reason: missing_list(&list_path.display().to_string()),
            })?;
            let list = SplitList::from_bytes(&list_path.display().to_string(), &hash, &bytes)?;
            lists.insert(hash, list);
        }
        partial.complete(&name, &lists).map(Some)
    }

    /// Writes `checkpoint` to `path` durably, its lists of files before it.
    ///
    /// # Errors
    /// [`Error::Io`]; what was there before is untouched then.
    pub fn write(path: &Path, checkpoint: &Checkpoint) -> Result<()> {
        for list in lists_of(checkpoint) {
            let list_path = with_suffix(path, &format!(".files-{}", list.hash()));
            if !list_path.exists() {
                write_durably(&list_path, &list.to_bytes()?)?;
            }
        }
        write_durably(path, checkpoint.to_json()?.as_bytes())
    }
}

impl CheckpointStore for FileCheckpointStore {
    fn load(&self) -> BoxFuture<'_, Result<Option<Checkpoint>>> {
        let path = self.path.clone();
        Box::pin(blocking(move || Self::read(&path)))
    }

    fn save<'a>(&'a self, checkpoint: &'a Checkpoint) -> BoxFuture<'a, Result<()>> {
        let path = self.path.clone();
        let checkpoint = stamped(checkpoint);
        Box::pin(blocking(move || Self::write(&path, &checkpoint)))
    }
}

/// A checkpoint in an object; every put of a store is atomic. Nothing locks it.
#[derive(Debug)]
pub struct ObjectCheckpointStore {
    store: Arc<dyn ObjectStore>,
    path: object_store::path::Path,
}

impl ObjectCheckpointStore {
    /// Keeps the checkpoint in the object `path` of `store`.
    pub fn new(store: Arc<dyn ObjectStore>, path: object_store::path::Path) -> Self {
        Self { store, path }
    }

    async fn get(&self, path: &object_store::path::Path) -> Result<Option<Vec<u8>>> {
        let failed = |source| Error::Store { url: path.to_string(), action: "read", source };
        match self.store.get(path).await {
            Ok(object) => Ok(Some(object.bytes().await.map_err(failed)?.to_vec())),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(source) => Err(failed(source)),
        }
    }

    async fn put(&self, path: &object_store::path::Path, bytes: Vec<u8>) -> Result<()> {
        let put = self.store.put(path, PutPayload::from(bytes)).await;
        put.map(drop).map_err(|source| Error::Store { url: path.to_string(), action: "write", source })
    }

    fn list_path(&self, hash: &str) -> object_store::path::Path {
        object_store::path::Path::from(format!("{}.files-{hash}", self.path))
    }
}

impl CheckpointStore for ObjectCheckpointStore {
    fn load(&self) -> BoxFuture<'_, Result<Option<Checkpoint>>> {
        Box::pin(async {
            let Some(json) = self.get(&self.path).await? else { return Ok(None) };
            let name = self.path.to_string();
            let partial = Checkpoint::from_json(&name, &json)?;
            let mut lists = BTreeMap::new();
            for hash in partial.lists() {
                let list_path = self.list_path(&hash);
                let bytes = self.get(&list_path).await?.ok_or_else(|| Error::Checkpoint {
                    path: name.clone(),
                    reason: missing_list(list_path.as_ref()),
                })?;
                let list = SplitList::from_bytes(list_path.as_ref(), &hash, &bytes)?;
                lists.insert(hash, list);
            }
            partial.complete(&name, &lists).map(Some)
        })
    }

    fn save<'a>(&'a self, checkpoint: &'a Checkpoint) -> BoxFuture<'a, Result<()>> {
        Box::pin(async {
            for list in lists_of(checkpoint) {
                let list_path = self.list_path(list.hash());
                if self.store.head(&list_path).await.is_err() {
                    self.put(&list_path, list.to_bytes()?).await?;
                }
            }
            self.put(&self.path, stamped(checkpoint).to_json()?.into_bytes()).await
        })
    }
}

fn stamped(checkpoint: &Checkpoint) -> Checkpoint {
    let written = Utc::now().to_rfc3339_opts(SecondsFormat::Millis, true);
    Checkpoint { written, ..checkpoint.clone() }
}

fn lists_of(checkpoint: &Checkpoint) -> impl Iterator<Item = &SplitList> {
    checkpoint.sources.iter().filter_map(|source| match &source.splits {
        Splits::OneByOne { list, .. } => Some(list),
        Splits::SideBySide(_) => None,
    })
}

fn missing_list(path: &str) -> String {
    format!("its list of files {path} is missing")
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// What a link stands for, so that both names are one checkpoint and one lock.
fn behind_link(path: &Path) -> PathBuf {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_symlink() => fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()),
        _ => path.to_owned(),
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>> {
    // An endless device would be read for ever.
    if fs::metadata(path).is_ok_and(|meta| !meta.is_file()) {
        return Err(Error::Checkpoint { path: path.display().to_string(), reason: "it isn't a file".into() });
    }
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io(path.display(), "cannot read", e)),
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(e) => Err(Error::Worker { message: e.to_string() }),
    }
}

/// Replaces `path` so that after a crash at any instant either the old or the new content is there, whole:
/// a temporary file beside it, fsync, rename, fsync of the folder.
pub(crate) fn write_durably(path: &Path, content: &[u8]) -> Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = folder_of(path).join(format!(".{name}.{}.tmp", std::process::id()));
    let written = File::create(&temporary)
        .and_then(|mut file| file.write_all(content).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&temporary, path));
    if let Err(e) = written {
        // The error that counts is the one above; a temporary file left behind harms nobody.
        let _ = fs::remove_file(&temporary);
        return Err(Error::io(path.display(), "cannot write", e));
    }
    sync_dir(folder_of(path))
}

/// Makes renames and creations in `folder` survive a crash.
pub(crate) fn sync_dir(folder: &Path) -> Result<()> {
    File::open(folder).and_then(|dir| dir.sync_all()).map_err(|e| Error::io(folder.display(), "cannot sync", e))
}

/// A claim on a file that the system gives up when the process ends, however it ends.
#[derive(Debug)]
pub struct JobLock {
    _file: File,
}

impl JobLock {
    /// Claims `path`, making the file if it isn't there. A file left over by a dead process doesn't matter.
    ///
    /// # Errors
    /// [`Error::Locked`] if another process, or another part of this one, holds it.
    pub fn acquire(path: &Path) -> Result<Self> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)
            .map_err(|e| Error::io(path.display(), "cannot create", e))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(Error::Locked { path: path.display().to_string() }),
            Err(TryLockError::Error(e)) => Err(Error::io(path.display(), "cannot lock", e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::super::{Advance, Identity, SourceState, SplitEntry, SplitState};
    use super::*;

    fn checkpoint() -> Checkpoint {
        let entry = |name: &str| {
            SplitEntry::new(
                name.into(),
                Identity { size: Some(9000), modified_ns: Some(1_700_000_000_123_456_789), ..Identity::default() },
            )
        };
        let list = SplitList::new([entry("part-9.csv"), entry("part-10.csv")]);
        let mut files = SourceState::new("0", "filesystem", Splits::one_by_one(list));
        files.notes.insert("header".into(), false.into());
        files
            .apply(
                &[
                    Advance::new("part-9.csv".into(), 0, 70).with_done(true),
                    Advance::new("part-10.csv".into(), 0, 4096),
                ],
                9000,
            )
            .unwrap();
        let mut identity = Identity::default();
        identity.other.insert("end".into(), 40.into());
        identity.other.insert("leader_epoch".into(), 3.into());
        let partition = SplitState::new("bids/0".into(), 0).with_identity(identity);
        let mut kafka = SourceState::new("1", "kafka", Splits::side_by_side([partition]));
        kafka.apply(&[Advance::new("bids/0".into(), 0, 17)], 17).unwrap();
        Checkpoint { job: "j".into(), schema: "id INT".into(), sources: vec![files, kafka], ..Checkpoint::default() }
    }

    fn unstamped(checkpoint: Checkpoint) -> Checkpoint {
        Checkpoint { written: String::new(), ..checkpoint }
    }

    #[test]
    fn the_stored_json_is_golden() {
        let json = checkpoint().to_json().unwrap();
        let golden = include_str!("golden-v1.json");
        assert_eq!(json, golden, "stored checkpoints of users look like this: a change needs a new version");
    }

    #[tokio::test]
    async fn a_saved_checkpoint_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let store = FileCheckpointStore::open(folder.path().join("c.json")).unwrap();
        assert_eq!(store.load().await.unwrap(), None);
        store.save(&checkpoint()).await.unwrap();
        let loaded = store.load().await.unwrap().unwrap();
        assert!(loaded.written.ends_with('Z'));
        assert_eq!(unstamped(loaded), checkpoint());

        let store = ObjectCheckpointStore::new(Arc::new(InMemory::new()), "jobs/c.json".into());
        assert_eq!(store.load().await.unwrap(), None);
        store.save(&checkpoint()).await.unwrap();
        assert_eq!(unstamped(store.load().await.unwrap().unwrap()), checkpoint());
    }

    #[test]
    fn a_truncated_newer_or_foreign_file_is_never_a_fresh_start() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.json");
        let error = |content: &[u8]| {
            fs::write(&path, content).unwrap();
            FileCheckpointStore::read(&path).unwrap_err().to_string()
        };
        FileCheckpointStore::write(&path, &checkpoint()).unwrap();
        let whole = fs::read(&path).unwrap();
        for end in 1..whole.trim_ascii_end().len() {
            assert!(error(&whole[..end]).contains("truncated"), "cut at {end}");
        }
        assert!(error(b"").contains("it is empty"));
        assert!(error(b"id,v\n1,2\n").contains("isn't JSON"));
        assert!(error(b"{}").contains("no version"));
        assert!(error(br#"{"version":2}"#).contains("another version of segue (format 2"));
        assert!(error(br#"{"version":1}"#).contains("damaged"));
        fs::write(&path, &whole).unwrap();
        for entry in fs::read_dir(folder.path()).unwrap() {
            let entry = entry.unwrap().path();
            if entry.to_string_lossy().contains(".files-") {
                fs::remove_file(entry).unwrap();
            }
        }
        assert!(FileCheckpointStore::read(&path).unwrap_err().to_string().contains("is missing"));
    }

    #[test]
    fn a_second_copy_is_refused_and_a_left_over_lock_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.json");
        let first = FileCheckpointStore::open(&path).unwrap();
        assert!(matches!(FileCheckpointStore::open(&path), Err(Error::Locked { .. })));
        drop(first);
        assert!(with_suffix(&path, ".lock").exists());
        FileCheckpointStore::open(&path).unwrap();
    }

    #[test]
    fn a_missing_folder_is_told_before_anything_is_read() {
        let error = FileCheckpointStore::open("/nonexistent/folder/c.json").unwrap_err();
        assert!(matches!(error, Error::NotFound { .. }), "{error}");
    }
}
