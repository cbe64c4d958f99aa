pub(crate) mod client;
pub(crate) mod server;
