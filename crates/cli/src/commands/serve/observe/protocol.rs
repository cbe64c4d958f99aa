//! The control protocol: one JSON object a line, a [`Request`] and its [`Answer`] in turn.
//!
//! ```text
//! {"command":"status"}                                   {"status":{…}}
//! {"command":"clients","count":20,"by":"rate"}           {"clients":{"total":3,"clients":[…]}}
//! {"command":"disconnect","id":7}                        {"disconnected":true}
//! anything else                                          {"error":"…"}
//! ```
//!
//! Requests of a new server are those of [`handover`](super::handover).

use serde::{Deserialize, Serialize};

use super::handover::Offer;
pub(in crate::commands) use crate::commands::serve::status::order::Order;
use crate::commands::serve::status::{Clients, Status};

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
    use crate::commands::serve::status::order::Facts;

    #[test]
    fn the_first_of_an_order_are_kept() {
        let one = |id: u64, address: [u8; 4], calls, rate| {
            let address = Some((address, 700).into());
            (id, Facts { address, calls, rates: Some((rate, rate * 2.0)), ..Facts::default() })
        };
        let all = vec![
            one(1, [10, 0, 0, 1], 5, 0.5),
            one(2, [9, 0, 0, 1], 9, 2.5),
            one(3, [10, 0, 0, 1], 9, 700.0),
            one(4, [192, 0, 2, 1], 1, 0.0),
        ];
        let first = |order: Order, (skip, count), reverse| {
            let mut some = all.clone();
            order.apply(&mut some, |one| one.1, (skip, count), reverse);
            some.iter().map(|one| one.0).collect::<Vec<_>>()
        };
        assert_eq!(first(Order::Id, (0, Some(3)), false), [1, 2, 3]);
        assert_eq!(first(Order::Id, (0, Some(3)), true), [4, 3, 2]);
        assert_eq!(first(Order::Calls, (0, Some(3)), false), [2, 3, 1]);
        assert_eq!(first(Order::Rate, (0, Some(3)), false), [3, 2, 1]);
        assert_eq!(first(Order::Bytes, (0, Some(1)), false), [3]);
        assert_eq!(first(Order::Flight, (0, Some(3)), false), [1, 2, 3]);
        assert_eq!(first(Order::Address, (0, None), false), [2, 1, 3, 4], "by number, not by text");
        for (skip, left) in [(1, 3), (4, 0), (9, 0)] {
            assert_eq!(first(Order::Id, (skip, None), false).len(), left);
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
