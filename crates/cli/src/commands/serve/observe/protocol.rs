//! The control protocol: one JSON object a line, a [`Request`] and its [`Answer`] in turn.
//!
//! ```text
//! {"command":"status"}                                   {"status":{…}}
//! {"command":"clients","count":20,"by":"rate"}           {"clients":{"total":3,"clients":[…]}}
//! {"command":"disconnect","id":7}                        {"disconnected":true}
//! anything else                                          {"error":"…"}
//! ```
//!
//! Requests of a new server are those of [`handover`](crate::commands::serve::handover).

use std::cmp::Reverse;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::commands::serve::handover::Offer;
use crate::commands::serve::status::{ClientStatus, Clients, Status};

/// Name of the control socket in the state directory.
pub(in crate::commands) const SOCKET: &str = "control";
/// Longest request, in bytes, with the end of its line.
pub(in crate::commands) const REQUEST_MAX: usize = 4096;
/// Longest answer that a client takes, in bytes. An answer has about half a kilobyte for each connection.
pub(in crate::commands) const ANSWER_MAX: u64 = 64 << 20;

/// A line of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase", deny_unknown_fields)]
pub(in crate::commands) enum Request {
    /// Asks for the state of the server.
    Status,
    /// Asks for open connections.
    Clients {
        /// Connections to leave out at the beginning.
        #[serde(default)]
        skip: usize,
        /// Most connections in the answer; `null` for all.
        #[serde(default)]
        count: Option<usize>,
        /// The order, in which the first ones are in the answer.
        #[serde(default)]
        by: Order,
        /// Whether the order is the other way round.
        #[serde(default)]
        reverse: bool,
    },
    /// Ends a connection.
    Disconnect {
        /// Number of the connection.
        id: u64,
    },
    /// Asks for the listening sockets.
    Handover {
        /// Version of the exchange.
        version: u32,
    },
    /// Tells that the server that asked for the sockets is ready to accept.
    Go,
}

/// An order of connections. Numbers begin with the greatest, except those of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(in crate::commands) enum Order {
    /// By number, oldest first
    #[default]
    Id,
    /// By address
    Address,
    /// By calls a second since the last request
    Rate,
    /// By calls
    Calls,
    /// By calls in flight
    Flight,
    /// By bytes a second since the last request
    Bytes,
    /// By memory of the connection and its address
    Memory,
    /// By credits
    Credits,
}

impl Order {
    /// Sorts connections, and keeps `count` of them after the first `skip`. Equals stay in the order of their numbers.
    pub(in crate::commands) fn apply(
        self,
        clients: &mut Clients,
        (skip, count): (usize, Option<usize>),
        reverse: bool,
    ) {
        let list = &mut clients.clients;
        match self {
            Self::Id => {}
            // An address has its port behind it, which no order needs.
            Self::Address => list.sort_by(|one, other| one.address.cmp(&other.address)),
            Self::Rate => by(list, |one| rate(one.calls_per_second)),
            Self::Calls => by(list, |one| one.calls),
            Self::Flight => by(list, |one| one.calls_in_flight),
            Self::Bytes => by(list, |one| rate(one.bytes_per_second)),
            Self::Memory => by(list, |one| one.memory() as u64),
            Self::Credits => by(list, |one| u64::from(one.credits)),
        }
        if reverse {
            list.reverse();
        }
        list.drain(..skip.min(list.len()));
        list.truncate(count.unwrap_or(usize::MAX));
    }
}

fn by(list: &mut [ClientStatus], key: impl Fn(&ClientStatus) -> u64) {
    list.sort_by_key(|one| Reverse(key(one)));
}

/// Returns a rate as a whole number, for sorting.
fn rate(rate: Option<f64>) -> u64 {
    // Rates are not negative, and one that is too great becomes the greatest number.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    rate.map_or(0, |rate| (rate * 1000.0) as u64)
}

/// A line of the server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::commands) enum Answer {
    /// The state of the server.
    Status(Box<Status>),
    /// Open connections.
    Clients(Clients),
    /// Whether there was a connection of that number, which has ended.
    Disconnected(bool),
    /// The listening sockets, whose descriptors come with the line.
    Handover(Offer),
    /// Whether the server accepts nothing more.
    Gone(bool),
    /// The reason why the request was not understood.
    Error(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(id: u64, calls: u64, rate: f64) -> ClientStatus {
        ClientStatus { id, calls, calls_per_second: Some(rate), ..ClientStatus::default() }
    }

    #[test]
    fn the_first_of_an_order_are_kept() {
        let all = Clients {
            total: 4,
            clients: vec![client(1, 5, 0.5), client(2, 9, 2.5), client(3, 9, 700.0), client(4, 1, 0.0)],
        };
        let first = |order: Order, reverse| {
            let mut some = all.clone();
            order.apply(&mut some, (0, Some(3)), reverse);
            assert_eq!(some.total, 4);
            some.clients.iter().map(|one| one.id).collect::<Vec<_>>()
        };
        assert_eq!(first(Order::Id, false), [1, 2, 3]);
        assert_eq!(first(Order::Id, true), [4, 3, 2]);
        assert_eq!(first(Order::Calls, false), [2, 3, 1]);
        assert_eq!(first(Order::Rate, false), [3, 2, 1]);
        assert_eq!(first(Order::Flight, false), [1, 2, 3]);
        for (skip, left) in [(1, 3), (4, 0), (9, 0)] {
            let mut some = all.clone();
            Order::Id.apply(&mut some, (skip, None), false);
            assert_eq!(some.clients.len(), left);
        }
    }

    #[test]
    fn requests_are_as_documented() {
        let parse = |text: &str| serde_json::from_str::<Request>(text).map_err(|error| error.to_string());
        assert_eq!(parse(r#"{"command":"status"}"#), Ok(Request::Status));
        let some = Request::Clients { skip: 0, count: Some(20), by: Order::Rate, reverse: false };
        assert_eq!(parse(r#"{"command":"clients","count":20,"by":"rate"}"#), Ok(some));
        assert_eq!(parse(r#"{"command":"disconnect","id":7}"#), Ok(Request::Disconnect { id: 7 }));
        for wrong in ["", "[]", r#"{"command":"stop"}"#, r#"{"command":"disconnect"}"#, "7"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
