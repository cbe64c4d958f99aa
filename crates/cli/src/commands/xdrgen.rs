//! `rpcrdma xdrgen`: prints Rust for the description of an RPC program.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use rpcrdma_xdrgen::{Error, FILE_MAX, Generator};

use crate::arguments::Common;
use crate::exit::Failure;
use crate::output::stdout_failure;

const AFTER_HELP: &str = "\
Examples:
  rpcrdma xdrgen kv.x > src/kv.rs                  types, a trait for services and a client
  rpcrdma xdrgen --marks kv.marks.toml kv.x        with maxima, and data that travels in chunks
  cpp -P kv.x | rpcrdma xdrgen - > src/kv.rs       lines that begin with # are for the C preprocessor

FILE follows RFC 4506 (section 6) and RFC 5531 (section 12). A struct, enum or union becomes a type, a version a module with \
a trait for services and a client. A build script can do the same: see the crate rpcrdma-xdrgen. Lines that begin with % \
are C and left out; a type that only they declare must be in scope in Rust, in UpperCamelCase.

The side file is TOML. Each table may be absent:
  [items]                  # \"type.member\", or the name of a typedef
  \"READ3resok.data\" = { ddp = true, max = 1048576 }
  entry_name = { max = 255, utf8 = true }
  [procedures]             # \"PROCEDURE\", or \"VERSION.PROCEDURE\"
  KV_GET = { effect = \"idempotent\" }
  KV_PURGE = { integrity = true }
  [types]                  # types of elsewhere, by their paths in Rust
  authsys_parms = \"crate::auth::Parameters\"
  [constants]              # numbers of elsewhere
  AUTH_PRIVATE = 300001

max is the most bytes, or elements. Items with ddp = true or ddp = \"slices\" may travel in chunks of RDMA, as Bytes or as \
Payload. An effect is \"idempotent\", \"data\" or \"state\" (the default); it decides what the reply cache keeps. bounds = \"PATH\" \
names a function for the largest results, if their type has no limit; without it each call gives its limit.

A description has at most 1048576 bytes, and a name 255 letters. A wrong file is one line FILE:LINE:COLUMN: REASON on standard error (exit code 1), and nothing is printed.";

/// Print Rust for the description of an RPC program: types, service trait and client
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Xdrgen {
    /// The description, a .x file; - is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Side file with what the description cannot say: maxima, DDP-eligible items, effects of procedures
    #[arg(long, value_name = "FILE")]
    marks: Option<PathBuf>,
    /// Path by which the code names the crate rpcrdma
    #[arg(long = "crate", value_name = "PATH", default_value = "::rpcrdma")]
    crate_path: String,
}

impl Xdrgen {
    pub(crate) fn run(self, common: Common) -> Result<(), Failure> {
        if common.json {
            return Err(Failure::usage("xdrgen prints Rust and has no JSON form: leave --json out"));
        }
        let mut generator = if self.file == Path::new("-") {
            Generator::new("stdin").text(stdin()?)
        } else {
            Generator::new(self.file)
        };
        generator = generator.crate_path(self.crate_path);
        if let Some(marks) = self.marks {
            generator = generator.marks(marks);
        }
        let code = generator.generate().map_err(|error| match error {
            Error::CratePath { .. } => Failure::usage(error.to_string()),
            _ => Failure::failed(error.to_string()),
        })?;
        let mut out = io::stdout().lock();
        out.write_all(code.as_bytes()).and_then(|()| out.flush()).map_err(stdout_failure)
    }
}

/// Reads standard input, or the beginning of one that is too long for a description: the generator refuses it.
fn stdin() -> Result<String, Failure> {
    let limit = u64::try_from(FILE_MAX).unwrap_or(u64::MAX).saturating_add(1);
    let mut bytes = Vec::new();
    match io::stdin().lock().take(limit).read_to_end(&mut bytes) {
        Ok(_) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) => Err(Failure::failed(format!("cannot read standard input: {error}"))),
    }
}
