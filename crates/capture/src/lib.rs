//! Recorded iWARP sessions, for tests and tools; no part of any endpoint.
//!
//! | module | mechanism |
//! | --- | --- |
//! | [`pcap`] | packets of a pcap file, and their TCP segments |
//! | [`tcp`] | TCP segments, put together to the bytes of each direction |
//! | [`session`] | a connection as MPA frames and FPDUs in the order in which they came |
//! | [`text`] | sessions as small text files: [`linux`] has those that the Linux kernel made |
//! | [`reduce`] | cuts payload out of a session, so that it gets small |
//! | [`message`] | FPDUs, put together to the messages of RDMAP |
//! | [`exchange`] | messages, put together to RPC calls and their replies, chunks included |
//!
//! *Who owns which memory.* Everything is copied out of its source; nothing here is made to be fast. *What happens on error.* A
//! file that makes no sense is a [`pcap::PcapError`] or a [`text::TextError`]. Bytes of a peer that make no sense stay
//! where they are, as [`session::Kind::Rest`], or as a message that has no header.

pub mod exchange;
pub mod linux;
pub mod message;
pub mod pcap;
pub mod reduce;
pub mod session;
pub mod tcp;
pub mod text;
