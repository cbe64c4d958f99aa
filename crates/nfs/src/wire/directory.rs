//! READDIR and READDIRPLUS (RFC 1813 §3.3.16, §3.3.17).

use rpcrdma_xdr::Xdr;

use super::{Attributes, FileHandle, FileName, MAX_DIRECTORY_ENTRIES, NfsResult, PostOpAttr, Verifier};

/// `READDIR3args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Xdr)]
pub struct ReaddirArgs {
    /// The directory.
    pub dir: FileHandle,
    /// 0 to begin, then the cookie of the last entry received.
    pub cookie: u64,
    /// Zeros to begin, then the verifier of the last reply.
    pub verifier: Verifier,
    /// Most bytes of `READDIR3resok`, including all XDR overhead.
    pub count: u32,
}

/// An entry of READDIR: `entry3` (RFC 1813 §3.3.16).
#[derive(Debug, Clone, PartialEq, Eq, Xdr)]
pub struct DirEntry {
    /// `fileid` of the attributes.
    pub fileid: u64,
    /// The name.
    pub name: FileName,
    /// Position for the continuation after this entry.
    pub cookie: u64,
}

impl DirEntry {
    /// Encoded length of the smallest entry, with the preceding word that announces it, in bytes.
    pub const MIN_SIZE: usize = 4 + 8 + 4 + 8;

    /// Returns the encoded length in the list, with the preceding word that announces the entry, in bytes.
    pub fn size(&self) -> usize {
        Self::MIN_SIZE + self.name.as_bytes().len().next_multiple_of(4)
    }
}

/// The entries of a READDIR reply: `dirlist3` (RFC 1813 §3.3.16).
#[derive(Debug, Clone, PartialEq, Eq, Default, Xdr)]
pub struct DirList {
    /// The entries.
    #[xdr(list, max = MAX_DIRECTORY_ENTRIES)]
    pub entries: Vec<DirEntry>,
    /// Whether the last entry is also the last of the directory.
    pub eof: bool,
}

/// `READDIR3resok`.
#[derive(Debug, Clone, PartialEq, Eq, Xdr)]
pub struct ReaddirOk {
    /// The directory's attributes.
    pub dir_attributes: PostOpAttr,
    /// `cookieverf3`: the verifier of the cookies.
    pub verifier: Verifier,
    /// The entries.
    pub reply: DirList,
}

impl ReaddirOk {
    /// Encoded length of everything but the entries, in bytes: attributes, verifier, end of the list, `eof`.
    /// `count` bounds this and the [`DirEntry::size`] of all entries.
    pub const OVERHEAD: usize = 4 + Attributes::SIZE + 8 + 4 + 4;
}

/// `READDIR3res`.
pub type ReaddirResult = NfsResult<ReaddirOk, PostOpAttr>;

/// `READDIRPLUS3args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Xdr)]
pub struct ReaddirplusArgs {
    /// The directory.
    pub dir: FileHandle,
    /// 0 to begin, then the cookie of the last entry received.
    pub cookie: u64,
    /// Zeros to begin, then the verifier of the last reply.
    pub verifier: Verifier,
    /// Most bytes of names, `fileid`s and cookies: a hint.
    pub dircount: u32,
    /// Most bytes of `READDIRPLUS3resok`, including all XDR overhead.
    pub maxcount: u32,
}

/// An entry of READDIRPLUS: `entryplus3` (RFC 1813 §3.3.17).
#[derive(Debug, Clone, PartialEq, Eq, Xdr)]
pub struct DirEntryPlus {
    /// `fileid` of the attributes.
    pub fileid: u64,
    /// The name.
    pub name: FileName,
    /// Position for the continuation after this entry.
    pub cookie: u64,
    /// `name_attributes`: the entry's attributes, if the server has them available.
    pub attributes: PostOpAttr,
    /// `name_handle`: the entry's handle, if the server has it available.
    pub handle: Option<FileHandle>,
}

impl DirEntryPlus {
    /// Returns the encoded length in the list, with the preceding word that announces the entry, in bytes.
    pub fn size(&self) -> usize {
        let attributes = self.attributes.map_or(0, |_| Attributes::SIZE);
        let handle = self.handle.map_or(0, |handle| 4 + handle.as_bytes().len().next_multiple_of(4));
        DirEntry::MIN_SIZE + self.name.as_bytes().len().next_multiple_of(4) + 4 + attributes + 4 + handle
    }

    /// Returns the bytes that count against `dircount`: `fileid`, name and cookie.
    pub fn dir_size(&self) -> usize {
        8 + 4 + self.name.as_bytes().len().next_multiple_of(4) + 8
    }
}

/// The entries of a READDIRPLUS reply: `dirlistplus3` (RFC 1813 §3.3.17).
#[derive(Debug, Clone, PartialEq, Eq, Default, Xdr)]
pub struct DirListPlus {
    /// The entries.
    #[xdr(list, max = MAX_DIRECTORY_ENTRIES)]
    pub entries: Vec<DirEntryPlus>,
    /// Whether the last entry is also the last of the directory.
    pub eof: bool,
}

/// `READDIRPLUS3resok`.
#[derive(Debug, Clone, PartialEq, Eq, Xdr)]
pub struct ReaddirplusOk {
    /// The directory's attributes.
    pub dir_attributes: PostOpAttr,
    /// `cookieverf3`: the verifier of the cookies.
    pub verifier: Verifier,
    /// The entries.
    pub reply: DirListPlus,
}

impl ReaddirplusOk {
    /// Encoded length of everything but the entries, in bytes, as [`ReaddirOk::OVERHEAD`]. `maxcount` bounds
    /// this and the entries.
    pub const OVERHEAD: usize = ReaddirOk::OVERHEAD;
}

/// `READDIRPLUS3res`.
pub type ReaddirplusResult = NfsResult<ReaddirplusOk, PostOpAttr>;
