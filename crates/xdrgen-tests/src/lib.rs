//! The code that `rpcrdma-xdrgen` makes of all descriptions in `specs`: published ones, and some of our own.
//!
//! `specs/ietf` has the code components of RFC 5662, RFC 7531 and RFC 7863, `specs/ours` transcriptions of other documents,
//! and `specs/marks` the side files. The build script generates the code of each module. That it compiles is the first
//! test; those in `tests` use it.

macro_rules! generated {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $(
            $(#[$doc])*
            pub mod $name {
                include!(concat!(env!("OUT_DIR"), "/", stringify!($name), ".rs"));
            }
        )*
    };
}

generated! {
    /// Every form of the language.
    language;
    /// MOUNT version 3 (RFC 1813 §5).
    mount3;
    /// NFS version 3 (RFC 1813).
    nfs3;
    /// NFS version 4.0 (RFC 7531).
    nfs40;
    /// NFS version 4.1 (RFC 5662).
    nfs41;
    /// NFS version 4.2 (RFC 7863).
    nfs42;
    /// The example of RFC 5531 §12.1.
    ping;
    /// The port mapper (RFC 1833 §3).
    portmap;
    /// Code that names `rpcrdma` by another path.
    renamed;
    /// RPC messages (RFC 5531 §9).
    rpc;
    /// rpcbind (RFC 1833 §2).
    rpcbind;
    /// The header of RPC-over-RDMA Version One (RFC 8166 §4.1).
    rpcrdma1;
    /// The header of Version Two, profile p1.
    rpcrdma2_p1;
    /// The header of Version Two, profile p2.
    rpcrdma2_p2;
    /// The headers of Version Two, profile p3.
    rpcrdma2_p3;
    /// Transmissions in several Sends.
    rtrext;
    /// Transport characteristics.
    xcharext;
}

pub use rpcrdma as renamed_crate;

/// A type that `language.x` has from elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, rpcrdma::xdr::Xdr)]
pub struct Elsewhere(#[xdr(max = 4)] pub rpcrdma::bytes::Bytes);

/// Returns the largest results of `LANGUAGE_WALK`, which have no bound of their own.
#[must_use]
pub fn bounds_of_walk(arguments: &language::WalkArguments) -> rpcrdma::Bounds {
    rpcrdma::Bounds::inline(usize::try_from(arguments.depth).unwrap_or(0) * 100)
}

/// Returns the largest results of a COMPOUND: 256 bytes for each operation, and the data of each READ.
#[must_use]
pub fn bounds_of_compound(arguments: &nfs41::Compound4args) -> rpcrdma::Bounds {
    let head = 12 + arguments.tag.0.len().next_multiple_of(4);
    let mut bounds = rpcrdma::Bounds::inline(head + arguments.argarray.len() * 256);
    for operation in &arguments.argarray {
        if let nfs41::NfsArgop4::Read(read) = operation {
            bounds = bounds.item(usize::try_from(read.count).unwrap_or(usize::MAX));
        }
    }
    bounds
}
