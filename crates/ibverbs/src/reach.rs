//! Which device an address belongs to, or is reached by.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use thiserror::Error;

use crate::adapter::Adapter;
use crate::cm::{Endpoint, Kind};

/// Time to look for the device of an address.
const LIMIT: Duration = Duration::from_secs(2);

/// Why no device was found for an address.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NoDevice {
    /// The address is loopback or unspecified.
    #[error("loopback and unspecified addresses lie on no adapter")]
    OfNoInterface,
    /// A library or a part of the kernel is missing, or this process may not use it.
    #[error("adapters cannot be used here: {0}")]
    Unusable(io::Error),
    /// The connection manager knows no device for the address.
    #[error("no adapter has or reaches the address: {0}")]
    Elsewhere(io::Error),
}

/// Returns whether an address belongs to no interface of an adapter, whatever this machine has: it is loopback or
/// unspecified.
pub fn is_on_no_device(address: IpAddr) -> bool {
    let address = address.to_canonical();
    address.is_loopback() || address.is_unspecified()
}

/// Returns the name of the device that has this address of ours.
///
/// # Errors
/// See [`NoDevice`]; an address of another interface is [`NoDevice::Elsewhere`].
pub async fn device_at(address: IpAddr) -> Result<String, NoDevice> {
    let endpoint = endpoint_for(address)?;
    endpoint.bind(SocketAddr::new(address, 0)).map_err(NoDevice::Elsewhere)?;
    name(&endpoint)
}

/// Returns the name of the device by which this address is reached. The function waits at most two seconds.
///
/// # Errors
/// See [`NoDevice`]; an address that another interface reaches, or none, is [`NoDevice::Elsewhere`].
pub async fn device_towards(address: SocketAddr) -> Result<String, NoDevice> {
    let mut endpoint = endpoint_for(address.ip())?;
    let elsewhere = |text: String| NoDevice::Elsewhere(io::Error::other(text));
    endpoint.resolve_address(address, LIMIT).map_err(NoDevice::Elsewhere)?;
    let event = tokio::time::timeout(LIMIT, endpoint.event())
        .await
        .map_err(|_| {
            elsewhere(format!("no answer from the connection manager within {} s", LIMIT.as_secs()))
        })?
        .map_err(NoDevice::Elsewhere)?;
    match event.kind {
        Kind::AddressResolved => name(&endpoint),
        Kind::Unresolved => Err(NoDevice::Elsewhere(event.error())),
        other => Err(elsewhere(format!("the connection manager answers with {other:?}"))),
    }
}

fn endpoint_for(address: IpAddr) -> Result<Endpoint, NoDevice> {
    if is_on_no_device(address) {
        return Err(NoDevice::OfNoInterface);
    }
    Endpoint::new().map_err(NoDevice::Unusable)
}

fn name(endpoint: &Endpoint) -> Result<String, NoDevice> {
    let without = || NoDevice::Elsewhere(io::Error::other("the connection manager names no device"));
    let context = endpoint.context().ok_or_else(without)?;
    Adapter::of(context, endpoint.port()).map(|adapter| adapter.name).map_err(NoDevice::Unusable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn loopback_and_unspecified_addresses_are_on_no_device() {
        for text in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::", "::ffff:0.0.0.0"] {
            let address: IpAddr = text.parse().unwrap();
            assert!(is_on_no_device(address), "{text}");
            assert!(matches!(device_at(address).await, Err(NoDevice::OfNoInterface)), "{text}");
            let towards = device_towards(SocketAddr::new(address, 1)).await;
            assert!(matches!(towards, Err(NoDevice::OfNoInterface)), "{text}");
        }
        assert!(!is_on_no_device("192.0.2.1".parse().unwrap()));
    }

    #[tokio::test]
    async fn an_address_without_a_device_has_a_reason() {
        // A documentation address (RFC 5737) is on no interface, with adapters or without.
        let address: IpAddr = "192.0.2.1".parse().unwrap();
        let reason = device_at(address).await.unwrap_err().to_string();
        assert!(
            reason.starts_with("adapters cannot be used here: ") || reason.starts_with("no adapter has"),
            "{reason}"
        );
    }
}
