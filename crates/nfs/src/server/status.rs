//! The exports of a server and the threads for them, for its administrator.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use super::{ExportId, LaneStatus, NfsServer, Security};

/// An export and the clients that mounted it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExportStatus {
    /// Name that clients mount.
    pub name: String,
    /// Whether clients may only read.
    pub read_only: bool,
    /// Flavours of security that calls may have, the preferred one first.
    pub security: Vec<Security>,
    /// Hosts with the paths that they mounted, by MOUNT. The list is bounded ([`MOUNTS_MAX`](super::MOUNTS_MAX),
    /// [`MOUNTS_PER_HOST`](super::MOUNTS_PER_HOST)), and clients that vanish stay in it.
    pub mounts: Vec<(IpAddr, Vec<u8>)>,
}

impl NfsServer {
    /// Returns the exports with their remembered mounts, in the order in which they were given.
    #[must_use]
    pub fn exports(&self) -> Vec<ExportStatus> {
        let exports = self.shared.exports();
        let mut status: Vec<ExportStatus> = exports
            .iter()
            .map(|served| ExportStatus {
                name: served.export.name.clone(),
                read_only: served.export.read_only,
                security: served.export.security.clone(),
                mounts: Vec::new(),
            })
            .collect();
        let places: HashMap<&str, usize> =
            exports.iter().enumerate().map(|(place, served)| (served.export.name.as_str(), place)).collect();
        for (host, path) in self.shared.mounts.all() {
            let Some((served, _)) = exports.find(&path) else { continue };
            let place = places.get(served.export.name.as_str());
            if let Some(export) = place.and_then(|place| status.get_mut(*place)) {
                export.mounts.push((host, path));
            }
        }
        status
    }

    /// Returns the state of the threads that call file systems, by export and kind of work. Kinds of work that an export had
    /// none of yet are left out.
    #[must_use]
    pub fn lanes(&self) -> Vec<LaneStatus> {
        let exports = self.shared.exports();
        let names: BTreeMap<ExportId, &str> =
            exports.iter().map(|served| (served.id, served.export.name.as_str())).collect();
        self.shared.io.lanes(|id| names.get(&id).map(|name| (*name).to_owned()))
    }
}
