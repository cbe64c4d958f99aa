//! Settings of the provider, with their defaults.

use rpcrdma_verbs::{Capabilities, ConnectParameters};

use crate::engine::Timeouts;
use crate::startup::{LargeFpdu, Settings};
use crate::wire::mpa::{Revision, RtrSet};

/// Behaviour of the connections of a connector or listener.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Asks the peer for CRCs. On by default. Turn it off only for links that protect data themselves (RFC 5044 §4.4);
    /// CRCs are then off if the peer does not ask either.
    ///
    /// Linux `siw` (seen in 6.1) loses its place if pad and CRC of an FPDU arrive in two TCP segments. It then misjudges the CRC and ends the connection. Segments of this provider rarely end there. Those
    /// of a proxy do, about once in ten MiB. Without CRCs no data is lost.
    pub crc: bool,
    /// Places no payload before its CRC matched, at the cost of one copy of all payload. Off by default.
    pub strict_crc: bool,
    /// Whether FPDUs may be longer than a TCP segment, if the peer agrees. [`LargeFpdu::Never`] by default, since peers
    /// of other kinds pass an offer on to their ULP. RPC-over-RDMA searches private data for its own entry (RFC 8797
    /// §5.2), so [`LargeFpdu::Offered`] is safe for it.
    pub large_fpdu: LargeFpdu,
    /// MPA revision of our Requests. 2 by default, since Linux refuses revision 1.
    pub revision: Revision,
    /// Asks for the peer-to-peer model, in which this provider sends a Ready-To-Receive message by itself. The
    /// accepting side may then speak first (RFC 6581 §9.2). Off by default, since in RPC the Initiator speaks first
    /// anyway.
    pub peer_to_peer: bool,
    /// Largest IRD for a Responder that wants more RDMA Reads than the Request offered. 128 by default, as in Linux.
    pub ird_limit: u16,
    /// Maximum number of windows of a connection. 4096 by default.
    pub max_windows: usize,
    /// Timeouts of each connection.
    pub timeouts: Timeouts,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            crc: true,
            strict_crc: false,
            large_fpdu: LargeFpdu::Never,
            revision: Revision::Two,
            peer_to_peer: false,
            ird_limit: 128,
            max_windows: 4096,
            timeouts: Timeouts::default(),
        }
    }
}

impl Config {
    /// Returns the settings that go into a start-up frame.
    pub(crate) fn settings(&self, parameters: &ConnectParameters) -> Settings {
        Settings {
            // Every queue pair of this provider can be invalidated, as these capabilities say.
            private_data: parameters.private_data.stated_by(&Capabilities::default()).clone(),
            ird: parameters.ird,
            ord: parameters.ord,
            crc: self.crc,
            large_fpdu: self.large_fpdu,
            revision: self.revision,
            peer_to_peer: self.peer_to_peer.then_some(RtrSet { send: true, write: true, read: true }),
            ird_limit: self.ird_limit,
        }
    }
}

#[cfg(test)]
mod tests {
    use rpcrdma_verbs::ProtectionDomain;

    use super::*;

    #[test]
    fn a_start_up_frame_carries_settings_and_parameters() {
        let parameters = ConnectParameters {
            private_data: bytes::Bytes::from_static(b"pd").into(),
            ird: 3,
            ord: 5,
            max_send_wr: 1,
            max_recv_wr: 1,
            domain: ProtectionDomain::new(0),
        };
        for peer_to_peer in [false, true] {
            let config = Config {
                crc: false,
                large_fpdu: LargeFpdu::Flagged,
                revision: Revision::One,
                peer_to_peer,
                ird_limit: 7,
                ..Config::default()
            };
            let settings = config.settings(&parameters);
            assert_eq!(&settings.private_data[..], b"pd");
            assert_eq!((settings.ird, settings.ord, settings.ird_limit), (3, 5, 7));
            assert_eq!(
                (settings.crc, settings.large_fpdu, settings.revision),
                (false, LargeFpdu::Flagged, Revision::One)
            );
            let all = RtrSet { send: true, write: true, read: true };
            assert_eq!(settings.peer_to_peer, peer_to_peer.then_some(all));
        }
    }
}
