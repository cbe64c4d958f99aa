#![no_main]

libfuzzer_sys::fuzz_target!(
    |data: &[u8]| rpcrdma_fuzz_targets::target("file_handles").expect("a known target")(data)
);
