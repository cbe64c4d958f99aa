//! Faults: servers and clients that are killed, connections that are cut.

use super::Case;

pub(super) const CASES: &[Case] = &[];
