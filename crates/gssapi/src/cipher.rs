//! Encryption of messages: AES in CBC mode with ciphertext stealing, and an HMAC (RFC 3962 §5 and §6, RFC 8009 §5).
//!
//! A message begins with a confounder. So it has a block at least, and the initial vector is zero. The types of RFC 3962 have
//! the HMAC of the message, those of RFC 8009 the HMAC of the initial vector and the ciphertext.
//!
//! *Speed.* Encryption is a chain: each block waits for the one before it. A hash is such a chain, too. The processor computes
//! both at a time if their instructions stand close together. So encryption and hash take turns after each [`stride`]. With
//! AES-128 and SHA-1, both then take two thirds of the time that they take one after the other. Decryption has no chain: it
//! takes a sixth of the time of that hash. `aes`, `sha1` and `sha2` find out at run time which instructions the processor has.
//!
//! *Copies.* Encryption copies a message once, in [`PIECE`]s that are encrypted while the cache has them. Decryption writes the
//! message to other memory, and copies nothing.
//!
//! *Keys.* They are overwritten when they are dropped.

use aes::cipher::consts::U16;
use aes::cipher::{
    Array, BlockCipherDecrypt, BlockCipherEncBackend, BlockCipherEncClosure, BlockCipherEncrypt,
    BlockSizeUser,
};
use aes::{Aes128Dec, Aes128Enc, Aes256Dec, Aes256Enc, Block};
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::{Sha256, Sha384};

use crate::derivation::{BLOCK_LEN, EncryptionType};

/// Initial vector of every message.
const INITIAL: [u8; BLOCK_LEN] = [0; BLOCK_LEN];
/// Bytes that are copied and encrypted, or decrypted and hashed, while the cache has them.
const PIECE: usize = 4096;
/// Most bytes of a message that ciphertext stealing exchanges: its last two blocks.
const TAIL_MAX: usize = 2 * BLOCK_LEN;

/// Encryption with the keys of one direction.
pub(crate) trait Seal: Send + Sync {
    /// Appends ciphertext and checksum of a message: a confounder, and a text in several slices.
    fn seal(&self, confounder: &[u8; BLOCK_LEN], text: &[&[u8]], token: &mut Vec<u8>);
}

/// Decryption with the keys of one direction.
pub(crate) trait Open: Send + Sync {
    /// Returns the message, with its confounder. `None` if the checksum is wrong.
    fn open(&self, sealed: &[u8]) -> Option<Vec<u8>>;
}

/// Returns the encryption of a key usage. `None` if the key is none of this type.
pub(crate) fn sealing(kind: EncryptionType, key: &[u8], usage: u32) -> Option<Box<dyn Seal>> {
    Some(match kind {
        EncryptionType::Aes128Sha1 => Box::new(Keyed::<Aes128Enc, Hmac<Sha1>>::derive(kind, key, usage)?),
        EncryptionType::Aes256Sha1 => Box::new(Keyed::<Aes256Enc, Hmac<Sha1>>::derive(kind, key, usage)?),
        EncryptionType::Aes128Sha256 => Box::new(Keyed::<Aes128Enc, Hmac<Sha256>>::derive(kind, key, usage)?),
        EncryptionType::Aes256Sha384 => Box::new(Keyed::<Aes256Enc, Hmac<Sha384>>::derive(kind, key, usage)?),
    })
}

/// Returns the decryption of a key usage. `None` if the key is none of this type.
pub(crate) fn opening(kind: EncryptionType, key: &[u8], usage: u32) -> Option<Box<dyn Open>> {
    Some(match kind {
        EncryptionType::Aes128Sha1 => Box::new(Keyed::<Aes128Dec, Hmac<Sha1>>::derive(kind, key, usage)?),
        EncryptionType::Aes256Sha1 => Box::new(Keyed::<Aes256Dec, Hmac<Sha1>>::derive(kind, key, usage)?),
        EncryptionType::Aes128Sha256 => Box::new(Keyed::<Aes128Dec, Hmac<Sha256>>::derive(kind, key, usage)?),
        EncryptionType::Aes256Sha384 => Box::new(Keyed::<Aes256Dec, Hmac<Sha384>>::derive(kind, key, usage)?),
    })
}

/// Half a cipher, and a hash, with keys.
struct Keyed<C, M> {
    cipher: C,
    hash: M,
    kind: EncryptionType,
}

impl<C: KeyInit, M: KeyInit> Keyed<C, M> {
    fn derive(kind: EncryptionType, key: &[u8], usage: u32) -> Option<Self> {
        let (encryption, integrity) = kind.encryption_keys(key, usage)?;
        Self::new(kind, &encryption, &integrity)
    }

    fn new(kind: EncryptionType, encryption: &[u8], integrity: &[u8]) -> Option<Self> {
        let (cipher, hash) = (C::new_from_slice(encryption).ok()?, M::new_from_slice(integrity).ok()?);
        Some(Self { cipher, hash, kind })
    }
}

impl<C, M: Mac + Clone> Keyed<C, M> {
    /// Returns the hash at the beginning of a message.
    fn hash(&self) -> M {
        let mut hash = self.hash.clone();
        if covers_ciphertext(self.kind) {
            hash.update(&INITIAL);
        }
        hash
    }
}

/// Returns whether the checksum is that of the ciphertext (RFC 8009 §5), or else that of the message (RFC 3961 §5.3).
const fn covers_ciphertext(kind: EncryptionType) -> bool {
    match kind {
        EncryptionType::Aes128Sha1 | EncryptionType::Aes256Sha1 => false,
        EncryptionType::Aes128Sha256 | EncryptionType::Aes256Sha384 => true,
    }
}

/// Returns after how many bytes encryption and hash take turns: blocks of both. These lengths were the fastest.
const fn stride(kind: EncryptionType) -> usize {
    match kind {
        EncryptionType::Aes128Sha1 | EncryptionType::Aes256Sha1 => 64,
        EncryptionType::Aes128Sha256 | EncryptionType::Aes256Sha384 => 128,
    }
}

/// Returns the length of the whole blocks before the last two, of which the very last one may be a part.
const fn before_tail(len: usize) -> usize {
    match len.div_ceil(BLOCK_LEN).checked_sub(2) {
        Some(blocks) => blocks * BLOCK_LEN,
        None => 0,
    }
}

fn xor(block: &mut [u8], other: &[u8]) {
    block.iter_mut().zip(other).for_each(|(byte, other)| *byte ^= other);
}

impl<C, M> Seal for Keyed<C, M>
where
    C: BlockCipherEncrypt + BlockSizeUser<BlockSize = U16> + Send + Sync,
    M: Mac + Clone + Send + Sync,
{
    fn seal(&self, confounder: &[u8; BLOCK_LEN], text: &[&[u8]], token: &mut Vec<u8>) {
        let mut chain = Chain { keys: self, hash: self.hash(), last: INITIAL };
        let mut done = token.len();
        token.extend_from_slice(confounder);
        for piece in text.iter().flat_map(|part| part.chunks(PIECE)) {
            token.extend_from_slice(piece);
            let waiting = token.get_mut(done..).unwrap_or_default();
            // The end of the message may be in these bytes.
            let strides = waiting.len().saturating_sub(TAIL_MAX) / stride(self.kind);
            let len = strides * stride(self.kind);
            chain.blocks(waiting.get_mut(..len).unwrap_or_default());
            done += len;
        }
        let checksum = chain.finish(token.get_mut(done..).unwrap_or_default());
        token.extend(checksum.finalize().as_bytes().iter().take(self.kind.checksum_len()));
    }
}

/// Encryption of a message, from its beginning to its end.
struct Chain<'a, C, M> {
    keys: &'a Keyed<C, M>,
    hash: M,
    /// The last block of ciphertext.
    last: [u8; BLOCK_LEN],
}

impl<C, M> Chain<'_, C, M>
where
    C: BlockCipherEncrypt + BlockSizeUser<BlockSize = U16>,
    M: Mac,
{
    /// Encrypts whole blocks, of which none is one of the last two.
    fn blocks(&mut self, blocks: &mut [u8]) {
        self.keys.cipher.encrypt_with_backend(Turns {
            blocks,
            last: &mut self.last,
            stride: stride(self.keys.kind),
            covers_ciphertext: covers_ciphertext(self.keys.kind),
            hash: &mut self.hash,
        });
    }

    /// Encrypts the end of the message, and returns the hash.
    fn finish(mut self, end: &mut [u8]) -> M {
        let (blocks, tail) = end.split_at_mut_checked(before_tail(end.len())).unwrap_or_default();
        self.blocks(blocks);
        if !covers_ciphertext(self.keys.kind) {
            self.hash.update(tail);
        }
        if let Some((block, rest)) = tail.split_first_chunk_mut::<BLOCK_LEN>() {
            let first = self.next(block);
            if rest.is_empty() {
                // RFC 3962 §5: a message of one block has nothing to steal.
                *block = first;
            } else {
                let mut padded = [0; BLOCK_LEN];
                padded.iter_mut().zip(&*rest).for_each(|(byte, text)| *byte = *text);
                // The last two blocks change places, and the other one is cut.
                *block = self.next(&padded);
                rest.iter_mut().zip(first).for_each(|(byte, first)| *byte = first);
            }
        }
        if covers_ciphertext(self.keys.kind) {
            self.hash.update(tail);
        }
        self.hash
    }

    fn next(&mut self, text: &[u8; BLOCK_LEN]) -> [u8; BLOCK_LEN] {
        xor(&mut self.last, text);
        let mut block: Block = Array(self.last);
        self.keys.cipher.encrypt_block(&mut block);
        self.last = block.0;
        self.last
    }
}

/// Encryption of whole blocks in turn with their hash, inside of the code that has the processor's instructions.
struct Turns<'a, M> {
    blocks: &'a mut [u8],
    last: &'a mut [u8; BLOCK_LEN],
    stride: usize,
    covers_ciphertext: bool,
    hash: &'a mut M,
}

impl<M> BlockSizeUser for Turns<'_, M> {
    type BlockSize = U16;
}

impl<M: Mac> BlockCipherEncClosure for Turns<'_, M> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        let Self { blocks, last, stride, covers_ciphertext, hash } = self;
        // As a number, it stays in a register from block to block.
        let mut chain = u128::from_ne_bytes(*last);
        for blocks in blocks.chunks_mut(stride) {
            if !covers_ciphertext {
                hash.update(blocks);
            }
            let (each, _) = blocks.as_chunks_mut::<BLOCK_LEN>();
            for bytes in each {
                chain ^= u128::from_ne_bytes(*bytes);
                let mut block: Block = Array(chain.to_ne_bytes());
                backend.encrypt_block((&mut block).into());
                chain = u128::from_ne_bytes(block.0);
                *bytes = block.0;
            }
            if covers_ciphertext {
                hash.update(blocks);
            }
        }
        *last = chain.to_ne_bytes();
    }
}

impl<C, M> Open for Keyed<C, M>
where
    C: BlockCipherDecrypt + BlockSizeUser<BlockSize = U16> + Send + Sync,
    M: Mac + Clone + Send + Sync,
{
    fn open(&self, sealed: &[u8]) -> Option<Vec<u8>> {
        let len = sealed.len().checked_sub(self.kind.checksum_len())?;
        let (ciphertext, checksum) = sealed.split_at_checked(len)?;
        let (blocks, tail) = ciphertext.split_at_checked(before_tail(len))?;
        let mut message = Vec::with_capacity(len);
        let mut hash = self.hash();
        let mut last = &INITIAL;
        for piece in blocks.chunks(PIECE) {
            let start = message.len();
            message.resize(start.saturating_add(piece.len()), 0);
            let plain = message.get_mut(start..)?;
            self.decrypt(piece, last, plain);
            hash.update(if covers_ciphertext(self.kind) { piece } else { plain });
            last = piece.last_chunk()?;
        }
        let start = message.len();
        self.decrypt_tail(tail, last, &mut message)?;
        hash.update(if covers_ciphertext(self.kind) { tail } else { message.get(start..)? });
        // The time does not depend on the bytes of the checksum.
        hash.verify_truncated_left(checksum).ok()?;
        Some(message)
    }
}

impl<C: BlockCipherDecrypt + BlockSizeUser<BlockSize = U16>, M> Keyed<C, M> {
    /// Decrypts whole blocks, of which none is one of the last two.
    fn decrypt(&self, ciphertext: &[u8], last: &[u8; BLOCK_LEN], plain: &mut [u8]) {
        let (from, _) = Array::<u8, U16>::slice_as_chunks(ciphertext);
        let (to, _) = Array::<u8, U16>::slice_as_chunks_mut(plain);
        // Both have the same length. Otherwise nothing would be decrypted, and the checksum would be wrong.
        if self.cipher.decrypt_blocks_b2b(from, to).is_ok()
            && let Some((first, others)) = plain.split_at_mut_checked(BLOCK_LEN)
        {
            xor(first, last);
            xor(others, ciphertext);
        }
    }

    /// Decrypts the last two blocks, or the only one. `None` if there is none.
    fn decrypt_tail(&self, tail: &[u8], last: &[u8; BLOCK_LEN], message: &mut Vec<u8>) -> Option<()> {
        let (block, rest) = tail.split_first_chunk::<BLOCK_LEN>()?;
        let mut text: Block = Array(*block);
        self.cipher.decrypt_block(&mut text);
        if rest.is_empty() {
            xor(&mut text, last);
            message.extend_from_slice(&text);
            return Some(());
        }
        // Zeros follow the text of the last block. So its end is the end of the ciphertext of the block before it.
        let mut before = text;
        before.iter_mut().zip(rest).for_each(|(byte, rest)| *byte = *rest);
        xor(&mut text, &before);
        self.cipher.decrypt_block(&mut before);
        xor(&mut before, last);
        message.extend_from_slice(&before);
        message.extend(text.iter().take(rest.len()));
        Some(())
    }
}

#[cfg(test)]
mod tests;
