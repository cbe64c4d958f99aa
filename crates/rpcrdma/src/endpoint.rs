//! [`Endpoint`]: the server that a client is to connect to, by name or by address.
//!
//! *Errors.* [`EndpointError`] tells how a text fails to name a server. An [`Endpoint`] made of such a text keeps the
//! error, and [`ClientBuilder::connect`](crate::ClientBuilder::connect) returns it before anything is sent.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::str::FromStr;

use thiserror::Error;

/// The server that a client is to connect to.
///
/// | text | meaning |
/// | --- | --- |
/// | `server.example.org:20049`, `192.0.2.1:20049` | host and port |
/// | `server.example.org`, `192.0.2.1`, `[2001:db8::1]` | a host, at the transport's default port |
/// | `[2001:db8::1]:20049`, `[fe80::1%eth0]:20049` | an IPv6 address, whose zone may follow, and a port |
///
/// The default port is [`RDMA_PORT`](Self::RDMA_PORT) or [`TCP_PORT`](Self::TCP_PORT). Socket addresses, pairs of a host
/// and a port, and lists of socket addresses convert too:
///
/// ```
/// use std::net::{Ipv6Addr, SocketAddr};
///
/// use rpcrdma::Endpoint;
///
/// let same: [Endpoint; 3] = [
///     "[::1]:20049".into(),
///     SocketAddr::from((Ipv6Addr::LOCALHOST, 20049)).into(),
///     ("::1", 20049).into(),
/// ];
/// assert!(same.iter().all(|endpoint| endpoint.to_string() == "[::1]:20049"));
/// ```
///
/// A text that names no server converts as well; connecting then fails with [`EndpointError`]. [`FromStr`] tells it at
/// once: `"[::1".parse::<Endpoint>()` is an error.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint(Server);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Server {
    /// Addresses to try in this order: at least one.
    Addresses(Vec<SocketAddr>),
    /// An address at a port that the transport decides.
    Ip(IpAddr),
    /// A name for the resolver: of a host, or an IPv6 address with the name of a zone.
    Host { host: String, port: Option<u16> },
    /// No server.
    None { text: String, error: EndpointError },
}

/// The reason why a text names no server. Each message gives the correct form.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// An empty text, or no host before the port.
    #[error("there is no host; write HOST, HOST:PORT or [IPv6 address]:PORT")]
    NoHost,
    /// An empty list of addresses.
    #[error("the list of addresses is empty")]
    NoAddress,
    /// The port is no number from 1 to 65535.
    #[error("{port:?} is not a port from 1 to 65535")]
    Port {
        /// The text in place of the port.
        port: String,
    },
    /// An IPv6 address, or some other text with several colons, without brackets.
    #[error("an IPv6 address needs brackets, as in [::1] or [::1]:20049")]
    Bare,
    /// `[` without `]`, no IPv6 address between them, or other text than `:PORT` after them.
    #[error("brackets enclose an IPv6 address, and only :PORT may follow, as in [::1]:20049")]
    Brackets,
    /// A character that no host name has.
    #[error("{character:?} cannot be in a host name; write HOST or HOST:PORT, without scheme, user or path")]
    Character {
        /// The first such character.
        character: char,
    },
    /// A label of the host name is empty or too long.
    #[error("a part of {length} characters between the dots of a host name; 1 to {max} are allowed")]
    Label {
        /// Length of the label.
        length: usize,
        /// The longest label, [`Endpoint::MAX_LABEL`].
        max: usize,
    },
    /// The host name is too long.
    #[error("a host name of {length} characters; at most {max} are allowed")]
    Long {
        /// Length of the name.
        length: usize,
        /// The longest name, [`Endpoint::MAX_NAME`].
        max: usize,
    },
}

impl Endpoint {
    /// Port of NFS over RDMA (RFC 8267 §9), the default over RDMA.
    pub const RDMA_PORT: u16 = 20049;
    /// Port of NFS over TCP (RFC 7530 §3.1), the default over TCP.
    pub const TCP_PORT: u16 = 2049;
    /// Longest host name (RFC 1035 §2.3.4, without the length octets of the wire format), in characters.
    pub const MAX_NAME: usize = 253;
    /// Longest part of a host name between two dots (RFC 1035 §2.3.4), in characters.
    pub const MAX_LABEL: usize = 63;

    /// Returns the error if this names no server.
    pub(crate) fn check(&self) -> Result<(), EndpointError> {
        match &self.0 {
            Server::None { error, .. } => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Returns whether this is a name, whose addresses are not part of it.
    pub(crate) const fn is_name(&self) -> bool {
        matches!(self.0, Server::Host { .. })
    }

    /// Returns the addresses of the server in the order of attempts: at least one. The lookup of a name runs on a thread
    /// that may block.
    ///
    /// # Errors
    /// Errors of the resolver; `NotFound` if a name has no address.
    pub(crate) async fn addresses(&self, default_port: u16) -> io::Result<Vec<SocketAddr>> {
        match &self.0 {
            Server::Addresses(addresses) => Ok(addresses.clone()),
            Server::Ip(ip) => Ok(vec![SocketAddr::new(*ip, default_port)]),
            Server::Host { host, port } => {
                let port = port.unwrap_or(default_port);
                let found = tokio::net::lookup_host((host.as_str(), port)).await?;
                let mut addresses: Vec<SocketAddr> = Vec::new();
                for address in found {
                    // Resolvers repeat an address for each type of socket, or for each source that lists it.
                    if !addresses.contains(&address) {
                        addresses.push(address);
                    }
                }
                if addresses.is_empty() {
                    return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
                }
                Ok(addresses)
            }
            Server::None { error, .. } => Err(io::Error::new(io::ErrorKind::InvalidInput, error.clone())),
        }
    }

    /// Returns the endpoint of a host, which has no brackets here, at this port.
    fn at(host: &str, port: u16) -> Self {
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let checked = server(&host, Some(port));
        Self(checked.unwrap_or_else(|error| Server::None { text: format!("{host}:{port}"), error }))
    }
}

/// Parses a text.
fn parse(text: &str) -> Result<Server, EndpointError> {
    if text.is_empty() {
        return Err(EndpointError::NoHost);
    }
    if let Some(rest) = text.strip_prefix('[') {
        let (_, after) = rest.split_once(']').ok_or(EndpointError::Brackets)?;
        let host = text.strip_suffix(after).unwrap_or(text);
        return match after.strip_prefix(':') {
            Some(digits) => server(host, Some(port(digits)?)),
            None if after.is_empty() => server(host, None),
            None => Err(EndpointError::Brackets),
        };
    }
    // A scheme or path has colons of its own, so strange characters are told first.
    if let Some(character) = text.chars().find(|character| *character != ':' && !is_of_name(*character)) {
        let bare = text.split('%').next().is_some_and(|bare| bare.parse::<Ipv6Addr>().is_ok());
        return Err(if bare { EndpointError::Bare } else { EndpointError::Character { character } });
    }
    match text.split_once(':') {
        None => server(text, None),
        Some((_, rest)) if rest.contains(':') => Err(EndpointError::Bare),
        Some(("", _)) => Err(EndpointError::NoHost),
        Some((host, digits)) => server(host, Some(port(digits)?)),
    }
}

/// Returns the server of a host, whose IPv6 address has brackets.
fn server(host: &str, port: Option<u16>) -> Result<Server, EndpointError> {
    let ip = |ip: IpAddr| match port {
        Some(port) => Server::Addresses(vec![SocketAddr::new(ip, port)]),
        None => Server::Ip(ip),
    };
    if let Some(inside) = host.strip_prefix('[') {
        let inside = inside.strip_suffix(']').ok_or(EndpointError::Brackets)?;
        let (bare, zone) = inside.split_once('%').map_or((inside, None), |(bare, zone)| (bare, Some(zone)));
        let bare: Ipv6Addr = bare.parse().map_err(|_| EndpointError::Brackets)?;
        return match zone {
            None => Ok(ip(bare.into())),
            // Only the system knows the number of a zone.
            Some(zone) if !zone.is_empty() && zone.chars().all(|character| character.is_ascii_graphic()) => {
                Ok(Server::Host { host: inside.to_owned(), port })
            }
            Some(_) => Err(EndpointError::Brackets),
        };
    }
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(ip(address));
    }
    check_name(host)?;
    Ok(Server::Host { host: host.to_owned(), port })
}

/// Checks a host name against the limits of RFC 1035 §2.3.4.
fn check_name(host: &str) -> Result<(), EndpointError> {
    if host.is_empty() {
        return Err(EndpointError::NoHost);
    }
    if let Some(character) = host.chars().find(|character| !is_of_name(*character)) {
        return Err(EndpointError::Character { character });
    }
    // A dot at the end stands for the root.
    let name = host.strip_suffix('.').unwrap_or(host);
    let (length, max) = (name.len(), Endpoint::MAX_NAME);
    if length > max {
        return Err(EndpointError::Long { length, max });
    }
    let max = Endpoint::MAX_LABEL;
    match name.split('.').map(str::len).find(|length| !(1..=max).contains(length)) {
        Some(length) => Err(EndpointError::Label { length, max }),
        None => Ok(()),
    }
}

/// Returns whether a host name may have this character. An underscore is not allowed (RFC 1123 §2.1), but in use.
const fn is_of_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '-' | '.' | '_')
}

fn port(digits: &str) -> Result<u16, EndpointError> {
    // Numbers accept a sign.
    let number = digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok()).flatten();
    number.filter(|port| *port != 0).ok_or_else(|| EndpointError::Port { port: digits.to_owned() })
}

/// Shows the endpoint as it was given.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Server::Addresses(addresses) => {
                for (index, address) in addresses.iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    write!(f, "{comma}{address}")?;
                }
                Ok(())
            }
            Server::Ip(IpAddr::V4(address)) => address.fmt(f),
            Server::Ip(IpAddr::V6(address)) => write!(f, "[{address}]"),
            Server::Host { host, port } => {
                if host.contains(':') { write!(f, "[{host}]") } else { f.write_str(host) }?;
                port.map_or(Ok(()), |port| write!(f, ":{port}"))
            }
            Server::None { text, .. } => write!(f, "{text:?}"),
        }
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        parse(text).map(Self)
    }
}

impl From<&str> for Endpoint {
    fn from(text: &str) -> Self {
        Self(parse(text).unwrap_or_else(|error| Server::None { text: text.to_owned(), error }))
    }
}

impl From<&String> for Endpoint {
    fn from(text: &String) -> Self {
        text.as_str().into()
    }
}

impl From<String> for Endpoint {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

/// An IPv6 address has no brackets here.
impl From<(&str, u16)> for Endpoint {
    fn from((host, port): (&str, u16)) -> Self {
        Self::at(host, port)
    }
}

/// An IPv6 address has no brackets here.
impl From<(String, u16)> for Endpoint {
    fn from((host, port): (String, u16)) -> Self {
        Self::at(&host, port)
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Self {
        Self(Server::Addresses(vec![address]))
    }
}

impl From<SocketAddrV4> for Endpoint {
    fn from(address: SocketAddrV4) -> Self {
        SocketAddr::from(address).into()
    }
}

impl From<SocketAddrV6> for Endpoint {
    fn from(address: SocketAddrV6) -> Self {
        SocketAddr::from(address).into()
    }
}

impl From<(IpAddr, u16)> for Endpoint {
    fn from(address: (IpAddr, u16)) -> Self {
        SocketAddr::from(address).into()
    }
}

/// The address, at the transport's default port.
impl From<IpAddr> for Endpoint {
    fn from(address: IpAddr) -> Self {
        Self(Server::Ip(address))
    }
}

/// The addresses of one server, to be tried in this order.
impl From<Vec<SocketAddr>> for Endpoint {
    fn from(addresses: Vec<SocketAddr>) -> Self {
        if addresses.is_empty() {
            return Self(Server::None { text: String::new(), error: EndpointError::NoAddress });
        }
        Self(Server::Addresses(addresses))
    }
}

/// The addresses of one server, to be tried in this order.
impl From<&[SocketAddr]> for Endpoint {
    fn from(addresses: &[SocketAddr]) -> Self {
        addresses.to_vec().into()
    }
}

impl From<&Self> for Endpoint {
    fn from(endpoint: &Self) -> Self {
        endpoint.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(text: &str) -> Endpoint {
        Endpoint(Server::Addresses(vec![text.parse().unwrap()]))
    }

    fn host(host: &str, port: Option<u16>) -> Endpoint {
        Endpoint(Server::Host { host: host.to_owned(), port })
    }

    fn ip(text: &str) -> Endpoint {
        Endpoint(Server::Ip(text.parse().unwrap()))
    }

    #[test]
    fn texts_that_name_a_server() {
        for (text, expected) in [
            ("127.0.0.1:20049", addresses("127.0.0.1:20049")),
            ("127.0.0.1", ip("127.0.0.1")),
            ("[::1]:1", addresses("[::1]:1")),
            ("[::1]", ip("::1")),
            ("[2001:DB8::1]:65535", addresses("[2001:db8::1]:65535")),
            ("[fe80::1%eth0]:20049", host("fe80::1%eth0", Some(20049))),
            ("[fe80::1%2]", host("fe80::1%2", None)),
            ("server.example.org:111", host("server.example.org", Some(111))),
            ("server.example.org.", host("server.example.org.", None)),
            ("server_1", host("server_1", None)),
            ("host:00111", host("host", Some(111))),
        ] {
            assert_eq!(text.parse::<Endpoint>().as_ref(), Ok(&expected), "{text}");
            assert_eq!(Endpoint::from(text), expected);
        }
    }

    /// Each message says what is wrong and gives the correct form.
    #[test]
    fn texts_that_name_no_server() {
        let no_host = "there is no host; write HOST, HOST:PORT or [IPv6 address]:PORT";
        let bare = "an IPv6 address needs brackets, as in [::1] or [::1]:20049";
        let brackets = "brackets enclose an IPv6 address, and only :PORT may follow, as in [::1]:20049";
        let path = " cannot be in a host name; write HOST or HOST:PORT, without scheme, user or path";
        let port = " is not a port from 1 to 65535";
        let long = "a".repeat(64);
        let name = format!("{}.example.org", ["abcdefghi"; 25].join("."));
        for (text, expected) in [
            ("", no_host.to_owned()),
            (":20049", no_host.to_owned()),
            ("host:", format!("\"\"{port}")),
            ("host:0", format!("\"0\"{port}")),
            ("host:65536", format!("\"65536\"{port}")),
            ("host:nfs", format!("\"nfs\"{port}")),
            ("host:-1", format!("\"-1\"{port}")),
            ("127.0.0.1:+1", format!("'+'{path}")),
            ("[::1]:+1", format!("\"+1\"{port}")),
            ("[::1]:", format!("\"\"{port}")),
            ("::1", bare.to_owned()),
            ("::1:20049", bare.to_owned()),
            ("fe80::1%eth0", bare.to_owned()),
            ("a:b:c", bare.to_owned()),
            ("[::1", brackets.to_owned()),
            ("[::1]20049", brackets.to_owned()),
            ("[]:20049", brackets.to_owned()),
            ("[host]:20049", brackets.to_owned()),
            ("[127.0.0.1]:20049", brackets.to_owned()),
            ("[::1%]:20049", brackets.to_owned()),
            ("nfs://host/export", format!("'/'{path}")),
            ("user@host:20049", format!("'@'{path}")),
            (" host", format!("' '{path}")),
            ("host\n", format!("'\\n'{path}")),
            ("b\u{fc}cher.example", format!("'\u{fc}'{path}")),
            (
                "a..b",
                "a part of 0 characters between the dots of a host name; 1 to 63 are allowed".to_owned(),
            ),
            (".", "a part of 0 characters between the dots of a host name; 1 to 63 are allowed".to_owned()),
            (
                &long,
                "a part of 64 characters between the dots of a host name; 1 to 63 are allowed".to_owned(),
            ),
            (&name, "a host name of 261 characters; at most 253 are allowed".to_owned()),
        ] {
            let error = text.parse::<Endpoint>().unwrap_err();
            assert_eq!(error.to_string(), expected, "{text:?}");
            assert_eq!(Endpoint::from(text).check(), Err(error));
            assert_eq!(Endpoint::from(text).to_string(), format!("{text:?}"));
        }
        assert_eq!(Endpoint::from(Vec::new()).check(), Err(EndpointError::NoAddress));
    }

    /// A pair has the host by itself, so it needs no brackets.
    #[test]
    fn pairs_of_host_and_port() {
        for (pair, expected) in [
            (("::1", 7), addresses("[::1]:7")),
            (("127.0.0.1", 7), addresses("127.0.0.1:7")),
            (("server", 7), host("server", Some(7))),
            (("fe80::1%eth0", 7), host("fe80::1%eth0", Some(7))),
        ] {
            assert_eq!(Endpoint::from(pair), expected);
            assert_eq!(Endpoint::from((pair.0.to_owned(), pair.1)), expected);
        }
        for (pair, error) in [
            (("", 7), EndpointError::NoHost),
            (("host:8", 7), EndpointError::Brackets),
            (("[::1]", 7), EndpointError::Brackets),
            (("a b", 7), EndpointError::Character { character: ' ' }),
        ] {
            assert_eq!(Endpoint::from(pair).check(), Err(error), "{pair:?}");
        }
    }

    #[test]
    fn an_endpoint_is_shown_as_it_was_given() {
        for text in ["127.0.0.1:1", "127.0.0.1", "[::1]:1", "[::1]", "host:1", "host", "[fe80::1%eth0]:1"] {
            assert_eq!(Endpoint::from(text).to_string(), text);
        }
        let two: Vec<SocketAddr> = vec!["127.0.0.1:1".parse().unwrap(), "[::1]:2".parse().unwrap()];
        assert_eq!(Endpoint::from(two).to_string(), "127.0.0.1:1, [::1]:2");
    }

    #[tokio::test]
    async fn a_host_without_a_port_is_at_the_default_port() {
        for (text, expected) in
            [("127.0.0.1", "127.0.0.1:20049"), ("[::1]", "[::1]:20049"), ("127.0.0.1:5", "127.0.0.1:5")]
        {
            let found = Endpoint::from(text).addresses(Endpoint::RDMA_PORT).await.unwrap();
            assert_eq!(found, [expected.parse().unwrap()], "{text}");
        }
        let found = Endpoint::from("localhost").addresses(7).await.unwrap();
        assert!(found.iter().all(|address| address.ip().is_loopback() && address.port() == 7), "{found:?}");
        let mut once = found.clone();
        once.dedup();
        assert_eq!(once, found);
    }
}
