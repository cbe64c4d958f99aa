//! Generates code from all descriptions of `specs`.

use std::error::Error;
use std::path::Path;

use rpcrdma_xdrgen::Generator;

/// Each description, with its folder.
const FILES: [(&str, &str); 17] = [
    ("ietf", "nfs40"),
    ("ietf", "nfs41"),
    ("ietf", "nfs42"),
    ("ours", "language"),
    ("ours", "mount3"),
    ("ours", "nfs3"),
    ("ours", "ping"),
    ("ours", "portmap"),
    ("ours", "renamed"),
    ("ours", "rpc"),
    ("ours", "rpcbind"),
    ("ours", "rpcrdma1"),
    ("ours", "rpcrdma2_p1"),
    ("ours", "rpcrdma2_p2"),
    ("ours", "rpcrdma2_p3"),
    ("ours", "rtrext"),
    ("ours", "xcharext"),
];

fn main() -> Result<(), Box<dyn Error>> {
    let out = std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?;
    let specs = Path::new("specs");
    for (folder, name) in FILES {
        let mut generator = Generator::new(specs.join(folder).join(name).with_extension("x"));
        let marks = specs.join("marks").join(name).with_extension("toml");
        if marks.exists() {
            generator = generator.marks(marks);
        }
        if name == "renamed" {
            generator = generator.crate_path("crate::renamed_crate");
        }
        generator.write_to(&out)?;
    }
    Ok(())
}
