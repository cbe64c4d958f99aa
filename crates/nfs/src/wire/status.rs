//! `nfsstat3`, and the common shape of all results: a status, then the fields that belong to it (RFC 1813
//! §2.6).

use std::fmt;
use std::num::NonZeroU32;

use rpcrdma_xdr::{Bound, Bounded, Decode, DecodeError, Decoder, Encode, EncodeError, Encoder};

macro_rules! statuses {
    ($($(#[$doc:meta])* $variant:ident = $code:literal, $name:literal, $text:literal;)*) => {
        /// `nfsstat3` without `NFS3_OK`: the reason why an operation failed (RFC 1813 §2.6).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Status {
            $($(#[$doc])* $variant,)*
            /// A number that RFC 1813 does not define; a few servers send those of NFSv4.
            Unknown(NonZeroU32),
        }

        impl Status {
            /// Every status that RFC 1813 defines.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Returns the status of this number, or `None` for 0, which is `NFS3_OK`.
            pub fn from_code(code: u32) -> Option<Self> {
                match code {
                    $($code => Some(Self::$variant),)*
                    other => NonZeroU32::new(other).map(Self::Unknown),
                }
            }

            /// Returns the number on the wire.
            pub fn code(self) -> u32 {
                match self {
                    $(Self::$variant => $code,)*
                    Self::Unknown(code) => code.get(),
                }
            }

            /// Returns the name in RFC 1813, for instance `NFS3ERR_NOENT`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                    Self::Unknown(_) => "an unknown status",
                }
            }

            /// Returns a description for users.
            pub fn text(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                    Self::Unknown(_) => "the server refused with a status that RFC 1813 does not define",
                }
            }
        }
    };
}

statuses! {
    /// `NFS3ERR_PERM`: not the owner, and not privileged.
    Perm = 1, "NFS3ERR_PERM", "operation not permitted";
    /// `NFS3ERR_NOENT`: no such file or directory.
    NoEnt = 2, "NFS3ERR_NOENT", "no such file or directory";
    /// `NFS3ERR_IO`: a hard error of the storage.
    Io = 5, "NFS3ERR_IO", "input/output error on the server";
    /// `NFS3ERR_NXIO`: no such device or address.
    Nxio = 6, "NFS3ERR_NXIO", "no such device or address";
    /// `NFS3ERR_ACCES`: permission denied by the mode or the export.
    Acces = 13, "NFS3ERR_ACCES", "permission denied";
    /// `NFS3ERR_EXIST`: the name exists already.
    Exist = 17, "NFS3ERR_EXIST", "the name exists already";
    /// `NFS3ERR_XDEV`: a hard link or rename from one file system to another.
    Xdev = 18, "NFS3ERR_XDEV", "source and target are on different file systems";
    /// `NFS3ERR_NODEV`: no such device.
    NoDev = 19, "NFS3ERR_NODEV", "no such device";
    /// `NFS3ERR_NOTDIR`: not a directory.
    NotDir = 20, "NFS3ERR_NOTDIR", "not a directory";
    /// `NFS3ERR_ISDIR`: a directory where another type is required.
    IsDir = 21, "NFS3ERR_ISDIR", "the object is a directory";
    /// `NFS3ERR_INVAL`: an argument that the operation does not accept.
    Inval = 22, "NFS3ERR_INVAL", "invalid argument";
    /// `NFS3ERR_FBIG`: larger than the file system allows.
    FBig = 27, "NFS3ERR_FBIG", "the file would be too large";
    /// `NFS3ERR_NOSPC`: no space left.
    NoSpc = 28, "NFS3ERR_NOSPC", "no space left on the server";
    /// `NFS3ERR_ROFS`: a read-only file system or export.
    Rofs = 30, "NFS3ERR_ROFS", "read-only file system";
    /// `NFS3ERR_MLINK`: too many hard links.
    MLink = 31, "NFS3ERR_MLINK", "too many hard links";
    /// `NFS3ERR_NAMETOOLONG`: a name or path over the server's limit.
    NameTooLong = 63, "NFS3ERR_NAMETOOLONG", "file name too long";
    /// `NFS3ERR_NOTEMPTY`: a directory that is not empty.
    NotEmpty = 66, "NFS3ERR_NOTEMPTY", "directory not empty";
    /// `NFS3ERR_DQUOT`: over the quota.
    DQuot = 69, "NFS3ERR_DQUOT", "disk quota exceeded";
    /// `NFS3ERR_STALE`: the object of the handle is gone.
    Stale = 70, "NFS3ERR_STALE", "stale file handle: the object is gone";
    /// `NFS3ERR_REMOTE`: the object is on another server.
    Remote = 71, "NFS3ERR_REMOTE", "too many levels of remote in path";
    /// `NFS3ERR_BADHANDLE`: a handle that this server did not make.
    BadHandle = 10001, "NFS3ERR_BADHANDLE", "the server does not know this file handle";
    /// `NFS3ERR_NOT_SYNC`: the guard of SETATTR did not match.
    NotSync = 10002, "NFS3ERR_NOT_SYNC", "the object changed in between";
    /// `NFS3ERR_BAD_COOKIE`: a READDIR cookie that is no longer valid.
    BadCookie = 10003, "NFS3ERR_BAD_COOKIE", "the directory cookie is stale";
    /// `NFS3ERR_NOTSUPP`: the server does not have this operation.
    NotSupp = 10004, "NFS3ERR_NOTSUPP", "operation not supported by the server";
    /// `NFS3ERR_TOOSMALL`: not even one entry fits in the count asked for.
    TooSmall = 10005, "NFS3ERR_TOOSMALL", "the reply would not fit in the size asked for";
    /// `NFS3ERR_SERVERFAULT`: an error without a status of its own.
    ServerFault = 10006, "NFS3ERR_SERVERFAULT", "server fault";
    /// `NFS3ERR_BADTYPE`: the server cannot make objects of this type.
    BadType = 10007, "NFS3ERR_BADTYPE", "the server does not make objects of this type";
    /// `NFS3ERR_JUKEBOX`: not ready yet; the client repeats the call later.
    Jukebox = 10008, "NFS3ERR_JUKEBOX", "the server is busy with a slow medium; try again later";
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(code) => write!(f, "{} ({code})", self.text()),
            known => write!(f, "{} ({})", known.text(), known.name()),
        }
    }
}

/// Result of a procedure: a union over `nfsstat3` whose default arm covers every failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NfsResult<T, F> {
    /// `NFS3_OK` and the results.
    Ok(T),
    /// Any other status, with the fields of a failure, mostly attributes.
    Fail {
        /// Reason of the failure.
        status: Status,
        /// The `...resfail` structure of the procedure.
        attributes: F,
    },
}

impl<T, F> NfsResult<T, F> {
    /// Returns the results, or the status with the fields of the failure.
    pub fn into_result(self) -> Result<T, (Status, F)> {
        match self {
            Self::Ok(results) => Ok(results),
            Self::Fail { status, attributes } => Err((status, attributes)),
        }
    }

    /// Returns the reason of the failure, or `None` on success.
    pub fn status(&self) -> Option<Status> {
        match self {
            Self::Ok(_) => None,
            Self::Fail { status, .. } => Some(*status),
        }
    }
}

impl<T: Encode, F: Encode> Encode for NfsResult<T, F> {
    fn encode(&self, e: &mut Encoder) -> Result<(), EncodeError> {
        match self {
            Self::Ok(results) => {
                e.u32(0);
                results.encode(e)
            }
            Self::Fail { status, attributes } => {
                e.u32(status.code());
                attributes.encode(e)
            }
        }
    }
}

impl<T: Decode, F: Decode> Decode for NfsResult<T, F> {
    const MIN_LEN: usize = 4 + if T::MIN_LEN < F::MIN_LEN { T::MIN_LEN } else { F::MIN_LEN };

    fn decode(d: &mut Decoder) -> Result<Self, DecodeError> {
        match Status::from_code(d.u32()?) {
            None => Ok(Self::Ok(T::decode(d)?)),
            Some(status) => Ok(Self::Fail { status, attributes: F::decode(d)? }),
        }
    }
}

impl<T: Bounded, F: Bounded> Bounded for NfsResult<T, F> {
    const BOUND: Bound = Bound::words(1).then(T::BOUND.or(F::BOUND));
}
