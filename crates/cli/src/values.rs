//! Values of options: sizes, times, numbers and addresses. Each kind has one parser, and so one way to write it.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use rpcrdma_nfs::client::{NfsUrl, UrlError};

/// Parses a server given as HOST, HOST:PORT or URL.
pub(crate) fn host(text: &str) -> Result<NfsUrl, String> {
    let url = if text.contains("://") {
        text.to_owned()
    } else if text.parse::<std::net::Ipv6Addr>().is_ok() {
        format!("nfs://[{text}]")
    } else {
        format!("nfs://{text}")
    };
    let url: NfsUrl = url.parse().map_err(|error: UrlError| error.to_string())?;
    if url.components().is_empty() {
        Ok(url)
    } else {
        Err(format!("{text:?} has a path: write HOST or HOST:PORT"))
    }
}

/// Parses a URL whose path may have wildcards.
pub(crate) fn pattern(text: &str) -> Result<NfsUrl, String> {
    NfsUrl::pattern(text).map_err(|error| error.to_string())
}

/// Returns a parser of whole numbers from `least` to `most`.
pub(crate) fn whole<T>(
    least: T,
    most: T,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: TryFrom<u64> + Into<u64> + Send + Sync + 'static,
{
    let (least, most) = (least.into(), most.into());
    move |text| {
        let number = text.parse::<u64>().ok().filter(|number| (least..=most).contains(number));
        number
            .and_then(|number| T::try_from(number).ok())
            .ok_or_else(|| format!("{text:?} is not a whole number from {least} to {most}"))
    }
}

/// Returns a parser of addresses of listeners: an IP address or the name of a host, with a port or without. `port` is
/// taken if none is given.
pub(crate) fn listen_address(
    port: u16,
) -> impl Fn(&str) -> Result<SocketAddr, String> + Clone + Send + Sync + 'static {
    move |text| resolve(text, port)
}

/// Returns whether a host name ends with a number, as no name of a host does (RFC 1123 §2.1). The resolver would take it for an
/// address of IPv4 in another spelling: 9464 is 0.0.36.248.
pub(crate) fn ends_with_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    let hexadecimal = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    match hexadecimal {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

/// Returns the address of a listener. Of the addresses of a name, one of IPv4 goes first.
pub(crate) fn resolve(text: &str, default: u16) -> Result<SocketAddr, String> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, default));
    }
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let wrong = |why: &dyn std::fmt::Display| {
        format!(
            "{text:?} is not an address or host name with or without a port: {why} (for example 127.0.0.1:{default}, \
             localhost, or [::]:{default} for all addresses)"
        )
    };
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) => (name, port.parse().map_err(|_| wrong(&"its port is not from 0 to 65535"))?),
        None => (text, default),
    };
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    if name.is_empty() || !name.bytes().all(is_allowed) {
        return Err(wrong(&"a name has letters, digits, \"-\", \".\" and \"_\""));
    }
    if ends_with_number(name) {
        return Err(wrong(&"no name ends with a number, and a port alone needs an address"));
    }
    let found: Vec<SocketAddr> = (name, port).to_socket_addrs().map_err(|error| wrong(&error))?.collect();
    let preferred = found.iter().find(|address| address.is_ipv4()).or(found.first());
    preferred.copied().ok_or_else(|| wrong(&"the name has no address"))
}

/// Parses a time greater than zero, in seconds or with a unit.
pub(crate) fn some_seconds(text: &str) -> Result<Duration, String> {
    match seconds(text)? {
        Duration::ZERO => Err(format!("{text} is not more than 0 seconds")),
        time => Ok(time),
    }
}

/// Units of times, and their lengths in seconds.
const TIMES: [(&str, f64); 7] =
    [("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("min", 60.0), ("m", 60.0), ("h", 3600.0), ("d", 86_400.0)];

/// Parses a time, with or without decimals, in seconds or with a unit.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let letters = text.find(|letter: char| letter.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(letters);
    let length = match unit {
        "" => Some(1.0),
        unit => TIMES.iter().find(|(name, _)| *name == unit).map(|(_, length)| *length),
    };
    let plain = |number: &&str| number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    Some(number)
        .filter(plain)
        .and_then(|number| number.parse::<f64>().ok())
        .zip(length)
        .and_then(|(number, length)| Duration::try_from_secs_f64(number * length).ok())
        .ok_or_else(|| {
            format!(
                "{text:?} is not a number of seconds, or a time with the unit us, ms, s, m, h or d (for example 1, 0.25, \
                 500ms, 10m or 2h)"
            )
        })
}

/// Parses an inline size that RFC 8797 §4.2 can express, in bytes.
pub(crate) fn inline_size(text: &str) -> Result<u32, String> {
    match size(text)? {
        size @ 1024..=262_144 if size.is_multiple_of(1024) => {
            u32::try_from(size).map_err(|error| error.to_string())
        }
        size => Err(format!("{size} is not a multiple of 1024 from 1024 to 262144 (RFC 8797 §4.2)")),
    }
}

/// Units of sizes without the letter of their power: as other commands have it, K and KiB are 1024 bytes, and KB is 1000.
const POWERS: [(char, u32); 5] = [('k', 1), ('m', 2), ('g', 3), ('t', 4), ('p', 5)];

/// Parses a number of bytes, optionally with a unit: `K`, `M`, `G`, `T` or `P`, alone or with `iB`, for powers of 1024,
/// or with `B` for powers of 1000.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    number
        .parse::<u64>()
        .ok()
        .zip(unit_of_size(unit))
        .and_then(|(number, unit)| number.checked_mul(unit))
        .ok_or_else(|| {
            format!(
                "{text:?} is not a number of bytes, alone or with a unit such as K, KiB or KB (for example 4096, 64K, 1M or \
                 2GiB)"
            )
        })
}

/// Returns the bytes of a unit; none is a byte.
fn unit_of_size(unit: &str) -> Option<u64> {
    let mut letters = unit.chars();
    let Some(letter) = letters.next() else { return Some(1) };
    let rest = letters.as_str();
    if letter == 'B' && rest.is_empty() {
        return Some(1);
    }
    let (_, power) = POWERS.iter().find(|(name, _)| *name == letter.to_ascii_lowercase())?;
    match rest {
        "" | "i" | "iB" => Some(1024_u64.pow(*power)),
        "B" => Some(1000_u64.pow(*power)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, value) in [
            ("0", 0),
            ("4096", 4096),
            ("64K", 65536),
            ("4k", 4096),
            ("1m", 1 << 20),
            ("2G", 2 << 30),
            ("1GiB", 1 << 30),
            ("1Gi", 1 << 30),
            ("1KB", 1000),
            ("1kB", 1000),
            ("5MB", 5_000_000),
            ("1T", 1 << 40),
            ("2P", 2 << 50),
            ("7B", 7),
        ] {
            assert_eq!(size(text), Ok(value), "{text}");
        }
        for text in [
            "",
            "K",
            "-1",
            "+1",
            "1.5",
            "1X",
            "1KK",
            "1Kb",
            "1 K",
            "K1",
            "1iB",
            "99999999999999999999",
            "99999999999G",
            "16384P",
            "é",
        ] {
            let wrong = size(text).unwrap_err();
            assert!(wrong.contains("KiB") && wrong.contains("2GiB"), "{text}: {wrong}");
        }
        assert_eq!(inline_size("1K"), Ok(1024));
        assert_eq!(inline_size("262144"), Ok(262_144));
        for text in ["0", "1023", "1025", "263168", "x"] {
            assert!(inline_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times() {
        let milliseconds = Duration::from_millis;
        for (text, value) in [
            ("0", milliseconds(0)),
            ("1", milliseconds(1000)),
            ("0.25", milliseconds(250)),
            ("500ms", milliseconds(500)),
            ("1500us", Duration::from_micros(1500)),
            ("2s", milliseconds(2000)),
            ("1.5m", milliseconds(90_000)),
            ("10min", milliseconds(600_000)),
            ("2h", milliseconds(7_200_000)),
            ("1d", milliseconds(86_400_000)),
        ] {
            assert_eq!(seconds(text), Ok(value), "{text}");
        }
        for text in ["", "s", "-1", "+1", "1e3", "inf", "nan", "1 s", "1S", "1w", "1hs", ".", "1.2.3", "é"] {
            let wrong = seconds(text).unwrap_err();
            assert!(wrong.contains("500ms") && wrong.contains("h or d"), "{text}: {wrong}");
        }
        assert!(some_seconds("0ms").unwrap_err().contains("not more than 0"));
    }

    #[test]
    fn addresses_of_listeners() {
        let at = |text: &str| resolve(text, 7).map(|address| address.to_string());
        for (text, address) in [
            ("127.0.0.1", "127.0.0.1:7"),
            ("127.0.0.1:0", "127.0.0.1:0"),
            ("0.0.0.0:8", "0.0.0.0:8"),
            ("::1", "[::1]:7"),
            ("[::1]", "[::1]:7"),
            ("[::]:9", "[::]:9"),
        ] {
            assert_eq!(at(text).as_deref(), Ok(address), "{text}");
        }
        let local = resolve("localhost:5", 7).unwrap();
        assert!(local.ip().is_loopback() && local.port() == 5, "{local}");
        assert_eq!(resolve("localhost", 7).unwrap().port(), 7);
        for text in ["", ":1", "h:x", "h:65536", "tcp:127.0.0.1:2", "a b", "[::1", "127.0.0.1:"] {
            let wrong = at(text).unwrap_err();
            assert!(wrong.contains("[::]:7 for all addresses"), "{text}: {wrong}");
        }
        // The resolver takes these for addresses of IPv4, such as 0.0.36.248.
        for text in ["0", "9464", "0:9464", "127.1", "0x7f000001", "host.1:7", "127.0.0.0x1"] {
            let wrong = at(text).unwrap_err();
            assert!(wrong.contains("no name ends with a number"), "{text}: {wrong}");
        }
    }

    #[test]
    fn servers() {
        for (text, authority) in [
            ("h", "h:7"),
            ("h:1", "h:1"),
            ("nfs://h", "h:7"),
            ("nfs://h:1/", "h:1"),
            ("::1", "[::1]:7"),
            ("[::1]:2", "[::1]:2"),
        ] {
            assert_eq!(host(text).unwrap().authority(7), authority, "{text}");
        }
        for text in ["", "h/p", "h:0", "http://h", "a b"] {
            assert!(host(text).is_err(), "{text}");
        }
    }
}
