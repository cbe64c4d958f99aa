//! Kerberos as a mechanism of RPCSEC_GSS ([`rpcrdma_oncrpc::gss`]), by MIT's libgssapi_krb5, loaded at run time.
//!
//! A machine without the library runs everything else, and is told which package to install ([`LoadError`]). `unsafe` code
//! is in `library`, `objects`, `mechanism`, `protection` and `stores` only: each block calls one function of the library, or reads its answer.
//!
//! *Protection.* `checksum` makes and verifies the tokens of GSS_GetMIC, and `privacy` those of GSS_Wrap with confidentiality.
//! They do so for the encryption types with AES. `derivation` makes their keys of the context's key, and `cipher` encrypts. A
//! context uses them only if a trial showed that library and crate understand each other. `protection` decides that once, for
//! the whole life of a context. The library protects messages of other encryption types.
//!
//! *Threads.* A context of the library is behind a lock: the library keeps derived keys in it without one. The crate's own
//! protection needs no lock, and keeps no context of the library. Functions may read files, and creating a context at a client
//! asks the KDC. So callers use threads that may wait.
//!
//! *Errors.* `remedy` decides by the status codes which command mends a failure. The text of an error is the library's, with
//! the remedy behind it.
//!
//! *Buffers.* `checksum` reads messages where they are. `cipher` writes another form of them, once. The library reads messages
//! in one slice where they are, but decrypts a copy, which it may change. Its results are copied once.

mod checksum;
mod cipher;
mod derivation;
mod ffi;
mod library;
mod mechanism;
mod objects;
mod privacy;
mod protection;
mod remedy;
mod stores;
mod token;

pub use library::{LoadError, is_available};
pub use mechanism::{KerberosAcceptor, KerberosInitiator, OpenError};
pub use stores::keytab_file;
