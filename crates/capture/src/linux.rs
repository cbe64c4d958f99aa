//! Reduced sessions of Linux 6.1 (NFS client and knfsd over `siw`).
//!
//! They were recorded with tcpdump in a virtual machine of Debian 12 (kernel 6.1.192-2), which mounted its own address
//! over RDMA. `cargo xtask reduce-capture` reduced them. The top of each file lists the commands of the recording.

use crate::session::Session;
use crate::text::{TextError, read};

macro_rules! recordings {
    ($($name:literal),* $(,)?) => {
        /// Names and contents of all recordings.
        pub const ALL: &[(&str, &str)] = &[$(($name, include_str!(concat!("../linux/", $name, ".txt")))),*];
    };
}

recordings!(
    "kclient-probe",
    "knfsd-probe",
    "nfs3-acl",
    "nfs3-io",
    "nfs3-io-mtu1500",
    "nfs3-meta",
    "nfs41-meta",
);

/// Returns the sessions of one recording; none if there is no such recording.
///
/// # Errors
/// [`TextError`] if the file is malformed, which its tests exclude.
pub fn sessions(name: &str) -> Result<Vec<Session>, TextError> {
    ALL.iter().find(|(known, _)| *known == name).map_or(Ok(Vec::new()), |(_, text)| read(text))
}
