//! Bytes of files, by range, checked to be of the file that was listed.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use object_store::{GetOptions, GetRange, ObjectStore};

use super::discover::{Location, identity};
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
    store: Arc<dyn ObjectStore>,
}

impl ListedFile {
    pub(crate) fn try_new(location: &Location, id: &SplitId, identity: &Identity) -> Result<Self> {
        Ok(Self {
            id: id.clone(),
            url: location.display(id).into(),
            identity: identity.clone(),
            path: location.path(id)?,
            store: Arc::clone(&location.store),
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
        let got = self.store.get_opts(&self.path, options).await.map_err(|source| self.error(source))?;
        if let Some(difference) = self.identity.difference(&identity(&got.meta)) {
            return Err(self.changed(difference));
        }
        let bytes = got.bytes().await.map_err(|source| self.error(source))?;
        if bytes.len() as u64 != wanted {
            return Err(self.changed(format!("{} bytes came where {wanted} were asked for", bytes.len())));
        }
        Ok(bytes)
    }

    fn error(&self, source: object_store::Error) -> Error {
        match source {
            object_store::Error::NotFound { .. } => {
                Error::NotFound { what: format!("{}: the file was listed and is gone", self.url) }
            }
            object_store::Error::Precondition { .. } => self.changed("its etag is another".into()),
            source => Error::Store { url: self.url.to_string(), action: "read", source },
        }
    }

    fn changed(&self, difference: String) -> Error {
        Error::Changed { path: self.url.to_string(), difference }
    }
}
