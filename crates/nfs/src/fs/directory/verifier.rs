//! The write verifier (RFC 1813 §3.3.7), which shows clients that written data may have been lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The write verifier of one or several directory trees. Clones share the value, so that a loss in one tree
/// reaches the clients of all trees that share it. Trees of one process may lie on one file system, which
/// reports a lost write only once.
#[derive(Clone, Debug)]
pub struct WriteVerifier(Arc<AtomicU64>);

impl Default for WriteVerifier {
    /// Creates a verifier that differs from that of any earlier process.
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(rand::random())))
    }
}

impl WriteVerifier {
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Changes the verifier after a loss: clients repeat their uncommitted writes.
    pub(super) fn change(&self) {
        self.0.store(rand::random(), Ordering::Release);
    }
}
