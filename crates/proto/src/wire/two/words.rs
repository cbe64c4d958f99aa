//! The cursor of the decoders of operations. Nothing is owned here.

use crate::wire::reader::Reader;
use crate::wire::{Direction, Limits};

pub(super) const WORD: usize = 4;

/// Data that ends elsewhere than its structure. Each kind of structure has its own errors for this.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    /// Before the words that are due.
    Early,
    /// So many bytes behind them.
    Late(usize),
}

/// Words of an operation or property, with errors that say where its end was met.
#[derive(Debug)]
pub(super) struct Words<'a, 'b> {
    reader: &'a mut Reader<'b>,
    pub(super) limits: &'a Limits,
    /// The direction of the message.
    pub(super) direction: Direction,
}

impl<'a, 'b> Words<'a, 'b> {
    pub(super) const fn new(reader: &'a mut Reader<'b>, limits: &'a Limits) -> Self {
        Self { reader, limits, direction: Direction::Call }
    }

    /// Reads all of `data` as one item.
    pub(super) fn whole<T, E: From<End>>(
        data: &[u8],
        limits: &Limits,
        read: impl FnOnce(&mut Words<'_, '_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut reader = Reader::new(data);
        let item = read(&mut Words::new(&mut reader, limits))?;
        match data.len() - reader.position() {
            0 => Ok(item),
            extra => Err(End::Late(extra).into()),
        }
    }

    pub(super) fn word(&mut self) -> Result<u32, End> {
        self.reader.u32().ok_or(End::Early)
    }

    pub(super) fn bytes(&mut self, len: usize) -> Result<&'b [u8], End> {
        self.reader.bytes(len).ok_or(End::Early)
    }

    /// Reads an array. Its count is bounded before anything is allocated for it.
    pub(super) fn array<T, E: From<End>>(
        &mut self,
        allowed: usize,
        too_many: fn(u32, usize) -> E,
        mut element: impl FnMut(&mut Self) -> Result<T, E>,
    ) -> Result<Vec<T>, E> {
        let count = self.word()?;
        if usize::try_from(count).map_or(true, |count| count > allowed) {
            return Err(too_many(count, allowed));
        }
        (0..count).map(|_| element(self)).collect()
    }
}
