//! Generates types, service and client from `kv.x`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let out = std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?;
    rpcrdma_xdrgen::Generator::new("kv.x").marks("kv.marks.toml").write_to(out)?;
    Ok(())
}
