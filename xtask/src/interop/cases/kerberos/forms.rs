//! How calls with RPCSEC_GSS travel, from a recording.
//!
//! With integrity or privacy nothing is DDP-eligible (RFC 8166 §8.2.2). A long call then travels in a Position-Zero Read
//! chunk, and a long reply in the Reply chunk. With authentication only, payload travels in chunks as without RPCSEC_GSS.

use rpcrdma_capture::exchange::{Exchange, Exchanges, Part};
use rpcrdma_capture::session::Session;
use rpcrdma_proto::wire::Body;

use crate::failure::{Failure, ensure};

/// Service of RPCSEC_GSS (RFC 2203 §5.3.3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    /// The header of the call is protected.
    None,
    /// The arguments are protected against changes too.
    Integrity,
    /// And against eyes.
    Privacy,
}

impl Service {
    const fn number(self) -> u32 {
        match self {
            Self::None => 1,
            Self::Integrity => 2,
            Self::Privacy => 3,
        }
    }
}

const RPCSEC_GSS: u32 = 6;
const NFS: (u32, u32) = (100_003, 3);
const READ: u32 = 6;
const WRITE: u32 = 7;

/// A call of NFS under RPCSEC_GSS.
#[derive(Debug)]
struct Protected {
    service: u32,
    procedure: u32,
    exchange: Exchange,
}

/// The calls of NFS under RPCSEC_GSS of a recording.
#[derive(Debug)]
pub(super) struct Travelled(Vec<Protected>);

impl Travelled {
    pub(super) fn of(sessions: &[Session]) -> Self {
        Self(sessions.iter().flat_map(|session| Exchanges::of(session).all).filter_map(protected).collect())
    }

    /// Checks the form of every call of a service, and that it had long ones of both directions. Returns the numbers of
    /// these.
    pub(super) fn check(&self, service: Service) -> Result<String, Failure> {
        let (mut written, mut read) = (0, 0);
        for Protected { procedure, exchange, .. } in
            self.0.iter().filter(|call| call.service == service.number())
        {
            let xid = exchange.call.header.xid;
            let Some(reply) = &exchange.reply else {
                return Err(Failure::new(format!("call {xid:#010x} has no reply")));
            };
            let form = Form::of(&exchange.call);
            let due = if service == Service::None { form.is_reduced() } else { form.is_whole() };
            ensure!(due, "{service:?}: call {xid:#010x} of procedure {procedure} is {form:?}");
            match (*procedure, service) {
                (WRITE, Service::None) => written += usize::from(form.read_elsewhere),
                (WRITE, _) => written += usize::from(form.is_long && form.read_at_zero),
                (READ, Service::None) => read += usize::from(form.write),
                (READ, _) => read += usize::from(Form::of(reply).is_long && form.reply),
                _ => {}
            }
        }
        ensure!(written > 0 && read > 0, "{written} long WRITEs and {read} long READs with {service:?}");
        Ok(format!("{service:?}: {written} long WRITEs, {read} long READs"))
    }
}

/// The chunks of a message.
#[derive(Debug, PartialEq, Eq)]
struct Form {
    /// RDMA_NOMSG.
    is_long: bool,
    read_at_zero: bool,
    read_elsewhere: bool,
    write: bool,
    reply: bool,
}

impl Form {
    fn of(part: &Part) -> Self {
        let lists = part.lists().cloned().unwrap_or_default();
        Self {
            is_long: matches!(part.header.body, Body::NoMessage(_)),
            read_at_zero: lists.read.iter().any(|read| read.position == 0),
            read_elsewhere: lists.read.iter().any(|read| read.position != 0),
            write: !lists.write.is_empty(),
            reply: lists.reply.is_some(),
        }
    }

    /// Returns whether no item of a Call is reduced (RFC 8166 §8.2.2.3).
    const fn is_whole(&self) -> bool {
        !self.read_elsewhere && !self.write && self.is_long == self.read_at_zero
    }

    /// Returns whether a Call travels as without RPCSEC_GSS: its item in a Read chunk of its own.
    const fn is_reduced(&self) -> bool {
        !self.read_at_zero
    }
}

/// Returns a call of NFS with data under RPCSEC_GSS.
fn protected(exchange: Exchange) -> Option<Protected> {
    let word = |at: usize| {
        let bytes = exchange.call.message.get(at * 4..at * 4 + 4)?;
        bytes.try_into().ok().map(u32::from_be_bytes)
    };
    // RFC 5531 §9: XID, CALL, version of RPC, program, version, procedure, flavor, length; then RFC 2203 §5: version,
    // procedure of RPCSEC_GSS (0 is DATA), sequence number, service.
    let is_ours = (word(3)?, word(4)?) == NFS && word(6)? == RPCSEC_GSS && word(9)? == 0;
    let (procedure, service) = (word(5)?, word(11)?);
    is_ours.then_some(Protected { service, procedure, exchange })
}

#[cfg(test)]
mod tests {
    use rpcrdma_capture::tcp::Side;
    use rpcrdma_iwarp::wire::rdmap::Opcode;
    use rpcrdma_proto::wire::{ChunkLists, Header, ReadSegment, Segment, WriteChunk};

    use super::*;

    fn part(body: Body, words: &[u32]) -> Part {
        let message: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        Part {
            header: Header { xid: 7, version: 1, credit: 1, direction: None, invalidate: 0, body },
            opcode: Opcode::Send,
            invalidate: None,
            sent: 100,
            message: message.into(),
            genuine: true,
            moved: Vec::new(),
        }
    }

    fn lists(positions: &[u32], write: bool, reply: bool) -> ChunkLists {
        let segment = Segment { handle: 1, length: 9000, offset: 0 };
        let chunk = || WriteChunk { segments: vec![segment] };
        ChunkLists {
            read: positions.iter().map(|&position| ReadSegment::new(position, segment)).collect(),
            write: write.then(chunk).into_iter().collect(),
            reply: reply.then(chunk),
        }
    }

    fn exchange(procedure: u32, service: u32, call: Body, reply: Body) -> Exchange {
        let words = [7, 0, 2, 100_003, 3, procedure, 6, 24, 1, 0, 5, service];
        Exchange { caller: Side::Client, call: part(call, &words), reply: Some(part(reply, &[7, 1])) }
    }

    fn check(service: Service, all: Vec<Exchange>) -> Result<String, String> {
        let all = all.into_iter().filter_map(protected).collect();
        Travelled(all).check(service).map_err(|failure| failure.to_string())
    }

    fn message(positions: &[u32], write: bool, reply: bool) -> Body {
        Body::Message(lists(positions, write, reply))
    }

    fn long(positions: &[u32], reply: bool) -> Body {
        Body::NoMessage(lists(positions, false, reply))
    }

    #[test]
    fn nothing_is_reduced_with_integrity() {
        let inline = || message(&[], false, false);
        let write = || exchange(7, 2, long(&[0], false), inline());
        let read = || exchange(6, 2, message(&[], false, true), long(&[], true));
        assert_eq!(
            check(Service::Integrity, vec![write(), read()]).unwrap(),
            "Integrity: 1 long WRITEs, 1 long READs"
        );
        for wrong in [
            exchange(7, 2, message(&[140], false, false), inline()),
            exchange(6, 2, message(&[], true, true), long(&[], true)),
            exchange(7, 2, long(&[0, 140], false), inline()),
        ] {
            assert!(check(Service::Integrity, vec![write(), read(), wrong]).is_err());
        }
        assert!(check(Service::Integrity, vec![write()]).is_err(), "no READ");
        assert!(check(Service::Privacy, vec![write(), read()]).is_err(), "another service");
    }

    #[test]
    fn with_authentication_payload_travels_in_chunks() {
        let inline = || message(&[], false, false);
        let write = || exchange(7, 1, message(&[140], false, false), inline());
        let read = || exchange(6, 1, message(&[], true, false), inline());
        assert!(check(Service::None, vec![write(), read()]).is_ok());
        assert!(
            check(Service::None, vec![write(), read(), exchange(7, 1, long(&[0], false), inline())]).is_err()
        );
        assert!(
            check(Service::None, vec![write(), exchange(6, 1, inline(), inline())]).is_err(),
            "short only"
        );
    }

    #[test]
    fn other_flavors_do_not_count() {
        let mut other = exchange(7, 2, long(&[0], false), message(&[], false, false));
        other.call.message =
            [7_u32, 0, 2, 100_003, 3, 7, 1, 24, 1, 0, 5, 2].map(u32::to_be_bytes).concat().into();
        assert!(protected(other).is_none());
    }
}
