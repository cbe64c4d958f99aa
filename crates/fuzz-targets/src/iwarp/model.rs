//! The effects of a stream of FPDUs on an endpoint that sends all it can at the end of each FPDU (RFC 5040 §5, §7;
//! RFC 5041 §5, §7; RFC 5044 §4.4). The model sees whole FPDUs only, and copies everything.

use std::collections::VecDeque;
use std::ops::Range;

use rpcrdma_iwarp::startup::{Role, Rtr};
use rpcrdma_iwarp::wire::ddp::{FIRST_MSN, Header, HeaderError, HeaderView, Tagged, Untagged, queue};
use rpcrdma_iwarp::wire::fpdu::FpduView;
use rpcrdma_iwarp::wire::rdmap::{self, ControlError, Opcode, ReadRequest};
use rpcrdma_iwarp::wire::terminate::cause;
use rpcrdma_verbs::{Disconnected, RemoteSegment, TerminateCause};

use super::drive::{Done, Run, Setup, UNWRITTEN, readable};
use super::spoken::Spoken;

/// The reason why an endpoint stops reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// The peer broke a rule.
    Violation(TerminateCause),
    /// The peer sent a Terminate.
    Terminated,
}

impl From<TerminateCause> for Stop {
    fn from(cause: TerminateCause) -> Self {
        Self::Violation(cause)
    }
}

/// A window; `None` after its invalidation.
type Window = Option<(RemoteSegment, Vec<u8>)>;

/// A Send that has begun.
#[derive(Debug)]
struct Message {
    id: usize,
    opcode: Opcode,
    invalidate: u32,
    bytes: Vec<u8>,
}

/// An RDMA Read that waits for its response.
#[derive(Debug)]
struct Due {
    /// `None` for the Ready-To-Receive message.
    id: Option<u64>,
    request: ReadRequest,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct Model<'a> {
    setup: Setup,
    receives: &'a [usize],
    next_receive: usize,
    send_msn: u32,
    read_msn: u32,
    rtr_expected: bool,
    message: Option<Message>,
    writable: Window,
    readable: Window,
    due: VecDeque<Due>,
    /// The CRC of an FPDU matched.
    valid: bool,
    /// An FPDU took effect.
    heard: bool,
    done: Vec<Done>,
    responses: Vec<(u32, u64, Vec<u8>)>,
}

/// Compares a run with the model.
///
/// # Panics
/// If they differ.
pub(super) fn check(stream: &[u8], setup: Setup, run: &Run) {
    let negotiated = setup.negotiated();
    let spoken = Spoken::of(&run.sent, &negotiated);
    let mut ids = [11, 21].into_iter();
    let due = spoken.requests.iter().enumerate().map(|(place, request)| {
        let rtr = place == 0 && negotiated.rtr == Some(Rtr::Read);
        Due { id: if rtr { None } else { ids.next() }, request: *request, bytes: Vec::new() }
    });
    let mut model = Model {
        setup,
        receives: &run.receives,
        next_receive: 0,
        send_msn: FIRST_MSN,
        read_msn: FIRST_MSN,
        rtr_expected: negotiated.rtr_send_expected,
        message: None,
        writable: Some((run.windows[0], vec![UNWRITTEN; 16_384])),
        readable: Some((run.windows[1], readable())),
        due: due.collect(),
        valid: false,
        heard: false,
        done: Vec::new(),
        responses: Vec::new(),
    };
    let (mut rest, mut stop) = (stream, None);
    while stop.is_none()
        && let Some(length) = FpduView::new(rest).fpdu_len()
        && let Some((fpdu, behind)) = rest.split_at_checked(length)
    {
        match model.take(fpdu) {
            Ok(()) => {
                model.heard = true;
                // RFC 6581 §9.2: the Ready-To-Receive message is the first of all.
                model.rtr_expected = false;
                rest = behind;
            }
            Err(reason) => stop = Some(reason),
        }
    }
    // RFC 5044 §7.1.2 (4): a Responder says nothing before the first valid FPDU.
    let may_send = model.valid || negotiated.role == Role::Initiator;
    let terminate = match stop {
        Some(Stop::Violation(cause)) => Some(cause).filter(|_| may_send),
        Some(Stop::Terminated) | None => None,
    };
    assert_eq!(spoken.terminate, terminate, "{:?}", run.end);
    let ended = match (&run.end, stop) {
        (Disconnected::ProtocolError(_), Some(Stop::Violation(_)))
        | (Disconnected::Terminated(_), Some(Stop::Terminated)) => true,
        (Disconnected::Link(_), None) => !rest.is_empty(),
        (Disconnected::Peer, None) => rest.is_empty(),
        _ => false,
    };
    assert!(ended, "{:?} after {stop:?}", run.end);
    assert_eq!(run.done, model.done);
    assert_eq!(spoken.responses, model.responses);
    model.check_windows(&run.left, stop.is_none_or(|stop| stop == cause::MPA_CRC.into()).then_some(rest));
}

impl Model<'_> {
    /// Takes an FPDU.
    fn take(&mut self, fpdu: &[u8]) -> Result<(), Stop> {
        let view = FpduView::new(fpdu);
        if self.setup.negotiated().crc && view.crc_matches() == Some(false) {
            return Err(cause::MPA_CRC.into());
        }
        self.valid = true;
        let ulpdu = view.ulpdu().expect("a whole FPDU");
        let header = Header::decode(ulpdu).map_err(|error| match error {
            HeaderError::Version { tagged: true, .. } => cause::TAGGED_VERSION,
            HeaderError::Version { tagged: false, .. } => cause::UNTAGGED_VERSION,
            _ => cause::STREAM_CATASTROPHIC,
        })?;
        let opcode = rdmap::opcode(header.control()).map_err(|error| match error {
            ControlError::Version(_) => cause::RDMAP_VERSION,
            _ => cause::UNEXPECTED_OPCODE,
        })?;
        let payload = HeaderView::new(ulpdu).payload().expect("a whole header");
        match (header, opcode) {
            (Header::Tagged(header), Opcode::Write) => self.write(&header, payload),
            (Header::Tagged(header), Opcode::ReadResponse) => self.respond(&header, payload),
            (Header::Tagged(_), _) | (Header::Untagged(_), Opcode::Write | Opcode::ReadResponse) => {
                Err(cause::UNEXPECTED_OPCODE.into())
            }
            (Header::Untagged(header), opcode) => {
                let due = match opcode {
                    Opcode::ReadRequest => queue::READ_REQUEST,
                    Opcode::Terminate => queue::TERMINATE,
                    _ => queue::SEND,
                };
                if header.queue != due {
                    return Err(cause::INVALID_QUEUE.into());
                }
                match opcode {
                    Opcode::ReadRequest => self.read(&header, payload),
                    Opcode::Terminate if header.msn != FIRST_MSN => Err(cause::INVALID_MSN.into()),
                    Opcode::Terminate if header.offset != 0 => Err(cause::INVALID_MO.into()),
                    // RFC 5040 §4.8: all parts together.
                    Opcode::Terminate if payload.len() > 52 => Err(cause::MESSAGE_TOO_LONG.into()),
                    // One segment, with the control field at least.
                    Opcode::Terminate if !header.last || payload.len() < 4 => {
                        Err(cause::STREAM_CATASTROPHIC.into())
                    }
                    Opcode::Terminate => Err(Stop::Terminated),
                    _ => self.send(&header, opcode, payload),
                }
            }
        }
    }

    fn write(&mut self, header: &Tagged, payload: &[u8]) -> Result<(), Stop> {
        if payload.is_empty() {
            return Ok(());
        }
        let Some((window, memory)) = self.writable.as_mut().filter(|(window, _)| window.key.0 == header.stag)
        else {
            return Err(cause::TAGGED_INVALID_STAG.into());
        };
        let range = within(window, header.offset, payload.len()).ok_or(
            if header.offset.checked_add(payload.len() as u64).is_none() {
                cause::TAGGED_WRAP
            } else {
                cause::TAGGED_BOUNDS
            },
        )?;
        memory[range].copy_from_slice(payload);
        Ok(())
    }

    fn respond(&mut self, header: &Tagged, payload: &[u8]) -> Result<(), Stop> {
        // A Responder has sent no request before the first FPDU.
        let waits = self.heard || self.setup.negotiated().role == Role::Initiator;
        let due = self.due.front_mut().filter(|_| waits).ok_or(cause::TAGGED_INVALID_STAG)?;
        let size = usize::try_from(due.request.size).unwrap();
        let left = size - due.bytes.len();
        if left > 0 || !payload.is_empty() {
            if header.stag != due.request.sink_stag {
                return Err(cause::TAGGED_INVALID_STAG.into());
            }
            let offset = due.request.sink_offset.wrapping_add(due.bytes.len() as u64);
            if header.offset != offset || payload.len() > left {
                return Err(cause::TAGGED_BOUNDS.into());
            }
        }
        if header.last != (payload.len() == left) {
            return Err(cause::UNSPECIFIED.into());
        }
        due.bytes.extend_from_slice(payload);
        if header.last
            && let Some(Due { id: Some(id), bytes, .. }) = self.due.pop_front()
        {
            self.done.push(Done::Read { id, bytes });
        }
        Ok(())
    }

    fn read(&mut self, header: &Untagged, payload: &[u8]) -> Result<(), Stop> {
        if payload.len() > 28 {
            return Err(cause::MESSAGE_TOO_LONG.into());
        }
        if header.msn != self.read_msn {
            return Err(cause::INVALID_MSN.into());
        }
        if header.offset != 0 {
            return Err(cause::INVALID_MO.into());
        }
        let request = ReadRequest::decode(payload).filter(|_| header.last);
        let request = request.ok_or(cause::STREAM_CATASTROPHIC)?;
        let mut data = Vec::new();
        if request.size > 0 {
            let size = usize::try_from(request.size).unwrap();
            let named =
                |window: &Window| window.as_ref().is_some_and(|(w, _)| w.key.0 == request.source_stag);
            if named(&self.writable) {
                return Err(cause::READ_ACCESS.into());
            }
            let source = self.readable.as_ref().filter(|_| named(&self.readable));
            let (window, memory) = source.ok_or(cause::READ_INVALID_STAG)?;
            let wraps = request.source_offset.checked_add(u64::from(request.size)).is_none();
            let bounds = if wraps { cause::READ_WRAP } else { cause::READ_BOUNDS };
            data = memory[within(window, request.source_offset, size).ok_or(bounds)?].to_vec();
        }
        self.read_msn += 1;
        self.responses.push((request.sink_stag, request.sink_offset, data));
        Ok(())
    }

    fn send(&mut self, header: &Untagged, opcode: Opcode, payload: &[u8]) -> Result<(), Stop> {
        if header.msn != self.send_msn {
            return Err(cause::INVALID_MSN.into());
        }
        if std::mem::take(&mut self.rtr_expected)
            && payload.is_empty()
            && header.last
            && opcode == Opcode::Send
        {
            self.send_msn += 1;
            return Ok(());
        }
        let have = self.message.as_ref().map_or(0, |message| message.bytes.len());
        if usize::try_from(header.offset).unwrap() != have {
            return Err(cause::INVALID_MO.into());
        }
        match &self.message {
            Some(message) if message.opcode != opcode => return Err(cause::UNEXPECTED_OPCODE.into()),
            Some(message) if opcode.invalidates() && message.invalidate != header.invalidate => {
                return Err(cause::UNSPECIFIED.into());
            }
            Some(_) => {}
            None if self.next_receive == self.receives.len() => return Err(cause::NO_BUFFER.into()),
            None => {}
        }
        let id = self.message.as_ref().map_or(self.next_receive, |message| message.id);
        if have + payload.len() > self.receives[id] {
            return Err(cause::MESSAGE_TOO_LONG.into());
        }
        let mut message = self.message.take().unwrap_or_else(|| {
            self.next_receive += 1;
            Message { id, opcode, invalidate: header.invalidate, bytes: Vec::new() }
        });
        message.bytes.extend_from_slice(payload);
        if !header.last {
            self.message = Some(message);
            return Ok(());
        }
        let mut invalidated = None;
        if opcode.invalidates() {
            let windows = [&mut self.writable, &mut self.readable].into_iter();
            let mut named = windows.filter(|window| {
                window.as_ref().is_some_and(|(window, _)| window.key.0 == message.invalidate)
            });
            let (window, memory) = named.next().and_then(Option::take).ok_or(cause::CANNOT_INVALIDATE)?;
            invalidated = Some((window.key, memory));
        }
        self.send_msn += 1;
        let Message { id, bytes, .. } = message;
        let id = u64::try_from(id).unwrap();
        self.done.push(Done::Receive { id, bytes, invalidated, solicited: opcode.is_solicited() });
        Ok(())
    }

    /// Compares the windows that are open at the end. Unless the endpoint is strict, `torn` may have been placed: an
    /// FPDU that did not end, or whose CRC did not match.
    fn check_windows(&self, left: &[(rpcrdma_verbs::Key, Vec<u8>)], torn: Option<&[u8]>) {
        let mut open: Vec<_> = [&self.writable, &self.readable].into_iter().flatten().cloned().collect();
        open.sort_by_key(|(window, _)| window.key);
        assert_eq!(left.len(), open.len());
        let torn =
            torn.filter(|_| !self.setup.is_strict()).and_then(|fpdu| self.torn(fpdu)).unwrap_or_default();
        for ((key, found), (window, memory)) in left.iter().zip(&open) {
            assert_eq!((*key, found.len()), (window.key, memory.len()));
            let writable = self.writable.as_ref().is_some_and(|(window, _)| window.key == *key);
            let torn = if writable { torn.clone() } else { 0..0 };
            for (at, (found, placed)) in found.iter().zip(memory).enumerate() {
                assert!(found == placed || torn.contains(&at), "{key:?}: byte {at} is {found}, not {placed}");
            }
        }
    }

    /// Returns the part of the window for RDMA Writes that an FPDU names.
    fn torn(&self, fpdu: &[u8]) -> Option<Range<usize>> {
        let ulpdu = fpdu.get(2..)?;
        let length = usize::from(FpduView::new(fpdu).ulpdu_len()?);
        let Ok(Header::Tagged(header)) = Header::decode(ulpdu) else { return None };
        let (window, _) = self.writable.as_ref().filter(|(window, _)| window.key.0 == header.stag)?;
        within(window, header.offset, length.checked_sub(14)?)
    }
}

/// Returns the range of a window that begins at `offset` and has `length` bytes, if all of it is inside.
fn within(window: &RemoteSegment, offset: u64, length: usize) -> Option<Range<usize>> {
    let start = usize::try_from(offset.checked_sub(window.address)?).ok()?;
    let end = start.checked_add(length)?;
    (end <= usize::try_from(window.length).unwrap()).then_some(start..end)
}
