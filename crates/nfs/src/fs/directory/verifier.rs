//! The write verifier (RFC 1813 §3.3.7): what tells a client that written data may have been lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The write verifier of one or several directory trees. Clones are the same one, so that a loss in one tree is told
/// to the clients of all that share it: trees of one process may lie on one file system, which tells of a lost write
/// only once.
#[derive(Clone, Debug)]
pub struct WriteVerifier(Arc<AtomicU64>);

impl Default for WriteVerifier {
    /// A new one, unlike that of any earlier process.
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(rand::random())))
    }
}

impl WriteVerifier {
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Data was lost: whoever has not committed writes again.
    pub(super) fn change(&self) {
        self.0.store(rand::random(), Ordering::Release);
    }
}
