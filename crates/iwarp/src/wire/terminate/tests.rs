use super::*;
use crate::wire::hex::hex;

fn encoded(terminate: &Terminate) -> Vec<u8> {
    let (bytes, used) = terminate.encode();
    bytes[..used].to_vec()
}

// requirement: rfc5040-4.8-1, rfc5040-4.8-2, rfc5040-4.8-5
#[test]
fn rfc5040_4_8_golden() {
    let write = hex("c1 40 00 00 20 01 00 00 7f 00 00 01 00 00 00 01");
    let terminate = Terminate {
        cause: cause::TAGGED_INVALID_STAG,
        segment: TerminatedHeader::capture(&write).map(|header| (22, header)),
        read_request: None,
    };
    assert_eq!(encoded(&terminate), hex("11 00 c0 00 00 16 c1 40 00 00 20 01 00 00 7f 00 00 01 00 00"));
    assert_eq!(encoded(&Terminate::bare(cause::MPA_CRC)), hex("20 02 00 00"));
}

// requirement: rfc5040-4.8-1, rfc5040-4.8-4, rfc5040-4.8-8
#[test]
fn rfc5040_figure_10_everything_included() {
    let header = hex("41 41 00 00 00 00 00 00 00 01 00 00 00 01 00 00 00 00");
    let request = ReadRequest { sink_stag: 1, sink_offset: 2, size: 3, source_stag: 4, source_offset: 5 };
    let terminate = Terminate {
        cause: cause::READ_INVALID_STAG,
        segment: TerminatedHeader::capture(&header).map(|header| (46, header)),
        read_request: Some(request),
    };
    let bytes = encoded(&terminate);
    assert_eq!(bytes.len(), MAX_LEN);
    assert_eq!(bytes[..6], hex("01 00 e0 00 00 2e")[..]);
    assert_eq!(bytes[6..24], header[..]);
    assert_eq!(ReadRequest::decode(&bytes[24..]), Some(request));
}

/// RFC 5040 Figure 9, RFC 5041 §7.2, RFC 5044 §8, RFC 6581 §8: every code that these define has a name of its layer,
/// and no other code has one.
// requirement: rfc5040-4.8-3, rfc5041-7.2-1
#[test]
fn the_codes_of_the_documents_have_names() {
    let mut known = 0;
    for (layer, error_type, codes, prefix) in [
        (0, 1, &[0x00, 0x01, 0x02, 0x03, 0x04, 0x09, 0xFF][..], "RDMA: "),
        (0, 2, &[0x05, 0x06, 0x07, 0x08, 0x09, 0xFF], "RDMA: "),
        (1, 0, &[0x00], "DDP: "),
        (1, 1, &[0x00, 0x01, 0x02, 0x03, 0x04], "DDP: "),
        (1, 2, &[0x01, 0x02, 0x03, 0x04, 0x05, 0x06], "DDP: "),
        (2, 0, &[0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07], "MPA: "),
    ] {
        let mut names: Vec<_> = (0..=0xFF)
            .filter_map(|code| {
                let name = describe(TerminateCause { layer, error_type, code });
                assert_eq!(name.is_some(), codes.contains(&code), "{layer} {error_type} {code}");
                name
            })
            .collect();
        known += names.len();
        assert!(names.iter().all(|name| name.starts_with(prefix)));
        names.dedup();
        assert_eq!(names.len(), codes.len(), "a name each");
    }
    assert_eq!(known, 32);
    // The RFCs define no codes for a local catastrophic error of RDMA.
    assert!((0..=0xFF).all(|code| describe(TerminateCause { layer: 0, error_type: 0, code }).is_some()));
    assert_eq!(describe(TerminateCause { layer: 3, error_type: 0, code: 0 }), None);
}

#[test]
fn siw_terminates_are_understood() {
    for (dump, cause) in [
        ("11 00 03 00", cause::TAGGED_INVALID_STAG),
        ("10 00 07 00", cause::READ_INVALID_STAG),
        ("21 03 03 00", cause::INVALID_MSN),
        ("21 04 03 00", cause::INVALID_MO),
        ("21 01 03 00", cause::INVALID_QUEUE),
        ("21 02 03 00", cause::NO_BUFFER),
        ("02 02 00 00", cause::MPA_CRC),
        ("20 05 03 00", cause::RDMAP_VERSION),
        ("21 06 00 00", cause::UNTAGGED_VERSION),
        ("20 06 03 00", cause::UNEXPECTED_OPCODE),
        // Legal by RFC 5040, and ambiguous without control bits.
        ("20 06 00 00", cause::MPA_INSUFFICIENT_IRD),
        // The upper bits are those of the RFCs.
        ("20 06 c3 00", cause::MPA_INSUFFICIENT_IRD),
        // Causes in the form of the RFCs are unchanged.
        ("12 03 c0 00", cause::INVALID_MSN),
        ("20 02 00 00", cause::MPA_CRC),
        ("01 00 e0 00", cause::READ_INVALID_STAG),
    ] {
        let seen = TerminateView::new(&hex(dump)).likely_cause().unwrap();
        assert_eq!(seen, cause, "{dump}");
        assert!(describe(seen).is_some());
    }
    assert_eq!(TerminateView::new(&[0x11]).likely_cause(), None);
    // What no document defines in either form is left as it is.
    let unknown = TerminateCause { layer: 15, error_type: 14, code: 0 };
    assert_eq!(TerminateView::new(&hex("fe 00 03 00")).likely_cause(), Some(unknown));
}

/// RFC 5040 §4.8: reserved bits mean nothing. The three lowest of the third octet are an exception: `siw` uses them.
// requirement: rfc5040-4.8-5
#[test]
fn rfc5040_4_8_reserved_bits_of_a_terminate() {
    for dump in ["12 03 c0 00", "12 03 d8 ff", "12 03 c7 ff"] {
        assert_eq!(TerminateView::new(&hex(dump)).likely_cause(), Some(cause::INVALID_MSN), "{dump}");
    }
    assert_eq!(TerminateView::new(&hex("20 02 18 ff")).likely_cause(), Some(cause::MPA_CRC));
    assert_eq!(TerminateView::new(&hex("20 07 03 00")).likely_cause(), Some(cause::STREAM_CATASTROPHIC));
}
