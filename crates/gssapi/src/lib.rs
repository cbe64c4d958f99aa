//! Kerberos as a mechanism of RPCSEC_GSS ([`rpcrdma_oncrpc::gss`]), by MIT's libgssapi_krb5, loaded at run time.
//!
//! A machine without the library runs everything else, and is told which package to install ([`LoadError`]). `unsafe` code
//! is in `library`, `objects` and `mechanism` only: each block calls one function of the library.
//!
//! *Threads.* A context is behind a lock: the library keeps derived keys in it without one. Functions may read files, and
//! creating a context at a client asks the KDC. So callers use threads that may wait.
//!
//! *Buffers.* The library reads messages where they are, if they are in one slice. Its results are copied once.

mod ffi;
mod library;
mod mechanism;
mod objects;

pub use library::{LoadError, is_available};
pub use mechanism::{KerberosAcceptor, KerberosInitiator, OpenError};
