//! Settings of the provider, with their defaults.

use std::time::Duration;

/// Behaviour of the connections of a connector or listener.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Uses this device only, by the name that `rdma link` prints. Without a name, routing chooses the device.
    pub device: Option<String>,
    /// Registers memory for each window even where the device has memory windows. Off by default.
    pub registrations_only: bool,
    /// Maximum number of windows of a connection. 4096 by default; the device may allow less.
    pub max_windows: usize,
    /// Type of service of the packets (RFC 2474): the octet with the DSCP in its upper six bits. On RoCE and InfiniBand it
    /// chooses the service level. By default the system chooses.
    pub type_of_service: Option<u8>,
    /// Time for each step of connection set-up: address, route, the peer's answer, and on the accepting side the peer's
    /// confirmation. 10 s by default.
    pub setup: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            device: None,
            registrations_only: false,
            max_windows: 4096,
            type_of_service: None,
            setup: Duration::from_secs(10),
        }
    }
}
