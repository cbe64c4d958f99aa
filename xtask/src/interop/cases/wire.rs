//! The wire: what siw and the kernel really send.

use super::Case;

pub(super) const CASES: &[Case] = &[];
