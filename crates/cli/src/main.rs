//! The rpcrdma command.
fn main() {}
