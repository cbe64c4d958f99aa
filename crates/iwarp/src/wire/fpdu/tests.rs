use proptest::prelude::*;

use super::*;
use crate::wire::hex::hex;

fn crc_of(bytes: &[u8]) -> Vec<u8> {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.wire().to_vec()
}

// requirement: rfc5041-3-7, rfc5044-4.4-1, rfc5044-4.4-8
#[test]
fn rfc5044_4_4_crc_vectors() {
    assert_eq!(crc_of(&[0; 32]), hex("aa 36 91 8a"));
    assert_eq!(crc_of(&[0xFF; 32]), hex("43 ab a8 62"));
    assert_eq!(crc_of(&(0..32).collect::<Vec<u8>>()), hex("4e 79 dd 46"));
    assert_eq!(crc_of(b"123456789"), hex("83 92 06 e3"));
}

#[test]
fn both_ways_to_compute_agree_however_the_bytes_are_cut() {
    let bytes: Vec<u8> =
        (0..20_000_usize).map(|at| (at.wrapping_mul(0x9E37) >> 7).to_le_bytes()[0]).collect();
    let due = crc32c::crc32c(&bytes).to_le_bytes();
    for cut in [1, 2, 20, WIDE_MIN - 1, WIDE_MIN, WIDE_MIN + 1, 1448, 7777, 20_000] {
        let mut crc = Crc::new();
        for part in bytes.chunks(cut) {
            crc.update(part);
        }
        assert_eq!(crc.wire(), due, "{cut}");
    }
}

// requirement: rfc5044-3-1, rfc5044-4.1-1
#[test]
fn fpdu_examples() {
    for dump in [
        "00 17 41 43 00 00 00 00 00 00 00 00 00 00 00 01 00 00 00 00 68 65 6c 6c 6f 00 00 00 b9 90 b1 0c",
        "00 12 41 44 00 00 10 01 00 00 00 00 00 00 00 02 00 00 00 00 f0 69 73 74",
        "00 2e 41 41 00 00 00 00 00 00 00 01 00 00 00 01 00 00 00 00 00 00 22 22 00 00 00 00 00 00 10 00 00 00 10 00 \
         00 00 10 01 00 00 7f 00 00 00 10 00 4c 18 e5 06",
        "00 16 c1 40 00 00 20 01 00 00 7f 00 00 01 00 00 00 01 02 03 04 05 06 07 63 65 c0 b0",
        "00 26 41 47 00 00 00 00 00 00 00 02 00 00 00 01 00 00 00 00 11 00 c0 00 00 16 c1 40 00 00 20 01 00 00 7f 00 \
         00 01 00 00 23 61 40 3b",
    ] {
        let bytes = hex(dump);
        let view = FpduView::new(&bytes);
        assert_eq!(view.fpdu_len(), Some(bytes.len()));
        assert_eq!(view.crc_matches(), Some(true));
        assert_eq!(seal(view.ulpdu().unwrap(), true).unwrap(), bytes);
    }
}

#[test]
fn linux_fpdu_without_crc() {
    // NULL reply of the Linux server.
    let bytes = hex(
        "0046 4143 00000000 00000000 00000001 00000000 11223344 00000001 00000040 00000000 00000000 00000000 00000000 \
         11223344 00000001 00000000 00000000 00000000 00000000 00000000",
    );
    let view = FpduView::new(&bytes);
    assert_eq!(view.fpdu_len(), Some(bytes.len()));
    assert_eq!(seal(view.ulpdu().unwrap(), false).unwrap(), bytes);
}

// requirement: rfc5041-3-2, rfc5044-3-2, rfc5044-3-4, rfc5044-4.5-1, rfc5044-4.5-2, rfc5044-4.5-4, rfc5044-4.5-5
// requirement: rfc5044-5.1-1
#[test]
fn rfc5044_4_5_mulpdu() {
    assert_eq!(mulpdu(1448, false), 1448 - 6);
    assert_eq!(mulpdu(1459, false), 1459 - 6 - 3);
    assert_eq!(mulpdu(1460, true), 1460 - 6 - 12);
    assert_eq!(mulpdu(64776, false), 64776 - 6 - 2);
    // Never below 128, never beyond the limit of §3.
    assert_eq!([mulpdu(0, true), mulpdu(134, false), mulpdu(140, false)], [128, 128, 134]);
    assert_eq!([mulpdu(64772, false), mulpdu(65483, false), mulpdu(1 << 20, false)], [64766, 64768, 64768]);
}

proptest! {
    #[test]
    fn an_fpdu_is_a_multiple_of_four_and_flips_are_seen(ulpdu in proptest::collection::vec(any::<u8>(), 0..300), flip: usize) {
        let mut bytes = seal(&ulpdu, true).unwrap();
        prop_assert_eq!(bytes.len() % 4, 0);
        prop_assert_eq!(bytes.len(), fpdu_len(ulpdu.len()));
        prop_assert_eq!(FpduView::new(&bytes).ulpdu(), Some(&ulpdu[..]));
        let bit = 16 + flip % ((bytes.len() - 2) * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(FpduView::new(&bytes).crc_matches(), Some(false));
    }

    #[test]
    fn mulpdu_fits_the_segment(emss in 200_usize..65_000, markers: bool) {
        let ulpdu = mulpdu(emss, markers);
        let fpdu = fpdu_len(ulpdu);
        let marker_bytes = if markers { 4 * emss.div_ceil(512) } else { 0 };
        prop_assert!(ulpdu == MIN_MULPDU || fpdu + marker_bytes <= emss);
    }
}
