//! Two connections of Version Two that change while they are used: see `rpcrdma_histories::characteristics` for what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rpcrdma_histories::characteristics(data));
