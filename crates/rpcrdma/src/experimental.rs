//! Names that only drafts have: Version Two of RPC-over-RDMA with its extensions, and the Read-Read model.
//!
//! No RFC defines them, and no other implementation speaks them. So they may change in any release. Version One
//! (RFC 8166), the reverse direction (RFC 8167) and CONF_RDMA (RFC 5666) need none of them.
//!
//! | name | what has it |
//! | --- | --- |
//! | [`Profile`], [`OperationBase`], [`OperationNumbers`] | Version Two, of which each profile is another set of drafts |
//! | [`Exchange`], [`Exchanged`], [`Characteristics`], [`Characteristic`], [`Registered`], [`NotRegistered`], [`Disposition`], [`Notice`], [`NotExchanged`], [`ReverseSupport`] | transport characteristics (xcharext-02) |
//! | [`TransmissionSettings`], [`Transmissions`], [`Features`], [`BufferStructure`], [`BufferGroup`], [`ReplyPlacement`], [`ChunkSupport`] | message continuation and send-based placement (rtrext-02, rtissues-03) |
//! | [`ReadRead`] | the Read-Read model, as [`Compatibility::read_read`](crate::Compatibility::read_read) |
//!
//! Version Two itself is chosen by [`Config::versions`](crate::Config::versions).

use tokio::sync::broadcast;

use crate::rdma::client::RdmaClient;

pub use rpcrdma_proto::{
    BufferGroup, BufferStructure, Characteristic, Characteristics, ChunkSupport, Disposition, Exchanged,
    Features, NotExchanged, NotRegistered, Notice, OperationBase, OperationNumbers, Profile, ReadRead,
    Registered, ReplyPlacement, ReverseSupport, TransmissionSettings, Transmissions,
};

/// The exchange of transport characteristics with the server (xcharext-02), on the present connection of a client. Of
/// several connections the first one counts.
///
/// [`Rdma::characteristics`](crate::Rdma::characteristics) returns it. The present values are in
/// [`ConnectionStats`](crate::ConnectionStats).
#[derive(Clone, Copy)]
pub struct Exchange<'a> {
    first: &'a RdmaClient,
}

impl<'a> Exchange<'a> {
    pub(crate) const fn new(first: &'a RdmaClient) -> Self {
        Self { first }
    }

    /// Asks the server to change transport characteristics (xcharext-02 §4.2) and waits for its answer. Changes that the
    /// server accepts for later arrive as a [`Notice`]. Larger Receives take effect when Calls have used up the earlier
    /// ones. P2 has no pending changes: under P2 the answer itself waits for that.
    ///
    /// # Errors
    /// [`NotExchanged`], also when the connection ends before the answer.
    pub async fn ask(
        self,
        want: Vec<Characteristic>,
    ) -> Result<Vec<(Characteristic, Disposition)>, NotExchanged> {
        self.first.ask(want).await
    }

    /// Changes a transport characteristic of this client, and announces the change to the server. A larger receive size
    /// takes effect with [`Notice::Own`].
    ///
    /// # Errors
    /// [`NotExchanged`].
    pub fn change(self, value: Characteristic) -> Result<(), NotExchanged> {
        self.first.change(value)
    }

    /// Returns a receiver of news about transport characteristics, from now on. A slow receiver misses the oldest.
    #[must_use]
    pub fn notices(self) -> broadcast::Receiver<Notice> {
        self.first.notices()
    }
}
