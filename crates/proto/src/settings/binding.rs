//! The Upper-Layer Binding (RFC 8166 §6): the DDP-eligible arguments and results of a program.
//!
//! A program that is served over RPC-over-RDMA implements [`Binding`]; by default nothing is eligible. A Responder asks
//! [`Bindings`] before it pulls a Call's chunks. A Call with chunks for ineligible items thus costs no memory and no
//! RDMA Read.

use std::fmt;
use std::sync::Arc;

use rpcrdma_oncrpc::Program;

/// The number of items of a procedure that may travel in chunks of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Eligibility {
    /// DDP-eligible arguments: Read chunks at non-zero Positions that a Call may have.
    pub arguments: usize,
    /// DDP-eligible results. A Call may offer more Write chunks; the unused ones are returned unused (RFC 8166
    /// §4.3.2.2).
    pub results: usize,
}

/// A program with its Upper-Layer Binding.
pub trait Binding: Program {
    /// Returns the eligible items of this procedure in this version; none by default (RFC 8166 §6).
    fn eligibility(&self, version: u32, procedure: u32) -> Eligibility {
        let _ = (version, procedure);
        Eligibility::default()
    }
}

/// The bindings of all programs on a connection.
pub trait Bindings: fmt::Debug + Send + Sync {
    /// Returns the eligible items; `None` for an unknown program. Calls of such a program are answered unread, so their
    /// chunks are not pulled.
    fn eligibility(&self, program: u32, version: u32, procedure: u32) -> Option<Eligibility>;
}

/// A list of programs, looked up by number.
#[derive(Clone, Default)]
pub struct BindingTable {
    programs: Vec<Arc<dyn Binding>>,
}

impl BindingTable {
    /// Returns a table of these programs.
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

#[cfg(test)]
mod tests {
    use std::ops::RangeInclusive;

    use rpcrdma_oncrpc::{CallContext, ProcedureInfo, ResponseFuture};
    use rpcrdma_xdr::{Decoder, Stream};

    use super::*;

    /// Versions 2 and 3 of a program; what is eligible tells which one was asked.
    #[derive(Debug)]
    struct Numbered(u32);

    impl Program for Numbered {
        fn number(&self) -> u32 {
            self.0
        }

        fn versions(&self) -> RangeInclusive<u32> {
            2..=3
        }

        fn procedure(&self, _: u32, _: u32) -> Option<ProcedureInfo> {
            None
        }

        fn call(&self, _: CallContext, _: Decoder) -> ResponseFuture {
            Box::pin(async { Ok(Stream::new()) })
        }
    }

    impl Binding for Numbered {
        fn eligibility(&self, version: u32, procedure: u32) -> Eligibility {
            let number = |value| usize::try_from(value).unwrap();
            Eligibility { arguments: number(self.0 + version), results: number(procedure) }
        }
    }

    // requirement: experience-6.2.1-1, experience-11-2
    #[test]
    fn a_table_asks_the_program_that_serves_the_version() {
        let table = BindingTable::new(vec![Arc::new(Numbered(100)), Arc::new(Numbered(200))]);
        assert_eq!(table.eligibility(100, 2, 5), Some(Eligibility { arguments: 102, results: 5 }));
        assert_eq!(table.eligibility(200, 3, 6), Some(Eligibility { arguments: 203, results: 6 }));
        for (program, version) in [(99, 2), (100, 1), (100, 4), (201, 3)] {
            assert_eq!(table.eligibility(program, version, 5), None, "{program} {version}");
        }
    }
}
