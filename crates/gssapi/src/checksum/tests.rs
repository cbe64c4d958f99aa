use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use crate::derivation::tests::bytes;

const MESSAGE: &[u8] = b"a message on trial";

/// Some key of a type.
fn key(kind: EncryptionType) -> Vec<u8> {
    (0_u8..).map(|place| place.wrapping_mul(37) ^ kind as u8).take(kind.key_len()).collect()
}

/// A token as the library of one side makes it.
fn library_token(kind: EncryptionType, role: Role, extra: u8, number: u64) -> Vec<u8> {
    let keyed = Keyed::new(kind, &kind.checksum_key(&key(kind), role.sign_usage()).unwrap()).unwrap();
    let header = Header { flags: role.flag() | extra, number }.to_bytes();
    let mut token = header.to_vec();
    keyed.append(&[MESSAGE], &header, kind.checksum_len(), &mut token);
    token
}

fn side(kind: EncryptionType, role: Role, subkey: u8, number: u64) -> Checksums {
    let token = library_token(kind, role, subkey, number);
    Checksums::from_trial(kind, &key(kind), role, MESSAGE, &token).unwrap()
}

/// Both sides of a context with a subkey of the acceptor.
fn sides(kind: EncryptionType) -> [Checksums; 2] {
    [Role::Initiator, Role::Acceptor].map(|role| side(kind, role, flags::ACCEPTOR_SUBKEY, 5))
}

fn number(token: &[u8]) -> u64 {
    parse(token).unwrap().0.number
}

/// RFC 8009 appendix A; for the types of RFC 3962, the tests of MIT Kerberos. These messages have no header.
#[test]
fn checksums_are_those_of_rfc_8009_and_of_mit_kerberos() {
    let counted: Vec<u8> = (0..21).collect();
    for (kind, key, usage, message, sum) in [
        (
            EncryptionType::Aes128Sha1,
            "9062430c8cda3388922e6d6a509f5b7a",
            3,
            b"eight nine ten eleven twelve thirteen".to_vec(),
            "01a4b088d45628f6946614e3",
        ),
        (
            EncryptionType::Aes256Sha1,
            "b1ae4cd8462aff1677053cc9279aac30b796fb81ce21474dd3ddbcfea4ec76d7",
            4,
            b"fourteen".to_vec(),
            "e08739e3279e2903ec8e3836",
        ),
        (
            EncryptionType::Aes128Sha256,
            "3705d96080c17728a0e800eab6e0d23c",
            2,
            counted.clone(),
            "d78367186643d67b411cba9139fc1dee",
        ),
        (
            EncryptionType::Aes256Sha384,
            "6d404d37faf79f9df0d33568d320669800eb4836472ea8a026d16b7182460c52",
            2,
            counted.clone(),
            "45ee791567eefca37f4ac1e0222de80d43c3bfa06699672a",
        ),
    ] {
        let keyed = Keyed::new(kind, &kind.checksum_key(&bytes(key), usage).unwrap()).unwrap();
        let mut got = Vec::new();
        keyed.append(&[&message], &[], kind.checksum_len(), &mut got);
        assert_eq!(got, bytes(sum), "{kind:?}");
        assert!(keyed.is_right(&[&message], &[], &got));
    }
}

#[test]
fn rfc4121_4_2_6_1_a_token_has_id_flags_filler_number_and_checksum() {
    for kind in EncryptionType::ALL {
        let [initiator, acceptor] = sides(kind);
        let token = initiator.mic(&[b"message"]);
        assert_eq!(token[..8], [4, 4, 4, 0xff, 0xff, 0xff, 0xff, 0xff], "{kind:?}");
        assert_eq!(token[8..16], 6_u64.to_be_bytes(), "the number behind that of the trial");
        assert_eq!(token.len(), 16 + kind.checksum_len());
        assert_eq!(number(&initiator.mic(&[b"message"])), 7);
        assert_eq!(acceptor.mic(&[b"message"])[2], 5, "the acceptor says that it sent the token");
    }
}

#[test]
fn each_side_accepts_the_others_tokens_only() {
    for kind in EncryptionType::ALL {
        let [initiator, acceptor] = sides(kind);
        let (there, back) = (initiator.mic(&[MESSAGE]), acceptor.mic(&[MESSAGE]));
        assert_eq!(acceptor.verify(&[MESSAGE], &there), Ok(()), "{kind:?}");
        assert_eq!(initiator.verify(&[MESSAGE], &back), Ok(()), "{kind:?}");
        assert_eq!(acceptor.verify(&[MESSAGE], &back), Err(Refused::Checksum), "reflected");
        assert_eq!(initiator.verify(&[MESSAGE], &there), Err(Refused::Checksum), "reflected");
        assert_eq!(initiator.verify(&[MESSAGE], &initiator.peers_mic(MESSAGE)), Ok(()));
        assert_eq!(acceptor.verify(&[b"another"], &there), Err(Refused::Checksum));
        // RFC 4121 §2: each direction has a key of its own, so another flag alone makes no token of the other direction.
        let mut turned = there.to_vec();
        turned[2] ^= flags::SENT_BY_ACCEPTOR;
        assert_eq!(initiator.verify(&[MESSAGE], &turned), Err(Refused::Checksum));
    }
}

#[test]
fn each_changed_bit_is_noticed() {
    for kind in EncryptionType::ALL {
        let [initiator, acceptor] = sides(kind);
        let token = initiator.mic(&[MESSAGE]);
        for bit in 0..token.len() * 8 {
            let mut changed = token.to_vec();
            changed[bit / 8] ^= 1 << (bit % 8);
            let expected = match bit {
                16 | 18 => Refused::Checksum,
                17 => Refused::Defective,
                0..16 | 24..64 => Refused::Defective,
                _ => Refused::Checksum,
            };
            assert_eq!(acceptor.verify(&[MESSAGE], &changed), Err(expected), "{kind:?}, bit {bit}");
        }
        for bit in 0..MESSAGE.len() * 8 {
            let mut changed = MESSAGE.to_vec();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(acceptor.verify(&[&changed], &token), Err(Refused::Checksum), "{kind:?}, bit {bit}");
        }
    }
}

#[test]
fn a_token_of_another_length_is_refused() {
    for kind in EncryptionType::ALL {
        let [initiator, acceptor] = sides(kind);
        let mut token = initiator.mic(&[MESSAGE]).to_vec();
        for len in 0..token.len() {
            // A shorter checksum would be easier to guess.
            assert_eq!(
                acceptor.verify(&[MESSAGE], &token[..len]),
                Err(Refused::Defective),
                "{kind:?}, {len}"
            );
        }
        token.push(0);
        assert_eq!(acceptor.verify(&[MESSAGE], &token), Err(Refused::Defective), "{kind:?}");
    }
}

/// RFC 4121 §4.2.2: receivers ignore flags that they do not know.
#[test]
fn rfc4121_4_2_2_unknown_flags_are_ignored_and_covered() {
    for kind in EncryptionType::ALL {
        let [_, acceptor] = sides(kind);
        let token = library_token(kind, Role::Initiator, flags::ACCEPTOR_SUBKEY | 0xf8, 9);
        assert_eq!(acceptor.verify(&[MESSAGE], &token), Ok(()), "{kind:?}");
    }
}

#[test]
fn a_context_without_a_subkey_of_the_acceptor_has_no_flag() {
    let kind = EncryptionType::Aes256Sha1;
    let initiator = side(kind, Role::Initiator, 0, u64::MAX);
    let token = initiator.mic(&[MESSAGE]);
    assert_eq!((token[2], number(&token)), (0, 0), "numbers begin anew");
    assert_eq!(side(kind, Role::Acceptor, 0, 1).verify(&[MESSAGE], &token), Ok(()));
    assert_eq!(sides(kind)[1].verify(&[MESSAGE], &token), Err(Refused::Checksum));
}

#[test]
fn a_trial_that_differs_in_anything_fails() {
    for kind in EncryptionType::ALL {
        let token = library_token(kind, Role::Initiator, 0, 5);
        let trial = |key: &[u8], role, message: &[u8], token: &[u8]| {
            Checksums::from_trial(kind, key, role, message, token).is_some()
        };
        assert!(trial(&key(kind), Role::Initiator, MESSAGE, &token));
        assert!(!trial(&key(kind), Role::Acceptor, MESSAGE, &token), "the other role");
        assert!(!trial(&key(kind), Role::Initiator, b"another", &token), "another message");
        let mut other = key(kind);
        other[3] ^= 1;
        assert!(!trial(&other, Role::Initiator, MESSAGE, &token), "another key");
        assert!(!trial(&other[1..], Role::Initiator, MESSAGE, &token), "a short key");
        assert!(!trial(&key(kind), Role::Initiator, MESSAGE, b"no token"));
        for bit in 0..token.len() * 8 {
            let mut changed = token.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!trial(&key(kind), Role::Initiator, MESSAGE, &changed), "{kind:?}, bit {bit}");
        }
    }
    let token = library_token(EncryptionType::Aes128Sha1, Role::Initiator, 0, 5);
    let kind = EncryptionType::Aes128Sha256;
    assert!(Checksums::from_trial(kind, &key(kind), Role::Initiator, MESSAGE, &token).is_none());
}

#[test]
fn threads_share_a_context_and_no_number_comes_twice() {
    let kind = EncryptionType::Aes256Sha1;
    let [initiator, acceptor] = sides(kind);
    let tokens: Vec<Bytes> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| (0..200).map(|_| initiator.mic(&[MESSAGE])).collect::<Vec<_>>()))
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let numbers: HashSet<u64> = tokens.iter().map(|token| number(token)).collect();
    assert_eq!(numbers.len(), 800);
    assert!(tokens.iter().all(|token| acceptor.verify(&[MESSAGE], token).is_ok()));
}

/// Cuts a message at these places.
fn cut<'a>(message: &'a [u8], places: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = places.iter().map(|place| place.index(message.len() + 1)).collect();
    places.sort_unstable();
    let ends = places.iter().copied().chain([message.len()]);
    let starts = [0].into_iter().chain(places.iter().copied());
    starts.zip(ends).map(|(start, end)| &message[start..end]).collect()
}

proptest! {
    #[test]
    fn every_cut_of_a_message_has_the_same_token(
        message in prop::collection::vec(any::<u8>(), 0..1000),
        made in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        checked in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        kind in prop::sample::select(EncryptionType::ALL.to_vec()),
    ) {
        let [initiator, acceptor] = sides(kind);
        let token = initiator.mic(&cut(&message, &made));
        prop_assert_eq!(&initiator.token(Role::Initiator, number(&token), &[&message]), &token);
        prop_assert_eq!(acceptor.verify(&cut(&message, &checked), &token), Ok(()));
    }

    #[test]
    fn no_other_bytes_are_a_token(
        kind in prop::sample::select(EncryptionType::ALL.to_vec()),
        token in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let [initiator, acceptor] = sides(kind);
        prop_assert!(initiator.verify(&[MESSAGE], &token).is_err());
        prop_assert!(acceptor.verify(&[MESSAGE], &token).is_err());
    }
}
