//! Tests of the client against the server of this crate in this process, and against servers that misbehave.

mod across;
mod copies;
mod directories;
mod extents;
mod files;
mod hostile;
mod loopback;
mod mounting;
mod partial;
mod paths;
mod rules;
mod safety;
mod sync;
mod trees;

use loopback::{Loopback, Step};
