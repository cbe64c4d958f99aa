//! Universal addresses and netids (RFC 5665 §5.2.3, RFC 8166 §9).
//!
//! A universal address is the textual IP address followed by the port as two decimal octets: 192.0.2.7 port 20049 is
//! `192.0.2.7.78.81`. It doesn't name the transport; the netid beside it does.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use thiserror::Error;

/// The transports that this crate names. Lookups skip others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Netid {
    /// TCP over IPv4.
    Tcp,
    /// TCP over IPv6.
    Tcp6,
    /// RPC-over-RDMA over IPv4.
    Rdma,
    /// RPC-over-RDMA over IPv6.
    Rdma6,
}

/// A netid that isn't one of [`Netid`].
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("netid {0:?} is none of tcp, tcp6, rdma and rdma6")]
pub struct UnknownNetid(pub String);

impl Netid {
    /// Returns TCP over IPv4 or IPv6, by the address.
    pub const fn tcp(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::Tcp } else { Self::Tcp6 }
    }

    /// Returns RPC-over-RDMA over IPv4 or IPv6, by the address.
    pub const fn rdma(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::Rdma } else { Self::Rdma6 }
    }

    /// Returns the name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Tcp6 => "tcp6",
            Self::Rdma => "rdma",
            Self::Rdma6 => "rdma6",
        }
    }

    /// Returns whether addresses of this transport are IPv6 addresses.
    pub const fn is_ipv6(self) -> bool {
        matches!(self, Self::Tcp6 | Self::Rdma6)
    }

    /// Returns whether this is RPC-over-RDMA.
    pub const fn is_rdma(self) -> bool {
        matches!(self, Self::Rdma | Self::Rdma6)
    }
}

impl fmt::Display for Netid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Netid {
    type Err = UnknownNetid;

    fn from_str(text: &str) -> Result<Self, UnknownNetid> {
        [Self::Tcp, Self::Tcp6, Self::Rdma, Self::Rdma6]
            .into_iter()
            .find(|netid| netid.as_str() == text)
            .ok_or_else(|| UnknownNetid(text.to_owned()))
    }
}

/// The reason why a text is no universal address of an IP transport.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum UniversalAddressError {
    /// The two octets of the port are missing.
    #[error("universal address {0:?} does not end in .p1.p2, the octets of the port")]
    NoPort(String),
    /// A port's octet isn't a decimal number up to 255.
    #[error("{octet:?} in universal address {address:?} is no octet of a port (0 to 255)")]
    PortOctet {
        /// The whole text.
        address: String,
        /// The faulty part.
        octet: String,
    },
    /// The text before the port isn't an IP address.
    #[error("universal address {0:?} does not start with an IPv4 or IPv6 address")]
    Host(String),
}

/// IP address and port in universal form: `h1.h2.h3.h4.p1.p2` or `x1:…:x8.p1.p2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UniversalAddress(pub SocketAddr);

impl fmt::Display for UniversalAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [high, low] = self.0.port().to_be_bytes();
        write!(f, "{}.{high}.{low}", self.0.ip())
    }
}

impl FromStr for UniversalAddress {
    type Err = UniversalAddressError;

    /// Parses all forms of RFC 5665 §5.2.3.3 and §5.2.3.4, including compressed and mixed IPv6. IPv6 zones are refused.
    fn from_str(text: &str) -> Result<Self, UniversalAddressError> {
        let mut parts = text.rsplitn(3, '.');
        let (Some(low), Some(high), Some(host)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(UniversalAddressError::NoPort(text.to_owned()));
        };
        let octet = |part: &str| {
            let decimal = (1..=3).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
            let wrong =
                || UniversalAddressError::PortOctet { address: text.to_owned(), octet: part.to_owned() };
            part.parse::<u8>().ok().filter(|_| decimal).ok_or_else(wrong)
        };
        // `192.0.2.7` alone ends in two octets too, but then no address is left before them.
        let host = host
            .parse::<Ipv4Addr>()
            .map(IpAddr::V4)
            .or_else(|_| host.parse::<Ipv6Addr>().map(IpAddr::V6))
            .map_err(|_| UniversalAddressError::Host(text.to_owned()))?;
        let port = u16::from_be_bytes([octet(high)?, octet(low)?]);
        Ok(Self(SocketAddr::new(host, port)))
    }
}

#[cfg(test)]
mod tests;
