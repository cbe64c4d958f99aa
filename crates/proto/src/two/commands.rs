//! Transport characteristics, as the owner of a connection sees them. In a version without them, none are announced and
//! every request fails. And the effect of a refusal on the next connection of a session.

use std::sync::Arc;

use crate::error::CloseReason;
use crate::two::characteristics::exchange::Exchanges;
use crate::two::characteristics::{Characteristic, Characteristics, NotExchanged};
use crate::wire::ProtocolError;
use crate::{Connection, Session};

impl Connection {
    /// Returns the peer's characteristics; the defaults before its announcement. `None` in a version without
    /// characteristics.
    #[must_use]
    pub fn peer_characteristics(&self) -> Option<&Characteristics> {
        self.two.as_ref()?.exchanges.as_ref().map(Exchanges::peer)
    }

    /// Returns the characteristics of this side.
    #[must_use]
    pub fn characteristics(&self) -> Option<&Characteristics> {
        self.two.as_ref()?.exchanges.as_ref().map(Exchanges::ours)
    }

    /// Whether the peer exchanges characteristics; `None` until the peer has shown either.
    #[must_use]
    pub fn exchanges_characteristics(&self) -> Option<bool> {
        self.two.as_ref()?.is_exchanged()
    }

    /// Asks the peer to change characteristics (xcharext-02 §4.2); returns the number of the request.
    /// [`Notice::Answered`](crate::Notice::Answered) reports the answer, and
    /// [`Notice::Completed`](crate::Notice::Completed) the end of a pending change.
    ///
    /// # Errors
    /// [`NotExchanged`]: the request is refused locally.
    pub fn ask(&mut self, want: Vec<Characteristic>) -> Result<u64, NotExchanged> {
        self.at_rest = false;
        self.two.as_mut().ok_or(NotExchanged::NotSpoken)?.ask(&mut self.core, want)
    }

    /// Changes a characteristic of this side, and notifies the peer. A larger receive size takes effect when the last
    /// smaller Receive has been used (xcharext-02 §3.1); [`Notice::Own`](crate::Notice::Own) reports that.
    ///
    /// # Errors
    /// [`NotExchanged`]: the change is refused locally.
    pub fn change(&mut self, value: Characteristic) -> Result<(), NotExchanged> {
        self.at_rest = false;
        self.two.as_mut().ok_or(NotExchanged::NotSpoken)?.change(&mut self.core, value)
    }
}

impl Session {
    /// Applies [`Connection::ask`] to the present connection.
    ///
    /// # Errors
    /// [`NotExchanged`]: see there.
    pub fn ask(&mut self, want: Vec<Characteristic>) -> Result<u64, NotExchanged> {
        self.connection.as_mut().map_or(Err(NotExchanged::NotSpoken), |connection| connection.ask(want))
    }

    /// Applies [`Connection::change`] to the present connection.
    ///
    /// # Errors
    /// [`NotExchanged`]: see there.
    pub fn change(&mut self, value: Characteristic) -> Result<(), NotExchanged> {
        self.connection.as_mut().map_or(Err(NotExchanged::NotSpoken), |connection| connection.change(value))
    }

    /// Stops the combination of messages if the peer has refused that: the experimental numbers may have another
    /// meaning for this peer.
    pub(crate) fn heed_refusal(&mut self, reason: &CloseReason) {
        if let CloseReason::Protocol(ProtocolError::Two(error)) = reason
            && error.is_refusal_of_combined()
        {
            Arc::make_mut(&mut self.config).limits.combined_messages = 1;
        }
    }
}
