//! Paths, folders, globs and URLs become an ordered list of files.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;

use futures::TryStreamExt;
use globset::{GlobBuilder, GlobMatcher};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use tracing::warn;
use url::Url;

use crate::checkpoint::{Identity, SplitEntry, SplitId};
use crate::error::{Error, Result};

/// Where a source's files are: a store, a folder in it, and which files of the folder.
///
/// A split's name is its path relative to `root`, so a list of names is all that has to be stored.
#[derive(Debug, Clone)]
pub(crate) struct Location {
    pub(crate) store: Arc<dyn ObjectStore>,
    root: Path,
    selection: Selection,
    /// The folder on the local disk, if that is where the files are.
    folder: Option<PathBuf>,
    /// What stands before a split's name to make its path or URL as the user would write it.
    prefix: String,
    /// As it was given.
    text: String,
}

#[derive(Debug, Clone)]
enum Selection {
    /// One file, by its name in the root.
    File(String),
    /// Every file below the root.
    Folder,
    /// The files below the root whose relative path matches.
    Glob(GlobMatcher),
}

/// One listed file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileMeta {
    pub(crate) id: SplitId,
    pub(crate) identity: Identity,
}

impl FileMeta {
    pub(crate) fn to_entry(&self) -> SplitEntry {
        SplitEntry::new(self.id.clone(), self.identity.clone())
    }
}

/// Characters that make a path a pattern.
const WILDCARDS: [char; 4] = ['*', '?', '[', '{'];

impl Location {
    /// Understands a path, a folder, a glob or a URL. An existing literal path beats a glob.
    ///
    /// # Errors
    /// [`Error::NotFound`] for a local path that isn't there, [`Error::InvalidOption`] for a pattern or
    /// URL that can't be read.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        // `bids` and `bids/` are one folder, and one job.
        let text = match text.trim_end_matches('/') {
            "" => text,
            trimmed if trimmed.ends_with(':') => text,
            trimmed => trimmed,
        };
        if let Some((scheme, rest)) = text.split_once("://") {
            if scheme == "file" {
                let url = Url::parse(text).map_err(|e| bad_path(text, e))?;
                let path = url.to_file_path().map_err(|()| bad_path(text, "not a local path"))?;
                return Self::local(&path.to_string_lossy(), text);
            }
            return Self::remote(text, scheme, rest);
        }
        if text.is_empty() {
            return Err(bad_path(text, "it is empty"));
        }
        Self::local(text, text)
    }

    /// A location of which nothing is read any more, and that need not be there.
    pub(crate) fn gone(text: &str) -> Result<Self> {
        let store: Arc<dyn ObjectStore> = Arc::new(LocalFileSystem::new());
        Ok(Self {
            store,
            root: Path::default(),
            selection: Selection::Folder,
            folder: None,
            prefix: String::new(),
            text: text.to_owned(),
        })
    }

    /// Files of any store, by a path in it: for tests and for stores that have no URL.
    pub(crate) fn in_store(store: Arc<dyn ObjectStore>, path: &str) -> Result<Self> {
        let path = path.trim_matches('/');
        Self::by_shape(store, path, path, "")
    }

    fn local(path: &str, text: &str) -> Result<Self> {
        let fs_path = FsPath::new(path);
        let store: Arc<dyn ObjectStore> = Arc::new(LocalFileSystem::new());
        // Without links and `..`, which object_store's paths don't know.
        let absolute = |path: &FsPath| -> Result<(PathBuf, Path)> {
            let folder = std::fs::canonicalize(path).map_err(|e| Error::io(text, "cannot be found", e))?;
            let path = Path::from_absolute_path(&folder).map_err(|e| bad_path(text, e))?;
            Ok((folder, path))
        };
        let as_prefix = |folder: &str| {
            if folder.is_empty() || folder.ends_with('/') { folder.to_owned() } else { format!("{folder}/") }
        };
        let selected = |root: &str, selection: Selection| -> Result<Self> {
            let folder = if root.is_empty() { FsPath::new(".") } else { FsPath::new(root) };
            let (store, text) = (Arc::clone(&store), text.to_owned());
            let (folder, root_path) = absolute(folder)?;
            Ok(Self { store, root: root_path, selection, folder: Some(folder), prefix: as_prefix(root), text })
        };
        match std::fs::metadata(fs_path) {
            Ok(meta) if meta.is_dir() => selected(path, Selection::Folder),
            Ok(meta) if !meta.is_file() => {
                Err(bad_path(text, "it is neither a file nor a folder: what comes out of a pipe can't be read again"))
            }
            Ok(_) => {
                let (folder, name) = path
                    .rsplit_once('/')
                    .map_or(("", path), |(folder, name)| (if folder.is_empty() { "/" } else { folder }, name));
                selected(folder, Selection::File(name.to_owned()))
            }
            Err(_) if path.contains(WILDCARDS) => {
                let (root, pattern) = split_glob(path);
                if !root.is_empty() && !FsPath::new(root).is_dir() {
                    return Err(Error::NotFound { what: format!("{text}: there is no folder {root}") });
                }
                selected(root, Selection::Glob(glob(pattern, text)?))
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                Err(Error::NotFound { what: format!("{text}: no such file or folder") })
            }
            Err(e) => Err(Error::io(text, "cannot be read", e)),
        }
    }

    fn remote(text: &str, scheme: &str, rest: &str) -> Result<Self> {
        // A pattern is no URL: only the part before it goes through the URL parser.
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let base = format!("{scheme}://{host}/");
        let url = Url::parse(&base).map_err(|e| bad_path(text, e))?;
        // Settings come from the usual environment variables, as object_store names them.
        // Whoever writes http:// means it; for all else plain http has to be allowed.
        let plain_http = (scheme == "http").then(|| ("allow_http".to_owned(), "true".to_owned()));
        let settings = std::env::vars().chain(plain_http);
        let (store, inside) = object_store::parse_url_opts(&url, settings).map_err(|e| bad_path(text, e))?;
        let path = percent_encoding::percent_decode_str(path).decode_utf8().map_err(|e| bad_path(text, e))?;
        let path = if inside.as_ref().is_empty() { path.into_owned() } else { format!("{inside}/{path}") };
        Self::by_shape(Arc::from(store), &path, text, &base)
    }

    /// A path in a store that can't be asked what it is before it is listed: a slash at the end, or no
    /// suffix, makes a folder.
    fn by_shape(store: Arc<dyn ObjectStore>, path: &str, text: &str, base: &str) -> Result<Self> {
        let parsed = |path: &str| Path::parse(path).map_err(|e| bad_path(text, e));
        let (root, selection) = if path.contains(WILDCARDS) {
            let (root, pattern) = split_glob(path);
            (root, Selection::Glob(glob(pattern, text)?))
        } else {
            let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
            if name.contains('.') {
                (folder, Selection::File(name.to_owned()))
            } else {
                (path.trim_end_matches('/'), Selection::Folder)
            }
        };
        let root = root.trim_matches('/');
        let prefix = if root.is_empty() { base.to_owned() } else { format!("{base}{root}/") };
        Ok(Self { store, root: parsed(root)?, selection, folder: None, prefix, text: text.to_owned() })
    }

    /// As it was given.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Says whether it is one file by its name.
    pub(crate) fn is_file(&self) -> bool {
        matches!(self.selection, Selection::File(_))
    }

    /// A split's path or URL, as the user would write it.
    pub(crate) fn display(&self, id: &SplitId) -> String {
        format!("{}{id}", self.prefix)
    }

    /// Where a split lies in the store.
    pub(crate) fn path(&self, id: &SplitId) -> Result<Path> {
        let path = if self.root.as_ref().is_empty() { id.as_str().to_owned() } else { format!("{}/{id}", self.root) };
        Path::parse(path).map_err(|e| bad_path(&self.display(id), e))
    }

    /// Lists the files in natural order; names that begin with `_` or `.` are left out, unless one was asked for by name.
    ///
    /// # Errors
    /// [`Error::Store`] if the store can't list, [`Error::NotFound`] for a single file that isn't there.
    pub(crate) async fn list(&self) -> Result<Vec<FileMeta>> {
        let failed = |source| Error::Store { url: self.text.clone(), action: "list", source };
        let mut files = match &self.selection {
            Selection::File(name) => {
                let id = SplitId::new(name.as_str());
                let meta = self.head(&id).await?;
                vec![FileMeta { identity: self.identity(&meta), id }]
            }
            Selection::Folder | Selection::Glob(_) if self.folder.is_some() => {
                let (location, folder) = (self.clone(), self.folder.clone().unwrap_or_default());
                let walk = move || {
                    let mut walk = Walk { location: &location, files: Vec::new(), open: BTreeSet::new() };
                    walk.folder(&folder, "")?;
                    Ok(walk.files)
                };
                let walked = tokio::task::spawn_blocking(walk).await;
                walked.map_err(|e| Error::Worker { message: e.to_string() })??
            }
            Selection::Folder | Selection::Glob(_) => {
                let root = Some(&self.root).filter(|root| !root.as_ref().is_empty());
                let objects: Vec<ObjectMeta> = self.store.list(root).try_collect().await.map_err(failed)?;
                objects.iter().filter_map(|meta| self.selected(meta)).collect()
            }
        };
        files.sort_by(|a, b| natural_order(a.id.as_str(), b.id.as_str()));
        Ok(files)
    }

    fn selected(&self, meta: &ObjectMeta) -> Option<FileMeta> {
        let relative = match self.root.as_ref() {
            "" => meta.location.as_ref(),
            root => meta.location.as_ref().strip_prefix(root)?.strip_prefix('/')?,
        };
        if relative.split('/').any(|component| component.starts_with(['_', '.'])) {
            return None;
        }
        let is_selected = self.selects(relative);
        is_selected.then(|| FileMeta { id: SplitId::new(relative), identity: self.identity(meta) })
    }

    fn selects(&self, relative: &str) -> bool {
        match &self.selection {
            Selection::Glob(matcher) => matcher.is_match(relative),
            Selection::File(_) | Selection::Folder => true,
        }
    }

    /// What tells a file from its later self: on the local disk size and modified time, for objects their tag.
    pub(crate) fn identity(&self, meta: &ObjectMeta) -> Identity {
        let etag = meta.e_tag.as_deref().filter(|_| self.folder.is_none()).map(Into::into);
        Identity {
            size: Some(meta.size),
            modified_ns: meta.last_modified.timestamp_nanos_opt(),
            etag,
            ..Identity::default()
        }
    }

    /// Looks one split up.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it isn't there.
    pub(crate) async fn head(&self, id: &SplitId) -> Result<ObjectMeta> {
        let url = self.display(id);
        self.store.head(&self.path(id)?).await.map_err(|source| match source {
            object_store::Error::NotFound { .. } => Error::NotFound { what: format!("{url}: no such file") },
            source => Error::Store { url, action: "read", source },
        })
    }
}

/// Goes through a local folder. Hidden names aren't entered, so what is in them can't disturb.
struct Walk<'a> {
    location: &'a Location,
    files: Vec<FileMeta>,
    /// The folders that are being gone through, by device and inode: a link back to one of them is passed over.
    open: BTreeSet<(u64, u64)>,
}

impl Walk<'_> {
    fn folder(&mut self, folder: &FsPath, relative: &str) -> Result<()> {
        let failed = |path: &FsPath, e| Error::io(path.display(), "cannot list", e);
        let meta = std::fs::metadata(folder).map_err(|e| failed(folder, e))?;
        if !self.open.insert((meta.dev(), meta.ino())) {
            return Ok(());
        }
        for entry in std::fs::read_dir(folder).map_err(|e| failed(folder, e))? {
            let path = entry.map_err(|e| failed(folder, e))?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
                warn!("{}: passed over: its name isn't UTF-8", path.display());
                continue;
            };
            if name.starts_with(['_', '.']) {
                continue;
            }
            let relative = if relative.is_empty() { name.to_owned() } else { format!("{relative}/{name}") };
            let meta = match std::fs::metadata(&path) {
                Ok(meta) => meta,
                // A link to nothing, or a file that has just gone, is no file.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
                Err(e) => return Err(failed(&path, e)),
            };
            if meta.is_dir() {
                self.folder(&path, &relative)?;
            } else if meta.is_file() && self.location.selects(&relative) {
                let modified_ns =
                    meta.mtime().checked_mul(1_000_000_000).and_then(|ns| ns.checked_add(meta.mtime_nsec()));
                let identity = Identity { size: Some(meta.len()), modified_ns, ..Identity::default() };
                self.files.push(FileMeta { id: SplitId::new(relative), identity });
            }
        }
        self.open.remove(&(meta.dev(), meta.ino()));
        Ok(())
    }
}

/// The folder before the first wildcard, and the pattern below it.
fn split_glob(path: &str) -> (&str, &str) {
    let wildcard = path.find(WILDCARDS).unwrap_or(path.len());
    match path[..wildcard].rfind('/') {
        Some(0) => ("/", &path[1..]),
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => ("", path),
    }
}

fn glob(pattern: &str, text: &str) -> Result<GlobMatcher> {
    let glob = GlobBuilder::new(pattern).literal_separator(true).build().map_err(|e| bad_path(text, e.kind()))?;
    Ok(glob.compile_matcher())
}

fn bad_path(text: &str, reason: impl std::fmt::Display) -> Error {
    Error::option("path", format!("'{text}': {reason}"))
}

/// Natural order: component by component, digit runs by value, then bytes.
pub(crate) fn natural_order(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a.split('/'), b.split('/'));
    loop {
        match (left.next(), right.next()) {
            (None, None) => return a.cmp(b),
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(l), Some(r)) => match natural_component(l.as_bytes(), r.as_bytes()) {
                Ordering::Equal => {}
                order => return order,
            },
        }
    }
}

fn natural_component(mut a: &[u8], mut b: &[u8]) -> Ordering {
    while let (Some(x), Some(y)) = (a.first(), b.first()) {
        if x.is_ascii_digit() && y.is_ascii_digit() {
            let (left, right) = (digit_run(&mut a), digit_run(&mut b));
            // By value: without leading zeros, the longer run is the larger number.
            match left.len().cmp(&right.len()).then(left.cmp(right)) {
                Ordering::Equal => {}
                order => return order,
            }
        } else if x != y {
            return x.cmp(y);
        } else {
            (a, b) = (&a[1..], &b[1..]);
        }
    }
    a.len().cmp(&b.len())
}

/// Takes a run of digits off the front and gives it without leading zeros.
fn digit_run<'a>(text: &mut &'a [u8]) -> &'a [u8] {
    let len = text.iter().take_while(|c| c.is_ascii_digit()).count();
    let (run, rest) = text.split_at(len);
    *text = rest;
    let zeros = run.iter().take_while(|&&c| c == b'0').count();
    &run[zeros..]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn natural_order_goes_by_components_and_by_the_value_of_digits() {
        let sorted =
            ["2.csv", "10.csv", "a/1.csv", "a/b/0.csv", "a/2.csv", "a-1.csv", "b.csv", "part-9", "part-09", "part-10"];
        let mut files = sorted.to_vec();
        files.reverse();
        files.sort_by(|a, b| natural_order(a, b));
        assert_eq!(
            files,
            ["2.csv", "10.csv", "a/1.csv", "a/2.csv", "a/b/0.csv", "a-1.csv", "b.csv", "part-09", "part-9", "part-10"]
        );
    }

    proptest! {
        #[test]
        fn natural_order_is_an_order(mut names in prop::collection::vec("[a0-9./]{0,6}", 3)) {
            names.sort_by(|a, b| natural_order(a, b));
            for (i, a) in names.iter().enumerate() {
                for b in &names[i..] {
                    prop_assert_ne!(natural_order(a, b), Ordering::Greater);
                    prop_assert_eq!(natural_order(a, b), natural_order(b, a).reverse());
                    prop_assert_eq!(natural_order(a, b) == Ordering::Equal, a == b);
                }
            }
        }
    }

    #[tokio::test]
    async fn folders_globs_and_single_files_name_their_splits_alike() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_str().unwrap().to_owned();
        for name in ["a/10.csv", "a/9.csv", "a/_tmp/x.csv", "a/.hidden.csv", "b [1].csv", "b%20.csv"] {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        }
        let names = async |text: String| -> Vec<String> {
            let location = Location::parse(&text).unwrap();
            let files = location.list().await.unwrap();
            for file in &files {
                assert!(std::fs::exists(location.display(&file.id)).unwrap(), "{}", location.display(&file.id));
                assert_eq!(location.head(&file.id).await.unwrap().size, 1);
            }
            files.iter().map(|file| file.id.to_string()).collect()
        };
        assert_eq!(names(root.clone()).await, ["a/9.csv", "a/10.csv", "b [1].csv", "b%20.csv"]);
        assert_eq!(names(format!("{root}/*.csv")).await, ["b [1].csv", "b%20.csv"]);
        assert_eq!(names(format!("{root}/**/9*")).await, ["a/9.csv"]);
        assert_eq!(names(format!("{root}/a/{{9,10}}.csv")).await, ["9.csv", "10.csv"]);
        assert_eq!(names(format!("{root}/b [1].csv")).await, ["b [1].csv"], "an existing path beats a glob");
        assert_eq!(names(format!("{root}/a/.hidden.csv")).await, [".hidden.csv"], "asked for by name");
    }

    #[test]
    fn what_is_not_there_is_said() {
        for text in ["/nonexistent/x.csv", "/nonexistent/*.csv"] {
            let error = Location::parse(text).unwrap_err();
            assert!(matches!(error, Error::NotFound { .. }), "{error}");
        }
        assert!(Location::parse("").is_err());
        assert!(Location::parse("/tmp/[").unwrap_err().is_usage());
    }
}
