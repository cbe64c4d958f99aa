//! Entry points for fuzzers. Not part of the public interface.
//!
//! Each processes the bytes of a peer, with CRCs off so that mutations get past them, and checks properties that hold
//! for any input.

// Test code: it reports failures by panicking.
#![allow(clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use bytes::Bytes;
use rpcrdma_verbs::{
    Completion, Key, ProtectionDomain, ReceiveMemory, SendRequest, WindowMemory, Work, WorkRequest, WrId,
};

use crate::engine::{Engine, Parameters, Timeouts};
use crate::startup::{Initiator, Negotiated, Responder, Role, Rtr, Settings};
use crate::wire::mpa::FrameView;
use crate::wire::{ddp, fpdu, terminate};

/// Properties of an endpoint after start-up, by the bits of a byte; 0 is a plain Initiator.
#[derive(Clone, Copy, Debug)]
pub struct Setup(pub u8);

impl Setup {
    const fn has(self, bit: u8) -> bool {
        self.0 >> bit & 1 == 1
    }

    /// Returns whether payload is placed only after its CRC matched.
    const fn is_strict(self) -> bool {
        self.has(0)
    }

    /// Returns whether a window is closed, and more work is posted, while the peer sends.
    const fn goes_on(self) -> bool {
        self.has(5)
    }

    fn negotiated(self) -> Negotiated {
        let role = if self.has(1) { Role::Responder } else { Role::Initiator };
        let rtr = match (role, self.0 >> 3 & 3) {
            (Role::Responder, _) | (_, 0) => None,
            (_, 1) => Some(Rtr::Send),
            (_, 2) => Some(Rtr::Write),
            _ => Some(Rtr::Read),
        };
        Negotiated {
            role,
            crc: false,
            markers: self.has(2),
            large_fpdu: false,
            ird: 4,
            ord: 4,
            rtr,
            rtr_send_expected: role == Role::Responder && self.has(3),
            private_data: Bytes::new(),
        }
    }
}

/// Work and memory that an engine must return.
#[derive(Debug, Default)]
struct Account {
    /// Requests and Receives that have not completed, with the window that each is to close.
    posted: BTreeMap<WrId, Option<Key>>,
    /// Windows whose memory has not been returned.
    windows: BTreeSet<Key>,
}

impl Account {
    fn post(&mut self, engine: &mut Engine, id: u64, request: WorkRequest) {
        let closes = match &request {
            WorkRequest::LocalInvalidate { key } => Some(*key),
            _ => None,
        };
        if engine.post(WrId(id), request).is_ok() {
            assert!(self.posted.insert(WrId(id), closes).is_none(), "the ids of this test are its own");
        }
    }

    fn post_receive(&mut self, engine: &mut Engine, id: u64, memory: ReceiveMemory) {
        if engine.post_receive(WrId(id), memory).is_ok() {
            assert!(self.posted.insert(WrId(id), None).is_none(), "the ids of this test are its own");
        }
    }

    /// Takes the completions, and checks that each request and each window completes once.
    fn poll(&mut self, engine: &mut Engine) -> usize {
        let mut count = 0;
        while let Some(Completion { id, work, .. }) = engine.poll_completion() {
            count += 1;
            if let Work::WindowFlushed { key, .. } = work {
                assert!(self.windows.remove(&key), "{key:?} comes back twice, or was never reserved");
                continue;
            }
            let posted = self.posted.remove(&id);
            let closes = posted.unwrap_or_else(|| panic!("{id:?} completes twice, or was never posted"));
            let returned = match work {
                Work::Receive { invalidated, .. } => invalidated.map(|(key, _)| key),
                Work::LocalInvalidate { memory: Some(_) } => closes,
                _ => None,
            };
            if let Some(key) = returned {
                assert!(self.windows.remove(&key), "{key:?} comes back twice, or was never reserved");
            }
        }
        count
    }
}

/// Feeds `bytes` to an endpoint after start-up, at most `step` in one read. Returns the number of completions.
///
/// # Panics
/// If a request completes twice, or not at all although the stream has ended. If a window is not returned exactly once.
/// If memory is missing from the domain at the end.
pub fn receive(bytes: &[u8], step: usize, setup: Setup) -> usize {
    const RECEIVES: u64 = 4;
    let now = Instant::now();
    let domain = ProtectionDomain::new(1 << 20);
    let parameters = Parameters {
        negotiated: setup.negotiated(),
        domain: domain.clone(),
        max_send_wr: 16,
        max_recv_wr: 16,
        max_windows: 16,
        strict_crc: setup.is_strict(),
        timeouts: Timeouts::default(),
        emss: 1448,
        seed: [0; 32],
    };
    let mut engine = Engine::new(parameters, &[], now);
    let mut account = Account::default();
    let allocate = |len| domain.allocate(len, 1).expect("the domain has room for all of this");
    for id in 0..RECEIVES {
        let memory = match domain.reserve(8192) {
            Ok(memory) if id % 2 == 1 => ReceiveMemory::Pooled(memory),
            _ => ReceiveMemory::Scatter(vec![allocate(64), allocate(8192)]),
        };
        account.post_receive(&mut engine, id, memory);
    }
    let mut open = Vec::new();
    for (id, memory) in [
        (10, WindowMemory::Write(allocate(16_384))),
        (20, WindowMemory::Read(Bytes::from_static(&[7; 4096]))),
    ] {
        let Ok(window) = engine.reserve_window(memory) else { continue };
        account.windows.insert(window.key);
        account.post(&mut engine, id, WorkRequest::BindWindow { key: window.key });
        let sink = allocate(usize::try_from(window.length).unwrap_or_default());
        account.post(&mut engine, id + 1, WorkRequest::Read { sink, sources: vec![window] });
        open.push(window);
    }
    let mut completions = 0;
    let mut left = bytes;
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
        if setup.goes_on()
            && let Some(target) = open.pop()
        {
            let gather = vec![Bytes::from_static(&[9; 3000])];
            let id = u64::from(target.key.0) << 8;
            account.post(
                &mut engine,
                id,
                WorkRequest::Write { gather: gather.clone(), targets: vec![target] },
            );
            account.post(
                &mut engine,
                id + 1,
                WorkRequest::Send(SendRequest { gather, ..SendRequest::default() }),
            );
            account.post(&mut engine, id + 2, WorkRequest::LocalInvalidate { key: target.key });
        }
        engine.prepare(now);
        let ready = engine.with_transmit_slices(|slices, _| slices.iter().map(|slice| slice.len()).sum());
        engine.transmitted(ready, now);
        completions += account.poll(&mut engine);
    }
    engine.handle_end_of_stream();
    completions += account.poll(&mut engine);
    assert!(account.posted.is_empty(), "never completed: {:?}", account.posted);
    assert!(account.windows.is_empty(), "never given back: {:?}", account.windows);
    assert!(engine.end().is_some(), "the connection is over");
    drop(engine);
    assert_eq!(domain.usage().in_use, 0, "all memory is back");
    completions
}

/// Feeds start-up frames to both sides, cut in two at `cut`.
pub fn startup(bytes: &[u8], cut: usize) {
    let (front, back) = bytes.split_at(cut.min(bytes.len()));
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

/// Calls every view of a dissector.
pub fn views(bytes: &[u8]) {
    let frame = FrameView::new(bytes);
    let _ = (
        frame.kind(),
        frame.flags(),
        frame.revision(),
        frame.private_data(),
        frame.enhanced(),
        frame.frame_len(),
    );
    let fpdu = fpdu::FpduView::new(bytes);
    let _ = (fpdu.ulpdu(), fpdu.crc(), fpdu.crc_matches());
    let header = ddp::HeaderView::new(bytes);
    let _ = (header.tagged(), header.untagged(), header.payload(), ddp::Header::decode(bytes));
    let _ = terminate::TerminateView::new(bytes).likely_cause();
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn i6_the_targets_hold_for_random_bytes(
            bytes in proptest::collection::vec(any::<u8>(), 0..2000), step in 1_usize..2000, setup: u8,
        ) {
            super::receive(&bytes, step, super::Setup(setup));
            super::startup(&bytes, step);
            super::views(&bytes);
        }
    }
}
