//! The Upper-Layer Binding (RFC 8166 §6): which arguments and results of a program are DDP-eligible.
//!
//! A program that is served over RPC-over-RDMA implements [`Binding`]; by default nothing is eligible. A Responder looks
//! the numbers up through [`Bindings`] before it pulls a Call's chunks, so that a Call which reduces what may not be
//! reduced costs no memory and no RDMA Read.

use std::fmt;
use std::sync::Arc;

use rpcrdma_oncrpc::Program;

/// How many items of a procedure may travel in chunks of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Eligibility {
    /// DDP-eligible arguments: Read chunks at non-zero Positions that a Call may have.
    pub arguments: usize,
    /// DDP-eligible results. What a Call offers is not held against it: Write chunks that no result uses are returned unused
    /// (RFC 8166 §4.3.2.2).
    pub results: usize,
}

/// A program with its Upper-Layer Binding.
pub trait Binding: Program {
    /// What is eligible in this procedure of this version. Nothing, unless the binding says so (RFC 8166 §6).
    fn eligibility(&self, version: u32, procedure: u32) -> Eligibility {
        let _ = (version, procedure);
        Eligibility::default()
    }
}

/// The bindings of all programs that are served on a connection.
pub trait Bindings: fmt::Debug + Send + Sync {
    /// What is eligible; `None` for a program that is not served. Its Calls are answered without a look at their arguments,
    /// so nothing is pulled for them.
    fn eligibility(&self, program: u32, version: u32, procedure: u32) -> Option<Eligibility>;
}

/// A list of programs, looked up by number.
#[derive(Clone, Default)]
pub struct BindingTable {
    programs: Vec<Arc<dyn Binding>>,
}

impl BindingTable {
    /// A table of these programs.
    #[must_use]
    pub fn new(programs: Vec<Arc<dyn Binding>>) -> Self {
        Self { programs }
    }
}

impl fmt::Debug for BindingTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.programs.iter().map(|program| program.number())).finish()
    }
}

impl Bindings for BindingTable {
    fn eligibility(&self, program: u32, version: u32, procedure: u32) -> Option<Eligibility> {
        let found = self
            .programs
            .iter()
            .find(|entry| entry.number() == program && entry.versions().contains(&version))?;
        Some(found.eligibility(version, procedure))
    }
}
