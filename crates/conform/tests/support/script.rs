//! Faults in a few lines: the treatment of each received message, and the changes to each message that is sent.

use bytes::Bytes;

/// The past, as far as a fault depends on it.
#[derive(Debug, Default)]
pub struct Past {
    /// Connections to this listener that have ended.
    pub ended: usize,
    /// XIDs of the messages received before, of all connections.
    pub xids: Vec<u32>,
    /// Messages received on this connection before.
    pub received: Vec<Vec<u8>>,
    /// Messages that the good peer sent on this connection before, as they left.
    pub sent: Vec<Vec<u8>>,
}

/// Treatment of a received message.
#[derive(Clone, Debug, Default)]
pub struct Turn {
    /// Answers that leave at once, besides those of the good peer.
    pub answers: Vec<Vec<u8>>,
    /// The message that the good peer gets; `None` for none.
    pub passes: Option<Vec<u8>>,
    /// The connection ends after the answers.
    pub ends: bool,
}

/// A fault; the methods make the usual ones.
#[derive(Clone, Copy)]
pub struct Script {
    /// Treats a received message.
    pub receives: fn(&Past, &[u8]) -> Turn,
    /// Returns the messages that leave in the place of one of the good peer.
    pub sends: fn(&Past, Vec<u8>) -> Vec<Vec<u8>>,
    /// Changes the private data that the peer sends.
    pub announces: fn(Bytes) -> Bytes,
    /// Returns the key that a message invalidates instead of that of the good peer.
    pub invalidates: fn(&Past) -> Option<u32>,
}

impl Script {
    /// No fault.
    pub const NONE: Self = Self {
        receives: |_, message| Turn::pass(message),
        sends: |_, message| vec![message],
        announces: |data| data,
        invalidates: |_| None,
    };

    /// A fault in the treatment of received messages.
    pub const fn receives(receives: fn(&Past, &[u8]) -> Turn) -> Self {
        Self { receives, ..Self::NONE }
    }

    /// A fault in the messages that are sent.
    pub const fn sends(sends: fn(&Past, Vec<u8>) -> Vec<Vec<u8>>) -> Self {
        Self { sends, ..Self::NONE }
    }
}

impl Turn {
    /// The good peer gets the message.
    pub fn pass(message: &[u8]) -> Self {
        Self { passes: Some(message.to_vec()), ..Self::default() }
    }

    /// The message is ignored.
    pub fn ignore() -> Self {
        Self::default()
    }

    /// The message is answered with these words, and the good peer does not get it.
    pub fn answer(words: &[u32]) -> Self {
        Self { answers: vec![bytes(words)], ..Self::default() }
    }

    /// The connection ends.
    pub fn end() -> Self {
        Self { ends: true, ..Self::default() }
    }
}

/// Returns words as bytes.
pub fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}
