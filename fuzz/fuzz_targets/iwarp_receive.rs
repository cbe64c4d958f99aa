//! The bytes of an iWARP peer, at start-up (RFC 5044 §7.1, RFC 6581 §6) and after it (FPDUs, DDP, RDMAP). CRCs are off
//! so that mutations get past them. For any bytes, every request completes once and no memory is lost. The first byte
//! selects the stage, and the properties of the endpoint.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rpcrdma_iwarp::fuzzing;

fuzz_target!(|data: &[u8]| {
    let Some((&[how, step], bytes)) = data.split_first_chunk() else { return };
    match how % 4 {
        0 => fuzzing::startup(bytes, usize::from(step)),
        1 => fuzzing::views(bytes),
        kind => {
            let strict = u8::from(kind == 2);
            fuzzing::receive(bytes, usize::from(step) * 8 + 1, fuzzing::Setup(how >> 2 << 1 | strict));
        }
    }
});
