//! Transport characteristics, as the owner of a connection sees them. Where the version has none, nothing is told and
//! nothing can be asked.

use super::Connection;
use crate::characteristics::{Characteristic, Characteristics, NotExchanged};

impl Connection {
    /// Returns the characteristics of the peer; the defaults, as long as it has told nothing. `None` where the version has
    /// none.
    #[must_use]
    pub fn peer_characteristics(&self) -> Option<&Characteristics> {
        self.two.peer()
    }

    /// Returns the characteristics of this side.
    #[must_use]
    pub fn characteristics(&self) -> Option<&Characteristics> {
        self.two.ours()
    }

    /// Returns whether the peer exchanges characteristics; `None` as long as it has not shown it.
    #[must_use]
    pub fn exchanges_characteristics(&self) -> Option<bool> {
        self.two.is_exchanged()
    }

    /// Asks the peer to change characteristics (xcharext-02 §4.2). [`Notice::Answered`](crate::Notice::Answered) brings the
    /// answer to this number, and [`Notice::Completed`](crate::Notice::Completed) perhaps the end of a change.
    ///
    /// # Errors
    /// [`NotExchanged`]
    pub fn ask(&mut self, want: Vec<Characteristic>) -> Result<u64, NotExchanged> {
        self.two.ask(&mut self.core, want)
    }

    /// Changes a characteristic of ours, and tells the peer. A larger receive size takes effect when the last smaller
    /// Receive has been used (xcharext-02 §3.1); [`Notice::Own`](crate::Notice::Own) says when.
    ///
    /// # Errors
    /// [`NotExchanged`]
    pub fn change(&mut self, value: Characteristic) -> Result<(), NotExchanged> {
        self.two.change(&mut self.core, value)
    }
}
