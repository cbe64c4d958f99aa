//! [`Served`]: one version of a typed program, as a [`Program`] with its [`Binding`]; and the parts that
//! [`program!`](crate::program) writes into its code.
//!
//! *Buffers.* A call costs one boxed future, which holds the arguments.
//!
//! *Errors.* Results that break the limits of their type are a defect of the service. The caller gets SYSTEM_ERR, and the log
//! one line a second at most.

use std::ops::RangeInclusive;
use std::sync::Arc;

use rpcrdma_oncrpc::{CallContext, ProcedureInfo, Program, ResponseFuture};
use rpcrdma_proto::{Binding, Eligibility};
use rpcrdma_xdr::Decoder;

#[doc(hidden)]
pub mod parts;
mod program;

pub use rpcrdma_oncrpc::typed::{
    Bounds, Procedure, Version, arguments, eligible, encode_arguments, info, results, stream,
};

/// A version of a typed program, as a [`Program`] with its [`Binding`].
#[derive(Debug)]
pub struct Served<V>(Arc<V>);

impl<V: Version> Served<V> {
    /// Serves this version.
    #[must_use]
    pub fn new(version: impl Into<Arc<V>>) -> Self {
        Self(version.into())
    }
}

impl<V> Clone for Served<V> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<V: Version> Program for Served<V> {
    fn number(&self) -> u32 {
        self.0.number()
    }

    fn versions(&self) -> RangeInclusive<u32> {
        let version = self.0.version();
        version..=version
    }

    fn procedure(&self, _version: u32, procedure: u32) -> Option<ProcedureInfo> {
        self.0.procedure(procedure)
    }

    fn accepts_flavor(&self, flavor: u32) -> bool {
        self.0.accepts_flavor(flavor)
    }

    fn requires_integrity(&self, _version: u32, procedure: u32) -> bool {
        self.0.requires_integrity(procedure)
    }

    fn is_light(&self) -> bool {
        self.0.is_light()
    }

    fn call(&self, context: CallContext, arguments: Decoder) -> ResponseFuture {
        Arc::clone(&self.0).call(context, arguments)
    }
}

impl<V: Version> Binding for Served<V> {
    fn eligibility(&self, _version: u32, procedure: u32) -> Eligibility {
        let (arguments, results) = self.0.eligibility(procedure);
        Eligibility { arguments, results }
    }
}
