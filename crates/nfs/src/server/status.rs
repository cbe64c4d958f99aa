//! The exports of a server and the threads for them, for its administrator.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use super::{ExportAccess, ExportId, LaneStatus, NfsServer, Security};

/// An export and the clients that mounted it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExportStatus {
    /// Name that clients mount.
    pub name: String,
    /// The origin of the file system ([`Export::origin`](super::Export::origin)).
    pub origin: Option<String>,
    /// Whether clients may write: all of them, some or none.
    pub access: ExportAccess,
    /// Flavours of security that calls of any client may have. Those of clients without a rule come first, in the order of
    /// preference.
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
                origin: served.export.origin.clone(),
                access: served.export.access(),
                security: Security::all(served.export.flavors()),
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
