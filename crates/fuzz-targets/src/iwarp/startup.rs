//! MPA set-up on both sides, and the views of a dissector.

use bytes::Bytes;
use rpcrdma_iwarp::Revision;
use rpcrdma_iwarp::startup::{
    Initiator, LargeFpdu, Negotiated, Request, Responder, Rtr, Settings, StartupError,
};
use rpcrdma_iwarp::wire::mpa::{Enhanced, Frame, FrameKind, FrameView, MAX_PRIVATE_DATA, RtrSet};
use rpcrdma_iwarp::wire::offer::FpduOffer;
use rpcrdma_iwarp::wire::rdmap::{self, ReadRequest};
use rpcrdma_iwarp::wire::{ddp, fpdu, terminate};

/// Feeds start-up frames to both sides, whole and cut in two at `cut`: the results must be equal. A frame that
/// decodes must encode to one that means the same. Then both sides meet, with settings from the bytes.
pub(super) fn frames(bytes: &[u8], cut: usize) {
    let (front, back) = bytes.split_at(cut.min(bytes.len()));
    let respond = |parts: [&[u8]; 2]| {
        let mut responder = Responder::new();
        let (request, behind) = feed(parts, |part| responder.handle(part))?;
        let request: Option<Request> = request;
        let replies = request.map(|request| {
            let settings = Settings::default();
            (request.accept(&settings), request.reject(&settings, &Bytes::new()))
        });
        Ok::<_, StartupError>((replies, behind))
    };
    assert_eq!(respond([front, back]), respond([bytes, &[]]));
    let initiate = |parts: [&[u8]; 2]| {
        let (mut initiator, _) = Initiator::new(Settings::default()).expect("a request without private data");
        feed(parts, |part| initiator.handle(part))
    };
    assert_eq!(initiate([front, back]), initiate([bytes, &[]]));
    for kind in [FrameKind::Request, FrameKind::Reply] {
        if let Ok(Some((frame, used))) = Frame::decode(bytes, kind) {
            assert!(frame.private_data.len() <= MAX_PRIVATE_DATA);
            let again = frame.encode().expect("a frame that was decoded");
            assert_eq!(again.len(), used);
            assert_eq!(Frame::decode(&again, kind), Ok(Some((frame, used))));
        }
    }
    meet(bytes);
}

/// Feeds parts until there is a result. Returns it with the bytes behind the frame.
fn feed<T>(
    parts: [&[u8]; 2],
    mut handle: impl FnMut(&[u8]) -> Result<Option<(T, Vec<u8>)>, StartupError>,
) -> Result<(Option<T>, Vec<u8>), StartupError> {
    let mut found: Option<(T, Vec<u8>)> = None;
    for part in parts {
        match &mut found {
            Some((_, behind)) => behind.extend_from_slice(part),
            None => found = handle(part)?,
        }
    }
    Ok(found.map_or((None, Vec::new()), |(result, behind)| (Some(result), behind)))
}

/// Lets an Initiator and a Responder of any settings meet. What they negotiate must fit together.
fn meet(bytes: &[u8]) {
    let Some((front, private_data)) = bytes.split_first_chunk::<10>() else { return };
    let depth = |at: usize| u16::from_be_bytes([front[at] & 0x3F, front[at + 1]]);
    let settings = |flags: u8, depths: usize, private_data: &[u8]| Settings {
        private_data: Bytes::copy_from_slice(private_data),
        ird: depth(depths),
        ord: depth(depths + 2),
        crc: flags & 1 == 1,
        large_fpdu: match flags & 0x82 {
            0 => LargeFpdu::Never,
            2 => LargeFpdu::Offered,
            _ => LargeFpdu::Flagged,
        },
        revision: if flags & 4 == 4 { Revision::One } else { Revision::Two },
        peer_to_peer: (flags & 8 == 8).then_some(RtrSet {
            send: flags & 16 == 16,
            write: flags & 32 == 32,
            read: flags & 64 == 64,
        }),
        ird_limit: 128,
    };
    let middle = private_data.len() / 2;
    let ours = settings(front[0], 2, &private_data[..middle]);
    let theirs = settings(front[1], 6, &private_data[middle..]);
    // Data of the ULP that looks like an offer is taken for one.
    if [&ours, &theirs]
        .into_iter()
        .any(|side| FpduOffer::split(side.private_data.clone()).0 != side.private_data)
    {
        return;
    }
    let Ok((mut initiator, request)) = Initiator::new(ours.clone()) else {
        assert!(ours.private_data.len() > MAX_PRIVATE_DATA - 4);
        return;
    };
    let mut responder = Responder::new();
    let (request, behind) = responder.handle(&request).expect("a request of ours").expect("all of it");
    assert!(behind.is_empty());
    assert_eq!(request.private_data(), &ours.private_data);
    let Ok((reply, server)) = request.accept(&theirs) else {
        assert!(theirs.private_data.len() > MAX_PRIVATE_DATA - 4);
        return;
    };
    match initiator.handle(&reply) {
        Ok(Some((client, behind))) => {
            assert!(behind.is_empty());
            assert_eq!(
                (&client.private_data, &server.private_data),
                (&theirs.private_data, &ours.private_data)
            );
            agree(&client, &server, ours.revision, request.enhanced());
        }
        Ok(None) => panic!("a reply without its end"),
        Err(StartupError::InsufficientIrd { wanted, limit }) => assert!(wanted > limit),
        // A zero-length RDMA Read needs an ORD above 0.
        Err(StartupError::NoMatchingRtr) => {
            let asked = ours.peer_to_peer.unwrap_or_default();
            assert!(asked.is_empty() || (asked.read && !asked.send && !asked.write));
        }
        Err(error) => panic!("{error}"),
    }
}

fn agree(client: &Negotiated, server: &Negotiated, revision: Revision, enhanced: Option<Enhanced>) {
    assert_eq!((client.crc, client.large_fpdu), (server.crc, server.large_fpdu));
    assert!(!client.markers && !server.markers);
    assert_eq!(revision == Revision::Two, enhanced.is_some());
    if revision == Revision::Two {
        // RFC 6581 §9.1: no side has more Reads outstanding than the other takes.
        assert!(client.ord <= server.ird, "{client:?} {server:?}");
        assert!(server.ord <= client.ird, "{client:?} {server:?}");
    }
    assert_eq!(server.rtr, None);
    if client.rtr == Some(Rtr::Send) {
        assert!(server.rtr_send_expected);
    }
    if client.rtr == Some(Rtr::Read) {
        assert!(client.ord > 0 && server.ird > 0);
    }
}

/// Calls every view of a dissector. A header that decodes must encode to one that means the same, and a ULPDU must be
/// found in its FPDU, with a CRC that matches.
pub(super) fn views(bytes: &[u8]) {
    let frame = FrameView::new(bytes);
    let _ = (frame.kind(), frame.flags(), frame.revision(), frame.enhanced(), frame.frame_len());
    assert!(frame.private_data().is_none_or(|data| data.len() <= bytes.len()));
    let view = fpdu::FpduView::new(bytes);
    let _ = (view.crc(), view.crc_matches());
    if let Some(ulpdu) = view.ulpdu() {
        for crc in [false, true] {
            let sealed = fpdu::seal(ulpdu, crc).expect("a ULPDU of possible length");
            assert_eq!((sealed.len() % 4, Some(sealed.len())), (0, view.fpdu_len()));
            let again = fpdu::FpduView::new(&sealed);
            assert_eq!(again.ulpdu(), Some(ulpdu));
            if crc {
                assert_eq!(again.crc_matches(), Some(true));
                // With pads of zero, an FPDU whose CRC matches has no other form.
                let pads = bytes.get(2 + ulpdu.len()..sealed.len() - 4).unwrap_or(&[1]);
                if view.crc_matches() == Some(true) && pads.iter().all(|pad| *pad == 0) {
                    assert_eq!(bytes.get(..sealed.len()), Some(&sealed[..]));
                }
            }
        }
    }
    let header = ddp::HeaderView::new(bytes);
    let _ = (header.tagged(), header.untagged(), header.payload());
    if let Ok(header) = ddp::Header::decode(bytes) {
        let again = match header {
            ddp::Header::Tagged(tagged) => tagged.encode().to_vec(),
            ddp::Header::Untagged(untagged) => untagged.encode().to_vec(),
        };
        assert_eq!((again.len(), ddp::Header::decode(&again)), (header.encoded_len(), Ok(header)));
        if let Ok(opcode) = rdmap::opcode(header.control()) {
            assert_eq!(rdmap::opcode(opcode.control()), Ok(opcode));
        }
    }
    if let Some(request) = ReadRequest::decode(bytes) {
        assert_eq!(bytes.get(..28), Some(&request.encode()[..]));
    }
    let said = terminate::TerminateView::new(bytes);
    if let Some(cause) = said.cause() {
        let (again, used) = terminate::Terminate::bare(cause).encode();
        assert_eq!(terminate::TerminateView::new(&again[..used]).cause(), Some(cause));
        let likely = said.likely_cause().expect("a cause");
        assert!(likely == cause || (likely.layer, likely.error_type) == (cause.error_type, cause.layer));
    }
}
