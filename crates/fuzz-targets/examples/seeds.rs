//! Writes the seeds of the fuzz targets to `fuzz/seeds`, and removes others: `cargo run -p rpcrdma-fuzz-targets
//! --example seeds`.

use std::path::Path;
use std::{fs, io};

use rpcrdma_fuzz_targets::seeds;

fn main() -> io::Result<()> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    if directory.exists() {
        fs::remove_dir_all(&directory)?;
    }
    let all = seeds::all();
    for seed in &all {
        let target = directory.join(seed.target);
        fs::create_dir_all(&target)?;
        fs::write(target.join(&seed.name), &seed.bytes)?;
    }
    let total: usize = all.iter().map(|seed| seed.bytes.len()).sum();
    println!("{} seeds, {total} bytes", all.len());
    Ok(())
}
