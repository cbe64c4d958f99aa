//! What the kernel tells of RDMA devices in `/sys/class/infiniband`.

use std::fs;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

/// Directory of the devices.
pub(crate) const DEVICES: &str = "/sys/class/infiniband";

/// An entry of a port's table of global identifiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gid {
    /// Index in the table.
    pub index: usize,
    /// The identifier. On RoCE it is an address of the network interface, IPv4 ones as `::ffff:a.b.c.d`.
    pub gid: Ipv6Addr,
    /// How packets travel: `IB/RoCE v1` or `RoCE v2`, if the kernel tells.
    pub kind: Option<String>,
    /// Network interface that the entry belongs to, if the kernel tells.
    pub interface: Option<String>,
}

/// Returns the entries of a port's table that are in use.
pub(crate) fn gids(device: &str, port: u8) -> Vec<Gid> {
    gids_below(&Path::new(DEVICES).join(device).join("ports").join(port.to_string()))
}

fn gids_below(port: &Path) -> Vec<Gid> {
    let Ok(entries) = fs::read_dir(port.join("gids")) else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut gids: Vec<Gid> = names.filter_map(|name| gid(port, &name)).collect();
    gids.sort_by_key(|gid| gid.index);
    gids
}

/// Reads one entry; `None` if it is not in use.
fn gid(port: &Path, name: &str) -> Option<Gid> {
    let index = name.parse().ok()?;
    let gid: Ipv6Addr = line(port.join("gids").join(name))?.parse().ok()?;
    let attribute = |attributes: &str| line(port.join("gid_attrs").join(attributes).join(name));
    (!gid.is_unspecified()).then(|| Gid {
        index,
        gid,
        kind: attribute("types"),
        interface: attribute("ndevs"),
    })
}

/// Reads a file of one line; `None` also if the kernel refuses, as it does for unused entries.
fn line(path: PathBuf) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.trim();
    (!line.is_empty()).then(|| line.to_owned())
}
