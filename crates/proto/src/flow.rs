//! Flow control: credits, and the Receives that back them (rules I3 and I4).
//!
//! | module | mechanism |
//! | --- | --- |
//! | `ledger` | the one place that says whether a message may leave, and counts it |
//! | `permit` | what the ledger hands out |
//! | `transactions` | credits per transaction: Version One, and P1 and P2 of Version Two |
//! | `messages`, `line` | credits per message: P3 of Version Two |
//! | `receives` | the receive queue, counted |
//! | `arrival` | which of our messages the peer has |
//!
//! A Send leaves only by a [`Permit`]. *Who owns which buffer*: reserved room for Receives is here until it is posted.
//! *On error* nothing is counted: whoever asks in vain is told what to wait for.

pub(crate) mod arrival;
mod ledger;
mod line;
pub(crate) mod messages;
mod permit;
mod receives;
mod transactions;

pub(crate) use ledger::{Ledger, ReceiveSize};
pub(crate) use permit::{Charge, DoneOwed, Lease, Offer, Permit, Settled, Wait};
pub(crate) use transactions::{RequesterCredits, ResponderCredits};
