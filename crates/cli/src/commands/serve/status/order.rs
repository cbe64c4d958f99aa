//! Orders of connections, by which clients of the control socket see them.

use std::cmp::Reverse;
use std::net::SocketAddr;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

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

/// The facts about a connection by which an order goes.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::commands) struct Facts {
    pub(in crate::commands) address: Option<SocketAddr>,
    pub(in crate::commands) calls: u64,
    pub(in crate::commands) calls_in_flight: u64,
    /// Memory of the connection and its address, in bytes.
    pub(in crate::commands) memory: usize,
    pub(in crate::commands) credits: u32,
    /// Calls and bytes a second.
    pub(in crate::commands) rates: Option<(f64, f64)>,
}

impl Order {
    /// Sorts connections, and keeps `count` of them after the first `skip`. Equals stay in the order of their numbers, in
    /// which the list comes.
    pub(in crate::commands) fn apply<T>(
        self,
        list: &mut Vec<T>,
        facts: impl Fn(&T) -> Facts,
        (skip, count): (usize, Option<usize>),
        reverse: bool,
    ) {
        match self {
            Self::Id => {}
            // An address has its port behind it, which no order needs.
            Self::Address => list.sort_by_cached_key(|one| facts(one).address),
            number => list.sort_by_cached_key(|one| Reverse(number.key(&facts(one)))),
        }
        if reverse {
            list.reverse();
        }
        list.drain(..skip.min(list.len()));
        list.truncate(count.unwrap_or(usize::MAX));
    }

    /// Returns the number by which connections are sorted; 0 if the order is by something else.
    fn key(self, facts: &Facts) -> u64 {
        match self {
            Self::Id | Self::Address => 0,
            Self::Rate => rate(facts.rates.map(|(calls, _)| calls)),
            Self::Calls => facts.calls,
            Self::Flight => facts.calls_in_flight,
            Self::Bytes => rate(facts.rates.map(|(_, bytes)| bytes)),
            Self::Memory => facts.memory as u64,
            Self::Credits => u64::from(facts.credits),
        }
    }
}

/// Returns a rate as a whole number, for sorting.
fn rate(rate: Option<f64>) -> u64 {
    // Rates are not negative, and one that is too great becomes the greatest number.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    rate.map_or(0, |rate| (rate * 1000.0) as u64)
}
