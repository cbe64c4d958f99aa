//! Reduced sessions of Linux 6.1: its NFS client and knfsd on `siw`, and our programs with these on `rxe`.
//!
//! They were recorded with tcpdump in virtual machines of Debian 12 (kernel 6.1.192-2). For iWARP one machine mounted
//! its own address; for RoCE there were two machines. `cargo xtask reduce-capture` reduced the recordings. The top of
//! each file lists the commands of the recording.

use crate::session::Session;
use crate::text::{TextError, read};

macro_rules! recordings {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../linux/", $name, ".txt")))),*]
    };
}

/// Names and contents of the recordings of iWARP.
pub const IWARP: &[(&str, &str)] = recordings!(
    "kclient-probe",
    "knfsd-probe",
    "nfs3-acl",
    "nfs3-io",
    "nfs3-io-mtu1500",
    "nfs3-meta",
    "nfs41-meta",
);

/// Names and contents of the recordings of RoCE.
pub const ROCE: &[(&str, &str)] = recordings!("roce-kclient", "roce-rpcrdma", "roce-knfsd");

/// Returns the sessions of one recording; none if there is no such recording.
///
/// # Errors
/// [`TextError`] if the file is malformed, which its tests exclude.
pub fn sessions(name: &str) -> Result<Vec<Session>, TextError> {
    let mut all = IWARP.iter().chain(ROCE);
    all.find(|(known, _)| *known == name).map_or(Ok(Vec::new()), |(_, text)| read(text))
}
