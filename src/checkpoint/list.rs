//! The list of a file source's splits: immutable, named by the hash of its content.

use std::sync::Arc;

use serde_json::json;
use xxhash_rust::xxh3::xxh3_128;

use super::position::{Identity, SplitId, SplitState};
use crate::error::{Error, Result};

/// One split of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitEntry {
    /// Its name.
    pub id: SplitId,
    /// What it was when it was listed.
    pub identity: Identity,
}

impl SplitEntry {
    /// Describes a split.
    pub fn new(id: SplitId, identity: Identity) -> Self {
        Self { id, identity }
    }

    /// The state of this split before anything of it is read.
    pub fn to_state(&self) -> SplitState {
        SplitState::new(self.id.clone(), 0).with_identity(self.identity.clone())
    }
}

/// Splits in reading order. Cloning is cheap: a list never changes.
#[derive(Clone, Debug, PartialEq)]
pub struct SplitList {
    entries: Arc<[SplitEntry]>,
    hash: Arc<str>,
}

impl SplitList {
    /// Fixes a list.
    pub fn new(entries: impl IntoIterator<Item = SplitEntry>) -> Self {
        let entries: Arc<[SplitEntry]> = entries.into_iter().collect();
        let hash = hash_of(&to_lines(&entries)).into();
        Self { entries, hash }
    }

    /// The name of the list: a hash of its content, 32 hexadecimal digits.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// The number of splits.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Says whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The split at `index`.
    pub fn get(&self, index: usize) -> Option<&SplitEntry> {
        self.entries.get(index)
    }

    /// All splits, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, SplitEntry> {
        self.entries.iter()
    }

    /// A list of which only the name is known yet.
    pub(crate) fn unloaded(hash: &str) -> Self {
        Self { entries: Arc::new([]), hash: hash.into() }
    }

    /// The stored form: a JSON array `[name, size, modified ns, etag]` per line, compressed with zstd.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>> {
        zstd::encode_all(to_lines(&self.entries).as_slice(), 3)
            .map_err(|e| Error::io("list of files", "cannot compress", e))
    }

    /// Reads the stored form and holds it against its name.
    pub(crate) fn from_bytes(path: &str, hash: &str, bytes: &[u8]) -> Result<Self> {
        let broken = |reason: String| Error::Checkpoint { path: path.into(), reason };
        let lines = zstd::decode_all(bytes).map_err(|e| broken(format!("the list of files can't be read: {e}")))?;
        let entries = lines
            .split(|&byte| byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| entry(line).ok_or_else(|| broken("the list of files is damaged".into())))
            .collect::<Result<Vec<_>>>()?;
        let list = Self::new(entries);
        if list.hash() != hash {
            return Err(broken(format!(
                "the list of files isn't the one that was written: its hash is {}",
                list.hash()
            )));
        }
        Ok(list)
    }
}

fn to_lines(entries: &[SplitEntry]) -> Vec<u8> {
    let mut lines = Vec::new();
    for SplitEntry { id, identity } in entries {
        let line = json!([id.as_str(), identity.size, identity.modified_ns, identity.etag.as_deref()]);
        lines.extend_from_slice(line.to_string().as_bytes());
        lines.push(b'\n');
    }
    lines
}

fn entry(line: &[u8]) -> Option<SplitEntry> {
    let (id, size, modified_ns, etag): (String, Option<u64>, Option<i64>, Option<String>) =
        serde_json::from_slice(line).ok()?;
    let identity = Identity { size, modified_ns, etag: etag.map(Into::into), ..Identity::default() };
    Some(SplitEntry::new(SplitId::new(id), identity))
}

/// 32 hexadecimal digits that name `content`.
pub(crate) fn hash_of(content: &[u8]) -> String {
    format!("{:032x}", xxh3_128(content))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> SplitList {
        SplitList::new([
            SplitEntry::new(
                "a \"b\".csv".into(),
                Identity { size: Some(3), modified_ns: Some(-1), ..Identity::default() },
            ),
            SplitEntry::new("ü\n.csv".into(), Identity { etag: Some("x".into()), ..Identity::default() }),
        ])
    }

    #[test]
    fn a_stored_list_comes_back_under_the_same_name() {
        let list = list();
        let bytes = list.to_bytes().unwrap();
        assert_eq!(SplitList::from_bytes("p", list.hash(), &bytes).unwrap(), list);
        assert_eq!(list.hash(), "3bd085cd066b2937638813f8ce7aeadd", "a stored name must not change between versions");
    }

    #[test]
    fn a_damaged_or_foreign_list_is_refused() {
        let bytes = list().to_bytes().unwrap();
        assert!(SplitList::from_bytes("p", list().hash(), &bytes[..bytes.len() - 3]).is_err());
        let foreign = SplitList::from_bytes("p", "00", &bytes).unwrap_err();
        assert!(foreign.to_string().contains("isn't the one that was written"), "{foreign}");
    }
}
