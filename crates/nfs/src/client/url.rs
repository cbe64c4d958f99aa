//! URLs `nfs://HOST[:PORT]/PATH[?NAME=VALUE[&NAME=VALUE]...]`, similar to those of RFC 2224.
//!
//! The path begins at the root of the server's exports. The client finds out which part of it is the export
//! and which part it walks by LOOKUP. There are two differences from RFC 2224. There is no public file
//! handle, so `//` equals `/`. Without a port, the default depends on the transport (20049 on RDMA, 2049 on
//! TCP).
//!
//! *Queries* have the names that users of other NFS clients in user space know ([`Query`]).
//!
//! *Patterns.* [`NfsUrl::pattern`] also takes `*`, `?` and `[..]` in names, for callers that list directories
//! and compare. Encoded, as %2A, %3F and %5B, these characters are parts of names. [`FromStr`] also takes
//! `*` and brackets as parts of names. It refuses a `?` that begins no query.

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
    query: Query,
    /// Components that are patterns: the index, and the text as it was given.
    patterns: Vec<(usize, String)>,
}

/// Caller and ports that a URL names after a `?`: `uid=`, `gid=` and `mountport=`. `version=3` is
/// accepted too, and `nfsport=PORT` is another way to write the port of the URL.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Query {
    /// UID of the caller, for AUTH_SYS.
    pub uid: Option<u32>,
    /// GID of the caller, for AUTH_SYS.
    pub gid: Option<u32>,
    /// TCP port of the MOUNT service.
    pub mount_port: Option<u16>,
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
    /// A query with another name than those of [`Query`], or with a wrong value.
    #[error(
        "\"?{0}\" is no query of these URLs: after a \"?\" stand uid=NUMBER, gid=NUMBER, version=3, nfsport=PORT \
             or mountport=PORT, with \"&\" between them; write %3F for a \"?\" in a name"
    )]
    Query(String),
    /// Two ports, one after the host and one in the query.
    #[error("{0:?} has two ports: leave out nfsport=, or the port after the host")]
    TwoPorts(String),
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

    /// Returns what the URL says about the caller and the ports.
    pub fn query(&self) -> Query {
        self.query
    }

    /// Parses a URL in whose path `*`, `?` and `[..]` are wildcards. A `?` before text with a `=` begins a query.
    ///
    /// # Errors
    /// As [`FromStr`].
    pub fn pattern(text: &str) -> Result<Self, UrlError> {
        parse(text, true)
    }

    /// Returns the components that are patterns: the index in [`components`](Self::components), and the pattern. Within
    /// the latter, characters of names that were encoded stand in brackets (`[*]`). Bytes that are not UTF-8 are
    /// replaced.
    pub fn patterns(&self) -> impl Iterator<Item = (usize, String)> {
        self.patterns.iter().map(|(index, text)| (*index, glob(text)))
    }

    /// Returns the URL as one without patterns: their characters are parts of names.
    #[must_use]
    pub fn literal(&self) -> Self {
        Self { patterns: Vec::new(), ..self.clone() }
    }

    /// Returns the URL of the directory that the first `count` components name.
    #[must_use]
    pub fn truncated(&self, count: usize) -> Self {
        let mut shorter = self.literal();
        shorter.components.truncate(count);
        shorter.directory = false;
        shorter
    }

    /// Returns the URL with a slash at its end, or without one. The root has none.
    #[must_use]
    pub fn as_directory(&self, directory: bool) -> Self {
        Self { directory: directory && !self.components.is_empty(), ..self.clone() }
    }

    /// Returns whether a slash at the end says that the URL names a directory.
    pub fn is_directory(&self) -> bool {
        self.directory
    }

    /// Returns the URL of the entry `name` of this directory. The name is a single component of any bytes.
    #[must_use]
    pub fn child(&self, name: &[u8]) -> Self {
        self.below([name])
    }

    /// Returns the URL of an object below this directory, by the names of the way to it. Each is a single component
    /// of any bytes.
    #[must_use]
    pub fn below<'a>(&self, names: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut below = self.literal();
        below.components.extend(names.into_iter().map(<[u8]>::to_vec));
        below.directory &= below.components.len() == self.components.len();
        below
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
        parse(text, false)
    }
}

/// Parses a URL, with patterns in its path or without.
fn parse(text: &str, patterns: bool) -> Result<NfsUrl, UrlError> {
    let rest = match text.split_at_checked("nfs://".len()) {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("nfs://") => rest,
        _ => return Err(UrlError::Scheme(text.to_owned())),
    };
    if rest.contains('#') {
        return Err(UrlError::QueryOrFragment { character: '#' });
    }
    let (place, query) = split_query(rest);
    let (authority, path) = place.find('/').map_or((place, ""), |slash| place.split_at(slash));
    if authority.contains('?') || (!patterns && path.contains('?')) {
        return Err(UrlError::QueryOrFragment { character: '?' });
    }
    let (host, port) = parse_authority(authority, text)?;
    let (query, nfs_port) = query.map_or(Ok((Query::default(), None)), parse_query)?;
    let port = match (port, nfs_port) {
        (Some(port), Some(other)) if port != other => return Err(UrlError::TwoPorts(text.to_owned())),
        (port, other) => port.or(other),
    };
    let mut url =
        NfsUrl { host, port, components: Vec::new(), directory: false, query, patterns: Vec::new() };
    for component in path.split('/') {
        let bytes = decode(component)?;
        if bytes.contains(&0) || bytes.contains(&b'/') {
            return Err(UrlError::ForbiddenByte(component.to_owned()));
        }
        url.directory = bytes.is_empty() || bytes == b".";
        if !url.directory {
            if patterns && component.contains(WILDCARDS) {
                url.patterns.push((url.components.len(), component.to_owned()));
            }
            url.components.push(bytes);
        }
    }
    // The root is a directory without saying so.
    url.directory &= !url.components.is_empty();
    Ok(url)
}

/// Characters that make a name a pattern.
const WILDCARDS: [char; 3] = ['*', '?', '['];

/// Returns the pattern of a component: its percent-encoding is resolved, and what it encoded is no wildcard.
fn glob(component: &str) -> String {
    let mut pattern = String::new();
    let mut rest = component;
    while let Some((before, after)) = rest.split_once('%') {
        pattern.push_str(before);
        // Several encoded bytes in a row can be one character.
        let mut encoded = Vec::new();
        rest = after;
        loop {
            let (digits, after) = rest.split_at_checked(2).unwrap_or((rest, ""));
            encoded.extend(digits.bytes().filter_map(digit).reduce(|high, low| high << 4 | low));
            rest = after;
            match rest.strip_prefix('%') {
                Some(further) => rest = further,
                None => break,
            }
        }
        for character in String::from_utf8_lossy(&encoded).chars() {
            match character {
                '*' | '?' | '[' | ']' => pattern.extend(['[', character, ']']),
                _ => pattern.push(character),
            }
        }
    }
    pattern.push_str(rest);
    pattern
}

/// Returns the text before a query, and the query: the text after the last `?`, if it has a `=` and no slash.
fn split_query(rest: &str) -> (&str, Option<&str>) {
    match rest.rsplit_once('?') {
        Some((place, query)) if query.contains('=') && !query.contains('/') => (place, Some(query)),
        _ => (rest, None),
    }
}

/// Parses a query. Returns it, and the port that it names.
fn parse_query(text: &str) -> Result<(Query, Option<u16>), UrlError> {
    let wrong = || UrlError::Query(text.to_owned());
    let (mut query, mut nfs_port) = (Query::default(), None);
    for part in text.split('&') {
        let (name, value) = part.split_once('=').ok_or_else(wrong)?;
        let number = value.parse::<u32>().ok().filter(|_| value.bytes().all(|byte| byte.is_ascii_digit()));
        let number = number.ok_or_else(wrong)?;
        let port = || u16::try_from(number).ok().filter(|port| *port != 0).ok_or_else(wrong);
        match name {
            "uid" => query.uid = Some(number),
            "gid" => query.gid = Some(number),
            "mountport" => query.mount_port = Some(port()?),
            "nfsport" => nfs_port = Some(port()?),
            "version" if number == 3 => {}
            _ => return Err(wrong()),
        }
    }
    Ok((query, nfs_port))
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
            f.write_str("/")?;
        }
        for (index, component) in self.components.iter().enumerate() {
            f.write_str("/")?;
            if let Some((_, pattern)) = self.patterns.iter().find(|(at, _)| *at == index) {
                f.write_str(pattern)?;
                continue;
            }
            for &byte in component {
                // RFC 3986 §2.3 and §3.3: characters of a path segment that need no encoding; but * would be a wildcard.
                if byte.is_ascii_alphanumeric() || b"-._~!$&'()+,;=:@".contains(&byte) {
                    write!(f, "{}", char::from(byte))?;
                } else {
                    write!(f, "%{byte:02X}")?;
                }
            }
        }
        if self.directory {
            f.write_str("/")?;
        }
        let Query { uid, gid, mount_port } = self.query;
        let given = [("uid", uid), ("gid", gid), ("mountport", mount_port.map(u32::from))];
        let given = given.into_iter().filter_map(|(name, number)| Some((name, number?)));
        for (index, (name, number)) in given.enumerate() {
            write!(f, "{}{name}={number}", if index == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<NfsUrl, UrlError> {
        text.parse()
    }

    fn patterns(text: &str) -> Vec<(usize, String)> {
        NfsUrl::pattern(text).unwrap().patterns().collect()
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

    /// Names and numbers are those of libnfs, whose users have such URLs.
    #[test]
    fn queries() {
        let url = parse("nfs://h/p?uid=1000&gid=100&mountport=20048&version=3").unwrap();
        assert_eq!(url.query(), Query { uid: Some(1000), gid: Some(100), mount_port: Some(20048) });
        assert_eq!(url.to_string(), "nfs://h/p?uid=1000&gid=100&mountport=20048");
        assert_eq!(url.child(b"x").to_string(), "nfs://h/p/x?uid=1000&gid=100&mountport=20048");
        assert_eq!(parse("nfs://h?uid=0").unwrap().query().uid, Some(0));
        assert_eq!(parse("nfs://h/p?nfsport=7").unwrap().port(), Some(7));
        assert_eq!(parse("nfs://h:7/p?nfsport=7").unwrap().port(), Some(7));
        assert!(matches!(parse("nfs://h:8/p?nfsport=7"), Err(UrlError::TwoPorts(_))));
        for query in [
            "uid=",
            "uid=x",
            "uid=-1",
            "uid=+1",
            "uid=1&",
            "uid=1&&gid=1",
            "gid=4294967296",
            "mountport=0",
            "nfsport=65536",
            "version=4",
            "dircache=0",
            "=1",
            "UID=1",
        ] {
            assert_eq!(parse(&format!("nfs://h/p?{query}")), Err(UrlError::Query(query.into())), "{query}");
        }
        assert!(parse("nfs://h/p?version=4").unwrap_err().to_string().contains("version=3"));
    }

    #[test]
    fn patterns_of_names() {
        assert_eq!(patterns("nfs://h/a/b"), []);
        assert_eq!(patterns("nfs://h/a/*.txt"), [(1, "*.txt".to_owned())]);
        assert_eq!(
            patterns("nfs://h/?/x[0-9]/c?d?uid=1"),
            [(0, "?".to_owned()), (1, "x[0-9]".to_owned()), (2, "c?d".to_owned())]
        );
        assert_eq!(patterns("nfs://h/%2A%c3%a9%5b*"), [(0, "[*]é[[]*".to_owned())]);
        assert_eq!(patterns("nfs://h/%2A"), []);
        let url = NfsUrl::pattern("nfs://h/a*/b?uid=5").unwrap();
        assert_eq!((url.path(), url.query().uid), (b"/a*/b".to_vec(), Some(5)));
        assert_eq!(url.to_string(), "nfs://h/a*/b?uid=5");
        assert_eq!(url.literal().to_string(), "nfs://h/a%2A/b?uid=5");
        assert_eq!(url.truncated(1).path(), b"/a*");
        // A caller that expects no pattern gets a name, or learns how to write one.
        assert_eq!(parse("nfs://h/a*[1]").unwrap().path(), b"/a*[1]");
        assert_eq!(parse("nfs://h/a?b/c=d"), Err(UrlError::QueryOrFragment { character: '?' }));
        assert!(matches!(NfsUrl::pattern("nfs://h?/x"), Err(UrlError::QueryOrFragment { .. })));
    }

    proptest! {
        #[test]
        fn patterns_display_and_parse(tail in r"[a*?\[\]%/=&0-9.-]*") {
            if let Ok(url) = NfsUrl::pattern(&format!("nfs://h/{tail}")) {
                prop_assert_eq!(NfsUrl::pattern(&url.to_string()), Ok(url.clone()));
                prop_assert_eq!(url.literal().to_string().parse(), Ok(url.literal()));
            }
        }

        #[test]
        fn display_parses_to_the_same(
            components in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..8), 0..4),
            port in prop::option::of(1u16..),
            slash: bool,
            uid: Option<u32>,
            gid: Option<u32>,
        ) {
            let clean = |c: &Vec<u8>| c != b"." && !c.contains(&0) && !c.contains(&b'/');
            let components: Vec<_> = components.into_iter().filter(clean).collect();
            let directory = slash && !components.is_empty();
            let query = Query { uid, gid, mount_port: None };
            let url = NfsUrl { host: "h".into(), port, components, directory, query, patterns: Vec::new() };
            prop_assert_eq!(url.to_string().parse::<NfsUrl>(), Ok(url));
        }

        #[test]
        fn no_text_panics(text: String, tail in r"[\[\]:%@a0/.]*") {
            let _ = text.parse::<NfsUrl>();
            let _ = format!("nfs://{tail}").parse::<NfsUrl>();
        }
    }
}
