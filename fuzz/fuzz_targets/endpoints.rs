//! A client session and its server on a simulated fabric with faults: see `rpcrdma_histories::two_endpoints` for what must
//! hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rpcrdma_histories::two_endpoints(data));
