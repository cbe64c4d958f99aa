#![no_main]

libfuzzer_sys::fuzz_target!(
    |data: &[u8]| rpcrdma_fuzz_targets::target("iwarp_receive").expect("a known target")(data)
);
