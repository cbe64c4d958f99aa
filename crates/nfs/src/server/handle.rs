//! The bytes of a file handle: the export, the object, and a proof that this server made the handle.
//!
//! ```text
//! | version (1) | export (8) | file id (0 to 39) | SipHash-2-4-128 under the server's key (16) |
//! ```
//!
//! A client can keep a handle and send it back. It can neither make a handle nor change one. So a server need
//! not check again whether a client was ever shown the object. The key is in the state directory, and the
//! export's number follows from its name and root, so handles outlive the server.

use std::collections::BTreeSet;
use std::fmt;

use siphasher::sip128::{Hasher128, SipHasher24};

use crate::fs::{FILE_ID_MAX, FileId, StateDirectory};
use crate::wire::{FileHandle, MAX_HANDLE};

const VERSION: u8 = 1;
const EXPORT_SIZE: usize = 8;
const TAG_SIZE: usize = 16;
const OVERHEAD: usize = 1 + EXPORT_SIZE + TAG_SIZE;
const _: () = assert!(OVERHEAD + FILE_ID_MAX == MAX_HANDLE);

/// Number of an export: part of its handles, and the `fsid` of its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExportId(u64);

impl ExportId {
    /// Returns the number as the `fsid` of an object (RFC 1813 §2.5, `fattr3`).
    #[must_use]
    pub fn as_fsid(self) -> u64 {
        self.0
    }
}

/// Secret that authenticates handles.
#[derive(Clone)]
pub struct HandleKey([u8; 16]);

impl fmt::Debug for HandleKey {
    /// Writes no part of the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HandleKey(..)")
    }
}

impl HandleKey {
    /// Returns a new key that is forgotten with the process, so handles become invalid with it.
    #[must_use]
    pub fn random() -> Self {
        Self(rand::random())
    }

    /// Returns the key of a state directory: handles outlive the process.
    #[must_use]
    pub fn from_state(state: &StateDirectory) -> Self {
        Self(*state.key())
    }

    fn tag(&self, domain: u8, parts: &[&[u8]]) -> [u8; TAG_SIZE] {
        use std::hash::Hasher;
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write_u8(domain);
        for part in parts {
            hasher.write_u64(part.len() as u64);
            hasher.write(part);
        }
        hasher.finish128().as_bytes()
    }

    /// Returns the number of an export with this name and root that contains exports with the roots `inner`.
    /// After a restart the number is unchanged; another directory has another number. An older handle may
    /// belong to an object inside a later inner export. So the number changes with the inner exports, and
    /// older handles are stale.
    #[must_use]
    pub(super) fn export_id(&self, name: &[u8], root: &FileId, inner: &BTreeSet<&[u8]>) -> ExportId {
        let parts: Vec<&[u8]> = [name, root.as_bytes()].into_iter().chain(inner.iter().copied()).collect();
        let tag = self.tag(b'e', &parts);
        ExportId(tag.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes)))
    }

    /// Returns a handle for an object of an export.
    #[must_use]
    pub(super) fn seal(&self, export: ExportId, id: &FileId) -> FileHandle {
        let export = export.0.to_be_bytes();
        let tag = self.tag(VERSION, &[&export, id.as_bytes()]);
        FileHandle::gather(&[&[VERSION], &export, id.as_bytes(), &tag])
    }

    /// Returns the object of a handle; `None` if this server did not make the handle.
    #[must_use]
    pub(super) fn open(&self, handle: &FileHandle) -> Option<(ExportId, FileId)> {
        let (version, rest) = handle.as_bytes().split_first()?;
        let (rest, tag) = rest.split_last_chunk::<TAG_SIZE>()?;
        let (export, id) = rest.split_first_chunk::<EXPORT_SIZE>()?;
        if *version != VERSION || !equal(&self.tag(VERSION, &[export, id]), tag) {
            return None;
        }
        Some((ExportId(u64::from_be_bytes(*export)), FileId::new(id)?))
    }
}

/// Compares in constant time.
fn equal(left: &[u8; TAG_SIZE], right: &[u8; TAG_SIZE]) -> bool {
    left.iter().zip(right).fold(0, |difference, (left, right)| difference | (left ^ right)) == 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key() -> HandleKey {
        HandleKey([7; 16])
    }

    // requirement: rfc1813-2.4-1
    #[test]
    fn a_handle_of_the_longest_id_fills_what_version_3_allows() {
        let id = FileId::new(&[0xaa; FILE_ID_MAX]).unwrap();
        let handle = key().seal(ExportId(1), &id);
        assert_eq!(handle.as_bytes().len(), MAX_HANDLE);
        assert_eq!(key().open(&handle), Some((ExportId(1), id)));
        assert_eq!(FileId::new(&[0; FILE_ID_MAX + 1]), None);
    }

    #[test]
    fn a_handle_under_another_key_is_refused() {
        let handle = HandleKey([8; 16]).seal(ExportId(1), &FileId::new(b"x").unwrap());
        assert_eq!(key().open(&handle), None);
    }

    #[test]
    fn exports_of_other_names_or_roots_have_other_numbers() {
        let [a, b, long] = [b"a".as_slice(), b"b", b"ya"].map(|id| FileId::new(id).unwrap());
        let (none, inner) = (BTreeSet::new(), BTreeSet::from([b.as_bytes()]));
        let number = |name: &[u8], root, inner| key().export_id(name, root, inner);
        assert_eq!(number(b"/x", &a, &none), number(b"/x", &a, &none));
        assert_ne!(number(b"/x", &a, &none), number(b"/x", &b, &none));
        assert_ne!(number(b"/x", &a, &none), number(b"/y", &a, &none));
        assert_ne!(number(b"/x", &a, &none), number(b"/x", &a, &inner));
        // The parts have lengths, and the numbers of exports are no tags of handles.
        assert_ne!(number(b"/x", &long, &none), number(b"/xy", &a, &none));
        assert_ne!(key().tag(b'e', &[b"/x"]), key().tag(VERSION, &[b"/x"]));
    }

    proptest! {
        #[test]
        fn no_changed_handle_is_accepted(
            id in proptest::collection::vec(any::<u8>(), 0..=FILE_ID_MAX),
            at in any::<prop::sample::Index>(),
            bit in 0..8_u8,
            cut in any::<prop::sample::Index>(),
        ) {
            let handle = key().seal(ExportId(3), &FileId::new(&id).unwrap());
            let mut bytes = handle.as_bytes().to_vec();
            let place = at.index(bytes.len());
            bytes[place] ^= 1 << bit;
            prop_assert_eq!(key().open(&FileHandle::new(&bytes).unwrap()), None);
            let shorter = &handle.as_bytes()[..cut.index(bytes.len())];
            prop_assert_eq!(key().open(&FileHandle::new(shorter).unwrap()), None);
        }

        #[test]
        fn arbitrary_bytes_are_no_handle(bytes in proptest::collection::vec(any::<u8>(), 0..=MAX_HANDLE)) {
            prop_assert_eq!(key().open(&FileHandle::new(&bytes).unwrap()), None);
        }
    }
}
