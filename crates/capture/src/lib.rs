//! Recorded sessions of iWARP and RoCE, for tests and tools; not part of any endpoint.
//!
//! | module | mechanism |
//! | --- | --- |
//! | [`pcap`] | packets of a pcap file, with their TCP segments and UDP datagrams |
//! | [`tcp`] | the bytes of each direction, assembled from TCP segments |
//! | [`roce`] | packets of RoCE version 2, and their connections |
//! | [`session`] | a connection as MPA frames and FPDUs, or as packets of RoCE, in the order of their arrival |
//! | [`text`] | sessions as small text files: [`linux`] has those that the Linux kernel made |
//! | [`summary`] | counts of a recording, and its faults |
//! | [`reduce`] | a session without its payload, to make it small |
//! | [`message`] | operations of RDMA, assembled from FPDUs or from packets of RoCE |
//! | [`exchange`] | RPC calls and their replies, assembled from messages, chunks included |
//!
//! *Buffers.* All data is copied out of its source; this code is not meant to be fast. *Errors.* A malformed file is a
//! [`pcap::PcapError`] or a [`text::TextError`]. Malformed bytes of a peer stay in place, as [`session::Kind::Rest`],
//! or as a message without a header.

pub mod exchange;
pub mod linux;
pub mod message;
pub mod pcap;
pub mod reduce;
pub mod roce;
pub mod session;
pub mod summary;
pub mod tcp;
pub mod text;

use crate::pcap::PcapError;
use crate::session::Session;
use crate::tcp::Side;

/// Returns the connections of a pcap file that speak MPA, then those that speak RoCE.
///
/// # Errors
/// Those of [`tcp_segments`](pcap::tcp_segments).
pub fn sessions(file: &[u8]) -> Result<Vec<Session>, PcapError> {
    let connections = tcp::connections(pcap::tcp_segments(file)?);
    let sessions = connections.iter().map(Session::of);
    let mpa = sessions.filter(|session| session.frame(Side::Client).is_some());
    Ok(mpa.chain(roce::connections::from_pcap(file)?).collect())
}
