//! Sessions as text.
//!
//! ```text
//! # Origin of the recording, in any number of lines.
//! session
//! > frame 4d504120... 1002000c 00800000f6ab0e1801010303
//! < frame ...
//! > fpdu 0056 4143 00000000... ~3900 00000000
//! > rest 0009
//! > fin
//! < rst
//! session
//! > packet 6440ffff0000000180000001 8001000000000012 0107020300000000...
//! < packet 1100ffff0000001180000007 1f000003
//! ```
//!
//! `>` is sent by the side that opened the connection, `<` by the other side. Bytes are hexadecimal, and spaces between
//! them have no meaning. A `packet` is one of RoCE, without its invariant CRC. `~N` stands for N bytes of payload that
//! were cut out. They are read as zeros, so that every length and offset stays unchanged. All other bytes are those of
//! the wire, with one exception. The CRC field of an FPDU with cut payload is computed again, if it matched before.
//! Empty lines and lines that begin with `#` are comments.

use std::fmt::Write as _;

use rpcrdma_iwarp::wire::ddp::HeaderView;
use rpcrdma_iwarp::wire::fpdu::{CRC_LEN, FpduView, LENGTH_LEN};
use rpcrdma_iwarp::wire::mpa::{ENHANCED_LEN, HEADER_LEN};

use crate::roce::{BTH_LEN, Packet};
use crate::session::{Item, Kind, Session};
use crate::tcp::{End, Side};

/// Maximum number of bytes of one `~N`: no FPDU is longer.
const MAX_CUT: usize = 1 << 16;

/// Reason why a file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct TextError {
    /// Number of the line, from 1.
    pub line: usize,
    /// Fault of the line.
    pub reason: String,
}

/// Writes a file: `about` as comments, then the sessions.
#[must_use]
pub fn write(about: &str, sessions: &[Session]) -> String {
    let mut out = String::new();
    for line in about.lines() {
        out.push_str(if line.is_empty() { "#" } else { "# " });
        out.push_str(line);
        out.push('\n');
    }
    for session in sessions {
        out.push_str("\nsession\n");
        for item in &session.items {
            out.push_str(if item.from == Side::Client { "> " } else { "< " });
            let name = match item.kind {
                Kind::Frame => "frame",
                Kind::Fpdu => "fpdu",
                Kind::Packet => "packet",
                Kind::Rest => "rest",
                Kind::End(End::Closed) => "fin",
                Kind::End(End::Reset) => "rst",
            };
            out.push_str(name);
            write_bytes(item, &mut out);
            out.push('\n');
        }
    }
    out
}

/// Writes bytes in groups that begin with their parts, for readability.
fn write_bytes(item: &Item, out: &mut String) {
    let bytes = &item.bytes;
    let mut starts = match item.kind {
        Kind::Frame => vec![0, HEADER_LEN - 4, HEADER_LEN, HEADER_LEN + ENHANCED_LEN],
        Kind::Fpdu => {
            let header = bytes.get(LENGTH_LEN..).and_then(|ulpdu| HeaderView::new(ulpdu).header_len());
            let end = LENGTH_LEN + usize::from(FpduView::new(bytes).ulpdu_len().unwrap_or_default());
            let mut starts = vec![0, LENGTH_LEN, LENGTH_LEN + 2];
            starts.extend(header.map(|header| LENGTH_LEN + header));
            starts.extend([end, bytes.len().saturating_sub(CRC_LEN)]);
            starts
        }
        Kind::Packet => {
            let payload = Packet::decode(bytes).map(|packet| packet.payload);
            let mut starts = vec![0, BTH_LEN];
            starts.extend(payload.into_iter().flat_map(|payload| [payload.start, payload.end]));
            starts
        }
        Kind::Rest | Kind::End(_) => vec![0],
    };
    if !item.cut.is_empty() {
        starts.extend([item.cut.start, item.cut.end]);
    }
    // A cut stands in one piece.
    let inside = |start| item.cut.contains(&start) && start != item.cut.start;
    starts.retain(|&start| start < bytes.len() && !inside(start));
    starts.sort_unstable();
    starts.dedup();
    let ends = starts.iter().skip(1).copied().chain([bytes.len()]);
    for (start, end) in starts.iter().copied().zip(ends) {
        out.push(' ');
        if item.cut.contains(&start) {
            // Writing to a String does not fail.
            let _ = write!(out, "~{}", end - start);
        } else {
            for byte in bytes.get(start..end).unwrap_or_default() {
                let _ = write!(out, "{byte:02x}");
            }
        }
    }
}

/// Reads a file.
///
/// # Errors
/// [`TextError`] with the first malformed line.
pub fn read(text: &str) -> Result<Vec<Session>, TextError> {
    let mut sessions: Vec<Session> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let fail = |reason: &str| TextError { line: number + 1, reason: reason.to_owned() };
        let mut words = line.split_whitespace();
        let from = match words.next() {
            None => continue,
            Some(word) if word.starts_with('#') => continue,
            Some("session") => {
                sessions.push(Session::default());
                continue;
            }
            Some(">") => Side::Client,
            Some("<") => Side::Server,
            Some(_) => return Err(fail("neither `session` nor `>` nor `<`")),
        };
        let kind = match words.next() {
            Some("frame") => Kind::Frame,
            Some("fpdu") => Kind::Fpdu,
            Some("packet") => Kind::Packet,
            Some("rest") => Kind::Rest,
            Some("fin") => Kind::End(End::Closed),
            Some("rst") => Kind::End(End::Reset),
            _ => return Err(fail("neither frame, fpdu, packet, rest, fin nor rst")),
        };
        let mut bytes = Vec::new();
        let mut cut = 0..0;
        for word in words {
            match word.strip_prefix('~') {
                Some(count) => {
                    let count = count.parse::<usize>().ok().filter(|count| (1..=MAX_CUT).contains(count));
                    let count = count.ok_or_else(|| fail("`~` without a number of bytes, 1 to 65536"))?;
                    if !cut.is_empty() {
                        return Err(fail("a second `~`"));
                    }
                    cut = bytes.len()..bytes.len() + count;
                    bytes.resize(cut.end, 0);
                }
                None => push_hex(word, &mut bytes).ok_or_else(|| fail("no hexadecimal bytes"))?,
            }
        }
        let session = sessions.last_mut().ok_or_else(|| fail("no `session` before it"))?;
        session.items.push(Item { from, kind, bytes, cut });
    }
    Ok(sessions)
}

fn push_hex(word: &str, bytes: &mut Vec<u8>) -> Option<()> {
    let (pairs, rest) = word.as_bytes().as_chunks::<2>();
    rest.is_empty().then_some(())?;
    for pair in pairs {
        let digit = |byte: u8| char::from(byte).to_digit(16);
        bytes.push(u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).ok()?);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let item = |from, kind, bytes: &[u8]| Item::new(from, kind, bytes.to_vec());
        let fpdu = rpcrdma_iwarp::wire::fpdu::seal(&[0; 40], false).unwrap();
        let items = vec![
            item(Side::Client, Kind::Frame, b"MPA ID Req Frame1234pd"),
            Item { cut: 25..30, ..item(Side::Server, Kind::Fpdu, &fpdu) },
            // Found by fuzzing: a cut over the end of a part was written as two.
            Item { cut: 30..46, ..item(Side::Server, Kind::Fpdu, &fpdu) },
            item(
                Side::Client,
                Kind::Packet,
                &[&[0x04, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1][..], &[9; 40]].concat(),
            ),
            Item { cut: 13..20, ..item(Side::Server, Kind::Packet, &[0; 20]) },
            item(Side::Server, Kind::Rest, b"\xff"),
            item(Side::Server, Kind::End(End::Reset), b""),
            item(Side::Client, Kind::End(End::Closed), b""),
        ];
        let sessions = [Session { items }, Session::default()];
        let text = write("first\n\nthird", &sessions);
        assert!(text.starts_with("# first\n#\n# third\n\nsession\n> frame 4d50"), "{text}");
        assert!(text.contains(" ~5 "), "{text}");
        assert_eq!(read(&text).unwrap(), sessions);
    }

    #[test]
    fn each_kind_of_nonsense_is_refused_with_its_line() {
        for (text, line) in [
            ("# comment\n\nhello", 3),
            ("> frame 00", 1),
            ("session\n> hello", 2),
            ("session\n> fpdu 0", 2),
            ("session\n> fpdu zz", 2),
            ("session\n> fpdu \u{00e9}", 2),
            ("session\n> fpdu ~x", 2),
            ("session\n> fpdu ~65537", 2),
            // Found by fuzzing: what was read differed from what is written for it.
            ("session\n> fpdu ~0", 2),
            ("session\n> fpdu ~1 00 ~1", 2),
        ] {
            assert_eq!(read(text).unwrap_err().line, line, "{text}");
        }
    }
}
