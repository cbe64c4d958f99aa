//! Decisions, drawn from bytes. After the last byte every decision is 0, which is always the simplest choice.

#[derive(Debug)]
pub(crate) struct Draw<'a> {
    left: &'a [u8],
}

impl<'a> Draw<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { left: bytes }
    }

    pub(crate) const fn is_used_up(&self) -> bool {
        self.left.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.left.split_first() else { return 0 };
        self.left = rest;
        first
    }

    pub(crate) fn word(&mut self) -> u32 {
        u32::from_be_bytes(std::array::from_fn(|_| self.byte()))
    }

    /// Returns a number below `bound`, which is at most 65536 and not 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        let bytes = if bound > 256 { [self.byte(), self.byte()] } else { [0, self.byte()] };
        usize::from(u16::from_be_bytes(bytes)) % bound
    }

    /// Returns true for one byte in `of`.
    pub(crate) fn rarely(&mut self, of: usize) -> bool {
        self.below(of) == of - 1
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    pub(crate) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    /// Returns a length: mostly small, sometimes around an inline threshold, rarely large.
    pub(crate) fn length(&mut self) -> usize {
        match self.below(8) {
            0..=2 => self.below(64),
            3..=4 => 800 + self.below(4000),
            5..=6 => self.below(20_000),
            _ => 20_000 + self.below(65_000) * 2,
        }
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.byte()).collect()
    }
}
