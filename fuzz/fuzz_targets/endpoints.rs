//! A client session and its server on a simulated fabric with faults: `rpcrdma_histories::two_endpoints` describes the
//! checks.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rpcrdma_histories::two_endpoints(data));
