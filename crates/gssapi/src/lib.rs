//! Kerberos as a mechanism of RPCSEC_GSS ([`rpcrdma_oncrpc::gss`]), by MIT's libgssapi_krb5, loaded at run time.
//!
//! A machine without the library runs everything else, and is told which package to install ([`LoadError`]). `unsafe` code
//! is in `library`, `objects` and `mechanism` only: each block calls one function of the library, or reads its answer.
//!
//! *Checksums.* `checksum` makes and verifies the tokens of GSS_GetMIC for the encryption types with AES, with keys that
//! `derivation` makes of the context's key. A context uses them only if a trial gave what the library gives. All else is done
//! by the library.
//!
//! *Threads.* A context of the library is behind a lock: the library keeps derived keys in it without one. The crate's own
//! checksums need no lock. Functions may read files, and creating a context at a client asks the KDC. So callers use threads
//! that may wait.
//!
//! *Errors.* `remedy` decides by the status codes which command mends a failure. The text of an error is the library's, with
//! the remedy behind it.
//!
//! *Buffers.* `checksum` reads messages where they are. The library does so if they are in one slice. Its results are copied
//! once.

mod checksum;
mod derivation;
mod ffi;
mod library;
mod mechanism;
mod objects;
mod remedy;

pub use library::{LoadError, is_available};
pub use mechanism::{KerberosAcceptor, KerberosInitiator, OpenError};
