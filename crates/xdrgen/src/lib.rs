//! Rust for XDR descriptions: reads `.x` files (RFC 4506 §6, RFC 5531 §12) and writes types, clients and services for the
//! crate `rpcrdma`.
//!
//! In a build script:
//!
//! ```no_run
//! // build.rs; the crate has `include!(concat!(env!("OUT_DIR"), "/kv.rs"));` in a module.
//! let out = std::env::var_os("OUT_DIR").expect("cargo sets it");
//! rpcrdma_xdrgen::Generator::new("kv.x").marks("kv.marks.toml").write_to(out)?;
//! # Ok::<(), rpcrdma_xdrgen::Error>(())
//! ```
//!
//! `rpcrdma xdrgen kv.x` prints the same code. Its public items have documentation, and it compiles without warnings. A
//! program that uses only some of a private module's items puts `#[allow(dead_code)]` on the module.
//!
//! | XDR | Rust |
//! | --- | --- |
//! | `const` | a constant: `u32`, or `i32`, `u64`, `i64` where that is too small |
//! | `enum` | an enumeration; names lose the words that all of them begin with |
//! | `struct` | a structure |
//! | `union` | an enumeration with an arm for each value; `Default` holds the discriminant first |
//! | `union` of a `bool` with nothing for FALSE | `Option` |
//! | `typedef` | another name; a newtype for counted items and lists, which have a maximum |
//! | `int`, `unsigned int`, `hyper`, `unsigned hyper` | `i32`, `u32`, `i64`, `u64` |
//! | `bool`, `float`, `double` | `bool`, `f32`, `f64` |
//! | `opaque x[N]`, `opaque x<N>`, `string x<N>` | `[u8; N]`, `Bytes`, `Text` |
//! | `T x[N]`, `T x<N>`, `T *x` | `[T; N]`, `Vec<T>`, `Option<T>`, with a `Box` where a type holds itself |
//! | `T *x` where a list follows | `Vec<T>`, and `T` without its last member |
//! | `version` | a module by `rpcrdma::program!`: procedures, a trait for services, a client |
//! | several arguments, or a string as argument or result | a type of their own: `NAMEArguments`, `NAMEResults` |
//!
//! A list is a structure whose last member is a pointer to its own type: the only one, or one with `next` in its name.
//! Nothing may hold the structure otherwise than by a pointer. Lists of any length are decoded in a loop. Other types that
//! hold themselves are decoded at most 64 levels deep.
//!
//! Results without a largest size (lists and other counted items without a maximum, types that hold themselves) have no
//! memory that a caller could provide. The client's method then takes their `Bounds`, and `max` or `bounds` in the side
//! file makes it an ordinary one.
//!
//! Types of C that descriptions use without declaring them are known: `uint32_t`, `u_int`, `bool_t` and similar ones. All
//! of less than 64 bits take one word. Other types of elsewhere are those that a `%` line names, or that the side file
//! gives a path. They must implement `Encode`, `Decode`, `Bounded`, `Debug`, `Clone` and `Eq`. Without a path, the name
//! in `UpperCamelCase` must be in scope.
//!
//! Comments directly above a declaration become its documentation, and so do those behind it on its line. They stand there
//! as they are, and mean nothing as Markdown.
//!
//! # The side file
#![doc = include_str!("../docs/marks.md")]
//!
//! # Limits
//! `quadruple` is not supported. A description has at most [`FILE_MAX`] bytes, a name at most [`NAME_MAX`] letters, and
//! types nest at most [`DEPTH_MAX`] deep. Arrays of fixed length have at most [`FIXED_MAX`] elements, and members in place
//! at most as many bytes.
//!
//! Some descriptions that `rpcgen` accepts are refused. Lines for the C preprocessor are, which `cpp -P` removes, and
//! comments that begin with `//`. A type may not hold itself in an arm, but by `*` or `<>`. Program numbers are those
//! that RFC 5531 §8.3 does not reserve, versions begin at 1 (§8.1), and procedure 0 takes and returns `void` (§12.1).
//!
//! *Buffers.* A description is read whole. *Errors.* The first fault ends the work, as an [`Error`] with file, line,
//! column and what was expected. No input makes the generator panic.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic))]

mod docs;
mod emit;
mod error;
mod generator;
mod graph;
mod lexer;
mod marks;
mod model;
mod names;
mod parser;
mod print;
mod resolve;
mod symbols;
mod tree;

pub use error::{Error, Fault, Position};
pub use generator::Generator;
pub use lexer::{FILE_MAX, NAME_MAX};
pub use parser::DEPTH_MAX;
pub use resolve::FIXED_MAX;
pub use tree::Specification;

#[cfg(test)]
mod tests;
