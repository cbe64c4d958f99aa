//! Operations of RDMA, assembled from packets of RoCE.
//!
//! Requests count in the order of their sequence numbers, as for a receiver. A repeated request counts once. A request
//! behind a lost one counts when it is repeated. Read Responses have the sequence numbers that their request reserves.
//!
//! A recorder can lose a packet that its receiver has, and then no repetition comes. Two signs show such a gap:
//!
//! - The receiver acknowledges a request that is still due. Requests count again behind the acknowledged one.
//! - A Read Response comes while an earlier one is due, and the earlier one does not come again. The Read of the
//!   earlier one ends there.

use std::collections::{HashMap, VecDeque};

use rpcrdma_iwarp::wire::rdmap::{Opcode, ReadRequest};

use super::{Event, Message, Placement};
use crate::roce::management::{Content, Management};
use crate::roce::{BaseHeader, MemoryRange, Operation, Packet, Syndrome, advance, distance};
use crate::session::{Item, Kind, Session};
use crate::tcp::Side;

/// Payload of a packet if the recording has no REQ, in bytes: that of rxe on Ethernet.
const DEFAULT_MTU: usize = 1024;

/// A Read whose responses are due.
#[derive(Debug)]
struct Read {
    /// Sequence number of the next response.
    next: u32,
    /// Bytes in the responses so far.
    offset: u64,
}

/// An operation of several packets that is not complete.
#[derive(Debug)]
enum Partial {
    Send(Message),
    /// A Write, with its key and the address of its next byte.
    Write(u32, u64),
}

/// The requests of one side.
#[derive(Debug, Default)]
struct Requests {
    /// Sequence number of the next request.
    due: Option<u32>,
    partial: Option<Partial>,
    reads: VecDeque<Read>,
}

/// The state of both directions of a connection.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    mtu: Option<usize>,
    client: Requests,
    server: Requests,
    /// Place of the last Read Response of each side with each sequence number.
    last_responses: HashMap<(Side, u32), usize>,
}

impl Assembly {
    /// Returns the state before the first packet of a session.
    pub(super) fn of(session: &Session) -> Self {
        let mut assembly = Self::default();
        for (at, item) in session.items.iter().enumerate().filter(|(_, item)| item.kind == Kind::Packet) {
            if let Some(packet) = Packet::decode(&item.bytes)
                && packet.operation == Operation::ReadResponse
            {
                assembly.last_responses.insert((item.from, packet.sequence), at);
            }
        }
        assembly
    }

    /// Appends the effects of the packet at a place of the session.
    pub(super) fn take(&mut self, at: usize, item: &Item, events: &mut Vec<Event>) {
        let Some(packet) = Packet::decode(&item.bytes) else {
            self.requests(item.from).pass(&item.bytes);
            events.push(Event::Odd(item.from, item.bytes.clone()));
            return;
        };
        self.close_gaps(at, item.from, &packet, events);
        events.extend(self.event(item, &packet));
    }

    /// Skips packets that the recorder lost, as a packet from this side shows.
    fn close_gaps(&mut self, at: usize, from: Side, packet: &Packet, events: &mut Vec<Event>) {
        let sequence = packet.sequence;
        let end = match (packet.operation, packet.syndrome) {
            (Operation::ReadResponse, _)
            | (Operation::Acknowledge, Some(Syndrome::Acknowledged | Syndrome::Refused(_))) => {
                advance(sequence, 1)
            }
            // This request is still due, and those before it arrived.
            (Operation::Acknowledge, Some(Syndrome::NotReady | Syndrome::OutOfSequence)) => sequence,
            _ => return,
        };
        let requester = from.peer();
        let lost = self.requests(requester).skip_to(end);
        events.extend(lost.map(|lost| Event::Gap(requester, lost)));
        if packet.operation != Operation::ReadResponse {
            return;
        }
        while let Some(due) = self.requests(requester).reads.front().map(|read| read.next)
            && distance(due, sequence).is_some_and(|packets| packets > 0)
            && self.last_responses.get(&(from, due)).is_none_or(|&last| last < at)
        {
            self.requests(requester).reads.pop_front();
            events.push(Event::ReadGap(requester));
        }
    }

    /// Returns the effect of a packet.
    fn event(&mut self, item: &Item, packet: &Packet) -> Option<Event> {
        let from = item.from;
        match packet.operation {
            Operation::Datagram => {
                self.learn(&item.bytes);
                None
            }
            Operation::Acknowledge => match packet.syndrome {
                Some(Syndrome::Refused(code)) => Some(Event::Refusal(from, code)),
                _ => None,
            },
            Operation::ReadResponse => {
                let reads = &mut self.requests(from.peer()).reads;
                let read = reads.front_mut().filter(|read| read.next == packet.sequence)?;
                let payload = item.bytes.get(packet.payload.clone())?;
                let offset = read.offset;
                read.next = advance(read.next, 1);
                read.offset += u64::try_from(payload.len()).ok()?;
                if packet.last {
                    reads.pop_front();
                }
                Some(Event::ReadResponse(placement(item, 0, offset, payload, packet.last)))
            }
            Operation::Send | Operation::Write | Operation::ReadRequest => {
                let mtu = self.mtu.unwrap_or(DEFAULT_MTU);
                let requests = self.requests(from);
                if *requests.due.get_or_insert(packet.sequence) != packet.sequence {
                    return None;
                }
                let packets = match (packet.operation, packet.range) {
                    (Operation::ReadRequest, Some(range)) => responses(range.length, mtu),
                    _ => 1,
                };
                requests.due = Some(advance(packet.sequence, packets));
                requests.take(item, packet).unwrap_or_else(|| Some(Event::Odd(from, item.bytes.clone())))
            }
        }
    }

    fn requests(&mut self, side: Side) -> &mut Requests {
        if side == Side::Client { &mut self.client } else { &mut self.server }
    }

    /// Notes what the set-up of the connection says about its packets.
    fn learn(&mut self, bytes: &[u8]) {
        match Management::decode(bytes).map(|message| message.content) {
            Some(Content::Request(request)) => {
                self.mtu.get_or_insert(request.mtu);
                self.server.due.get_or_insert(request.sequence);
            }
            Some(Content::Reply(reply)) => {
                self.client.due.get_or_insert(reply.sequence);
            }
            _ => {}
        }
    }
}

/// Returns the number of packets that answer a Read of so many bytes.
fn responses(length: u32, mtu: usize) -> u32 {
    u32::try_from(mtu).map_or(1, |mtu| length.div_ceil(mtu)).max(1)
}

fn placement(item: &Item, stag: u32, offset: u64, payload: &[u8], last: bool) -> Placement {
    Placement { from: item.from, stag, offset, bytes: payload.to_vec(), genuine: item.cut.is_empty(), last }
}

impl Requests {
    /// Skips the requests before `end` that are still due, and returns their number if there are any.
    fn skip_to(&mut self, end: u32) -> Option<u32> {
        let lost = distance(self.due?, end).filter(|&lost| lost > 0)?;
        self.due = Some(end);
        self.partial = None;
        Some(lost)
    }

    /// Counts a request without an operation here, if it is due.
    fn pass(&mut self, bytes: &[u8]) {
        if let Some(base) = BaseHeader::decode(bytes)
            && base.is_unknown_request()
            && *self.due.get_or_insert(base.sequence) == base.sequence
        {
            self.skip_to(advance(base.sequence, 1));
        }
    }

    /// Processes the request that is due. The outer `None` means that it violates the order of operations.
    fn take(&mut self, item: &Item, packet: &Packet) -> Option<Option<Event>> {
        let from = item.from;
        let payload = item.bytes.get(packet.payload.clone())?;
        // Packets of different operations never alternate.
        let partial = self.partial.take();
        if packet.first != partial.is_none() {
            return None;
        }
        match (packet.operation, partial, packet.range) {
            (Operation::ReadRequest, None, Some(MemoryRange { address, key, length })) => {
                self.reads.push_back(Read { next: packet.sequence, offset: 0 });
                let request = ReadRequest {
                    sink_stag: 0,
                    sink_offset: 0,
                    size: length,
                    source_stag: key,
                    source_offset: address,
                };
                Some(Some(Event::ReadRequest(from, request)))
            }
            (Operation::Write, None, Some(MemoryRange { address, key, .. }))
            | (Operation::Write, Some(Partial::Write(key, address)), _) => {
                if !packet.last {
                    let length = u64::try_from(payload.len()).ok()?;
                    self.partial = Some(Partial::Write(key, address.wrapping_add(length)));
                }
                Some(Some(Event::Write(placement(item, key, address, payload, packet.last))))
            }
            (Operation::Send, partial @ (None | Some(Partial::Send(_))), _) => {
                let mut message = match partial {
                    Some(Partial::Send(message)) => message,
                    _ => Message::new(from, Opcode::Send, None),
                };
                message.append(payload, item.cut.len());
                if !packet.last {
                    self.partial = Some(Partial::Send(message));
                    return Some(None);
                }
                // The last packet has what concerns the complete message.
                message.opcode = Opcode::send(packet.invalidate.is_some(), packet.solicited);
                message.invalidate = packet.invalidate;
                Some(Some(Event::Message(message)))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::events;
    use crate::reduce::{Keep, reduce};
    use crate::roce::management::tests::message;

    fn packet(from: Side, opcode: u8, sequence: u32, rest: &[u8]) -> Item {
        let bth = [opcode, 0, 0xFF, 0xFF, 0, 0, 0, 7, 0];
        let bytes = [&bth[..], &sequence.to_be_bytes()[1..], rest].concat();
        Item::new(from, Kind::Packet, bytes)
    }

    fn range(address: u64, key: u32, length: u32) -> Vec<u8> {
        [&address.to_be_bytes()[..], &key.to_be_bytes(), &length.to_be_bytes()].concat()
    }

    fn session(items: Vec<Item>) -> Session {
        Session { items }
    }

    #[test]
    fn a_send_of_three_packets_with_a_loss_and_a_repetition() {
        let first = packet(Side::Client, 0x00, 0xFF_FFFF, b"first ");
        let middle = packet(Side::Client, 0x01, 0, b"middle ");
        let last = packet(Side::Client, 0x16, 1, b"\0\0\0\x09last");
        let items = vec![first.clone(), last.clone(), first, middle.clone(), middle, last.clone(), last];
        let whole = session(items);
        let expected = Message {
            from: Side::Client,
            opcode: Opcode::SendInvalidate,
            invalidate: Some(9),
            bytes: b"first middle last".to_vec(),
            genuine: 17,
        };
        assert_eq!(events(&whole), [Event::Message(expected.clone())]);
        let reduced = reduce(&whole, &Keep { message: 8, ..Keep::default() });
        let expected = Message { bytes: b"first mi\0\0\0\0\0\0\0\0\0".to_vec(), genuine: 8, ..expected };
        assert_eq!(events(&reduced), [Event::Message(expected)]);
    }

    #[test]
    fn a_write_goes_on_where_its_last_packet_ended() {
        let items = vec![
            packet(Side::Server, 0x06, 5, &[&range(0x1000, 3, 10)[..], b"write"].concat()),
            packet(Side::Server, 0x08, 6, b"again"),
            packet(Side::Server, 0x08, 7, b"never"),
            packet(Side::Server, 0x0C, 8, &range(0, 3, 10)),
        ];
        let odd = items[2].bytes.clone();
        let events = events(&session(items));
        let [Event::Write(first), Event::Write(last), Event::Odd(Side::Server, what), Event::ReadRequest(..)] =
            &events[..]
        else {
            panic!("{events:?}")
        };
        assert_eq!(
            (first.stag, first.offset, &first.bytes[..], first.last),
            (3, 0x1000, &b"write"[..], false)
        );
        assert_eq!((last.stag, last.offset, &last.bytes[..], last.last), (3, 0x1005, &b"again"[..], true));
        assert_eq!(*what, odd);
    }

    /// The set-up names the sequence numbers and the payload of a packet. A Read reserves numbers for its responses.
    #[test]
    fn reads_and_their_responses() {
        let management = |from, bytes| Item::new(from, Kind::Packet, bytes);
        let ack = [0; 4];
        let responses = [
            packet(Side::Client, 0x0D, 20, &[&ack[..], &[1; 256]].concat()),
            packet(Side::Client, 0x0E, 21, &[2; 256]),
            packet(Side::Client, 0x0F, 22, &[&ack[..], &[3; 88]].concat()),
        ];
        let mut items = vec![
            management(Side::Client, message(0x10, &[(44, &[0, 0, 20]), (50, &[1 << 4])])),
            management(Side::Server, message(0x13, &[(20, &[0, 0, 50])])),
            // Not the number that the REP names.
            packet(Side::Client, 0x04, 49, b"old"),
            packet(Side::Server, 0x0C, 20, &range(0x700, 4, 600)),
            packet(Side::Server, 0x04, 23, b"next"),
            responses[0].clone(),
            // Repeated from the second response, which was lost.
            packet(Side::Server, 0x0C, 21, &range(0x800, 4, 344)),
        ];
        items.extend(responses);
        items.push(packet(Side::Client, 0x04, 50, b"call"));
        let events = events(&session(items));
        let request =
            ReadRequest { sink_stag: 0, sink_offset: 0, size: 600, source_stag: 4, source_offset: 0x700 };
        assert_eq!(events[0], Event::ReadRequest(Side::Server, request));
        let read = |event: &Event| match event {
            Event::ReadResponse(part) => (part.offset, part.bytes[0], part.bytes.len(), part.last),
            other => panic!("{other:?}"),
        };
        assert!(matches!(&events[1], Event::Message(message) if message.bytes == b"next"));
        let parts: Vec<_> = events[2..5].iter().map(read).collect();
        assert_eq!(parts, [(0, 1, 256, false), (256, 2, 256, false), (512, 3, 88, true)]);
        assert!(matches!(&events[5..], [Event::Message(message)] if message.bytes == b"call"));
    }

    #[test]
    fn a_refusal_ends_the_connection_and_a_repetition_does_not() {
        let items = vec![
            packet(Side::Server, 0x11, 1, &[0x00, 0, 0, 1]),
            packet(Side::Server, 0x11, 1, &[0x2E, 0, 0, 1]),
            packet(Side::Server, 0x11, 1, &[0x60, 0, 0, 1]),
            packet(Side::Server, 0x11, 1, &[0x62, 0, 0, 1]),
            packet(Side::Server, 0x13, 1, &[0; 28]),
        ];
        let atomic = items[4].bytes.clone();
        let expected = [Event::Refusal(Side::Server, 2), Event::Odd(Side::Server, atomic)];
        assert_eq!(events(&session(items)), expected);
    }

    /// The recorder lost packets that the receiver has. The receiver's acknowledgments show them.
    #[test]
    fn packets_behind_a_gap_count_again_after_an_acknowledgment() {
        let send = |opcode, sequence, bytes: &[u8]| packet(Side::Client, opcode, sequence, bytes);
        let answer = |sequence, syndrome: u8| packet(Side::Server, 0x11, sequence, &[syndrome, 0, 0, 1]);
        let items = vec![
            send(0x00, 0xFF_FFFE, b"begin "),
            // Lost: 0xFF_FFFF, with the end of the Send.
            send(0x04, 0, b"unread"),
            answer(0, 0x1F),
            send(0x04, 1, b"one"),
            // Of earlier packets.
            answer(0xFF_FFFE, 0x1F),
            answer(1, 0x1F),
            // Lost: 2. The receiver has no Receive for 3, or wants 3 to be repeated.
            send(0x04, 3, b"three"),
            answer(3, 0x2E),
            send(0x04, 3, b"three"),
            send(0x04, 5, b"five"),
            answer(5, 0x60),
            send(0x04, 5, b"five"),
            // Lost: 6, which the receiver refuses.
            answer(6, 0x62),
            // A reserved value says nothing.
            answer(99, 0x40),
            send(0x04, 7, b"seven"),
        ];
        let seen: Vec<_> = events(&session(items))
            .into_iter()
            .map(|event| match event {
                Event::Message(message) => String::from_utf8(message.bytes).unwrap(),
                Event::Gap(from, packets) => format!("{from:?} {packets}"),
                Event::Refusal(from, code) => format!("{from:?} refuses {code}"),
                other => panic!("{other:?}"),
            })
            .collect();
        let expected = [
            "Client 2",
            "one",
            "Client 1",
            "three",
            "Client 1",
            "five",
            "Client 1",
            "Server refuses 2",
            "seven",
        ];
        assert_eq!(seen, expected);
    }

    /// The recorder lost the second response of the first Read, and the request of the third Read.
    #[test]
    fn a_read_with_a_lost_response_does_not_delay_the_reads_behind_it() {
        let response = |sequence, opcode, byte| {
            let header = if opcode == 0x0E { 0 } else { 4 };
            packet(Side::Client, opcode, sequence, &[&[0; 4][..header], &[byte; 4]].concat())
        };
        let request = |sequence, length| packet(Side::Server, 0x0C, sequence, &range(0x700, 4, length));
        let items = vec![
            request(20, 3000),
            request(23, 10),
            response(20, 0x0D, 1),
            response(22, 0x0F, 2),
            response(23, 0x10, 3),
            response(24, 0x10, 4),
            request(25, 10),
            response(25, 0x10, 5),
        ];
        let seen: Vec<_> = events(&session(items))
            .into_iter()
            .map(|event| match event {
                Event::ReadRequest(_, request) => format!("request {}", request.size),
                Event::ReadResponse(part) => format!("response {}", part.bytes[0]),
                Event::Gap(from, packets) => format!("{from:?} {packets}"),
                Event::ReadGap(from) => format!("{from:?}"),
                other => panic!("{other:?}"),
            })
            .collect();
        let expected = [
            "request 3000",
            "request 10",
            "response 1",
            "Server",
            "response 3",
            "Server 1",
            "request 10",
            "response 5",
        ];
        assert_eq!(seen, expected);
    }

    /// The network lost a response, so its Read is repeated while responses of the next Read are on their way.
    #[test]
    fn a_response_that_comes_again_is_no_gap() {
        let response =
            |sequence, byte| packet(Side::Client, 0x10, sequence, &[&[0; 4][..], &[byte; 4]].concat());
        let request = |sequence| packet(Side::Server, 0x0C, sequence, &range(0x700, 4, 10));
        let items = vec![
            request(20),
            request(21),
            response(21, 2),
            request(20),
            request(21),
            response(20, 1),
            response(21, 2),
        ];
        let seen: Vec<_> = events(&session(items))
            .into_iter()
            .map(|event| match event {
                Event::ReadRequest(..) => 0,
                Event::ReadResponse(part) => part.bytes[0],
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(seen, [0, 0, 1, 2]);
    }

    #[test]
    fn an_atomic_operation_takes_one_sequence_number() {
        let items = vec![
            packet(Side::Client, 0x04, 5, b"first"),
            packet(Side::Client, 0x13, 6, &[0; 28]),
            packet(Side::Client, 0x04, 7, b"next"),
            // Its answer, and a notification of congestion, take none.
            packet(Side::Client, 0x12, 8, &[0; 12]),
            packet(Side::Client, 0x81, 8, &[0; 16]),
            packet(Side::Client, 0x04, 8, b"last"),
        ];
        let events = events(&session(items));
        let kinds: Vec<_> = events
            .iter()
            .map(|event| match event {
                Event::Message(message) => message.bytes[0],
                Event::Odd(Side::Client, bytes) => bytes[0],
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(kinds, [b'f', 0x13, b'n', 0x12, 0x81, b'l']);
    }
}
