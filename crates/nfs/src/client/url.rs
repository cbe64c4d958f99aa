//! URLs `nfs://HOST[:PORT]/PATH`, similar to those of RFC 2224.
//!
//! The path begins at the root of the server's exports. The client finds out which part of it is the export
//! and which part it walks by LOOKUP. There are two differences from RFC 2224. There is no public file
//! handle, so `//` equals `/`. Without a port, the default depends on the transport (20049 on RDMA, 2049 on
//! TCP).

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// A parsed URL of a file, directory or export.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NfsUrl {
    host: String,
    port: Option<u16>,
    components: Vec<Vec<u8>>,
    /// Whether a slash follows the last component.
    directory: bool,
}

/// Reason why a text is not an NFS URL. Each message gives the correct form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// Another scheme, or none.
    #[error("{0:?} does not begin with nfs:// (write nfs://HOST/PATH)")]
    Scheme(String),
    /// No host between `nfs://` and the path.
    #[error("{0:?} names no host (write nfs://HOST/PATH)")]
    NoHost(String),
    /// A user name, which NFS URLs do not have.
    #[error("{0:?} has a user name in it; the user is that of this process")]
    User(String),
    /// A host with an invalid character.
    #[error("{0:?} is not a host name or address")]
    Host(String),
    /// `[` without `]`, other text than `:PORT` after it, or no IPv6 address inside.
    #[error("{0:?} is not an IPv6 address in brackets (write nfs://[2001:db8::1]:20049/PATH)")]
    Brackets(String),
    /// An IPv6 address without brackets.
    #[error("an IPv6 address needs brackets: nfs://[{0}]/PATH")]
    BracketsMissing(String),
    /// Not a port number from 1 to 65535.
    #[error("{0:?} is not a port (1 to 65535)")]
    Port(String),
    /// A `?` or `#`, which would begin a query or fragment.
    #[error("a \"{character}\" in the path: write %{code:02X} if it belongs to a name", code = u32::from(*character))]
    QueryOrFragment {
        /// The character.
        character: char,
    },
    /// `%` without two hexadecimal digits.
    #[error("\"%\" has to be followed by two hexadecimal digits in {0:?}: write %25 for a percent sign")]
    Percent(String),
    /// `%00` or `%2F`, which no name can contain.
    #[error("{0:?} has a NUL or a \"/\" inside a name, which no server accepts")]
    ForbiddenByte(String),
}

impl NfsUrl {
    /// Returns the host name or address, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port, if the URL has one.
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// Returns the decoded components of the path, without `.` and empty components. `..` is kept; the client
    /// resolves it after symbolic links.
    pub fn components(&self) -> &[Vec<u8>] {
        &self.components
    }

    /// Returns the decoded path: `/` and the components. A slash at the end, with which the path names a
    /// directory, is kept; `/.` there becomes one.
    pub fn path(&self) -> Vec<u8> {
        let mut path = self.components.iter().fold(Vec::new(), |mut path, component| {
            path.push(b'/');
            path.extend_from_slice(component);
            path
        });
        if path.is_empty() || self.directory {
            path.push(b'/');
        }
        path
    }

    /// Returns the last component, which is the name of a copy, or `None` for the root.
    pub fn file_name(&self) -> Option<&[u8]> {
        self.components.last().map(Vec::as_slice)
    }

    /// Returns the URL of the entry `name` of this directory. The name is a single component of any bytes.
    #[must_use]
    pub fn child(&self, name: &[u8]) -> Self {
        let mut child = self.clone();
        child.components.push(name.to_vec());
        child.directory = false;
        child
    }

    /// Returns `HOST:PORT` as resolvers accept it, with `default` if the URL has no port.
    pub fn authority(&self, default: u16) -> String {
        let port = self.port.unwrap_or(default);
        if self.host.contains(':') {
            format!("[{}]:{port}", self.host)
        } else {
            format!("{}:{port}", self.host)
        }
    }
}

impl FromStr for NfsUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let rest = match text.split_at_checked("nfs://".len()) {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("nfs://") => rest,
            _ => return Err(UrlError::Scheme(text.to_owned())),
        };
        let (authority, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
        let (host, port) = parse_authority(authority, text)?;
        if let Some(character) = authority.chars().chain(path.chars()).find(|c| matches!(c, '?' | '#')) {
            return Err(UrlError::QueryOrFragment { character });
        }
        let (mut components, mut directory) = (Vec::new(), false);
        for component in path.split('/') {
            let bytes = decode(component)?;
            if bytes.contains(&0) || bytes.contains(&b'/') {
                return Err(UrlError::ForbiddenByte(component.to_owned()));
            }
            directory = bytes.is_empty() || bytes == b".";
            if !directory {
                components.push(bytes);
            }
        }
        // The root is a directory without saying so.
        directory &= !components.is_empty();
        Ok(Self { host, port, components, directory })
    }
}

fn parse_authority(authority: &str, url: &str) -> Result<(String, Option<u16>), UrlError> {
    if authority.contains('@') {
        return Err(UrlError::User(authority.to_owned()));
    }
    // RFC 3986 §3.2.2: IPv6 addresses have brackets.
    if let Some(inner) = authority.strip_prefix('[') {
        let brackets = || UrlError::Brackets(authority.to_owned());
        let (address, after) = inner.split_once(']').ok_or_else(brackets)?;
        // RFC 6874 §2: the zone of a link-local address follows an encoded percent sign.
        let (bare, zone) =
            address.split_once("%25").map_or((address, None), |(bare, zone)| (bare, Some(zone)));
        let bare: Ipv6Addr = bare.parse().map_err(|_| brackets())?;
        let host = zone.map_or_else(|| bare.to_string(), |zone| format!("{bare}%{zone}"));
        return match after.strip_prefix(':') {
            Some(port) => Ok((host, Some(parse_port(port)?))),
            None if after.is_empty() => Ok((host, None)),
            None => Err(brackets()),
        };
    }
    if authority.parse::<Ipv6Addr>().is_ok() {
        return Err(UrlError::BracketsMissing(authority.to_owned()));
    }
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) => (host, Some(parse_port(port)?)),
        None => (authority, None),
    };
    if host.is_empty() {
        return Err(UrlError::NoHost(url.to_owned()));
    }
    if !host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_')) {
        return Err(UrlError::Host(host.to_owned()));
    }
    Ok((host.to_owned(), port))
}

fn parse_port(port: &str) -> Result<u16, UrlError> {
    match port.parse::<u16>() {
        Ok(number) if number != 0 && port.bytes().all(|b| b.is_ascii_digit()) => Ok(number),
        _ => Err(UrlError::Port(port.to_owned())),
    }
}

/// Decodes percent-encoding (RFC 3986 §2.1). Other characters, UTF-8 included, stay as they are.
fn decode(component: &str) -> Result<Vec<u8>, UrlError> {
    let mut bytes = component.bytes();
    let mut decoded = Vec::with_capacity(component.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let (high, low) = (bytes.next().and_then(digit), bytes.next().and_then(digit));
                let (Some(high), Some(low)) = (high, low) else {
                    return Err(UrlError::Percent(component.to_owned()));
                };
                high << 4 | low
            }
            byte => byte,
        });
    }
    Ok(decoded)
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

impl fmt::Display for NfsUrl {
    /// Writes the URL in a form that parses to an equal value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.split_once('%') {
            Some((address, zone)) => write!(f, "nfs://[{address}%25{zone}]")?,
            None if self.host.contains(':') => write!(f, "nfs://[{}]", self.host)?,
            None => write!(f, "nfs://{}", self.host)?,
        }
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        if self.components.is_empty() {
            return f.write_str("/");
        }
        for component in &self.components {
            f.write_str("/")?;
            for &byte in component {
                // RFC 3986 §2.3 and §3.3: characters of a path segment that need no encoding.
                if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(&byte) {
                    write!(f, "{}", char::from(byte))?;
                } else {
                    write!(f, "%{byte:02X}")?;
                }
            }
        }
        if self.directory { f.write_str("/") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<NfsUrl, UrlError> {
        text.parse()
    }

    fn path(text: &str) -> Vec<u8> {
        parse(text).unwrap().path()
    }

    #[test]
    fn hosts_and_ports() {
        let url = parse("nfs://server.example/export").unwrap();
        assert_eq!((url.host(), url.port()), ("server.example", None));
        assert_eq!(url.authority(20049), "server.example:20049");
        let url = parse("NFS://192.0.2.7:2049/").unwrap();
        assert_eq!((url.host(), url.port()), ("192.0.2.7", Some(2049)));
        let url = parse("nfs://[2001:db8::1]:20049/a").unwrap();
        assert_eq!((url.host(), url.port()), ("2001:db8::1", Some(20049)));
        assert_eq!(url.authority(1), "[2001:db8::1]:20049");
        let url = parse("nfs://[fe80::1%25eth0]/a").unwrap();
        assert_eq!(url.host(), "fe80::1%eth0");
        assert_eq!(url.to_string(), "nfs://[fe80::1%25eth0]/a");
    }

    #[test]
    fn paths() {
        assert_eq!(path("nfs://h"), b"/");
        assert_eq!(path("nfs://h/"), b"/");
        assert_eq!(path("nfs://h//a/./b//"), b"/a/b/");
        assert_eq!(path("nfs://h/a/../b"), b"/a/../b");
        assert_eq!(path("nfs://h/a%20b/%C3%a9/100%25"), "/a b/é/100%".as_bytes());
        assert_eq!(path("nfs://h/é"), "/é".as_bytes());
        assert_eq!(path("nfs://h/%ff"), b"/\xff");
        assert_eq!(parse("nfs://h/a/b").unwrap().file_name(), Some(b"b".as_slice()));
        assert_eq!(parse("nfs://h/").unwrap().file_name(), None);
        for (text, whole) in
            [("a/", "/a/"), ("a/.", "/a/"), ("a/%2E", "/a/"), ("a/..", "/a/.."), (".", "/"), ("//", "/")]
        {
            assert_eq!(path(&format!("nfs://h/{text}")), whole.as_bytes(), "{text}");
        }
        assert_eq!(parse("nfs://h/a/").unwrap().file_name(), Some(b"a".as_slice()));
        assert_eq!(parse("nfs://h/a/").unwrap().child(b"b").to_string(), "nfs://h/a/b");
        assert_eq!(parse("nfs://h/a").unwrap().child(b"b/%\xff").to_string(), "nfs://h/a/b%2F%25%FF");
    }

    #[test]
    fn refusals() {
        for text in ["", "nfs:", "nfs:/h/p", "http://h/p", "h:/p", "é://h"] {
            assert_eq!(parse(text), Err(UrlError::Scheme(text.into())), "{text}");
        }
        assert_eq!(parse("nfs:///p"), Err(UrlError::NoHost("nfs:///p".into())));
        assert_eq!(parse("nfs://:1/p"), Err(UrlError::NoHost("nfs://:1/p".into())));
        assert_eq!(parse("nfs://u@h/p"), Err(UrlError::User("u@h".into())));
        assert_eq!(parse("nfs://a b/p"), Err(UrlError::Host("a b".into())));
        for text in ["[::1", "[::1]x", "[h]", "[]"] {
            assert_eq!(parse(&format!("nfs://{text}/p")), Err(UrlError::Brackets(text.into())), "{text}");
        }
        assert_eq!(parse("nfs://2001:db8::1/p"), Err(UrlError::BracketsMissing("2001:db8::1".into())));
        for text in ["", "0", "65536", "+1", "x"] {
            assert_eq!(parse(&format!("nfs://h:{text}/p")), Err(UrlError::Port(text.into())), "{text}");
        }
        assert_eq!(parse("nfs://h/a?b"), Err(UrlError::QueryOrFragment { character: '?' }));
        assert_eq!(parse("nfs://h/a#b"), Err(UrlError::QueryOrFragment { character: '#' }));
        assert!(parse("nfs://h/a?b").unwrap_err().to_string().contains("%3F"));
        for text in ["%", "%4", "%4g", "%é", "a%"] {
            assert_eq!(parse(&format!("nfs://h/{text}")), Err(UrlError::Percent(text.into())), "{text}");
        }
        for text in ["a%00", "a%2fb"] {
            assert_eq!(
                parse(&format!("nfs://h/{text}")),
                Err(UrlError::ForbiddenByte(text.into())),
                "{text}"
            );
        }
    }

    proptest! {
        #[test]
        fn display_parses_to_the_same(
            components in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..8), 0..4),
            port in prop::option::of(1u16..),
            slash: bool,
        ) {
            let clean = |c: &Vec<u8>| c != b"." && !c.contains(&0) && !c.contains(&b'/');
            let components: Vec<_> = components.into_iter().filter(clean).collect();
            let directory = slash && !components.is_empty();
            let url = NfsUrl { host: "h".into(), port, components, directory };
            prop_assert_eq!(url.to_string().parse::<NfsUrl>(), Ok(url));
        }

        #[test]
        fn no_text_panics(text: String, tail in r"[\[\]:%@a0/.]*") {
            let _ = text.parse::<NfsUrl>();
            let _ = format!("nfs://{tail}").parse::<NfsUrl>();
        }
    }
}
