#![no_main]

libfuzzer_sys::fuzz_target!(
    |data: &[u8]| rpcrdma_fuzz_targets::target("hostile_peer").expect("a known target")(data)
);
