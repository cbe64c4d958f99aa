//! Connections of both sides with a peer that violates every rule: `rpcrdma_histories::hostile_peer` describes the
//! checks.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rpcrdma_histories::hostile_peer(data));
