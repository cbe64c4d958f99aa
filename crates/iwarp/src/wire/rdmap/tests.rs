use proptest::prelude::*;

use super::*;
use crate::wire::hex::hex;

// requirement: rfc5040-4.4-1
#[test]
fn rfc5040_4_4_read_request() {
    let request = ReadRequest {
        sink_stag: 0x2222,
        sink_offset: 0x1000,
        size: 4096,
        source_stag: 0x1001,
        source_offset: 0x7F00_0000_1000,
    };
    let bytes = hex("00 00 22 22 00 00 00 00 00 00 10 00 00 00 10 00 00 00 10 01 00 00 7f 00 00 00 10 00");
    assert_eq!(request.encode().to_vec(), bytes);
    assert_eq!(ReadRequest::decode(&bytes), Some(request));
    assert_eq!(ReadRequest::decode(&bytes[..27]), None);
}

// requirement: rfc5040-4.1-3, rfc5040-4.1-5, rfc5040-7.2-2, rfc5040-7.2-3, rfc5040-7.2-8
#[test]
fn rfc5040_4_1_control_byte() {
    for (opcode_bits, byte) in [0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47].into_iter().enumerate() {
        let parsed = opcode(byte).unwrap();
        assert_eq!(usize::from(parsed.wire()), opcode_bits);
        assert_eq!(parsed.control(), byte);
        // Bits 5 and 4 are reserved.
        assert_eq!(opcode(byte | 0x30), Ok(parsed));
    }
    for bits in 8..16 {
        assert_eq!(opcode(0x40 | bits), Err(ControlError::Opcode(bits)));
    }
    for version in [0, 2, 3] {
        assert_eq!(opcode(version << 6 | 3), Err(ControlError::Version(version)));
    }
    assert_eq!(Opcode::send(true, true), Opcode::SendSolicitedInvalidate);
}

#[test]
fn rfc5040_figure_3_what_each_opcode_is() {
    for (bits, name, tagged, invalidates, solicited) in [
        (0, "RDMA Write", true, false, false),
        (1, "RDMA Read Request", false, false, false),
        (2, "RDMA Read Response", true, false, false),
        (3, "Send", false, false, false),
        (4, "Send with Invalidate", false, true, false),
        (5, "Send with Solicited Event", false, false, true),
        (6, "Send with Solicited Event and Invalidate", false, true, true),
        (7, "Terminate", false, false, false),
    ] {
        let parsed = opcode(0x40 | bits).unwrap();
        assert_eq!(
            (parsed.is_tagged(), parsed.invalidates(), parsed.is_solicited()),
            (tagged, invalidates, solicited)
        );
        assert_eq!(opcode_name(0x40 | bits), name);
    }
}

#[test]
fn opcodes_of_later_documents_have_names_and_the_version_is_beside_them() {
    // RFC 7306 §4.
    let names =
        ["Immediate Data", "Immediate Data with Solicited Event", "Atomic Request", "Atomic Response"];
    for (bits, name) in (8..).zip(names) {
        assert_eq!((opcode_name(0x40 | bits), opcode_name(bits)), (name, name));
    }
    assert!((12..16).all(|bits| opcode_name(bits) == "reserved opcode"));
    assert_eq!([0x43, 0x83, 0xF3].map(control_version), [1, 2, 3]);
}

proptest! {
    #[test]
    fn read_requests_round_trip(sink_stag: u32, sink_offset: u64, size: u32, source_stag: u32, source_offset: u64) {
        let request = ReadRequest { sink_stag, sink_offset, size, source_stag, source_offset };
        prop_assert_eq!(ReadRequest::decode(&request.encode()), Some(request));
    }
}
