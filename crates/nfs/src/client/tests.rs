//! The client against our own server in this process, and against servers that misbehave.

mod directories;
mod files;
mod loopback;
mod mounting;
mod paths;
mod trees;

use loopback::{Loopback, Step};
