//! Connections with retired forms (RFC 5666).

mod limits;
mod padded;
mod read_read;
mod roundup;
