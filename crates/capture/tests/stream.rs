//! The engine of the iWARP provider in the place of one of the two kernels of a recording. All data of the other kernel
//! comes in, in pieces of many sizes. The engine must place, deliver and answer it as in the recording.
//!
//! Only the names of our memory differ from the recording: steering tags and offsets. The test replaces them in the
//! FPDUs of the peer.
// Helpers of tests fail by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::collections::HashMap;
use std::time::Instant;

use bytes::Bytes;
use rpcrdma_capture::linux;
use rpcrdma_capture::message::{Event, events};
use rpcrdma_capture::session::{Item, Kind, Session};
use rpcrdma_capture::tcp::Side;
use rpcrdma_iwarp::engine::{Engine, Parameters, Timeouts};
use rpcrdma_iwarp::startup::{Negotiated, Role};
use rpcrdma_iwarp::wire::ddp::{Header, HeaderView};
use rpcrdma_iwarp::wire::fpdu::{FpduView, seal};
use rpcrdma_iwarp::wire::mpa::FrameView;
use rpcrdma_iwarp::wire::rdmap::{Opcode, ReadRequest, opcode};
use rpcrdma_proto::Limits;
use rpcrdma_proto::wire::v1::V1;
use rpcrdma_proto::wire::{Body, Codec as _};
use rpcrdma_verbs::{
    Buffer, Disconnected, Key, ProtectionDomain, ReceiveMemory, RemoteSegment, SendRequest, Status,
    WindowMemory, Work, WorkRequest, WrId,
};

/// Inline threshold of the kernel, and ours, in bytes.
const INLINE: usize = 4096;
const RECEIVES: u64 = 256;

/// Our name of memory that has another name in the recording.
#[derive(Clone, Copy, Debug)]
struct Name {
    stag: u32,
    /// Difference between our offsets and those of the recording.
    shift: u64,
}

struct Replay {
    engine: Engine,
    us: Side,
    crc: bool,
    step: usize,
    now: Instant,
    names: HashMap<u32, Name>,
    /// FPDUs of the engine.
    sent: Vec<Vec<u8>>,
    outgoing: Vec<u8>,
    messages: Vec<Vec<u8>>,
    reads: usize,
    invalidated: usize,
}

impl Replay {
    fn new(session: &Session, us: Side, step: usize) -> Self {
        let crc = [Side::Client, Side::Server].into_iter().any(|side| {
            session.frame(side).is_some_and(|frame| FrameView::new(frame).flags().unwrap() & 0x40 != 0)
        });
        let negotiated = Negotiated {
            role: if us == Side::Client { Role::Initiator } else { Role::Responder },
            crc,
            markers: false,
            large_fpdu: None,
            ird: 128,
            ord: 128,
            rtr: None,
            rtr_send_expected: false,
            private_data: Bytes::new(),
        };
        let parameters = Parameters {
            negotiated,
            domain: ProtectionDomain::new(64 << 20),
            max_send_wr: 4096,
            max_recv_wr: 4096,
            max_windows: 4096,
            strict_crc: step % 2 == 1,
            timeouts: Timeouts::default(),
            emss: 65483,
            seed: [7; 32],
        };
        let now = Instant::now();
        let mut engine = Engine::new(parameters, &[], now);
        for id in 0..RECEIVES {
            let memory = ReceiveMemory::Scatter(vec![Buffer::adopt(vec![0; INLINE])]);
            engine.post_receive(WrId(id), memory).unwrap();
        }
        engine.start(now);
        Self {
            engine,
            us,
            crc,
            step,
            now,
            names: HashMap::new(),
            sent: Vec::new(),
            outgoing: Vec::new(),
            messages: Vec::new(),
            reads: 0,
            invalidated: 0,
        }
    }

    fn post(&mut self, request: WorkRequest) {
        // The kernel's data after it was told to stop does not matter.
        if !self.engine.is_ended() {
            self.engine.post(WrId(1 << 32), request).unwrap();
            self.collect();
        }
    }

    /// Collects the completions of the engine.
    fn collect(&mut self) {
        self.engine.prepare(self.now);
        while self.engine.has_output() {
            let bytes = self.engine.with_transmit_slices(|slices, _| slices.concat_bytes());
            self.engine.transmitted(bytes.len(), self.now);
            self.outgoing.extend(bytes);
            self.engine.prepare(self.now);
        }
        while let Some(length) =
            FpduView::new(&self.outgoing).fpdu_len().filter(|len| *len <= self.outgoing.len())
        {
            self.sent.push(self.outgoing.drain(..length).collect());
        }
        while let Some(completion) = self.engine.poll_completion() {
            match completion.work {
                Work::Receive { buffers, len, invalidated, .. } if completion.status == Status::Success => {
                    let bytes: Vec<u8> =
                        buffers.iter().flat_map(|buffer| buffer.to_vec()).take(len).collect();
                    self.messages.push(bytes);
                    self.invalidated += usize::from(invalidated.is_some());
                }
                Work::Read { .. } if completion.status == Status::Success => self.reads += 1,
                _ => {}
            }
        }
    }

    /// Repeats an action of our side in the recording.
    fn act(&mut self, event: &Event) {
        match event {
            Event::Message(message) => {
                self.open_chunks(&message.bytes);
                self.post(WorkRequest::Send(SendRequest {
                    gather: vec![Bytes::from(message.bytes.clone())],
                    invalidate: message.invalidate.map(Key),
                    solicited: message.opcode.is_solicited(),
                    express: false,
                }));
            }
            Event::Write(write) => {
                let length = u32::try_from(write.bytes.len()).unwrap();
                let target = RemoteSegment { key: Key(write.stag), address: write.offset, length };
                let gather = vec![Bytes::from(write.bytes.clone())];
                self.post(WorkRequest::Write { gather, targets: vec![target] });
            }
            Event::ReadRequest(_, request) => {
                let sink = Buffer::adopt(vec![0; usize::try_from(request.size).unwrap()]);
                let source = RemoteSegment {
                    key: Key(request.source_stag),
                    address: request.source_offset,
                    length: request.size,
                };
                let before = self.sent.len();
                self.post(WorkRequest::Read { sink, sources: vec![source] });
                let [made] = &self.sent[before..] else { panic!("one Read Request leaves") };
                let ours = ReadRequest::decode(
                    HeaderView::new(FpduView::new(made).ulpdu().unwrap()).payload().unwrap(),
                );
                let ours = ours.unwrap();
                let name =
                    Name { stag: ours.sink_stag, shift: ours.sink_offset.wrapping_sub(request.sink_offset) };
                self.names.insert(request.sink_stag, name);
            }
            // The engine makes these by itself.
            Event::ReadResponse(_)
            | Event::Terminate(..)
            | Event::Refusal(..)
            | Event::Gap(..)
            | Event::ReadGap(_)
            | Event::Odd(..) => {}
        }
    }

    /// Opens the memory that a Call of ours names.
    fn open_chunks(&mut self, message: &[u8]) {
        let Ok((header, _)) = V1.decode(message, &Limits::default()) else { return };
        let (Body::Message(lists) | Body::NoMessage(lists)) = &header.body else { return };
        let reads = lists.read.iter().map(|entry| (entry.segment, true));
        let writes = lists.write.iter().chain(&lists.reply).flat_map(|chunk| &chunk.segments);
        for (segment, readable) in reads.chain(writes.map(|segment| (*segment, false))) {
            // In a Reply these are names of the peer, which it has sent before.
            if self.names.contains_key(&segment.handle) || segment.length == 0 {
                continue;
            }
            let bytes = vec![0; usize::try_from(segment.length).unwrap()];
            let memory = if readable {
                WindowMemory::Read(bytes.into())
            } else {
                WindowMemory::Write(Buffer::adopt(bytes))
            };
            let window = self.engine.reserve_window(memory).unwrap();
            self.engine.post(WrId(2 << 32), WorkRequest::BindWindow { key: window.key }).unwrap();
            let name = Name { stag: window.key.0, shift: window.address.wrapping_sub(segment.offset) };
            self.names.insert(segment.handle, name);
        }
    }

    /// Returns the FPDU of the peer with our names in it.
    fn renamed(&self, item: &Item) -> Vec<u8> {
        let ulpdu = FpduView::new(&item.bytes).ulpdu().unwrap();
        let (Ok(header), Some(payload)) = (Header::decode(ulpdu), HeaderView::new(ulpdu).payload()) else {
            return item.bytes.clone();
        };
        let ulpdu = match header {
            Header::Tagged(mut tagged) => {
                if let Some(name) = self.names.get(&tagged.stag) {
                    tagged.stag = name.stag;
                    tagged.offset = tagged.offset.wrapping_add(name.shift);
                }
                [&tagged.encode()[..], payload].concat()
            }
            Header::Untagged(mut untagged) => {
                if let Some(name) = self.names.get(&untagged.invalidate) {
                    untagged.invalidate = name.stag;
                }
                let mut payload = payload.to_vec();
                if opcode(untagged.control) == Ok(Opcode::ReadRequest)
                    && let Some(mut request) = ReadRequest::decode(&payload)
                    && let Some(name) = self.names.get(&request.source_stag)
                {
                    request.source_stag = name.stag;
                    request.source_offset = request.source_offset.wrapping_add(name.shift);
                    payload = request.encode().to_vec();
                }
                [&untagged.encode()[..], &payload].concat()
            }
        };
        let fpdu = seal(&ulpdu, self.crc).unwrap();
        assert_eq!(fpdu.len(), item.bytes.len(), "our FPDU has the length that Linux gave it");
        fpdu
    }

    fn feed(&mut self, bytes: &[u8]) {
        let mut left = bytes;
        while !left.is_empty() && self.engine.wants_input() {
            let step = self.step;
            let count = self.engine.with_receive_slices(|slices| {
                let mut count = 0;
                for slice in slices {
                    let part = slice.len().min(left.len() - count).min(step - count);
                    slice[..part].copy_from_slice(&left[count..count + part]);
                    count += part;
                }
                count
            });
            self.engine.received(count, self.now);
            left = &left[count..];
            self.collect();
        }
    }

    fn run(&mut self, session: &Session) {
        for item in &session.items {
            if item.kind != Kind::Fpdu {
                continue;
            }
            if item.from == self.us {
                let one = Session { items: vec![item.clone()] };
                for event in events(&one) {
                    self.act(&event);
                }
            } else {
                let bytes = self.renamed(item);
                self.feed(&bytes);
            }
        }
    }
}

trait ConcatBytes {
    fn concat_bytes(&self) -> Vec<u8>;
}

impl ConcatBytes for [std::io::IoSlice<'_>] {
    fn concat_bytes(&self) -> Vec<u8> {
        self.iter().flat_map(|slice| slice.to_vec()).collect()
    }
}

/// Data sent by one side of a session, by kind.
#[derive(Debug, Default, PartialEq, Eq)]
struct Traffic {
    messages: Vec<Vec<u8>>,
    invalidating: usize,
    read_requests: usize,
    responses: usize,
    fpdus: u64,
}

fn traffic(session: &Session, from: Side) -> Traffic {
    let mut traffic = Traffic {
        fpdus: session.fpdus().filter(|item| item.from == from).count() as u64,
        ..Traffic::default()
    };
    for event in events(session) {
        match event {
            Event::Message(message) if message.from == from => {
                traffic.invalidating += usize::from(message.invalidate.is_some());
                traffic.messages.push(message.bytes);
            }
            Event::ReadRequest(side, _) if side == from => traffic.read_requests += 1,
            Event::ReadResponse(response) if response.from == from => {
                traffic.responses += usize::from(response.last);
            }
            _ => {}
        }
    }
    traffic
}

#[test]
fn each_side_of_each_session_with_linux_at_the_other_end() {
    let names = ["kclient-probe", "nfs3-acl", "nfs3-io", "nfs3-io-mtu1500", "nfs3-meta", "nfs41-meta"];
    let (mut segments, mut invalidations, mut reads, mut responses) = (0, 0, 0, 0);
    for (name, session) in names
        .iter()
        .flat_map(|name| linux::sessions(name).unwrap().into_iter().map(move |session| (name, session)))
    {
        for us in [Side::Client, Side::Server] {
            for step in [7, 1448, 65536, 1 << 20] {
                let mut replay = Replay::new(&session, us, step);
                replay.run(&session);
                let (theirs, ours) = (traffic(&session, us.peer()), traffic(&session, us));
                assert!(!replay.engine.is_ended(), "{name} {us:?} {step}: {:?}", replay.engine.end());
                assert_eq!(replay.engine.counters().segments_received, theirs.fpdus, "{name} {us:?} {step}");
                assert_eq!(replay.messages, theirs.messages, "{name} {us:?} {step}");
                assert_eq!(replay.invalidated, theirs.invalidating);
                assert_eq!(replay.reads, ours.read_requests);
                let made = replay.sent.iter().map(|bytes| Item::new(us, Kind::Fpdu, bytes.clone()));
                let made = traffic(&Session { items: made.collect() }, us);
                assert_eq!(made.messages, ours.messages);
                assert_eq!(made.responses, theirs.read_requests, "each Read Request is answered");
                segments += theirs.fpdus;
                invalidations += theirs.invalidating;
                reads += ours.read_requests;
                responses += made.responses;
            }
        }
    }
    // Four times the numbers of the recordings.
    assert_eq!((segments, invalidations, reads, responses), (4 * 1195, 4 * 41, 4 * 23, 4 * 23));
}

/// Sessions in which the peer of Linux broke every rule: the messages of Linux decode, and its Terminates end the
/// connection.
#[test]
fn terminates_of_linux_end_the_connection() {
    let (mut terminated, mut quiet) = (0, 0);
    for session in linux::sessions("knfsd-probe").unwrap() {
        let mut replay = Replay::new(&session, Side::Client, 1448);
        replay.run(&session);
        match replay.engine.end() {
            Some(Disconnected::Terminated(_)) => terminated += 1,
            None => quiet += 1,
            other => panic!("{other:?}"),
        }
        assert_eq!(replay.messages, traffic(&session, Side::Server).messages);
    }
    assert_eq!((terminated, quiet), (12, 16));
}
