//! The kernel's client on our server: `mount -t nfs -o vers=3,proto=rdma` in the guest, `rpcrdma serve` on the host.

use super::{Case, Detail};
use crate::interop::failure::{Failure, ensure};
use crate::interop::lab::Lab;

pub(super) const CASES: &[Case] = &[Case::new(
    "mount-default",
    "Default options mount the export; a file written there is the file on the server",
    mount_default,
)];

fn mount_default(lab: &mut Lab) -> Result<Detail, Failure> {
    let server = lab.serve(&[])?;
    let mount = lab.mount(&server, "")?;
    lab.guest("echo hello >\"$1/file\"", &[&mount.path])?;
    let text = std::fs::read_to_string(server.export.join("file"))?;
    ensure!(text == "hello\n", "the server has {text:?}");
    let size = |name| mount.option(name).unwrap_or("?").to_owned();
    Ok(format!("rsize {}, wsize {}", size("rsize"), size("wsize")))
}
