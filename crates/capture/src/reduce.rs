//! Makes recorded sessions small by cutting out payload.
//!
//! MPA frames, DDP headers, Read Requests, Terminates and up to [`Keep::message`] bytes of a Send stay. These bytes
//! include the RPC-over-RDMA header with its chunk lists, the RPC header and, except for bulk data, the arguments or
//! results. Of tagged segments (RDMA Write, Read Response) beyond [`Keep::tagged`] bytes only the front stays. Packets
//! of RoCE are cut by the same amounts; messages of the connection manager stay.

use std::collections::BTreeMap;

use rpcrdma_iwarp::wire::ddp::{Header, HeaderView, queue};
use rpcrdma_iwarp::wire::fpdu::{CRC_LEN, Crc, FpduView, LENGTH_LEN};
use rpcrdma_iwarp::wire::mpa::FrameView;

use crate::pcap::PcapError;
use crate::roce::management::{Content, Management};
use crate::roce::{Operation, Packet, distance};
use crate::session::{Item, Kind, Session};
use crate::tcp::Side;

/// Amounts of payload that stay, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// Maximum length of a Send. Longer ones are cut behind it.
    pub message: usize,
    /// Maximum length of a tagged segment that stays complete.
    pub tagged: usize,
    /// Length of the front that stays of a longer segment.
    pub front: usize,
}

impl Default for Keep {
    fn default() -> Self {
        Self { message: 1024, tagged: 512, front: 32 }
    }
}

/// Returns a session with every item reduced.
#[must_use]
pub fn reduce(session: &Session, keep: &Keep) -> Session {
    let (mut client, mut server) = (Sends::default(), Sends::default());
    let items = session.items.iter().map(|item| match item.kind {
        Kind::Fpdu => reduce_fpdu(item, keep),
        Kind::Packet => {
            let sends = if item.from == Side::Client { &mut client } else { &mut server };
            reduce_packet(item, sends, keep)
        }
        Kind::Frame | Kind::Rest | Kind::End(_) => item.clone(),
    });
    Session { items: items.collect() }
}

/// The Sends of one side over RoCE.
#[derive(Debug, Default)]
struct Sends {
    /// Length of the payload of each first packet, by its sequence number.
    first: BTreeMap<u32, usize>,
}

impl Sends {
    /// Returns the offset of a packet in its Send. All packets of a Send but the last have equal lengths.
    ///
    /// Packets are repeated, also after the first packet of the next Send. So the sequence number decides.
    fn offset(&mut self, packet: &Packet) -> usize {
        if packet.first {
            self.first.insert(packet.sequence, packet.payload.len());
            return 0;
        }
        // The numbers begin again at 0.
        let before = self.first.range(..packet.sequence).next_back().or_else(|| self.first.last_key_value());
        let packets = before.and_then(|(&first, &length)| Some((distance(first, packet.sequence)?, length)));
        // The recording lacks the beginning of other Sends.
        packets.map_or(0, |(packets, length)| {
            usize::try_from(packets).unwrap_or(usize::MAX).saturating_mul(length)
        })
    }
}

/// Reduces a packet from the side of these Sends.
fn reduce_packet(item: &Item, sends: &mut Sends, keep: &Keep) -> Item {
    let whole = item.clone();
    let Some(packet) = Packet::decode(&item.bytes) else { return whole };
    let length = packet.payload.len();
    let keep_bytes = match packet.operation {
        Operation::Write | Operation::ReadResponse if length <= keep.tagged => return whole,
        Operation::Write | Operation::ReadResponse => keep.front,
        Operation::Send => keep.message.saturating_sub(sends.offset(&packet)),
        Operation::ReadRequest | Operation::Acknowledge | Operation::Datagram => return whole,
    };
    let cut = packet.payload.start.saturating_add(keep_bytes)..packet.payload.end;
    let mut bytes = item.bytes.clone();
    let Some(gone) = bytes.get_mut(cut.clone()).filter(|gone| !gone.is_empty()) else { return whole };
    gone.fill(0);
    Item { bytes, cut, ..whole }
}

fn reduce_fpdu(item: &Item, keep: &Keep) -> Item {
    let whole = item.clone();
    let view = FpduView::new(&item.bytes);
    let Some(ulpdu) = view.ulpdu() else { return whole };
    let Some(header_len) = HeaderView::new(ulpdu).header_len() else { return whole };
    let payload = LENGTH_LEN + header_len..LENGTH_LEN + ulpdu.len();
    let keep_bytes = match Header::decode(ulpdu) {
        Ok(Header::Tagged(_)) if payload.len() <= keep.tagged => return whole,
        Ok(Header::Tagged(_)) => keep.front,
        Ok(Header::Untagged(header)) if header.queue == queue::SEND => {
            // Counted from the beginning of the message, not of the segment.
            keep.message.saturating_sub(usize::try_from(header.offset).unwrap_or(usize::MAX))
        }
        // An invalid message is in the recording because of its fault, so it stays complete.
        Ok(Header::Untagged(_)) | Err(_) => return whole,
    };
    let cut = payload.start.saturating_add(keep_bytes)..payload.end;
    let had_crc = view.crc_matches() == Some(true);
    let mut bytes = item.bytes.clone();
    let Some(gone) = bytes.get_mut(cut.clone()).filter(|gone| !gone.is_empty()) else { return whole };
    gone.fill(0);
    if had_crc && let Some((covered, field)) = bytes.split_last_chunk_mut::<CRC_LEN>() {
        let mut crc = Crc::new();
        crc.update(covered);
        *field = crc.wire();
    }
    Item { bytes, cut, ..whole }
}

/// Returns the reduced text of a pcap file; `about` describes its origin.
///
/// # Errors
/// Those of [`sessions`](crate::sessions).
pub fn pcap_to_text(file: &[u8], about: &str, keep: &Keep) -> Result<String, PcapError> {
    let sessions: Vec<_> = crate::sessions(file)?.iter().map(|session| reduce(session, keep)).collect();
    let about = format!("{}\n\n{}", about.trim_end(), describe(&sessions));
    Ok(crate::text::write(&about, &sessions))
}

/// Describes the sessions of a file for its comment, with one line for the set-up of each.
fn describe(sessions: &[Session]) -> String {
    use std::fmt::Write as _;
    let mut out = String::new();
    for (number, session) in sessions.iter().enumerate() {
        let (fpdus, packets) = (session.fpdus().count(), session.packets().count());
        let _ = write!(out, "session {}: ", number + 1);
        let _ = if packets > 0 { write!(out, "{packets} packets") } else { write!(out, "{fpdus} FPDUs") };
        for item in session.items.iter().filter(|item| item.kind == Kind::Frame) {
            let view = FrameView::new(&item.bytes);
            let _ = write!(
                out,
                ", {} revision {} flags {:02x}",
                if item.from == Side::Client { "Request" } else { "Reply" },
                view.revision().unwrap_or_default(),
                view.flags().unwrap_or_default(),
            );
        }
        let messages = session.packets().filter_map(|item| Management::decode(&item.bytes));
        if let Some(Content::Request(request)) = messages.map(|message| message.content).next() {
            let _ = write!(out, ", {} bytes of payload each", request.mtu);
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use rpcrdma_iwarp::wire::ddp::{Tagged, Untagged};
    use rpcrdma_iwarp::wire::fpdu::seal;

    use super::*;

    fn cut_of(header: &[u8], payload: usize, crc: bool) -> (Item, Vec<u8>) {
        let bytes = seal(&[header, &vec![0xAA; payload]].concat(), crc).unwrap();
        let item = Item::new(Side::Client, Kind::Fpdu, bytes.clone());
        (reduce_fpdu(&item, &Keep::default()), bytes)
    }

    fn send(queue: u32, offset: u32) -> [u8; 18] {
        Untagged { last: true, control: 0x43, invalidate: 0, queue, msn: 1, offset }.encode()
    }

    #[test]
    fn bounds_of_what_stays() {
        let write = Tagged { last: true, control: 0x40, stag: 1, offset: 0 }.encode();
        for (header, payload, cut) in [
            (&write[..], 512, 0..0),
            (&write[..], 513, 48..529),
            (&send(0, 0)[..], 1024, 0..0),
            (&send(0, 0)[..], 1025, 1044..1045),
            (&send(0, 1000)[..], 100, 44..120),
            (&send(0, 4000)[..], 100, 20..120),
            (&send(2, 0)[..], 2000, 0..0),
        ] {
            for crc in [false, true] {
                let (line, original) = cut_of(header, payload, crc);
                assert_eq!(line.cut, cut, "{payload}");
                assert_eq!(line.bytes.len(), original.len());
                assert_eq!(FpduView::new(&line.bytes).crc_matches(), Some(crc));
                assert!(line.bytes[cut.clone()].iter().all(|&byte| byte == 0));
                if cut.is_empty() {
                    assert_eq!(line.bytes, original);
                }
            }
        }
    }

    #[test]
    fn a_wrong_crc_stays_wrong() {
        let (_, mut bytes) = cut_of(&send(0, 0), 3000, true);
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        let item = Item::new(Side::Client, Kind::Fpdu, bytes.clone());
        let line = reduce_fpdu(&item, &Keep::default());
        assert_eq!(line.bytes[last - 3..], bytes[last - 3..]);
    }

    /// Returns the lengths that are cut out of packets of one Send, or of two.
    fn cuts(message: usize, packets: &[(u8, u32, usize)]) -> Vec<usize> {
        let items = packets.iter().map(|&(opcode, sequence, length)| {
            let bth = [opcode, 0, 0xFF, 0xFF, 0, 0, 0, 7, 0];
            let bytes = [&bth[..], &sequence.to_be_bytes()[1..], &vec![0xAA; length]].concat();
            Item::new(Side::Client, Kind::Packet, bytes)
        });
        let session = Session { items: items.collect() };
        let reduced = reduce(&session, &Keep { message, ..Keep::default() });
        reduced.items.iter().map(|item| item.cut.len()).collect()
    }

    #[test]
    fn a_packet_is_cut_by_its_place_in_the_send_and_not_by_the_packets_before_it() {
        let (first, middle, last) = ((0x00, 0xFF_FFFF, 10), (0x01, 0, 10), (0x02, 1, 4));
        // Repeated packets.
        assert_eq!(cuts(22, &[first, middle, last]), [0, 0, 2]);
        assert_eq!(cuts(22, &[first, middle, middle, last, last]), [0, 0, 0, 2, 2]);
        assert_eq!(cuts(22, &[first, last, middle, last]), [0, 2, 0, 2]);
        assert_eq!(cuts(13, &[first, middle, first, middle, last]), [0, 7, 0, 7, 4]);
        // The first packet of the next Send came before the repetition.
        let (next, end) = ((0x00, 2, 10), (0x02, 3, 10));
        assert_eq!(cuts(22, &[first, last, next, middle, last, next, end]), [0, 2, 0, 0, 2, 0, 0]);
        // A Send of one packet, and the rest of a Send whose beginning the recording lacks.
        assert_eq!(cuts(8, &[(0x04, 5, 10), middle]), [2, 2]);
    }
}
