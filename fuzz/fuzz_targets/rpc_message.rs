#![no_main]

libfuzzer_sys::fuzz_target!(
    |data: &[u8]| rpcrdma_fuzz_targets::target("rpc_message").expect("a known target")(data)
);
