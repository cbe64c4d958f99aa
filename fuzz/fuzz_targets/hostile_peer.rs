//! Connections of both sides with a peer that keeps to nothing: see `rpcrdma_histories::hostile_peer` for what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rpcrdma_histories::hostile_peer(data));
