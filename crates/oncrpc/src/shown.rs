//! [`Shown`]: text of a peer, as it may stand in a log.

use std::fmt::{self, Write};

/// Text of a peer for one line of a log: a path, a name of a machine, a name of a principal.
///
/// Bytes that are no UTF-8 become U+FFFD. Control characters, invisible characters, quotes and backslashes are escaped
/// as in Rust. So a peer can neither begin a line of its own nor change a terminal. Text beyond [`MAX`](Self::MAX)
/// characters is left out, and its length is told.
///
/// ```
/// use rpcrdma_oncrpc::Shown;
///
/// assert_eq!(Shown(b"/srv/data").to_string(), "/srv/data");
/// assert_eq!(Shown(b"/x\nerror: all is lost").to_string(), r"/x\nerror: all is lost");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown<'a>(
    /// The text as the peer sent it.
    pub &'a [u8],
);

impl Shown<'_> {
    /// Most characters that are shown. An escaped character counts as one.
    pub const MAX: usize = 256;
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A character has at most four bytes; bytes that are none count as one each.
        let most = self.0.get(..4 * Self::MAX).unwrap_or(self.0);
        let text = String::from_utf8_lossy(most);
        let mut left_out = most.len() < self.0.len();
        for (index, character) in text.chars().enumerate() {
            if index == Self::MAX {
                left_out = true;
                break;
            }
            // An apostrophe needs no escape between double quotes.
            if character == '\'' { f.write_char('\'')? } else { character.escape_debug().fmt(f)? }
        }
        if left_out { write!(f, "... ({} bytes)", self.0.len()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i6_text_of_peers_has_no_control_characters_and_a_bounded_length() {
        for (text, expected) in [
            (&b"/it's"[..], "/it's"),
            (b"a\"b\\", "a\\\"b\\\\"),
            (b"\x1b[31m\r\n\0", "\\u{1b}[31m\\r\\n\\0"),
            ("\u{202e}txt.exe\u{85}".as_bytes(), "\\u{202e}txt.exe\\u{85}"),
            ("/data/\u{e4}".as_bytes(), "/data/\u{e4}"),
            (b"/\xff", "/\u{fffd}"),
        ] {
            assert_eq!(Shown(text).to_string(), expected);
        }
        for text in
            [vec![b'a'; 1024], vec![0xff; 1 << 20], vec![0; 257], "\u{1f980}".repeat(300).into_bytes()]
        {
            let shown = Shown(&text).to_string();
            assert!(shown.ends_with(&format!("... ({} bytes)", text.len())), "{shown}");
            assert!(shown.len() < 10 * Shown::MAX && !shown.contains(char::is_control), "{shown}");
        }
        assert_eq!(Shown(&[b'a'; Shown::MAX]).to_string().len(), Shown::MAX);
    }
}
