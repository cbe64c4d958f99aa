//! The commands, one file each.

pub(crate) mod bench;
pub(crate) mod copy;
pub(crate) mod exports;
pub(crate) mod ls;
pub(crate) mod names;
pub(crate) mod ping;
pub(crate) mod serve;
pub(crate) mod stat;

use crate::arguments::Arguments;
use crate::exit::Failure;

/// Runs the command.
pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    Err(Failure::failed(format!("not wired to the libraries yet: {arguments:?}")))
}
