use proptest::prelude::*;

use super::*;

/// With it, the length of what is rotated is odd for each type. So no power of two is a multiple of it.
const TEXT: &[u8] = b"twenty-three bytes here";
const CONFOUNDER: [u8; BLOCK_LEN] = *b"random confusion";

/// Some key of a type.
fn key(kind: EncryptionType) -> Vec<u8> {
    (0_u8..).map(|place| place.wrapping_mul(43) ^ kind as u8).take(kind.key_len()).collect()
}

fn side(kind: EncryptionType, role: Role, subkey: u8) -> Privacy {
    Privacy::new(kind, &key(kind), role, subkey).unwrap()
}

/// Both sides of a context with a subkey of the acceptor.
fn sides(kind: EncryptionType) -> [Privacy; 2] {
    [Role::Initiator, Role::Acceptor].map(|role| side(kind, role, flags::ACCEPTOR_SUBKEY))
}

/// A header of the initiator.
fn header(extra: u16) -> Header {
    Header { flags: flags::SEALED | flags::ACCEPTOR_SUBKEY, extra, number: 0x0102_0304_0506_0708 }
}

/// Rotates a token as its peer may.
fn rotated(token: &[u8], places: u16) -> Vec<u8> {
    let mut token = token.to_vec();
    let (header, sealed) = token.split_at_mut(HEADER_LEN);
    header[6..8].copy_from_slice(&places.to_be_bytes());
    sealed.rotate_right(usize::from(places) % sealed.len());
    token
}

fn with_extra(mut token: Vec<u8>, extra: u16) -> Vec<u8> {
    token[4..6].copy_from_slice(&extra.to_be_bytes());
    token
}

#[test]
fn rfc4121_4_2_6_2_a_token_has_id_flags_filler_counts_number_and_the_encrypted_message() {
    for kind in EncryptionType::ALL {
        let [initiator, acceptor] = sides(kind);
        let token = initiator.wrap(0x0102_0304_0506_0708, &[TEXT]).unwrap();
        assert_eq!(token[..HEADER_LEN], [5, 4, 6, 0xff, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8], "{kind:?}");
        assert_eq!(token.len(), 16 + 16 + TEXT.len() + 16 + kind.checksum_len());
        let message = acceptor.peer.open(&token[HEADER_LEN..]).unwrap();
        let (text, copy) = message[BLOCK_LEN..].split_at(TEXT.len());
        assert_eq!((text, copy), (TEXT, &token[..HEADER_LEN]));
        assert_eq!(acceptor.wrap(0, &[TEXT]).unwrap()[2], 7, "the acceptor says that it sent the token");
        assert_eq!(side(kind, Role::Initiator, 0).wrap(0, &[TEXT]).unwrap()[2], 2);
    }
}

#[test]
fn a_text_is_never_encrypted_in_the_same_way_twice() {
    let [initiator, _] = sides(EncryptionType::Aes256Sha1);
    let [one, other] = [0; 2].map(|number| initiator.wrap(number, &[TEXT]).unwrap());
    assert_eq!(one[..HEADER_LEN], other[..HEADER_LEN]);
    let same = one[HEADER_LEN..].iter().zip(&other[HEADER_LEN..]).filter(|(one, other)| one == other).count();
    assert!(same < 16, "{same} bytes are equal");
}

#[test]
fn each_side_accepts_the_others_tokens_only() {
    for kind in EncryptionType::ALL {
        let [initiator, acceptor] = sides(kind);
        let (there, back) = (initiator.wrap(3, &[TEXT]).unwrap(), acceptor.wrap(4, &[TEXT]).unwrap());
        assert_eq!(acceptor.unwrap(&there).unwrap(), TEXT, "{kind:?}");
        assert_eq!(initiator.unwrap(&back).unwrap(), TEXT, "{kind:?}");
        assert_eq!(acceptor.unwrap(&back), Err(Refused::Checksum), "reflected");
        assert_eq!(initiator.unwrap(&there), Err(Refused::Checksum), "reflected");
        // RFC 4121 §2: each direction has keys of its own, so another flag alone makes no token of the other direction.
        let mut turned = there.to_vec();
        turned[2] ^= flags::SENT_BY_ACCEPTOR;
        assert_eq!(initiator.unwrap(&turned), Err(Refused::Checksum));
        assert_eq!(side(kind, Role::Acceptor, 0).unwrap(&there), Err(Refused::Checksum), "another key");
    }
}

#[test]
fn each_changed_bit_is_noticed() {
    for kind in EncryptionType::ALL {
        let [initiator, acceptor] = sides(kind);
        let token = initiator.wrap(5, &[TEXT]).unwrap();
        for bit in 0..token.len() * 8 {
            let mut changed = token.to_vec();
            changed[bit / 8] ^= 1 << (bit % 8);
            let expected = match bit {
                16 | 18 => Refused::Checksum,
                17 => Refused::NotEncrypted,
                // A rotation that was none.
                48..64 => Refused::Checksum,
                0..128 => Refused::Defective,
                _ => Refused::Checksum,
            };
            assert_eq!(acceptor.unwrap(&changed), Err(expected), "{kind:?}, bit {bit}");
        }
    }
}

#[test]
fn a_token_of_another_length_is_refused() {
    for kind in EncryptionType::ALL {
        let [initiator, acceptor] = sides(kind);
        let mut token = initiator.wrap(5, &[TEXT]).unwrap().to_vec();
        for len in 0..token.len() {
            let expected = if len < HEADER_LEN { Refused::Defective } else { Refused::Checksum };
            assert_eq!(acceptor.unwrap(&token[..len]), Err(expected), "{kind:?}, {len}");
        }
        token.push(0);
        assert_eq!(acceptor.unwrap(&token), Err(Refused::Checksum), "{kind:?}");
    }
}

/// RFC 4121 §4.2.2: receivers ignore flags that they do not know.
#[test]
fn rfc4121_4_2_2_unknown_flags_are_ignored_and_covered() {
    for kind in EncryptionType::ALL {
        let [initiator, acceptor] = sides(kind);
        let unknown = Header { flags: header(0).flags | 0xf8, ..header(0) };
        let mut token = initiator.token(&unknown, 0, &CONFOUNDER, &[TEXT]);
        assert_eq!(acceptor.unwrap(&token).unwrap(), TEXT, "{kind:?}");
        token[2] ^= 0x80;
        assert_eq!(acceptor.unwrap(&token), Err(Refused::Defective), "{kind:?}");
    }
}

/// RFC 4121 §4.2.5: receivers understand all counts, also those that are greater than the length of the token. §4.2.4: the copy
/// has the count 0.
#[test]
fn rfc4121_4_2_5_every_rotation_is_undone() {
    for kind in EncryptionType::ALL {
        let [initiator, acceptor] = sides(kind);
        let token = initiator.wrap(5, &[TEXT]).unwrap();
        // 28 is what Windows sends with SHA-1.
        for places in (0..=2 * 100).chain([28, 0x7fff, 0x8000, u16::MAX]) {
            let rotated = rotated(&token, places);
            let same = initiator.token(&header(0), places, &CONFOUNDER, &[TEXT]);
            let message = acceptor.peer.open(&same[HEADER_LEN..]).unwrap();
            assert_eq!(
                (&same[6..8], &message[message.len() - 10..][..2]),
                (&places.to_be_bytes()[..], &[0; 2][..])
            );
            assert_eq!(acceptor.unwrap(&rotated).unwrap(), TEXT, "{kind:?}, {places}");
            // Another count than that of the rotation.
            let mut lie = rotated;
            lie[7] ^= 1;
            assert_eq!(acceptor.unwrap(&lie), Err(Refused::Checksum), "{kind:?}, {places}");
        }
        // A peer that writes the count into the copy, too.
        let mut copied = initiator.token(&header(0), 28, &CONFOUNDER, &[TEXT]);
        copied.truncate(HEADER_LEN);
        initiator.own.seal(&CONFOUNDER, &[TEXT, &header(0).to_bytes(28)], &mut copied);
        copied[HEADER_LEN..].rotate_right(28);
        assert_eq!(acceptor.unwrap(&copied).unwrap(), TEXT, "{kind:?}");
    }
}

/// RFC 4121 §4.2.3: the Extra Count is that of the fill bytes, which are no part of the text.
#[test]
fn rfc4121_4_2_3_fill_bytes_are_cut_off() {
    for kind in EncryptionType::ALL {
        let [initiator, acceptor] = sides(kind);
        for extra in [0, 1, 15, 16, 17, 40, u16::MAX] {
            let fill = vec![9; extra.into()];
            for text in [TEXT, b""] {
                let token = initiator.token(&header(extra), 0, &CONFOUNDER, &[text, &fill]);
                assert_eq!(acceptor.unwrap(&token).unwrap(), text, "{kind:?}, {extra}");
                assert_eq!(acceptor.unwrap(&rotated(&token, 28)).unwrap(), text, "{kind:?}, {extra}");
                // Somebody who has no key claims more or fewer.
                for lie in [extra ^ 1, extra ^ 4, 0, 1, u16::MAX].into_iter().filter(|lie| *lie != extra) {
                    let lie = with_extra(token.clone(), lie);
                    assert_eq!(acceptor.unwrap(&lie), Err(Refused::Defective), "{kind:?}, {extra}");
                }
            }
        }
        // The peer itself claims more than it sent.
        for lie in [24, 100, u16::MAX] {
            let token = initiator.token(&header(lie), 0, &CONFOUNDER, &[TEXT]);
            assert_eq!(acceptor.unwrap(&token), Err(Refused::Defective), "{kind:?}, {lie}");
        }
    }
}

/// RFC 4121 §4.2.4: the header has no protection but its copy.
#[test]
fn rfc4121_4_2_4_a_copy_that_is_no_copy_is_refused() {
    for kind in EncryptionType::ALL {
        let [initiator, acceptor] = sides(kind);
        for bit in (0..HEADER_LEN * 8).filter(|bit| !(48..64).contains(bit)) {
            let mut token = header(0).to_bytes(0).to_vec();
            let mut copy = header(0).to_bytes(0);
            copy[bit / 8] ^= 1 << (bit % 8);
            initiator.own.seal(&CONFOUNDER, &[TEXT, &copy], &mut token);
            assert_eq!(acceptor.unwrap(&token), Err(Refused::Defective), "{kind:?}, bit {bit}");
        }
        // Nor is a message that is too short for one.
        let mut token = header(0).to_bytes(0).to_vec();
        initiator.own.seal(&CONFOUNDER, &[&TEXT[..15]], &mut token);
        assert_eq!(acceptor.unwrap(&token), Err(Refused::Defective), "{kind:?}");
    }
}

/// A key with a wrong length has no type.
#[test]
fn a_key_of_another_length_is_none() {
    for kind in EncryptionType::ALL {
        assert!(Privacy::new(kind, &key(kind)[1..], Role::Initiator, 0).is_none(), "{kind:?}");
        let lent = side(kind, Role::Initiator, 0);
        assert_eq!(format!("{lent:?}"), format!("{kind:?}"), "no key is shown");
    }
}

proptest! {
    #[test]
    fn texts_come_back(
        text in prop::collection::vec(any::<u8>(), 0..2000),
        at in any::<prop::sample::Index>(),
        number in any::<u64>(),
        places in any::<u16>(),
        extra in 0..100_u16,
        kind in prop::sample::select(EncryptionType::ALL.to_vec()),
    ) {
        let [initiator, acceptor] = sides(kind);
        let (front, back) = text.split_at(at.index(text.len() + 1));
        let token = acceptor.wrap(number, &[front, back]).unwrap();
        prop_assert_eq!(&initiator.unwrap(&rotated(&token, places)).unwrap()[..], &text[..]);
        let fill = vec![0xff; extra.into()];
        let token = initiator.token(&header(extra), 0, &CONFOUNDER, &[front, back, &fill]);
        prop_assert_eq!(&acceptor.unwrap(&rotated(&token, places)).unwrap()[..], &text[..]);
    }

    #[test]
    fn no_other_bytes_are_a_token(
        kind in prop::sample::select(EncryptionType::ALL.to_vec()),
        flags in 0..8_u8,
        rest in prop::collection::vec(any::<u8>(), 0..200),
        plausible in any::<bool>(),
        extra in prop_oneof![Just(0_u16), any::<u16>()],
    ) {
        let [initiator, acceptor] = sides(kind);
        let mut token = rest;
        if plausible {
            let [high, low] = extra.to_be_bytes();
            token.splice(0..0, [5, 4, flags, 0xff, high, low]);
        }
        prop_assert!(initiator.unwrap(&token).is_err());
        prop_assert!(acceptor.unwrap(&token).is_err());
    }

    /// Any change of bytes of a token, and not only of one bit. A changed rotation may be the same one.
    #[test]
    fn a_changed_token_is_refused_or_has_the_same_text(
        kind in prop::sample::select(EncryptionType::ALL.to_vec()),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        at_header in any::<bool>(),
    ) {
        let [initiator, acceptor] = sides(kind);
        let mut token = initiator.token(&header(0), 0, &CONFOUNDER, &[TEXT]);
        let len = if at_header { HEADER_LEN } else { token.len() };
        changes.iter().for_each(|(at, byte)| token[at.index(len)] = *byte);
        if let Ok(text) = acceptor.unwrap(&token) {
            prop_assert_eq!(text, TEXT);
        }
    }
}
