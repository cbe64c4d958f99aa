#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rpcrdma_fuzz_targets::target("records").expect("a known target")(
    data
));
