//! Connections that speak Version Two.

mod combined;
mod continued;
mod continued_credits;
mod directions;
mod exchange;
mod first_message;
mod group_bounds;
mod refusals;
mod reports;
#[cfg(feature = "retired")]
mod settings;
mod subsets;
mod transmissions;
mod version_two;
mod version_two_07;
mod version_two_07_bytes;
