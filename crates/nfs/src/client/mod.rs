//! The NFS client.

mod url;

pub use url::{NfsUrl, UrlError};
