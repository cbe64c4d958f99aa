//! What a program implements to be called.
//!
//! A program gets its arguments as a [`Decoder`] that hands payloads out as slices of the message or of the chunks
//! that carried them, and returns its results as a [`Stream`] of pieces. It never sees XIDs matched, headers encoded
//! or duplicates detected. What it can't do it says by a [`CallFailure`], which becomes the reply that RFC 5531 has
//! for it.

use std::any::Any;
use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;

use rpcrdma_xdr::{DecodeError, Decoder, EncodeError, Stream};
use thiserror::Error;

use crate::auth::{Credential, flavor};
use crate::message::AuthStat;

/// By what a call came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TransportKind {
    /// RPC-over-RDMA.
    Rdma,
    /// TCP with record marking.
    Tcp,
    /// The simulated fabric.
    Sim,
}

/// Something that the transport attaches to the calls of a connection, for handlers that know what it is: for instance
/// a way to call the peer back. Nothing here looks inside. Two are equal if they are the same thing.
#[derive(Clone)]
pub struct Attached(Arc<dyn Any + Send + Sync>);

impl Attached {
    /// Wraps what is attached.
    pub fn new(value: impl Any + Send + Sync) -> Self {
        Self(Arc::new(value))
    }

    /// What was wrapped, if it is of this type.
    #[must_use]
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

impl fmt::Debug for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Attached")
    }
}

impl PartialEq for Attached {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Attached {}

/// Who calls what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallContext {
    /// The peer's address, if the transport has one.
    pub peer: Option<SocketAddr>,
    /// By what the call came.
    pub transport: TransportKind,
    /// The call's XID.
    pub xid: u32,
    /// Program number.
    pub program: u32,
    /// Version of the program.
    pub version: u32,
    /// Procedure of that version.
    pub procedure: u32,
    /// Who the caller claims to be.
    pub credential: Credential,
    /// What the transport attached.
    pub attached: Option<Attached>,
    /// The user at the other end, if the transport knows ([`Peer::owner`](crate::Peer::owner)).
    pub owner: Option<u32>,
}

/// Kind of change that the execution of a procedure makes. It decides whether the reply cache keeps the replies, and in which budget: many
/// calls of one kind leave the replies of the other alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Nothing, or nothing that a second execution at any later time would do harm to. Replies are not kept.
    Idempotent,
    /// Contents, in bulk, for instance WRITE of NFS. A late second execution would undo what others wrote meanwhile.
    Data,
    /// Anything else, for instance REMOVE and RENAME of NFS. A second execution has another result, or does harm.
    State,
}

/// A procedure's name and nature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Procedure {
    /// For logs and counters.
    pub name: &'static str,
    /// Kind of change that its execution makes.
    pub effect: Effect,
}

/// Why a call has no results.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallFailure {
    /// The arguments don't decode: GARBAGE_ARGS, or `ERR_CHUNK` if the error is a chunk violation.
    #[error("arguments refused: {0}")]
    GarbageArgs(#[from] DecodeError),
    /// The program could not do it: SYSTEM_ERR.
    #[error("the program failed")]
    SystemError,
    /// The results don't encode, a fault of the program: SYSTEM_ERR.
    #[error("results can't be encoded: {0}")]
    Results(#[from] EncodeError),
    /// The caller may not: AUTH_ERROR.
    #[error("caller refused: {0:?}")]
    Auth(AuthStat),
    /// There is no such procedure: PROC_UNAVAIL.
    #[error("no such procedure")]
    ProcedureUnavailable,
    /// No reply at all. An RDMA connection closes for it, and the caller sends the call again (RFC 8166 §4.5.4).
    #[error("call discarded")]
    Discard,
}

/// The results of a call, sooner or later.
pub type ResponseFuture = Pin<Box<dyn Future<Output = Result<Stream, CallFailure>> + Send>>;

/// A program that can be called: decodes arguments, does the work, encodes results.
pub trait Program: Send + Sync + 'static {
    /// The program number.
    fn number(&self) -> u32;

    /// The versions served.
    fn versions(&self) -> RangeInclusive<u32>;

    /// The procedure with this number in this version, if there is one. Procedure 0 is answered without asking.
    fn procedure(&self, version: u32, procedure: u32) -> Option<Procedure>;

    /// Whether a credential of this flavour ([`flavor`]) is accepted: AUTH_NONE and AUTH_SYS unless said otherwise.
    fn accepts_flavor(&self, flavor: u32) -> bool {
        accepted_by_default(flavor)
    }

    /// Whether this procedure is only called under a flavour that protects the call
    /// ([`Integrity`](crate::Integrity)); others get AUTH_TOOWEAK. No, unless said otherwise.
    fn requires_integrity(&self, _version: u32, _procedure: u32) -> bool {
        false
    }

    /// Serves one call. `arguments` stands at the first argument; what it leaves unread is the program's to refuse
    /// ([`Decoder::finish`]).
    fn call(&self, context: CallContext, arguments: Decoder) -> ResponseFuture;
}

pub(crate) const fn accepted_by_default(flavor: u32) -> bool {
    matches!(flavor, flavor::AUTH_NONE | flavor::AUTH_SYS)
}
