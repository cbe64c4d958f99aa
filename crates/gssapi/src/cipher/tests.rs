use proptest::prelude::*;

use super::*;
use crate::derivation::tests::bytes;

/// Lengths of texts around the ends of blocks, strides and pieces.
const LENGTHS: [usize; 16] =
    [0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, PIECE - 16, PIECE, PIECE + 1, 3 * PIECE + 47, 65_536];

/// Some key of a type.
fn key(kind: EncryptionType) -> Vec<u8> {
    (0_u8..).map(|place| place.wrapping_mul(41) ^ kind as u8).take(kind.key_len()).collect()
}

fn text(len: usize) -> Vec<u8> {
    (0..251_u8).cycle().take(len).collect()
}

fn sealed(seal: &dyn Seal, message: &[u8]) -> Vec<u8> {
    let (confounder, text) = message.split_first_chunk().unwrap();
    let mut sealed = Vec::new();
    seal.seal(confounder, &[text], &mut sealed);
    sealed
}

/// RFC 3962 appendix B.
#[test]
fn rfc3962_b_ciphertext_stealing() {
    let text = b"I would like the General Gau's Chicken, please, and wonton soup.";
    let (kind, key) = (EncryptionType::Aes128Sha1, b"chicken teriyaki");
    let encryption = Keyed::<Aes128Enc, Hmac<Sha1>>::new(kind, key, b"any").unwrap();
    let decryption = Keyed::<Aes128Dec, Hmac<Sha1>>::new(kind, key, b"any").unwrap();
    for (len, ciphertext) in [
        (17, "c6353568f2bf8cb4d8a580362da7ff7f 97"),
        (31, "fc00783e0efdb2c1d445d4c8eff7ed22 97687268d6ecccc0c07b25e25ecfe5"),
        (32, "39312523a78662d5be7fcbcc98ebf5a8 97687268d6ecccc0c07b25e25ecfe584"),
        (
            47,
            "97687268d6ecccc0c07b25e25ecfe584 b3fffd940c16a18c1b5549d2f838029e 39312523a78662d5be7fcbcc98ebf5",
        ),
        (
            48,
            "97687268d6ecccc0c07b25e25ecfe584 9dad8bbb96c4cdc03bc103e1a194bbd8 39312523a78662d5be7fcbcc98ebf5a8",
        ),
        (
            64,
            "97687268d6ecccc0c07b25e25ecfe584 39312523a78662d5be7fcbcc98ebf5a8 \
             4807efe836ee89a526730dbc2f7bc840 9dad8bbb96c4cdc03bc103e1a194bbd8",
        ),
    ] {
        let got = sealed(&encryption, &text[..len]);
        assert_eq!(got[..len], bytes(ciphertext), "{len}");
        assert_eq!(decryption.open(&got).unwrap(), text[..len]);
    }
}

/// RFC 8009 appendix A, sample encryptions.
#[test]
fn rfc8009_a_sample_encryptions() {
    let counted: Vec<u8> = (0..21).collect();
    let keys = [
        (EncryptionType::Aes128Sha256, "3705d96080c17728a0e800eab6e0d23c"),
        (EncryptionType::Aes256Sha384, "6d404d37faf79f9df0d33568d320669800eb4836472ea8a026d16b7182460c52"),
    ];
    let samples = [
        (
            0,
            "7e5895eaf2672435bad817f545a37148",
            "ef85fb890bb8472f4dab20394dca781d ad877eda39d50c870c0d5a0a8e48c718",
        ),
        (
            6,
            "7bca285e2fd4130fb55b1a5c83bc5b24",
            "84d7f30754ed987bab0bf3506beb09cf b55402cef7e6 877ce99e247e52d16ed4421dfdf8976c",
        ),
        (
            16,
            "56ab21713ff62c0a1457200f6fa9948f",
            "3517d640f50ddc8ad3628722b3569d2a e07493fa8263254080ea65c1008e8fc2 95fb4852e7d83e1e7c48c37eebe6b0d3",
        ),
        (
            21,
            "a7a4e29a4728ce10664fb64e49ad3fac",
            "720f73b18d9859cd6ccb4346115cd336 c70f58edc0c4437c5573544c31c813bc e1e6d072c1 \
             86b39a413c2f92ca9b8334a287ffcbfc",
        ),
        (
            0,
            "f764e9fa15c276478b2c7d0c4e5f58e4",
            "41f53fa5bfe7026d91faf9be959195a0 58707273a96a40f0a01960621ac61274 8b9bbfbe7eb4ce3c",
        ),
        (
            6,
            "b80d3251c1f6471494256ffe712d0b9a",
            "4ed7b37c2bcac8f74f23c1cf07e62bc7 b75fb3f637b9 f559c7f664f69eab7b6092237526ea0d1f61cb20d69d10f2",
        ),
        (
            16,
            "53bf8a0d105265d4e276428624ce5e63",
            "bc47ffec7998eb91e8115cf8d19dac4b bbe2e163e87dd37f49beca92027764f6 \
             8cf51f14d798c2273f35df574d1f932e40c4ff255b36a266",
        ),
        (
            21,
            "763e65367e864f02f55153c7e3b58af1",
            "40013e2df58e8751957d2878bcd2d6fe 101ccfd556cb1eae79db3c3ee86429f2 b2a602ac86 \
             fef6ecb647d6295fae077a1feb517508d2c16b4192e01f62",
        ),
    ];
    for (number, (len, confounder, ciphertext)) in samples.into_iter().enumerate() {
        let (kind, key) = keys[number / 4];
        let message = [bytes(confounder), counted[..len].to_vec()].concat();
        let got = sealed(&*sealing(kind, &bytes(key), 2).unwrap(), &message);
        assert_eq!(got, bytes(ciphertext), "{kind:?}, {len}");
        assert_eq!(opening(kind, &bytes(key), 2).unwrap().open(&got).unwrap(), message);
    }
}

/// No document has such vectors for the types 17 and 18. These are from the tests of MIT Kerberos.
#[test]
fn encryption_with_sha1_is_that_of_mit_kerberos() {
    for (kind, key, usage, text, ciphertext) in [
        (
            EncryptionType::Aes128Sha1,
            "5a5c0f0ba54f3828b2195e66ca24a289",
            0,
            "",
            "49ff8e11c173d9583a3254fbe7b1f1df36c538e8416784a1672e6676",
        ),
        (
            EncryptionType::Aes128Sha1,
            "98450e3f3baa13f5c99beb936981b06f",
            1,
            "1",
            "f86742f537b35dc2174a4dbaa920faf9042090b065e1ebb1cad9a65394",
        ),
        (
            EncryptionType::Aes128Sha1,
            "dceeb70b3de76562e689226c76429148",
            4,
            "30 bytes bytes bytes bytes byt",
            "c96081032d5d8eeb7e32b4089f789d0faa481dea74c0f97cbf3146ddfcf8e800156ecb532fc203e30ff600b63b350939fece510f02d7ff1e7bac",
        ),
        (
            EncryptionType::Aes256Sha1,
            "17f275f2954f2ed1f90c377ba7f4d6a369aa0136e0bf0c927ad6133c693759a9",
            0,
            "",
            "e5094c55ee7b38262e2b044280b069379a95bf95bd8376fb3281b435",
        ),
        (
            EncryptionType::Aes256Sha1,
            "e5a72be9b7926c1225bafef9c1872e7ba4cdb2b17893d84abd90acdd8764d966",
            3,
            "13 bytes byte",
            "d8f1aafeec84587cc3e700a774e56651a6d693e174ec4473b5e6d96f80297a653fb818ad893e719f96",
        ),
        (
            EncryptionType::Aes256Sha1,
            "f1c795e9248a09338d82c3f8d5b567040b0110736845041347235b1404231398",
            4,
            "30 bytes bytes bytes bytes byt",
            "d1137a4d634cfece924dbc3bf6790648bd5cff7de0e7b99460211d0daef3d79a295c688858f3b34b9cbd6eebae81daf6b734d4d498b6714f1c1d",
        ),
    ] {
        let message = opening(kind, &bytes(key), usage).unwrap().open(&bytes(ciphertext)).unwrap();
        assert_eq!(message[BLOCK_LEN..], *text.as_bytes(), "{kind:?}");
        assert_eq!(sealed(&*sealing(kind, &bytes(key), usage).unwrap(), &message), bytes(ciphertext));
    }
}

/// CBC mode block by block, then the exchange: the other way to compute it.
fn by_the_book<C: KeyInit + BlockCipherEncrypt<BlockSize = U16>>(key: &[u8], message: &[u8]) -> Vec<u8> {
    let cipher = C::new_from_slice(key).unwrap();
    let mut last = [0; BLOCK_LEN];
    let mut blocks: Vec<[u8; BLOCK_LEN]> = Vec::new();
    for part in message.chunks(BLOCK_LEN) {
        let mut block = [0; BLOCK_LEN];
        block[..part.len()].copy_from_slice(part);
        (0..BLOCK_LEN).for_each(|at| block[at] ^= last[at]);
        let mut encrypted: Block = Array(block);
        cipher.encrypt_block(&mut encrypted);
        last = encrypted.0;
        blocks.push(last);
    }
    if let [.., before, end] = &mut blocks[..] {
        std::mem::swap(before, end);
    }
    let mut ciphertext = blocks.concat();
    ciphertext.truncate(message.len());
    ciphertext
}

#[test]
fn messages_of_all_lengths_are_encrypted_by_the_book() {
    for kind in EncryptionType::ALL {
        let (seal, open) = (sealing(kind, &key(kind), 22).unwrap(), opening(kind, &key(kind), 22).unwrap());
        let (encryption, _) = kind.encryption_keys(&key(kind), 22).unwrap();
        let ends = (0..=2 * stride(kind)).chain(PIECE - 40..PIECE + 40).chain(LENGTHS);
        for len in ends.map(|len| len + BLOCK_LEN) {
            let message = text(len);
            let expected = match kind.key_len() {
                16 => by_the_book::<Aes128Enc>(&encryption, &message),
                _ => by_the_book::<Aes256Enc>(&encryption, &message),
            };
            let got = sealed(&*seal, &message);
            assert!(got[..len] == expected, "{kind:?}, {len}");
            assert_eq!(got.len(), len + kind.checksum_len());
            assert!(open.open(&got).unwrap() == message, "{kind:?}, {len}");
        }
    }
}

#[test]
fn what_stands_before_in_the_token_stays() {
    let kind = EncryptionType::Aes256Sha384;
    let seal = sealing(kind, &key(kind), 22).unwrap();
    let mut token = b"header".to_vec();
    seal.seal(&[3; BLOCK_LEN], &[b"text"], &mut token);
    assert_eq!(token[..6], *b"header");
    assert_eq!(token[6..], sealed(&*seal, &[&[3; BLOCK_LEN][..], b"text"].concat()));
}

#[test]
fn each_changed_bit_and_each_other_length_is_noticed() {
    for kind in EncryptionType::ALL {
        let (seal, open) = (sealing(kind, &key(kind), 22).unwrap(), opening(kind, &key(kind), 22).unwrap());
        for len in [16, 17, 32, 50] {
            let good = sealed(&*seal, &text(len));
            for bit in 0..good.len() * 8 {
                let mut changed = good.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(open.open(&changed), None, "{kind:?}, {len}, bit {bit}");
            }
            for len in 0..good.len() {
                assert_eq!(open.open(&good[..len]), None, "{kind:?}, {len}");
            }
            assert_eq!(open.open(&[&good[..], &[0]].concat()), None);
            assert!(open.open(&good).is_some());
        }
    }
}

#[test]
fn another_key_or_usage_opens_nothing() {
    for kind in EncryptionType::ALL {
        let good = sealed(&*sealing(kind, &key(kind), 22).unwrap(), &text(40));
        assert_eq!(opening(kind, &key(kind), 24).unwrap().open(&good), None, "{kind:?}");
        let mut other = key(kind);
        other[5] ^= 1;
        assert_eq!(opening(kind, &other, 22).unwrap().open(&good), None, "{kind:?}");
        assert!(sealing(kind, &other[1..], 22).is_none() && opening(kind, &other[1..], 22).is_none());
    }
}

proptest! {
    #[test]
    fn every_cut_of_a_text_has_the_same_ciphertext(
        text in prop::collection::vec(any::<u8>(), 0..3 * PIECE),
        places in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        confounder in any::<[u8; BLOCK_LEN]>(),
        kind in prop::sample::select(EncryptionType::ALL.to_vec()),
    ) {
        let seal = sealing(kind, &key(kind), 24).unwrap();
        let mut places: Vec<usize> = places.iter().map(|place| place.index(text.len() + 1)).collect();
        places.sort_unstable();
        let ends = places.iter().copied().chain([text.len()]);
        let slices: Vec<&[u8]> =
            [0].into_iter().chain(places.iter().copied()).zip(ends).map(|(start, end)| &text[start..end]).collect();
        let mut got = Vec::new();
        seal.seal(&confounder, &slices, &mut got);
        let message = [&confounder[..], &text].concat();
        prop_assert_eq!(&got, &sealed(&*seal, &message));
        prop_assert_eq!(opening(kind, &key(kind), 24).unwrap().open(&got), Some(message));
    }

    #[test]
    fn no_other_bytes_open(
        kind in prop::sample::select(EncryptionType::ALL.to_vec()),
        sealed in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        prop_assert_eq!(opening(kind, &key(kind), 24).unwrap().open(&sealed), None);
    }
}
