//! The Terminates of Linux are understood: `siw` writes layer and type with their nibbles exchanged, and the header
//! control bits from the other end.
// Helpers of tests fail by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use rpcrdma_capture::linux;
use rpcrdma_capture::message::{Event, events};
use rpcrdma_capture::tcp::Side;
use rpcrdma_iwarp::wire::terminate::{TerminateView, cause, describe};
use rpcrdma_verbs::TerminateCause;

#[test]
fn every_terminate_of_linux_is_understood() {
    let mut seen = Vec::new();
    for session in linux::sessions("knfsd-probe").unwrap() {
        for event in events(&session) {
            let Event::Terminate(from, bytes) = event else { continue };
            assert_eq!(from, Side::Server);
            let view = TerminateView::new(&bytes);
            let likely = view.likely_cause().unwrap();
            assert!(describe(likely).is_some(), "{bytes:02x?}");
            seen.push((bytes[0], bytes[1], likely));
        }
    }
    #[rustfmt::skip]
    let expected = [
        (0x11, 0x00, cause::TAGGED_INVALID_STAG),   // Write to an unknown STag
        (0x10, 0x00, cause::READ_INVALID_STAG),     // Read Request for an unknown STag
        (0x01, 0x00, cause::DDP_CATASTROPHIC),      // Read Response without a Request
        (0x21, 0x03, cause::INVALID_MSN),
        (0x21, 0x04, cause::INVALID_MO),
        (0x21, 0x01, cause::INVALID_QUEUE),
        (0x21, 0x02, cause::NO_BUFFER),             // Send of 4097 bytes: siw has no separate code for too long messages
        // Opcode 9 and RDMAP version 0. Without control bits these bytes are also those of an MPA error by the text of
        // RFC 6581, and are decoded as such.
        (0x20, 0x06, cause::MPA_INSUFFICIENT_IRD),
        (0x20, 0x05, cause::MPA_CATASTROPHIC),
        (0x21, 0x06, cause::UNTAGGED_VERSION),
        (0x20, 0x09, TerminateCause { layer: 0, error_type: 2, code: 9 }), // Send with Invalidate of an unknown STag
        (0x02, 0x02, cause::MPA_CRC),
    ];
    assert_eq!(seen, expected);
}
