//! Our client on knfsd and on our own server.

use crate::failure::{Failure, ensure};
use crate::interop::cases::Detail;
use crate::interop::cases::our_client::remote::Remote;
use crate::interop::cases::our_client::{calls, copies};
use crate::interop::lab::Lab;

/// Checks what our client announces: only memory windows can be invalidated by the peer (RFC 8797 §4.1).
pub(super) fn invalidation(lab: &mut Lab) -> Result<Detail, Failure> {
    let windows = lab.current_fabric()?.has_windows();
    let mut counted = Vec::new();
    for counts in calls::invalidated_keys(lab)? {
        let due = if windows { counts.registered } else { 0 };
        ensure!(
            counts.invalidated == due,
            "knfsd invalidated {} of {} keys of {}, {due} were due",
            counts.invalidated,
            counts.registered,
            counts.procedure
        );
        counted.push(format!("{} {}/{}", counts.procedure, counts.invalidated, counts.registered));
    }
    Ok(counted.join(", "))
}

pub(super) fn tree(lab: &mut Lab) -> Result<Detail, Failure> {
    let (remote, _) = Remote::ours(lab)?;
    let files = copies::there_and_back(lab, &remote, &[])?;
    Ok(format!("{files} files"))
}
