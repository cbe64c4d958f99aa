//! READDIR and READDIRPLUS (RFC 1813 §3.3.16, §3.3.17).

use rpcrdma_xdr::Xdr;

use super::{Attributes, FileHandle, FileName, MAX_DIRECTORY_ENTRIES, NfsResult, PostOpAttr, Verifier};

/// `READDIR3args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Xdr)]
pub struct ReaddirArgs {
    /// The directory.
    pub dir: FileHandle,
    /// 0 to begin, then the cookie of the last entry that was received.
    pub cookie: u64,
    /// Zeros to begin, then the verifier of the last reply.
    pub verifier: Verifier,
    /// Most bytes of `READDIR3resok`, all XDR overhead included.
    pub count: u32,
}

/// `entry3`.
#[derive(Debug, Clone, PartialEq, Eq, Xdr)]
pub struct DirEntry {
    /// `fileid` of the attributes.
    pub fileid: u64,
    /// The name.
    pub name: FileName,
    /// Where to go on after this entry.
    pub cookie: u64,
}

impl DirEntry {
    /// Encoded bytes of the smallest entry, with the word before it that says that it follows.
    pub const MIN_SIZE: usize = 4 + 8 + 4 + 8;

    /// Encoded bytes in the list, with the word before it that says that it follows.
    pub fn size(&self) -> usize {
        Self::MIN_SIZE + self.name.as_bytes().len().next_multiple_of(4)
    }
}

/// `dirlist3`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Xdr)]
pub struct DirList {
    /// The entries.
    #[xdr(list, max = MAX_DIRECTORY_ENTRIES)]
    pub entries: Vec<DirEntry>,
    /// Whether the last of them is the last of the directory.
    pub eof: bool,
}

/// `READDIR3resok`.
#[derive(Debug, Clone, PartialEq, Eq, Xdr)]
pub struct ReaddirOk {
    /// The directory's attributes.
    pub dir_attributes: PostOpAttr,
    /// `cookieverf3`: what the cookies are valid with.
    pub verifier: Verifier,
    /// The entries.
    pub reply: DirList,
}

impl ReaddirOk {
    /// Encoded bytes around the entries: attributes, verifier, end of the list, `eof`. With the entries'
    /// [`DirEntry::size`] this is what `count` bounds.
    pub const OVERHEAD: usize = 4 + Attributes::SIZE + 8 + 4 + 4;
}

/// `READDIR3res`.
pub type ReaddirResult = NfsResult<ReaddirOk, PostOpAttr>;

/// `READDIRPLUS3args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Xdr)]
pub struct ReaddirplusArgs {
    /// The directory.
    pub dir: FileHandle,
    /// 0 to begin, then the cookie of the last entry that was received.
    pub cookie: u64,
    /// Zeros to begin, then the verifier of the last reply.
    pub verifier: Verifier,
    /// Most bytes of names, `fileid`s and cookies: a hint.
    pub dircount: u32,
    /// Most bytes of `READDIRPLUS3resok`, all XDR overhead included.
    pub maxcount: u32,
}

/// `entryplus3`.
#[derive(Debug, Clone, PartialEq, Eq, Xdr)]
pub struct DirEntryPlus {
    /// `fileid` of the attributes.
    pub fileid: u64,
    /// The name.
    pub name: FileName,
    /// Where to go on after this entry.
    pub cookie: u64,
    /// `name_attributes`: the entry's attributes, if the server has them at hand.
    pub attributes: PostOpAttr,
    /// `name_handle`: its handle, likewise.
    pub handle: Option<FileHandle>,
}

impl DirEntryPlus {
    /// Encoded bytes in the list, with the word before it that says that it follows.
    pub fn size(&self) -> usize {
        let attributes = self.attributes.map_or(0, |_| Attributes::SIZE);
        let handle = self.handle.map_or(0, |handle| 4 + handle.as_bytes().len().next_multiple_of(4));
        DirEntry::MIN_SIZE + self.name.as_bytes().len().next_multiple_of(4) + 4 + attributes + 4 + handle
    }

    /// Bytes that count against `dircount`: `fileid`, name and cookie.
    pub fn dir_size(&self) -> usize {
        8 + 4 + self.name.as_bytes().len().next_multiple_of(4) + 8
    }
}

/// `dirlistplus3`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Xdr)]
pub struct DirListPlus {
    /// The entries.
    #[xdr(list, max = MAX_DIRECTORY_ENTRIES)]
    pub entries: Vec<DirEntryPlus>,
    /// Whether the last of them is the last of the directory.
    pub eof: bool,
}

/// `READDIRPLUS3resok`.
#[derive(Debug, Clone, PartialEq, Eq, Xdr)]
pub struct ReaddirplusOk {
    /// The directory's attributes.
    pub dir_attributes: PostOpAttr,
    /// `cookieverf3`: what the cookies are valid with.
    pub verifier: Verifier,
    /// The entries.
    pub reply: DirListPlus,
}

impl ReaddirplusOk {
    /// As [`ReaddirOk::OVERHEAD`]: what `maxcount` counts besides the entries.
    pub const OVERHEAD: usize = ReaddirOk::OVERHEAD;
}

/// `READDIRPLUS3res`.
pub type ReaddirplusResult = NfsResult<ReaddirplusOk, PostOpAttr>;
