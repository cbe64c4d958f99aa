//! The tests that every rpcrdma provider passes
