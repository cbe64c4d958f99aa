//! Runs many random histories, and prints the bytes of the first that fails.
//!
//! `hunt ENTRY COUNT SEED [FIRST..]`: the entry is `endpoints`, `hostile` or `characteristics`. The first byte of each
//! history is one of `FIRST`, if there are any; it chooses the versions of both sides.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr
)]

use std::panic::catch_unwind;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [entry, count, seed, first @ ..] = arguments.as_slice() else {
        panic!("hunt ENTRY COUNT SEED [FIRST..]");
    };
    let run = match entry.as_str() {
        "endpoints" => rpcrdma_histories::two_endpoints,
        "hostile" => rpcrdma_histories::hostile_peer,
        "characteristics" => rpcrdma_histories::characteristics,
        other => panic!("no entry {other}"),
    };
    let number = |text: &String| text.parse::<u64>().expect("a number");
    let first: Vec<u8> = first.iter().map(|text| text.parse().expect("a byte")).collect();
    let mut state = number(seed);
    for at in 0..number(count) {
        let mut bytes: Vec<u8> = Vec::new();
        for _ in 0..next(&mut state) % 188 {
            bytes.extend(next(&mut state).to_le_bytes());
        }
        if let (Some(begin), false) = (bytes.first_mut(), first.is_empty()) {
            let choice = next(&mut state) % u64::try_from(first.len()).expect("a few bytes");
            *begin = first[usize::try_from(choice).expect("a few bytes")];
        }
        if catch_unwind(|| run(&bytes)).is_err() {
            eprintln!("history {at} of seed {seed}: {bytes:?}");
            std::process::exit(1);
        }
    }
    println!("{count} histories of {entry} from seed {seed}");
}

/// Returns the next random number (SplitMix64).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
