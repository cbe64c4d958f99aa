#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rpcrdma_fuzz_targets::target("mount").expect("a known target")(
    data
));
