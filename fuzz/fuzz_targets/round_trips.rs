#![no_main]

libfuzzer_sys::fuzz_target!(
    |data: &[u8]| rpcrdma_fuzz_targets::target("round_trips").expect("a known target")(data)
);
