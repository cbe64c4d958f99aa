//! The targets on the seeds in the repository and on random bytes, and the files of `fuzz/` against the table of
//! targets.
// Helpers of tests fail by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use rpcrdma_fuzz_targets::{TARGETS, seeds, target};

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// `scripts/fuzz-all.sh` takes its list from `fuzz/Cargo.toml`.
#[test]
fn each_target_has_its_program_and_no_other_has() {
    let manifest: toml::Table = fs::read_to_string(fuzz().join("Cargo.toml")).unwrap().parse().unwrap();
    let bins = manifest["bin"].as_array().unwrap().iter();
    let listed: BTreeSet<String> = bins.map(|bin| bin["name"].as_str().unwrap().to_owned()).collect();
    let names: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(listed, names);
    for name in &names {
        let program = fs::read_to_string(fuzz().join(format!("fuzz_targets/{name}.rs"))).unwrap();
        assert!(program.contains(&format!("rpcrdma_fuzz_targets::target(\"{name}\")")), "{name}");
    }
    let files = fs::read_dir(fuzz().join("fuzz_targets")).unwrap().count();
    assert_eq!(files, names.len(), "programs that are not listed never run");
}

#[test]
fn the_seeds_in_the_repository_are_those_that_the_generator_makes() {
    let made = seeds::all();
    let total: usize = made.iter().map(|seed| seed.bytes.len()).sum();
    assert!(total <= 400 << 10, "{total} bytes of seeds");
    let mut expected = BTreeSet::new();
    for seed in &made {
        let path = fuzz().join("seeds").join(seed.target).join(&seed.name);
        let found = fs::read(&path).unwrap_or_default();
        assert!(
            found == seed.bytes,
            "{}: `cargo run -p rpcrdma-fuzz-targets --example seeds` writes it",
            path.display()
        );
        assert!(expected.insert(path), "two seeds of one name");
    }
    for (name, _) in TARGETS {
        for file in fs::read_dir(fuzz().join("seeds").join(name)).unwrap() {
            let path = file.unwrap().path();
            assert!(expected.contains(&path), "{}: no generator makes it", path.display());
        }
    }
}

#[test]
fn the_targets_hold_for_their_seeds() {
    let failing = TARGETS.iter().flat_map(|(name, target)| {
        let files = fs::read_dir(fuzz().join("seeds").join(name)).unwrap();
        files.map(|file| file.unwrap().path()).filter(|path| {
            let bytes = fs::read(path).unwrap();
            std::panic::catch_unwind(|| target(&bytes)).is_err()
        })
    });
    assert_eq!(failing.collect::<Vec<PathBuf>>(), Vec::<PathBuf>::new());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

    #[test]
    fn i6_the_targets_hold_for_random_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..1000)) {
        for (name, target) in TARGETS {
            // `rpcrdma_histories` tests these itself.
            if !matches!(name, "endpoints" | "hostile_peer" | "characteristics") {
                target(&bytes);
            }
        }
    }

    /// Mutations get further than random bytes.
    #[test]
    fn i6_the_targets_hold_for_changed_seeds(
        seed in any::<prop::sample::Index>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let all = seeds::all();
        let seed = &all[seed.index(all.len())];
        let mut bytes = seed.bytes.clone();
        for (place, value) in changes {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        target(seed.target).unwrap()(&bytes);
    }
}
