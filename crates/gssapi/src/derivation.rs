//! Keys for checksums and encryption, from the key of a context: RFC 3961 with AES (RFC 3962), and RFC 8009.
//!
//! Keys are overwritten when they are dropped.

use aes::cipher::typenum::U16;
use aes::cipher::{BlockCipherEncrypt, BlockSizeUser};
use aes::{Aes128, Aes256};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Sha256, Sha384};
use zeroize::Zeroizing;

/// A key.
pub(crate) type Key = Zeroizing<Vec<u8>>;

/// Length of a block of AES, in bytes.
pub(crate) const BLOCK_LEN: usize = 16;

/// Last byte of the constant for a key: what the key is for (RFC 3961 §5.3, RFC 8009 §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// Kc.
    Checksum = 0x99,
    /// Ke.
    Encryption = 0xaa,
    /// Ki: checksums of encrypted messages.
    Integrity = 0x55,
}

/// Encryption types that this crate computes. The numbers are those of the registry of Kerberos.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EncryptionType {
    /// aes128-cts-hmac-sha1-96 (RFC 3962).
    Aes128Sha1 = 17,
    /// aes256-cts-hmac-sha1-96 (RFC 3962).
    Aes256Sha1 = 18,
    /// aes128-cts-hmac-sha256-128 (RFC 8009).
    Aes128Sha256 = 19,
    /// aes256-cts-hmac-sha384-192 (RFC 8009).
    Aes256Sha384 = 20,
}

impl EncryptionType {
    pub(crate) const ALL: [Self; 4] =
        [Self::Aes128Sha1, Self::Aes256Sha1, Self::Aes128Sha256, Self::Aes256Sha384];

    /// Finds the type with this number.
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u32 == number)
    }

    /// Length of a protocol key, in bytes.
    pub(crate) const fn key_len(self) -> usize {
        match self {
            Self::Aes128Sha1 | Self::Aes128Sha256 => 16,
            Self::Aes256Sha1 | Self::Aes256Sha384 => 32,
        }
    }

    /// Length of a checksum, in bytes (RFC 3962 §7, RFC 8009 §6).
    pub(crate) const fn checksum_len(self) -> usize {
        match self {
            Self::Aes128Sha1 | Self::Aes256Sha1 => 12,
            Self::Aes128Sha256 => 16,
            Self::Aes256Sha384 => 24,
        }
    }

    /// Returns the key of checksums, Kc, for a key usage. `None` if the key is none of this type.
    pub(crate) fn checksum_key(self, key: &[u8], usage: u32) -> Option<Key> {
        self.derived(key, usage, Purpose::Checksum)
    }

    /// Returns the keys of encryption, Ke, and of its checksum, Ki, for a key usage. `None` if the key is none of this type.
    pub(crate) fn encryption_keys(self, key: &[u8], usage: u32) -> Option<(Key, Key)> {
        Some((self.derived(key, usage, Purpose::Encryption)?, self.derived(key, usage, Purpose::Integrity)?))
    }

    fn derived(self, key: &[u8], usage: u32, purpose: Purpose) -> Option<Key> {
        if key.len() != self.key_len() {
            return None;
        }
        let [first, second, third, fourth] = usage.to_be_bytes();
        let constant = [first, second, third, fourth, purpose as u8];
        // RFC 8009 §5: keys of checksums are as long as checksums.
        let len = match purpose {
            Purpose::Encryption => self.key_len(),
            Purpose::Checksum | Purpose::Integrity => self.checksum_len(),
        };
        match self {
            Self::Aes128Sha1 => derive_aes::<Aes128>(key, &constant),
            Self::Aes256Sha1 => derive_aes::<Aes256>(key, &constant),
            Self::Aes128Sha256 => derive_hmac::<Hmac<Sha256>>(key, &constant, len),
            Self::Aes256Sha384 => derive_hmac::<Hmac<Sha384>>(key, &constant, len),
        }
    }
}

/// Derives a key as long as the old one: DK of RFC 3961 §5.1. For AES, every string is a key (RFC 3962 §6).
fn derive_aes<C>(key: &[u8], constant: &[u8]) -> Option<Key>
where
    C: BlockCipherEncrypt + KeyInit + BlockSizeUser<BlockSize = U16>,
{
    let cipher = C::new_from_slice(key).ok()?;
    let mut block = Zeroizing::new([0; BLOCK_LEN]);
    n_fold(constant, &mut *block);
    // The capacity is enough from the start, so that no copy of the key stays behind.
    let mut derived = Zeroizing::new(Vec::with_capacity(key.len().next_multiple_of(BLOCK_LEN)));
    while derived.len() < key.len() {
        cipher.encrypt_block((&mut *block).into());
        derived.extend_from_slice(&*block);
    }
    derived.truncate(key.len());
    Some(derived)
}

/// Derives a key of `len` bytes: KDF-HMAC-SHA2 of RFC 8009 §3. `None` if that is longer than the hash.
fn derive_hmac<M: Mac + KeyInit>(key: &[u8], label: &[u8], len: usize) -> Option<Key> {
    let mut mac = <M as KeyInit>::new_from_slice(key).ok()?;
    let bits = u32::try_from(len.checked_mul(8)?).ok()?;
    mac.update(&1_u32.to_be_bytes());
    mac.update(label);
    mac.update(&[0]);
    mac.update(&bits.to_be_bytes());
    Some(Zeroizing::new(mac.finalize().as_bytes().get(..len)?.to_vec()))
}

/// Stretches or shrinks a string to the length of `folded`: n-fold of RFC 3961 §5.1.
fn n_fold(string: &[u8], folded: &mut [u8]) {
    folded.fill(0);
    if string.is_empty() || folded.is_empty() {
        return;
    }
    // Copies of the string, each rotated, until their length is one of both strings.
    let mut copies = Vec::new();
    let mut copy = string.to_vec();
    while copies.is_empty() || copies.len() % folded.len() != 0 {
        copies.extend_from_slice(&copy);
        rotate(&mut copy);
    }
    copies.chunks_exact(folded.len()).for_each(|chunk| add(folded, chunk));
}

/// Rotates a string by 13 bits to the right.
fn rotate(string: &mut [u8]) {
    string.rotate_right(1);
    let mut before = string.last().copied().unwrap_or(0);
    for byte in string {
        (*byte, before) = ((*byte >> 5) | (before << 3), *byte);
    }
}

/// Adds a number of equal length to a big-endian number: what is carried out of the first byte is added to the last one.
fn add(sum: &mut [u8], number: &[u8]) {
    let mut carry = 0;
    for (digit, other) in sum.iter_mut().zip(number).rev() {
        let (low, first) = digit.overflowing_add(*other);
        let (low, second) = low.overflowing_add(carry);
        *digit = low;
        carry = u8::from(first | second);
    }
    for digit in sum.iter_mut().rev() {
        let (low, more) = digit.overflowing_add(carry);
        *digit = low;
        carry = u8::from(more);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Reads hexadecimal digits, between which spaces may stand.
    pub(crate) fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<char> = hex.chars().filter(|digit| *digit != ' ').collect();
        let byte = |pair: &[char]| u8::from_str_radix(&String::from_iter(pair), 16).unwrap();
        digits.chunks(2).map(byte).collect()
    }

    #[test]
    fn strings_are_folded_as_in_appendix_a_1_of_rfc_3961() {
        for (string, folded) in [
            ("012345", "be072631276b1955"),
            ("password", "78a07b6caf85fa"),
            ("Rough Consensus, and Running Code", "bb6ed30870b7f0e0"),
            ("password", "59e4a8ca7c0385c3c37b3f6d2000247cb6e6bd5b3e"),
            ("MASSACHVSETTS INSTITVTE OF TECHNOLOGY", "db3b0d8f0b061e603282b308a50841229ad798fab9540c1b"),
            ("Q", "518a54a215a8452a518a54a215a8452a518a54a215"),
            ("ba", "fb25d531ae8974499f52fd92ea9857c4ba24cf297e"),
            ("kerberos", "6b65726265726f73"),
            ("kerberos", "6b65726265726f737b9b5b2b93132b93"),
            ("kerberos", "8372c236344e5f1550cd0747e15d62ca7a5a3bcea4"),
            ("kerberos", "6b65726265726f737b9b5b2b93132b935c9bdcdad95c9899c4cae4dee6d6cae4"),
        ] {
            let expected = bytes(folded);
            let mut got = vec![0xff; expected.len()];
            n_fold(string.as_bytes(), &mut got);
            assert_eq!(got, expected, "{string}");
        }
    }

    #[test]
    fn the_carry_of_a_sum_goes_round() {
        let mut sum = [0xff, 0xff];
        add(&mut sum, &[0xff, 0xff]);
        assert_eq!(sum, [0xff, 0xff]);
        add(&mut sum, &[0, 1]);
        assert_eq!(sum, [0, 1]);
    }

    /// RFC 3962 appendix B: the last step from a password to a key is a derivation with the constant "kerberos". The input
    /// is the output of PBKDF2 there.
    #[test]
    fn keys_are_derived_as_in_appendix_b_of_rfc_3962() {
        let seed = bytes("cdedb5281bb2f801565a1122b2563515 0ad1f7a04bb9f3a333ecc0e2e1f70837");
        assert_eq!(
            *derive_aes::<Aes128>(&seed[..16], b"kerberos").unwrap(),
            bytes("42263c6e89f4fc28b8df68ee09799f15")
        );
        assert_eq!(
            *derive_aes::<Aes256>(&seed, b"kerberos").unwrap(),
            bytes("fe697b52bc0d3ce14432ba036a92e65b bb52280990a2fa27883998d72af30161")
        );
    }

    /// RFC 8009 appendix A for the types 19 and 20. No document has such vectors for 17 and 18. Theirs are from the tests of
    /// MIT Kerberos, with the keys of RFC 3962 appendix B.
    #[test]
    fn keys_of_checksums_are_those_of_rfc_8009_and_of_mit_kerberos() {
        for (kind, key, derived) in [
            (
                EncryptionType::Aes128Sha1,
                "42263c6e89f4fc28b8df68ee09799f15",
                "34280a382bc92769b2da2f9ef066854b",
            ),
            (
                EncryptionType::Aes256Sha1,
                "fe697b52bc0d3ce14432ba036a92e65b bb52280990a2fa27883998d72af30161",
                "bfab388bdcb238e9f9c98d6a878304f0 4d30c82556375ac507a7a852790f4674",
            ),
            (
                EncryptionType::Aes128Sha256,
                "3705d96080c17728a0e800eab6e0d23c",
                "b31a018a48f54776f403e9a396325dc3",
            ),
            (
                EncryptionType::Aes256Sha384,
                "6d404d37faf79f9df0d33568d3206698 00eb4836472ea8a026d16b7182460c52",
                "ef5718be86cc84963d8bbb5031e9f5c4 ba41f28faf69e73d",
            ),
        ] {
            assert_eq!(*kind.checksum_key(&bytes(key), 2).unwrap(), bytes(derived), "{kind:?}");
            assert!(kind.checksum_key(&bytes(key)[1..], 2).is_none(), "a key too short");
            assert_eq!(EncryptionType::from_number(kind as u32), Some(kind));
        }
        // Triple DES, RC4 and Camellia.
        for other in [0, 16, 21, 23, 25, 26] {
            assert_eq!(EncryptionType::from_number(other), None);
        }
    }
    /// RFC 8009 appendix A. No document has such vectors for the types 17 and 18: those of `cipher` cover their keys.
    #[test]
    fn keys_of_encryption_are_those_of_rfc_8009() {
        for (kind, key, encryption, integrity) in [
            (
                EncryptionType::Aes128Sha256,
                "3705d96080c17728a0e800eab6e0d23c",
                "9b197dd1e8c5609d6e67c3e37c62c72e",
                "9fda0e56ab2d85e1569a688696c26a6c",
            ),
            (
                EncryptionType::Aes256Sha384,
                "6d404d37faf79f9df0d33568d3206698 00eb4836472ea8a026d16b7182460c52",
                "56ab22bee63d82d7bc5227f6773f8ea7 a5eb1c825160c38312980c442e5c7e49",
                "69b16514e3cd8e56b82010d5c73012b6 22c4d00ffc23ed1f",
            ),
        ] {
            let keys = kind.encryption_keys(&bytes(key), 2).unwrap();
            assert_eq!((keys.0.to_vec(), keys.1.to_vec()), (bytes(encryption), bytes(integrity)), "{kind:?}");
            assert!(kind.encryption_keys(&bytes(key)[1..], 2).is_none(), "a key too short");
        }
    }
}
