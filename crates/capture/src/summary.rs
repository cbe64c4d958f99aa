//! Counts of a recording, to compare with those of another decoder, and the faults in it.

use std::collections::BTreeMap;

use rpcrdma_iwarp::wire::ddp::HeaderView;
use rpcrdma_iwarp::wire::fpdu::FpduView;

use crate::pcap::{PcapError, tcp_segments};
use crate::session::{Kind, Session};
use crate::tcp::{self, Side};

/// The counts of all iWARP connections of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Connections that speak MPA.
    pub connections: usize,
    /// TCP segments behind bytes that the recorder lost.
    pub behind_holes: usize,
    /// Connections whose end the recording lacks.
    pub without_end: usize,
    /// TCP segments that were recorded before an earlier one of their direction. They are put in order here.
    pub out_of_order: usize,
    /// DDP segments by RDMAP opcode, which is the low half of the second octet (RFC 5040 §4.1).
    pub opcodes: BTreeMap<u8, usize>,
    /// FPDUs whose CRC field does not match. On a connection without CRC, these are nearly all.
    pub bad_crc: usize,
    /// FPDUs too short for a DDP header of their kind.
    pub no_header: usize,
    /// Directions that end with bytes that are neither a frame nor an FPDU.
    pub rests: usize,
}

impl Summary {
    /// Returns the counts of a pcap file.
    ///
    /// # Errors
    /// Those of [`tcp_segments`].
    pub fn of_pcap(file: &[u8]) -> Result<Self, PcapError> {
        let mut summary = Self::default();
        for connection in tcp::connections(tcp_segments(file)?) {
            let session = Session::of(&connection);
            if session.frame(Side::Client).is_some() {
                summary.connections += 1;
                summary.behind_holes += connection.behind_holes;
                summary.out_of_order += connection.out_of_order;
                let has_end = session.end(Side::Client).or(session.end(Side::Server)).is_some();
                summary.without_end += usize::from(!has_end);
                summary.add(&session);
            }
        }
        Ok(summary)
    }

    /// Returns whether the recorder lost nothing. Otherwise the other counts say little of the peers.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.behind_holes == 0 && self.without_end == 0
    }

    /// Returns whether every byte of the recording is a frame or an FPDU with a header and a right CRC.
    #[must_use]
    pub const fn is_flawless(&self) -> bool {
        self.bad_crc == 0 && self.no_header == 0 && self.rests == 0
    }

    fn add(&mut self, session: &Session) {
        self.rests += session.items.iter().filter(|item| item.kind == Kind::Rest).count();
        for item in session.fpdus() {
            let view = FpduView::new(&item.bytes);
            self.bad_crc += usize::from(view.crc_matches() != Some(true));
            let ulpdu = view.ulpdu().unwrap_or_default();
            match (HeaderView::new(ulpdu).payload(), ulpdu.get(1)) {
                (Some(_), Some(control)) => *self.opcodes.entry(control & 0x0f).or_default() += 1,
                _ => self.no_header += 1,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rpcrdma_iwarp::wire::fpdu::seal;

    use super::*;
    use crate::session::Item;

    fn untagged(control: u8) -> Vec<u8> {
        seal(&[&[0x41, 0x40 | control][..], &[0; 16], b"message"].concat(), true).unwrap()
    }

    #[test]
    fn segments_count_by_opcode_and_faults_by_kind() {
        let mut bad = untagged(3);
        let last = bad.len() - 1;
        bad[last] ^= 1;
        let item = |kind, bytes: Vec<u8>| Item::new(Side::Client, kind, bytes);
        let mut session = Session {
            items: vec![
                item(Kind::Fpdu, untagged(3)),
                item(Kind::Fpdu, untagged(3)),
                item(Kind::Fpdu, untagged(15)),
            ],
        };
        let mut summary = Summary::default();
        summary.add(&session);
        assert_eq!(summary.opcodes, BTreeMap::from([(3, 2), (15, 1)]));
        assert!(summary.is_flawless());
        for (item, faulty) in [
            (
                item(Kind::Fpdu, bad),
                Summary { bad_crc: 1, opcodes: BTreeMap::from([(3, 1)]), ..Summary::default() },
            ),
            (
                item(Kind::Fpdu, seal(&[0x41, 0x43], true).unwrap()),
                Summary { no_header: 1, ..Summary::default() },
            ),
            (item(Kind::Rest, vec![0, 9]), Summary { rests: 1, ..Summary::default() }),
        ] {
            session.items = vec![item];
            let mut summary = Summary::default();
            summary.add(&session);
            assert_eq!(summary, faulty);
            assert!(!summary.is_flawless());
        }
    }
}
