//! File handles of the Linux kernel, `name_to_handle_at(2)` and `open_by_handle_at(2)`, a `close(2)` that returns
//! its result, and the removal of variables of the environment.
//!
//! A handle names an inode for as long as the inode exists: across renames, closed descriptors and restarts. A file
//! server needs that, and no crate with a safe interface offers it. So this crate is the only place of the workspace
//! with `unsafe`, for four calls. The handle lives in an array as long as any handle that the kernel makes; nothing is
//! shared, and nothing is kept. Errors are those of the system call.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};

/// Longest handle that the kernel makes, in bytes (`MAX_HANDLE_SZ`).
pub const KERNEL_HANDLE_MAX: usize = 128;

/// `struct file_handle` with the space that its flexible array needs.
#[repr(C)]
struct RawHandle {
    handle_bytes: libc::c_uint,
    handle_type: libc::c_int,
    f_handle: [u8; KERNEL_HANDLE_MAX],
}

/// A handle from the kernel: a type and up to [`KERNEL_HANDLE_MAX`] opaque bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelHandle {
    /// The file system's type of handle.
    pub kind: i32,
    /// The opaque bytes.
    pub bytes: Vec<u8>,
}

/// Returns the handle of the object that `fd` refers to (an `O_PATH` descriptor will do).
///
/// # Errors
/// `EOPNOTSUPP` where the file system has no handles; see `name_to_handle_at(2)` for the rest.
pub fn handle_of(fd: BorrowedFd<'_>) -> io::Result<KernelHandle> {
    let mut raw = RawHandle {
        handle_bytes: libc::c_uint::try_from(KERNEL_HANDLE_MAX).unwrap_or(0),
        handle_type: 0,
        f_handle: [0; KERNEL_HANDLE_MAX],
    };
    let mut mount_id: libc::c_int = 0;
    // SAFETY: `raw` has the layout of `struct file_handle` followed by as many bytes as `handle_bytes` says. It is
    // writable and lives until the call returns. The path is a NUL-terminated constant, and `mount_id` a writable
    // int. `fd` is open for as long as it is borrowed. The kernel keeps none of the pointers.
    #[allow(unsafe_code)]
    let result = unsafe {
        libc::name_to_handle_at(
            fd.as_raw_fd(),
            c"".as_ptr(),
            (&raw mut raw).cast::<libc::file_handle>(),
            &raw mut mount_id,
            libc::AT_EMPTY_PATH,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let length = usize::try_from(raw.handle_bytes).unwrap_or(usize::MAX);
    let bytes = raw.f_handle.get(..length).ok_or_else(|| {
        io::Error::other(format!("a kernel handle of {length} bytes, at most {KERNEL_HANDLE_MAX} expected"))
    })?;
    Ok(KernelHandle { kind: raw.handle_type, bytes: bytes.to_vec() })
}

/// Opens the object that a handle names, on the file system of `mount` (not an `O_PATH` descriptor). `flags` are those
/// of `open(2)`; `O_CLOEXEC` is added. Needs `CAP_DAC_READ_SEARCH`.
///
/// The handle may come from anywhere: a handle without an object is refused.
///
/// # Errors
/// `ESTALE` if the object is gone or never was; `EPERM` without the capability; `EINVAL` for a handle over
/// [`KERNEL_HANDLE_MAX`]; see `open_by_handle_at(2)` for the rest.
pub fn open_by_handle(mount: BorrowedFd<'_>, handle: &KernelHandle, flags: i32) -> io::Result<OwnedFd> {
    let mut raw = RawHandle {
        handle_bytes: libc::c_uint::try_from(handle.bytes.len()).unwrap_or(libc::c_uint::MAX),
        handle_type: handle.kind,
        f_handle: [0; KERNEL_HANDLE_MAX],
    };
    let Some(target) = raw.f_handle.get_mut(..handle.bytes.len()) else {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    };
    target.copy_from_slice(&handle.bytes);
    // SAFETY: `raw` has the layout of `struct file_handle` followed by at least `handle_bytes` bytes (checked
    // above), all initialised, and lives until the call returns; `mount` is open for as long as it is borrowed. The
    // kernel treats the bytes as untrusted and keeps no pointer.
    #[allow(unsafe_code)]
    let fd = unsafe {
        libc::open_by_handle_at(
            mount.as_raw_fd(),
            (&raw mut raw).cast::<libc::file_handle>(),
            flags | libc::O_CLOEXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just returned this descriptor to us; it has no other owner.
    #[allow(unsafe_code)]
    let owned = unsafe { OwnedFd::from_raw_fd(fd) };
    Ok(owned)
}

/// Closes a descriptor and returns the result: file systems that write at the close (NFS, FUSE) report lost data here.
/// The descriptor is closed in any case, as Linux does it, and must not be closed again.
///
/// # Errors
/// `EIO`, `ENOSPC`, `EDQUOT`: data was lost; `EINTR`: interrupted by a signal. See `close(2)`.
pub fn close(fd: OwnedFd) -> io::Result<()> {
    // SAFETY: `into_raw_fd` gives up the ownership of an open descriptor, so no other code uses or closes it
    // afterwards.
    #[allow(unsafe_code)]
    let result = unsafe { libc::close(fd.into_raw_fd()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns whether this process has one thread.
///
/// # Errors
/// `/proc` cannot be read.
pub fn has_one_thread() -> io::Result<bool> {
    Ok(std::fs::read_dir("/proc/self/task")?.take(2).count() == 1)
}

/// Removes variables from the environment, so that processes which this one starts do not get them. Call this while the
/// process has one thread: another one could read the environment at the same time.
///
/// # Errors
/// [`io::ErrorKind::ResourceBusy`] if there are other threads: no variable is removed. Errors of reading `/proc`.
pub fn remove_variables(names: &[&str]) -> io::Result<()> {
    if !has_one_thread()? {
        let message = "variables can only be removed while the process has one thread";
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, message));
    }
    for name in names {
        // SAFETY: this thread is the only one of the process (checked above), and it starts none here. So no other thread
        // reads or writes the environment meanwhile.
        #[allow(unsafe_code)]
        unsafe {
            std::env::remove_var(name);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    /// Returns whether an error means missing support of the file system, or a capability that a test may not have.
    fn unavailable(error: &io::Error) -> bool {
        matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EPERM | libc::EOVERFLOW))
    }

    #[test]
    fn a_handle_survives_a_rename_and_ends_with_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let mount = File::open(directory.path()).unwrap();
        let path = directory.path().join("a");
        std::fs::write(&path, b"text").unwrap();
        let file = File::open(&path).unwrap();
        let inode = file.metadata().unwrap().ino();
        let handle = match handle_of(file.as_fd()) {
            Ok(handle) => handle,
            Err(error) if unavailable(&error) => return,
            Err(error) => panic!("{error}"),
        };
        drop(file);
        std::fs::rename(&path, directory.path().join("b")).unwrap();
        match open_by_handle(mount.as_fd(), &handle, libc::O_RDONLY) {
            Ok(fd) => assert_eq!(File::from(fd).metadata().unwrap().ino(), inode),
            Err(error) if unavailable(&error) => return,
            Err(error) => panic!("{error}"),
        }
        std::fs::remove_file(directory.path().join("b")).unwrap();
        let gone = open_by_handle(mount.as_fd(), &handle, libc::O_RDONLY).unwrap_err();
        assert_eq!(gone.raw_os_error(), Some(libc::ESTALE));
    }

    #[test]
    fn a_closed_descriptor_is_closed() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        close(writer.into()).unwrap();
        // The other end sees the close: there is no writer any more.
        assert_eq!(std::io::Read::read(&mut reader, &mut [0]).unwrap(), 0);
    }

    #[test]
    fn an_overlong_handle_is_refused_before_the_kernel_sees_it() {
        let mount = File::open("/").unwrap();
        let handle = KernelHandle { kind: 1, bytes: vec![0; KERNEL_HANDLE_MAX + 1] };
        let error = open_by_handle(mount.as_fd(), &handle, libc::O_RDONLY).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    }

    /// A test has a thread of its own beside the first one.
    #[test]
    fn variables_stay_while_there_are_other_threads() {
        assert!(!has_one_thread().unwrap());
        let refused = remove_variables(&["PATH"]).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy);
        assert!(std::env::var_os("PATH").is_some());
    }
}
