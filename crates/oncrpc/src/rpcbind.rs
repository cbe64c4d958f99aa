//! rpcbind: the addresses on which programs listen (RFC 1833).
//!
//! The module has message types for versions 2 (the port mapper), 3 and 4, for the procedures that servers and clients
//! of other programs need. Two helpers work without I/O. A [`Registration`] makes the calls that announce a service. A
//! [`Lookup`] asks one question after the other until an address is found. Their user sends each [`Request`] to rpcbind
//! over TCP and hands the results back. Addresses travel as universal addresses: [`uaddr`].
//!
//! All memory is slices of the messages. Only the decoding of rpcbind's answers can fail; it is bounded by
//! [`STRING_MAX`] and [`ENTRIES_MAX`].

use std::marker::PhantomData;

use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, EncodeError, Stream, Text, Xdr, encode};

mod lookup;
mod registration;
pub mod uaddr;

pub use lookup::{Lookup, LookupError, Progress};
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

/// Procedure numbers (RFC 1833 §2.1, §3.1). Where versions 2 and 3 differ, so do the types.
pub mod procedure {
    /// Announces a service, all versions.
    pub const SET: u32 = 1;
    /// Withdraws an announcement, all versions.
    pub const UNSET: u32 = 2;
    /// Asks for a port, version 2.
    pub const GETPORT: u32 = 3;
    /// Asks for a universal address, versions 3 and 4.
    pub const GETADDR: u32 = 3;
    /// Lists all announcements, all versions.
    pub const DUMP: u32 = 4;
    /// Asks for the addresses of a service on all transports, version 4.
    pub const GETADDRLIST: u32 = 11;
}

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

/// A call to rpcbind, with the type of its results. Its constructors fail only if a string has more than [`STRING_MAX`]
/// bytes.
#[derive(Clone, Debug)]
pub struct Request<R> {
    /// Version of rpcbind to call.
    pub version: u32,
    /// Procedure to call.
    pub procedure: u32,
    /// Its arguments.
    pub arguments: Stream,
    results: PhantomData<fn() -> R>,
}

impl<R: Decode> Request<R> {
    fn new(version: u32, procedure: u32, arguments: &impl Encode) -> Result<Self, EncodeError> {
        Ok(Self { version, procedure, arguments: encode(arguments)?, results: PhantomData })
    }

    /// Decodes the results of a successful reply to this call.
    pub fn results(&self, results: Decoder) -> Result<R, DecodeError> {
        results.decode_all()
    }
}

impl Request<bool> {
    /// Returns version 2 SET, whose result is whether the mapping was made. Refused if the tuple of program, version
    /// and protocol has a mapping.
    pub fn set_mapping(mapping: Mapping) -> Result<Self, EncodeError> {
        Self::new(VERSION_2, procedure::SET, &mapping)
    }

    /// Returns version 2 UNSET, whose result is whether mappings were removed. Protocol and port are ignored.
    pub fn unset_mapping(mapping: Mapping) -> Result<Self, EncodeError> {
        Self::new(VERSION_2, procedure::UNSET, &mapping)
    }

    /// Returns version 3 or 4 SET, whose result is whether the announcement was made. Refused if the tuple of program,
    /// version and netid has an announcement.
    pub fn set(version: u32, announcement: &Rpcb) -> Result<Self, EncodeError> {
        Self::new(version, procedure::SET, announcement)
    }

    /// Returns version 3 or 4 UNSET, whose result is whether announcements were removed. An empty netid means all.
    pub fn unset(version: u32, announcement: &Rpcb) -> Result<Self, EncodeError> {
        Self::new(version, procedure::UNSET, announcement)
    }
}

impl Request<u32> {
    /// Returns version 2 GETPORT, whose result is the port, 0 if there is none.
    pub fn getport(program: u32, version: u32, protocol: u32) -> Result<Self, EncodeError> {
        Self::new(VERSION_2, procedure::GETPORT, &Mapping { program, version, protocol, port: 0 })
    }
}

impl Request<AddressText> {
    /// Returns version 3 or 4 GETADDR. rpcbind takes the netid from the transport of the call (RFC 1833 §2.2.1).
    pub fn getaddr(rpcbind: u32, service: &Rpcb) -> Result<Self, EncodeError> {
        Self::new(rpcbind, procedure::GETADDR, service)
    }
}

impl Request<MappingList> {
    /// Returns version 2 DUMP.
    pub fn dump_mappings() -> Result<Self, EncodeError> {
        Self::new(VERSION_2, procedure::DUMP, &())
    }
}

impl Request<RpcbList> {
    /// Returns version 3 or 4 DUMP.
    pub fn dump(rpcbind: u32) -> Result<Self, EncodeError> {
        Self::new(rpcbind, procedure::DUMP, &())
    }
}

impl Request<RpcbEntryList> {
    /// Returns version 4 GETADDRLIST, whose results are the addresses of a service on all transports.
    pub fn getaddrlist(service: &Rpcb) -> Result<Self, EncodeError> {
        Self::new(VERSION_4, procedure::GETADDRLIST, service)
    }
}

#[cfg(test)]
mod tests;
