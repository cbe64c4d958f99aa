//! The stream that an endpoint sent, taken apart by the rules of RFC 5044 §4, RFC 5041 §4 and RFC 5040 §4.

use std::collections::BTreeMap;

use rpcrdma_iwarp::startup::Negotiated;
use rpcrdma_iwarp::wire::ddp::{FIRST_MSN, Header, HeaderView, queue};
use rpcrdma_iwarp::wire::fpdu::{CRC_LEN, Crc, FpduView};
use rpcrdma_iwarp::wire::marker::{INTERVAL, MARKER_LEN};
use rpcrdma_iwarp::wire::rdmap::{Opcode, ReadRequest, opcode};
use rpcrdma_iwarp::wire::terminate::TerminateView;
use rpcrdma_verbs::TerminateCause;

/// Messages of an endpoint.
#[derive(Debug, Default)]
pub(super) struct Spoken {
    /// RDMA Read Requests, in order.
    pub(super) requests: Vec<ReadRequest>,
    /// Complete Read Responses, in order: the tag and offset of the first byte, and the data.
    pub(super) responses: Vec<(u32, u64, Vec<u8>)>,
    /// The cause in a Terminate.
    pub(super) terminate: Option<TerminateCause>,
}

/// Cuts a stream into FPDUs, and removes their markers.
fn fpdus(sent: &[u8], negotiated: &Negotiated) -> Vec<Vec<u8>> {
    let (mut fpdus, mut fpdu, mut at) = (Vec::new(), Vec::new(), 0);
    // The first byte of the FPDU, and that of a marker before it.
    let (mut start, mut covered) = (0, 0);
    while at < sent.len() {
        if negotiated.markers && at % INTERVAL == 0 {
            let marker = &sent[at..at + MARKER_LEN];
            let back = if fpdu.is_empty() { 0 } else { at - start };
            // RFC 5044 §4.3: 16 reserved bits, then the distance to the length field of this FPDU.
            assert_eq!(marker, [&[0; 2][..], &u16::try_from(back).unwrap().to_be_bytes()].concat());
            at += MARKER_LEN;
            if fpdu.is_empty() {
                start = at;
            }
            continue;
        }
        fpdu.push(sent[at]);
        at += 1;
        if FpduView::new(&fpdu).fpdu_len() == Some(fpdu.len()) {
            // RFC 5044 §4.3: the CRC covers markers, also one that stands before the length field. None can stand
            // inside the CRC field, since FPDUs and markers begin at multiples of four.
            let mut crc = Crc::new();
            crc.update(&sent[covered..at - CRC_LEN]);
            if negotiated.crc {
                assert_eq!(sent[at - CRC_LEN..at], crc.wire());
            }
            fpdus.push(std::mem::take(&mut fpdu));
            (start, covered) = (at, at);
        }
    }
    assert!(fpdu.is_empty(), "an FPDU without its end: {fpdu:?}");
    fpdus
}

impl Spoken {
    /// Takes a stream apart.
    ///
    /// # Panics
    /// If the stream breaks a rule.
    pub(super) fn of(sent: &[u8], negotiated: &Negotiated) -> Self {
        let mut spoken = Self::default();
        // Of each queue, the number of the message and the offset of its next byte.
        let mut queues: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
        let mut response: Option<(u32, u64, Vec<u8>)> = None;
        for fpdu in fpdus(sent, negotiated) {
            assert_eq!(spoken.terminate, None, "a Terminate is the last message");
            let view = FpduView::new(&fpdu);
            let ulpdu = view.ulpdu().expect("a whole FPDU");
            let header = Header::decode(ulpdu).expect("a legal header");
            let opcode = opcode(header.control()).expect("a legal control byte");
            let payload = HeaderView::new(ulpdu).payload().expect("a whole header");
            match header {
                Header::Tagged(tagged) => {
                    assert!(opcode.is_tagged());
                    if opcode != Opcode::ReadResponse {
                        continue;
                    }
                    let (stag, base, mut data) =
                        response.take().unwrap_or((tagged.stag, tagged.offset, Vec::new()));
                    assert_eq!((tagged.stag, tagged.offset), (stag, base.wrapping_add(data.len() as u64)));
                    data.extend_from_slice(payload);
                    if tagged.last {
                        spoken.responses.push((stag, base, data));
                    } else {
                        response = Some((stag, base, data));
                    }
                }
                Header::Untagged(untagged) => {
                    assert!(!opcode.is_tagged());
                    let (msn, offset) = queues.entry(untagged.queue).or_insert((FIRST_MSN, 0));
                    assert_eq!((untagged.msn, untagged.offset), (*msn, *offset), "queue {}", untagged.queue);
                    *offset += u32::try_from(payload.len()).unwrap();
                    if untagged.last {
                        (*msn, *offset) = (*msn + 1, 0);
                    }
                    spoken.control(opcode, untagged.queue, payload);
                }
            }
        }
        spoken
    }

    fn control(&mut self, opcode: Opcode, on: u32, payload: &[u8]) {
        match opcode {
            Opcode::ReadRequest => {
                assert_eq!((on, payload.len()), (queue::READ_REQUEST, 28));
                self.requests.push(ReadRequest::decode(payload).expect("a whole request"));
            }
            Opcode::Terminate => {
                assert_eq!(on, queue::TERMINATE);
                self.terminate = Some(TerminateView::new(payload).cause().expect("a whole Terminate"));
            }
            _ => assert_eq!(on, queue::SEND),
        }
    }
}
