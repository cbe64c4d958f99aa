use super::*;
use crate::wire::hex::hex;

fn encoded(terminate: &Terminate) -> Vec<u8> {
    let (bytes, used) = terminate.encode();
    bytes[..used].to_vec()
}

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
        // RFC forms stay what they are.
        ("12 03 c0 00", cause::INVALID_MSN),
        ("20 02 00 00", cause::MPA_CRC),
        ("01 00 e0 00", cause::READ_INVALID_STAG),
    ] {
        let seen = TerminateView::new(&hex(dump)).likely_cause().unwrap();
        assert_eq!(seen, cause, "{dump}");
        assert!(describe(seen).is_some());
    }
    assert_eq!(TerminateView::new(&[0x11]).likely_cause(), None);
}
