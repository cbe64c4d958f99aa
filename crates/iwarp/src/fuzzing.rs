//! Entry points for fuzzers. No part of the public interface.
//!
//! Each takes the octets of a peer, with CRCs off so that mutations get past them, and checks what must hold whatever they are.

use std::time::Instant;

use bytes::Bytes;
use rpcrdma_verbs::{Buffer, ProtectionDomain, ReceiveMemory, WindowMemory, WorkRequest, WrId};

use crate::engine::{Engine, Parameters, Timeouts};
use crate::startup::{Initiator, Negotiated, Responder, Role, Settings};
use crate::wire::mpa::FrameView;
use crate::wire::{ddp, fpdu, terminate};

/// What an endpoint makes of `octets` after start-up, read at most `step` at a time. The value says how many completions it
/// had; every posted request must have one when the stream ends.
pub fn receive(octets: &[u8], step: usize, strict_crc: bool) -> usize {
    const RECEIVES: u64 = 4;
    let now = Instant::now();
    let negotiated = Negotiated {
        role: Role::Initiator,
        crc: false,
        markers: false,
        large_fpdu: false,
        ird: 4,
        ord: 4,
        rtr: None,
        rtr_send_expected: false,
        private_data: Bytes::new(),
    };
    let parameters = Parameters {
        negotiated,
        domain: ProtectionDomain::new(1 << 20),
        max_send_wr: 16,
        max_recv_wr: 16,
        max_windows: 16,
        strict_crc,
        timeouts: Timeouts::default(),
        emss: 1448,
        seed: [0; 32],
    };
    let mut engine = Engine::new(parameters, &[], now);
    let mut posted = 0;
    for id in 0..RECEIVES {
        let memory = ReceiveMemory::Scatter(vec![Buffer::adopt(vec![0; 64]), Buffer::adopt(vec![0; 8192])]);
        posted += usize::from(engine.post_receive(WrId(id), memory).is_ok());
    }
    for memory in [
        WindowMemory::Write(Buffer::adopt(vec![0; 16_384])),
        WindowMemory::Read(Bytes::from_static(&[7; 4096])),
    ] {
        if let Ok(source) = engine.reserve_window(memory) {
            let bind = WorkRequest::BindWindow { key: source.key };
            posted += usize::from(engine.post(WrId(10), bind).is_ok());
            let sink = Buffer::adopt(vec![0; usize::try_from(source.length).unwrap_or_default()]);
            let read = WorkRequest::Read { sink, sources: vec![source] };
            posted += usize::from(engine.post(WrId(11), read).is_ok());
        }
    }
    let mut left = octets;
    while !left.is_empty() && engine.wants_input() {
        let count = engine.with_receive_slices(|slices| {
            let mut count = 0;
            for slice in slices {
                let part = slice.len().min(left.len() - count).min(step.max(1) - count);
                let source = left.get(count..count + part).unwrap_or_default();
                if let Some(room) = slice.get_mut(..part) {
                    room.copy_from_slice(source);
                }
                count += part;
            }
            count
        });
        assert!(count > 0, "an endpoint that wants input lends room for it");
        engine.received(count, now);
        left = left.get(count..).unwrap_or_default();
        engine.prepare(now);
        let ready = engine.with_transmit_slices(|slices, _| slices.iter().map(|slice| slice.len()).sum());
        engine.transmitted(ready, now);
    }
    engine.handle_end_of_stream();
    let completions = std::iter::from_fn(|| engine.poll_completion()).count();
    assert!(completions >= posted, "{posted} requests were posted, {completions} completed");
    assert!(engine.end().is_some(), "the connection is over");
    completions
}

/// Start-up frames on both sides, cut in two at `cut`.
pub fn startup(octets: &[u8], cut: usize) {
    let (front, back) = octets.split_at(cut.min(octets.len()));
    let mut responder = Responder::new();
    for part in [front, back] {
        match responder.handle(part) {
            Ok(None) => {}
            Ok(Some((request, _))) => {
                let _ = request.accept(&Settings::default());
                let _ = request.reject(&Settings::default(), &Bytes::new());
                break;
            }
            Err(_) => break,
        }
    }
    if let Ok((mut initiator, _)) = Initiator::new(Settings::default()) {
        for part in [front, back] {
            if !matches!(initiator.handle(part), Ok(None)) {
                break;
            }
        }
    }
}

/// Every view of a dissector.
pub fn views(octets: &[u8]) {
    let frame = FrameView::new(octets);
    let _ = (
        frame.kind(),
        frame.flags(),
        frame.revision(),
        frame.private_data(),
        frame.enhanced(),
        frame.frame_len(),
    );
    let fpdu = fpdu::FpduView::new(octets);
    let _ = (fpdu.ulpdu(), fpdu.crc(), fpdu.crc_matches());
    let header = ddp::HeaderView::new(octets);
    let _ = (header.tagged(), header.untagged(), header.payload(), ddp::Header::decode(octets));
    let _ = terminate::TerminateView::new(octets).likely_cause();
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn i6_the_targets_hold_for_random_octets(
            octets in proptest::collection::vec(any::<u8>(), 0..2000), step in 1_usize..2000, strict: bool,
        ) {
            super::receive(&octets, step, strict);
            super::startup(&octets, step);
            super::views(&octets);
        }
    }
}
