//! Two connections of Version Two that change during use: `rpcrdma_histories::characteristics` describes the checks.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rpcrdma_histories::characteristics(data));
