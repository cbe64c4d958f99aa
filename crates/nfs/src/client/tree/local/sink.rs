//! The local file, device or pipe that receives the content of a file at the server.

use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use rpcrdma::streaming::write_all;
use rpcrdma_xdr::Payload;
use rustix::fs::{
    FileType, Gid, Mode, OFlags, Statx, StatxAttributes, Uid, XattrFlags, fgetxattr, fsetxattr, openat,
};
use rustix::io::{Errno, pwritev, writev};

use super::attributes::{
    PERMISSIONS, PRIVATE_FILE, XATTR_MAX, apply, id_of, is_type, settable, stat_of, xattr_names,
};
use super::names::{End, Spot, Temporary, follow, spare};
use super::part::{self, Part};
use crate::client::tree::identity::Identity;
use crate::client::tree::partial::part_name;
use crate::client::tree::{Copying, Kept, Owned};
use crate::wire::Attributes;

/// Length of the blocks that are tested for zeros, in bytes: no common file system has smaller blocks.
const BLOCK: usize = 4096;
const BLOCK_LENGTH: u64 = 4096;

/// Returns whether all bytes are zero.
fn is_zero(data: &[u8]) -> bool {
    const ZEROS: [u8; BLOCK] = [0; BLOCK];
    data.chunks(BLOCK).all(|block| ZEROS.get(..block.len()) == Some(block))
}

/// Requirements of a new local file beside its content.
pub(in crate::client::tree) struct Wanted {
    /// Attributes of the file at the server.
    pub(in crate::client::tree) source: Attributes,
    /// Copy that the file belongs to.
    pub(in crate::client::tree) copying: Copying,
    /// Whether a later copy continues this one.
    pub(in crate::client::tree) partial: bool,
    /// Whether this copy of the file begins anew, under the name that it has already.
    pub(in crate::client::tree) again: bool,
}

impl Wanted {
    /// Returns the initial mode of a new file; the umask of this process applies to it.
    fn first_mode(&self) -> Mode {
        let kept = self.copying.options.preserve;
        Mode::from_raw_mode(if kept { PRIVATE_FILE } else { self.source.mode & PERMISSIONS })
    }

    /// Claims the name of the file for its source.
    fn claim(&self, spot: &Spot) -> io::Result<()> {
        if self.again { Ok(()) } else { spot.claim(&self.copying) }
    }

    /// Checks that the file would not be copied onto itself.
    fn differs(&self, existing: &Statx) -> io::Result<()> {
        if Identity::from(existing) == Identity::from(&self.source) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "source and target are the same file"));
        }
        Ok(())
    }

    /// Claims a file to write it in place. Returns whether this is the first time.
    fn take_in_place(&self, existing: &Statx) -> io::Result<bool> {
        let run = &self.copying.run;
        let _turn = run.local_turn();
        spare(existing, run)?;
        // With one link, another name that leads here is another spelling of this name.
        if existing.stx_nlink <= 1 {
            run.take(id_of(existing));
        }
        Ok(run.first_in_place(id_of(existing)))
    }
}

/// System calls whose failure means lost data.
#[derive(Clone, Copy)]
struct Storage {
    sync: fn(&File) -> io::Result<()>,
    close: fn(OwnedFd) -> io::Result<()>,
}

impl Storage {
    const SYSTEM: Self = Self { sync: File::sync_data, close: rpcrdma_sys::close };
}

/// Content without holes, in the slices in which it arrived.
struct Run<'a> {
    offset: u64,
    slices: Vec<IoSlice<'a>>,
}

impl<'a> Run<'a> {
    fn push(&mut self, slice: &'a [u8], part: Range<usize>) {
        self.slices.extend(slice.get(part).filter(|part| !part.is_empty()).map(IoSlice::new));
    }

    fn write(&self, file: &File) -> io::Result<()> {
        let at = |done| self.offset.saturating_add(wide(done));
        write_all(&self.slices, |rest, done| Ok(pwritev(file, rest, at(done))?)).1
    }
}

/// Destination of a file's content; see the module documentation.
pub(in crate::client::tree) struct Sink {
    file: File,
    kind: Kind,
    storage: Storage,
    /// Length of the content that an earlier copy left, in bytes.
    resumed: u64,
    /// Whether the length tells a later copy how far this one came, even over zeros.
    lasting: bool,
}

enum Kind {
    /// A file that gets its name at the end, and the mode of the file that it replaces.
    /// `surplus` has the permissions that only the incomplete file has.
    Part { temporary: Temporary, name: OsString, mode: Option<u32>, surplus: u32 },
    /// An existing regular file. `empty` is set once the old content is truncated.
    InPlace { empty: bool },
    /// A device or pipe, written from beginning to end.
    Stream,
}

impl Sink {
    /// Opens the file at the end of a path that the caller named. Follows links, and opens devices and pipes
    /// for writing.
    pub(in crate::client::tree) fn named(path: &Path, wanted: &Wanted) -> io::Result<Self> {
        let spot = match follow(path)? {
            End::Place(spot) => spot,
            End::Magic(path) => {
                let file = File::options().write(true).open(path)?;
                let stat = stat_of(&file)?;
                if !is_type(&stat, FileType::RegularFile) {
                    return Ok(Self::new(file, Kind::Stream));
                }
                wanted.differs(&stat)?;
                return Ok(Self::new(file, Kind::InPlace { empty: false }));
            }
        };
        match spot.existing()? {
            Some(stat) if !is_type(&stat, FileType::RegularFile) && !is_type(&stat, FileType::Directory) => {
                // As with cp, a pipe waits here for its reader.
                let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
                let file = File::from(openat(&*spot.dir.fd()?, &spot.name, flags, Mode::empty())?);
                Ok(Self::new(file, Kind::Stream))
            }
            Some(stat) => Self::over(&spot, &stat, wanted, stat.stx_nlink > 1),
            None => Self::fresh(&spot, wanted),
        }
    }

    /// Opens a file of a tree. A link in its place is replaced, not followed; any object that is neither a
    /// file nor a link is left alone.
    pub(in crate::client::tree) fn in_tree(spot: &Spot, wanted: &Wanted) -> io::Result<Self> {
        match spot.replaceable()? {
            None => Self::fresh(spot, wanted),
            Some(stat) if is_type(&stat, FileType::Symlink) => {
                wanted.claim(spot)?;
                Self::part(spot, None, wanted)
            }
            Some(stat) => Self::over(spot, &stat, wanted, false),
        }
    }

    const fn new(file: File, kind: Kind) -> Self {
        Self { file, kind, storage: Storage::SYSTEM, resumed: 0, lasting: false }
    }

    /// Makes a file under an unused name.
    fn fresh(spot: &Spot, wanted: &Wanted) -> io::Result<Self> {
        wanted.claim(spot)?;
        if wanted.copying.options.in_place {
            Self::create(spot, wanted)
        } else {
            Self::part(spot, None, wanted)
        }
    }

    /// Opens an existing regular file. If it is written in place, its other names get the new content.
    fn over(spot: &Spot, stat: &Statx, wanted: &Wanted, with_other_names: bool) -> io::Result<Self> {
        if is_type(stat, FileType::Directory) {
            return Err(Errno::ISDIR.into());
        }
        wanted.differs(stat)?;
        wanted.claim(spot)?;
        spare(stat, &wanted.copying.run)?;
        // A file on which another file is mounted cannot be replaced by a rename (EBUSY).
        let mounted = stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
        let in_place = wanted.copying.options.in_place || with_other_names || mounted;
        if in_place && let Some(file) = Self::existing(spot, wanted)? {
            return Ok(file);
        }
        match Self::part(spot, Some(stat), wanted) {
            // A user who may not make files here, or not with this owner, may still write to the existing
            // file.
            Err(error) if cannot_replace(&error) => Self::existing(spot, wanted).ok().flatten().ok_or(error),
            part => part,
        }
    }

    fn create(spot: &Spot, wanted: &Wanted) -> io::Result<Self> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let run = &wanted.copying.run;
        let _turn = run.local_turn();
        let file = File::from(openat(&*spot.dir.fd()?, &spot.name, flags, wanted.first_mode())?);
        run.take(id_of(&stat_of(&file)?));
        Ok(Self::new(file, Kind::InPlace { empty: true }))
    }

    /// Opens an existing file to write it in place. Returns `None` if an earlier name led to the same file.
    fn existing(spot: &Spot, wanted: &Wanted) -> io::Result<Option<Self>> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = File::from(openat(&*spot.dir.fd()?, &spot.name, flags, Mode::empty())?);
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "is not a regular file any more"));
        }
        let first = wanted.take_in_place(&stat_of(&file)?)?;
        Ok(first.then(|| Self::new(file, Kind::InPlace { empty: false })))
    }

    /// Makes a new file under a temporary name, which will replace `existing`.
    fn part(spot: &Spot, existing: Option<&Statx>, wanted: &Wanted) -> io::Result<Self> {
        // The file stays private until it has the attributes of the file that it replaces.
        let mode = if existing.is_some() { Mode::from_raw_mode(PRIVATE_FILE) } else { wanted.first_mode() };
        let part = if wanted.partial {
            let source = Identity::from(&wanted.source);
            let name = part_name(spot.name.as_bytes(), &source, &wanted.copying.options);
            let place = Spot { dir: Arc::clone(&spot.dir), name: OsString::from_vec(name) };
            let user = rustix::process::geteuid().as_raw();
            let owner = existing.map(|stat| stat.stx_uid);
            let rules = part::Rules { size: source.size(), user, owner, mode };
            part::open(&place, &rules, part::WAIT)?.map(|part| (place, part))
        } else {
            None
        };
        let lasting = part.is_some();
        let (temporary, file, resumed) = match part {
            Some((place, Part { file, length, held })) => {
                (Temporary::lasting(place, held, &wanted.copying), file, length)
            }
            None => {
                let mut temporary = Temporary::beside(spot, &wanted.copying);
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                let file = File::from(openat(&*spot.dir.fd()?, &temporary.spot.name, flags, mode)?);
                temporary.made = true;
                (temporary, file, 0)
            }
        };
        let mut replaced = None;
        if let Some(stat) = existing {
            let (uid, gid) = (stat.stx_uid, stat.stx_gid);
            let made = file.metadata()?;
            if (made.uid(), made.gid()) != (uid, gid) {
                rustix::fs::fchown(&file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
            }
            copy_xattrs(spot, &file)?;
            replaced = Some(u32::from(stat.stx_mode));
        }
        let surplus = if lasting { PRIVATE_FILE & !mode.as_raw_mode() } else { 0 };
        let kind = Kind::Part { temporary, name: spot.name.clone(), mode: replaced, surplus };
        Ok(Self { resumed, lasting, ..Self::new(file, kind) })
    }

    /// Returns the length of the content that an earlier copy left, in bytes.
    pub(in crate::client::tree) const fn resumed(&self) -> u64 {
        self.resumed
    }

    /// Removes an incomplete file, even one for a later copy.
    pub(in crate::client::tree) fn discard(mut self) {
        if let Kind::Part { temporary, .. } = &mut self.kind {
            temporary.give_up();
        }
    }

    /// Writes content at `offset`. Offsets never decrease.
    pub(in crate::client::tree) fn write(&mut self, offset: u64, data: &Payload) -> io::Result<()> {
        match &mut self.kind {
            Kind::Stream => {
                let slices: Vec<_> = data.iter().map(|slice| IoSlice::new(slice)).collect();
                return write_all(&slices, |rest, _| Ok(writev(&self.file, rest)?)).1;
            }
            Kind::InPlace { empty } => cut(&self.file, empty)?,
            Kind::Part { .. } => {}
        }
        // A run of blocks that are not all zeros is written in one call. Unwritten parts read as zeros. A
        // block that lies in two slices is tested in two parts.
        let mut run = Run { offset, slices: Vec::new() };
        let mut at = offset;
        for slice in data.iter() {
            let within = usize::try_from(at % BLOCK_LENGTH).unwrap_or_default();
            let (mut start, mut end) = (0, 0);
            let mut next = slice.len().min(BLOCK - within);
            while end < slice.len() {
                if slice.get(end..next).is_some_and(is_zero) {
                    run.push(slice, start..end);
                    run.write(&self.file)?;
                    run = Run { offset: at.saturating_add(wide(next)), slices: Vec::new() };
                    start = next;
                }
                end = next;
                next = slice.len().min(end.saturating_add(BLOCK));
            }
            run.push(slice, start..end);
            at = at.saturating_add(wide(slice.len()));
        }
        if self.lasting && run.slices.is_empty() {
            self.file.set_len(at)?;
        }
        run.write(&self.file)
    }

    /// Returns whether zeros need not be written because the file already reads as zeros.
    pub(in crate::client::tree) fn takes_holes(&self) -> bool {
        !matches!(self.kind, Kind::Stream)
    }

    /// Sets the length of the file, then the attributes to keep, and last the name. The close must succeed
    /// before. An old file is given up only for data on stable storage. Returns whether owner and group could
    /// be kept.
    pub(in crate::client::tree) fn finish(self, size: u64, kept: Option<Kept>) -> io::Result<Owned> {
        let Self { file, mut kind, storage, .. } = self;
        let mut owned = Owned::ALL;
        let durable = match &mut kind {
            // The queue of a disk reports no errors at close.
            Kind::Stream => is_type(&stat_of(&file)?, FileType::BlockDevice),
            Kind::InPlace { empty } => {
                cut(&file, empty)?;
                false
            }
            Kind::Part { mode, .. } => mode.is_some(),
        };
        if !matches!(kind, Kind::Stream) {
            file.set_len(size)?;
            let (replaced, surplus) =
                if let Kind::Part { mode, surplus, .. } = &kind { (*mode, *surplus) } else { (None, 0) };
            match (kept, replaced) {
                (Some(kept), _) => owned = apply(&file, kept)?,
                (None, Some(mode)) => {
                    file.set_permissions(Permissions::from_mode(mode & settable(Owned::ALL)))?;
                }
                (None, None) if surplus != 0 => {
                    let mode = file.metadata()?.mode() & PERMISSIONS & !surplus;
                    file.set_permissions(Permissions::from_mode(mode))?;
                }
                (None, None) => {}
            }
        }
        if durable {
            (storage.sync)(&file)?;
        }
        let object = id_of(&stat_of(&file)?);
        (storage.close)(file.into())?;
        if let Kind::Part { temporary, name, .. } = kind {
            temporary.rename(&name, Some(object))?;
        }
        Ok(owned)
    }
}

/// Truncates a file that is written in place, not before the first content is available.
fn cut(file: &File, empty: &mut bool) -> io::Result<()> {
    if !*empty {
        file.set_len(0)?;
        *empty = true;
    }
    Ok(())
}

/// Returns whether an error means that a file cannot be replaced by a similar one, but perhaps be written.
fn cannot_replace(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
    matches!(error.kind(), PermissionDenied | InvalidInput | Unsupported)
}

/// Copies the extended attributes of a file to the new file that will replace it.
fn copy_xattrs(spot: &Spot, to: &File) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let from = openat(&*spot.dir.fd()?, &spot.name, flags, Mode::empty())?;
    for name in xattr_names(&from)? {
        let mut value = vec![0; XATTR_MAX];
        let length = fgetxattr(&from, name.as_slice(), value.as_mut_slice())?;
        fsetxattr(to, name.as_slice(), value.get(..length).unwrap_or_default(), XattrFlags::empty())?;
    }
    Ok(())
}

/// Returns a length as part of an offset.
fn wide(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
