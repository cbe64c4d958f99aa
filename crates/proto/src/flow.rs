//! Flow control: credits, and the Receives that back them (rules I3 and I4).
//!
//! | module | mechanism |
//! | --- | --- |
//! | `ledger` | decides whether a message may leave, and counts it |
//! | `permit` | rights that the ledger grants |
//! | `transactions` | credits per transaction: Version One, and P1 and P2 of Version Two |
//! | `messages`, `line` | credits per message: P3 of Version Two |
//! | `receives` | counts of the receive queue |
//! | `arrival` | proof that a message has arrived at the peer |
//!
//! A Send leaves only with a [`Permit`]. *Buffers*: this module owns the memory reserved for a Receive until the
//! Receive is posted. *Errors*: a refusal changes no count, and names the event to wait for.

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
