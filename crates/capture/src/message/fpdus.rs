//! Operations of RDMAP, assembled from FPDUs.
//!
//! Sends are reassembled by their message offsets. A segment that violates DDP or RDMAP is kept as [`Event::Odd`].

use rpcrdma_iwarp::wire::ddp::{Header, HeaderView, queue};
use rpcrdma_iwarp::wire::fpdu::FpduView;
use rpcrdma_iwarp::wire::rdmap::{Opcode, ReadRequest, opcode};

use super::{Event, Message, Placement};
use crate::session::Item;
use crate::tcp::Side;

/// Sends of both sides that are not complete.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    client: Option<Message>,
    server: Option<Message>,
}

impl Assembly {
    /// Returns the effect of an FPDU.
    pub(super) fn event(&mut self, item: &Item) -> Option<Event> {
        event(item, if item.from == Side::Client { &mut self.client } else { &mut self.server })
    }
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
            let invalidate = opcode.invalidates().then_some(header.invalidate);
            let mut message = partial.take().unwrap_or(Message::new(from, opcode, invalidate));
            if usize::try_from(header.offset) != Ok(message.bytes.len()) {
                return odd();
            }
            message.append(payload, item.cut.len());
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
    use crate::message::events;
    use crate::reduce::{Keep, reduce};
    use crate::session::{Kind, Session};

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
