//! [`ConnectionContext`]: from a call's context to the connection that the call came on, for handlers at either end.

use rpcrdma_oncrpc::CallContext;

use crate::backchannel::{Backchannel, Source};
use crate::client::{Client, Forechannel};
use crate::tls::TlsPeer;

/// Access from a call's handler to the connection that the call came on.
pub trait ConnectionContext {
    /// Returns the reverse direction of the connection, by which a server calls its client back. `None` over TCP, and
    /// at a client.
    fn backchannel(&self) -> Option<Backchannel>;

    /// Returns the client itself, for calls to the server, at a client that serves programs (RFC 8167). `None` at a
    /// server, and when the last handle of the client is gone. The context refers to the client weakly, so a program
    /// does not keep its client open.
    fn forechannel(&self) -> Option<Client>;

    /// Returns the client at the other end of a TLS connection (RFC 9289), with its certificates if the server has checked
    /// them. `None` without TLS, so always over RDMA, and at a client.
    fn tls(&self) -> Option<&TlsPeer>;
}

impl ConnectionContext for CallContext {
    fn backchannel(&self) -> Option<Backchannel> {
        Some(self.attached.as_ref()?.get::<Source>()?.backchannel())
    }

    fn forechannel(&self) -> Option<Client> {
        self.attached.as_ref()?.get::<Forechannel>()?.client()
    }

    fn tls(&self) -> Option<&TlsPeer> {
        self.attached.as_ref()?.get()
    }
}
