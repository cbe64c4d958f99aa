//! rpcbind: the addresses on which programs listen (RFC 1833).
//!
//! The module has the types of the messages in versions 2 (the port mapper), 3 and 4, for the procedures that servers and
//! clients of other programs need. A [`Registration`] is an announcement in the form of each version. A [`Lookup`] finds the
//! address of one service in rpcbind's answers. Addresses travel as universal addresses: [`uaddr`]. The procedures
//! themselves are in the crate `rpcrdma`.
//!
//! All memory is slices of the messages. Only the decoding of rpcbind's answers can fail; it is bounded by
//! [`STRING_MAX`] and [`ENTRIES_MAX`].

use rpcrdma_xdr::{Text, Xdr};

mod lookup;
mod registration;
pub mod uaddr;

pub use lookup::Lookup;
pub use registration::Registration;
pub use uaddr::{Netid, UniversalAddress, UniversalAddressError};

/// Program number of rpcbind.
pub const PROGRAM: u32 = 100_000;

/// Port of rpcbind, TCP and UDP.
pub const PORT: u16 = 111;

/// The port mapper (RFC 1833 §3).
pub const VERSION_2: u32 = 2;

/// rpcbind version 3 (RFC 1833 §2.2.1).
pub const VERSION_3: u32 = 3;

/// rpcbind version 4 (RFC 1833 §2.2.2).
pub const VERSION_4: u32 = 4;

/// Longest netid, universal address or owner accepted, in bytes. RFC 1833 gives no limit.
pub const STRING_MAX: usize = 1024;

/// Most entries accepted in a list. RFC 1833 gives no limit.
pub const ENTRIES_MAX: usize = 4096;

/// Protocol number of TCP in a version 2 [`Mapping`].
pub const IPPROTO_TCP: u32 = 6;

/// `mapping`: an announcement in version 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Xdr)]
pub struct Mapping {
    /// Program number.
    pub program: u32,
    /// Version of the program.
    pub version: u32,
    /// IP protocol number; [`IPPROTO_TCP`].
    pub protocol: u32,
    /// Port.
    pub port: u32,
}

/// `rpcb`: an announcement in versions 3 and 4. As the argument of a question, unknown fields stay empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Xdr)]
pub struct Rpcb {
    /// Program number.
    pub program: u32,
    /// Version of the program.
    pub version: u32,
    /// The transport: a [`Netid`] or another name.
    #[xdr(max = STRING_MAX)]
    pub netid: Text,
    /// [`UniversalAddress`] of the service.
    #[xdr(max = STRING_MAX)]
    pub address: Text,
    /// The owner of the announcement.
    #[xdr(max = STRING_MAX)]
    pub owner: Text,
}

/// `rpcb_entry`: one address of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Xdr)]
pub struct RpcbEntry {
    /// [`UniversalAddress`] of the service.
    #[xdr(max = STRING_MAX)]
    pub address: Text,
    /// The transport.
    #[xdr(max = STRING_MAX)]
    pub netid: Text,
    /// 1 datagrams, 2 connection, 3 connection with orderly release, 4 raw.
    pub semantics: u32,
    /// `inet`, `inet6` or another family.
    #[xdr(max = STRING_MAX)]
    pub protocol_family: Text,
    /// `tcp`, `rdma` or another protocol.
    #[xdr(max = STRING_MAX)]
    pub protocol: Text,
}

/// Result of version 2 DUMP: `pmaplist`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Xdr)]
pub struct MappingList(#[xdr(list, max = ENTRIES_MAX)] pub Vec<Mapping>);

/// Result of version 3 and 4 DUMP: `rpcblist_ptr`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Xdr)]
pub struct RpcbList(#[xdr(list, max = ENTRIES_MAX)] pub Vec<Rpcb>);

/// Result of GETADDRLIST: `rpcb_entry_list_ptr`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Xdr)]
pub struct RpcbEntryList(#[xdr(list, max = ENTRIES_MAX)] pub Vec<RpcbEntry>);

/// Result of GETADDR: a universal address, empty if there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Xdr)]
pub struct AddressText(#[xdr(max = STRING_MAX)] pub Text);

#[cfg(test)]
mod tests;
