//! The chunk lists that the message types of Version Two have. In P1 and P2 these are the three of Version
//! One.
//!
//! In P3 the Call chunk is a list of its own (version-two-07 §6.3.5). Elsewhere it is the Position-Zero chunk
//! of [`ChunkLists::read`], as in every other version. *On error*: counts and lengths are bounded by
//! [`Limits`].

use bytes::BytesMut;

use super::{Error, PADS};
use crate::wire::lists::{
    chunk_lists, put_lists, put_read_list, put_reply_chunk, put_write_list, read_list, read_on, reply_chunk,
    write_list,
};
use crate::wire::reader::Reader;
use crate::wire::{ChunkLists, Limits, ProtocolError, ReadSegment};

/// The chunk lists of a message type.
#[derive(Clone, Copy)]
pub(super) enum Lists {
    /// All three.
    All,
    /// All three, and the Read list has nothing but data items (version-two-07 §6.3.7).
    Items,
    /// The Call chunk, and all three with nothing but data items (version-two-07 §6.3.5).
    CallChunk,
    /// The Write list (version-two-07 §6.3.10).
    Write,
    /// The Write list and exactly one Reply chunk (version-two-07 §6.3.8).
    WriteAndReply,
}

impl Lists {
    pub(super) fn read(self, reader: &mut Reader<'_>, limits: &Limits) -> Result<ChunkLists, ProtocolError> {
        match self {
            Self::All => chunk_lists(reader, limits, PADS),
            Self::Items => {
                let lists = chunk_lists(reader, limits, PADS)?;
                data_items(&lists.read)?;
                Ok(lists)
            }
            Self::CallChunk => call_external(reader, limits),
            Self::Write => Ok(ChunkLists { write: write_list(reader, limits)?, ..ChunkLists::default() }),
            Self::WriteAndReply => {
                let write = write_list(reader, limits)?;
                let reply = reply_chunk(reader, limits)?.ok_or(ProtocolError::ReplyChunkUse)?;
                Ok(ChunkLists { read: vec![], write, reply: Some(reply) })
            }
        }
    }

    /// Appends the lists that the message type has; others are not encoded.
    pub(super) fn put(self, lists: &ChunkLists, out: &mut BytesMut) {
        match self {
            Self::All | Self::Items => put_lists(lists, out),
            Self::CallChunk => {
                put_read_list(lists.read.iter().filter(|entry| entry.position == 0), out);
                put_read_list(lists.read.iter().filter(|entry| entry.position != 0), out);
                put_write_list(&lists.write, out);
                put_reply_chunk(lists.reply.as_ref(), out);
            }
            Self::Write => put_write_list(&lists.write, out),
            Self::WriteAndReply => {
                put_write_list(&lists.write, out);
                put_reply_chunk(lists.reply.as_ref(), out);
            }
        }
    }
}

/// Reads the Call chunk and the lists behind it; both Read lists are bounded together.
fn call_external(reader: &mut Reader<'_>, limits: &Limits) -> Result<ChunkLists, ProtocolError> {
    let mut read = read_list(reader, limits, PADS)?;
    if read.is_empty() {
        return Err(ProtocolError::NoPositionZero);
    }
    if let Some(entry) = read.iter().find(|entry| entry.position != 0) {
        return Err(Error::CallChunkPosition { position: entry.position }.into());
    }
    let call = read.len();
    read_on(reader, limits, PADS, &mut read)?;
    data_items(read.get(call..).unwrap_or_default())?;
    let write = write_list(reader, limits)?;
    Ok(ChunkLists { read, write, reply: reply_chunk(reader, limits)? })
}

/// Checks the chunks of data items. The Position-Zero chunk has its own list (version-two-07 §6.3.7), and
/// Positions go up (§4.5.1.1).
fn data_items(read: &[ReadSegment]) -> Result<(), Error> {
    let mut before = 0;
    for ReadSegment { position, .. } in read {
        if *position == 0 {
            return Err(Error::PositionZeroInReads);
        }
        if *position < before {
            return Err(Error::PositionOrder { position: *position, before });
        }
        before = *position;
    }
    Ok(())
}
