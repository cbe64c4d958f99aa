//! Operations of RDMAP, assembled from FPDUs.
//!
//! Sends are reassembled by their message offsets. A segment that violates DDP or RDMAP is kept as [`Event::Odd`].

use rpcrdma_iwarp::wire::ddp::{Header, HeaderView, queue};
use rpcrdma_iwarp::wire::fpdu::FpduView;
use rpcrdma_iwarp::wire::rdmap::{Opcode, ReadRequest, opcode};

use crate::session::{Item, Session};
use crate::tcp::Side;

/// A complete Send of any kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Sender of the message.
    pub from: Side,
    /// Send, or one of its variants.
    pub opcode: Opcode,
    /// The steering tag that the message invalidates.
    pub invalidate: Option<u32>,
    /// Content of the Send.
    pub bytes: Vec<u8>,
    /// Number of bytes, from the front, that are those of the wire; all of them unless the message was reduced.
    pub genuine: usize,
}

/// A segment of an RDMA Write or a Read Response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Sender of the segment.
    pub from: Side,
    /// Steering tag at the receiver.
    pub stag: u32,
    /// Tagged offset at the receiver.
    pub offset: u64,
    /// Payload of the segment.
    pub bytes: Vec<u8>,
    /// Whether the payload is that of the wire: none of it was cut out.
    pub genuine: bool,
    /// This is the last segment of its operation.
    pub last: bool,
}

/// Effect of one FPDU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The last segment of a Send arrived.
    Message(Message),
    /// A segment of an RDMA Write.
    Write(Placement),
    /// An RDMA Read Request.
    ReadRequest(Side, ReadRequest),
    /// A segment of a Read Response.
    ReadResponse(Placement),
    /// A Terminate, with the bytes behind its DDP header.
    Terminate(Side, Vec<u8>),
    /// An unknown segment, with its ULPDU.
    Odd(Side, Vec<u8>),
}

/// Returns the events of a session, in order.
#[must_use]
pub fn events(session: &Session) -> Vec<Event> {
    let (mut client, mut server) = (None, None);
    let fpdus = session.fpdus();
    fpdus
        .filter_map(|item| event(item, if item.from == Side::Client { &mut client } else { &mut server }))
        .collect()
}

fn event(item: &Item, partial: &mut Option<Message>) -> Option<Event> {
    let from = item.from;
    let ulpdu = FpduView::new(&item.bytes).ulpdu()?;
    let odd = || Some(Event::Odd(from, ulpdu.to_vec()));
    let Ok(header) = Header::decode(ulpdu) else { return odd() };
    let Ok(opcode) = opcode(header.control()) else { return odd() };
    let payload = HeaderView::new(ulpdu).payload()?;
    match (header, opcode) {
        (Header::Tagged(header), Opcode::Write | Opcode::ReadResponse) => {
            let placement = Placement {
                from,
                stag: header.stag,
                offset: header.offset,
                bytes: payload.to_vec(),
                genuine: item.cut.is_empty(),
                last: header.last,
            };
            Some(match opcode {
                Opcode::Write => Event::Write(placement),
                _ => Event::ReadResponse(placement),
            })
        }
        (Header::Untagged(header), Opcode::ReadRequest) if header.queue == queue::READ_REQUEST => {
            ReadRequest::decode(payload).map(|request| Event::ReadRequest(from, request)).or_else(odd)
        }
        (Header::Untagged(header), Opcode::Terminate) if header.queue == queue::TERMINATE => {
            Some(Event::Terminate(from, payload.to_vec()))
        }
        (Header::Untagged(header), _) if header.queue == queue::SEND && !opcode.is_tagged() => {
            let mut message = partial.take().unwrap_or(Message {
                from,
                opcode,
                invalidate: opcode.invalidates().then_some(header.invalidate),
                bytes: Vec::new(),
                genuine: 0,
            });
            if usize::try_from(header.offset) != Ok(message.bytes.len()) {
                return odd();
            }
            if message.genuine == message.bytes.len() {
                // The cut reaches to the end of its segment.
                let cut = item.cut.len().min(payload.len());
                message.genuine += payload.len() - cut;
            }
            message.bytes.extend_from_slice(payload);
            if header.last {
                return Some(Event::Message(message));
            }
            *partial = Some(message);
            None
        }
        _ => odd(),
    }
}

#[cfg(test)]
mod tests {
    use rpcrdma_iwarp::wire::ddp::Untagged;
    use rpcrdma_iwarp::wire::fpdu::seal;

    use super::*;
    use crate::reduce::{Keep, reduce};
    use crate::session::Kind;

    #[test]
    fn a_send_of_two_segments() {
        let segment = |last, offset: u32, bytes: &[u8]| {
            let header = Untagged { last, control: 0x44, invalidate: 9, queue: 0, msn: 1, offset };
            let bytes = seal(&[&header.encode()[..], bytes].concat(), false).unwrap();
            Item::new(Side::Server, Kind::Fpdu, bytes)
        };
        let items = vec![segment(false, 0, b"first "), segment(true, 6, b"second"), segment(true, 7, b"?")];
        let session = Session { items };
        let events_whole = events(&session);
        let [Event::Message(message), Event::Odd(Side::Server, _)] = &events_whole[..] else {
            panic!("{events_whole:?}")
        };
        assert_eq!((&message.bytes[..], message.invalidate), (&b"first second"[..], Some(9)));
        assert_eq!(message.genuine, 12);
        let reduced = reduce(&session, &Keep { message: 7, ..Keep::default() });
        let Some(Event::Message(message)) = events(&reduced).into_iter().next() else { panic!("no message") };
        assert_eq!((&message.bytes[..], message.genuine), (&b"first s\0\0\0\0\0"[..], 7));
    }
}
