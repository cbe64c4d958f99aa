//! Settings of the provider, with their defaults.

use rpcrdma_verbs::ConnectParameters;

use crate::engine::Timeouts;
use crate::startup::Settings;
use crate::wire::mpa::{Revision, RtrSet};

/// How connections of a connector or listener behave.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Ask for CRCs. On by default; off is for links that protect data themselves (RFC 5044 §4.4), and takes effect only
    /// if the peer does not ask either.
    ///
    /// Linux `siw` (seen in 6.1) loses its place in the last 4 to 7 bytes of an FPDU, pad and CRC, if they come in two TCP
    /// segments: it takes the CRC for wrong and ends the connection. Segments as this provider and a network make them do
    /// not cut there, or hardly ever; those of a proxy do, once in some ten MiB. Without CRCs nothing is lost.
    pub crc: bool,
    /// Place nothing before its CRC matched, at the price of one copy of all payload. Off by default.
    pub strict_crc: bool,
    /// Set the reserved flag bit 0x08 of MPA start-up frames, which Linux `siw` (with `try_gso`) takes as permission for
    /// FPDUs beyond one TCP segment, and send such to peers that set it too. Off by default, since no RFC knows it.
    pub large_fpdu: bool,
    /// MPA revision of our Requests. 2 by default: Linux refuses revision 1.
    pub revision: Revision,
    /// Ask for the peer-to-peer model, in which this provider sends a Ready-To-Receive message by itself, so that the
    /// accepting side may speak first (RFC 6581 §9.2). Off by default: in RPC the Initiator speaks first anyway.
    pub peer_to_peer: bool,
    /// Largest IRD that is given to a Responder that wants more than we offered. 128 by default, as Linux.
    pub ird_limit: u16,
    /// Windows that a connection may have at a time. 4096 by default.
    pub max_windows: usize,
    /// Waiting times.
    pub timeouts: Timeouts,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            crc: true,
            strict_crc: false,
            large_fpdu: false,
            revision: Revision::Two,
            peer_to_peer: false,
            ird_limit: 128,
            max_windows: 4096,
            timeouts: Timeouts::default(),
        }
    }
}

impl Config {
    /// What goes into a start-up frame.
    pub(crate) fn settings(&self, parameters: &ConnectParameters) -> Settings {
        Settings {
            private_data: parameters.private_data.clone(),
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
            private_data: b"pd".to_vec().into(),
            ird: 3,
            ord: 5,
            max_send_wr: 1,
            max_recv_wr: 1,
            domain: ProtectionDomain::new(0),
        };
        for peer_to_peer in [false, true] {
            let config = Config {
                crc: false,
                large_fpdu: true,
                revision: Revision::One,
                peer_to_peer,
                ird_limit: 7,
                ..Config::default()
            };
            let settings = config.settings(&parameters);
            assert_eq!(settings.private_data, parameters.private_data);
            assert_eq!((settings.ird, settings.ord, settings.ird_limit), (3, 5, 7));
            assert_eq!((settings.crc, settings.large_fpdu, settings.revision), (false, true, Revision::One));
            let all = RtrSet { send: true, write: true, read: true };
            assert_eq!(settings.peer_to_peer, peer_to_peer.then_some(all));
        }
    }
}
