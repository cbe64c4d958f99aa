//! Which device an address belongs to, or is reached by.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::adapter::Adapter;
use crate::cm::{Endpoint, Kind};

/// Time to look for the device of an address.
const LIMIT: Duration = Duration::from_secs(2);

/// Returns the name of the device that has this address of ours. `None` for loopback and unspecified addresses, for
/// addresses of other interfaces, and where a library or the kernel's part is missing.
pub async fn device_at(address: IpAddr) -> Option<String> {
    if address.is_loopback() || address.is_unspecified() {
        return None;
    }
    let endpoint = Endpoint::new().ok()?;
    endpoint.bind(SocketAddr::new(address, 0)).ok()?;
    name(&endpoint)
}

/// Returns the name of the device by which this address is reached; `None` as for [`device_at`].
pub async fn device_towards(address: SocketAddr) -> Option<String> {
    if address.ip().is_loopback() || address.ip().is_unspecified() {
        return None;
    }
    let mut endpoint = Endpoint::new().ok()?;
    endpoint.resolve_address(address, LIMIT).ok()?;
    let event = tokio::time::timeout(LIMIT, endpoint.event()).await.ok()?.ok()?;
    if event.kind == Kind::AddressResolved { name(&endpoint) } else { None }
}

fn name(endpoint: &Endpoint) -> Option<String> {
    Some(Adapter::of(endpoint.context()?, endpoint.port()).ok()?.name)
}
