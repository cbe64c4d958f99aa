//! The macro that lists the procedures of a program: numbers, names, effects, and the types that know the rest.
//!
//! The list states neither the DDP-eligible items nor the size of results: both come from the types ([`Bounded`]). By RFC
//! 8267 §4.1 a client knows the size of the results of every procedure of NFS version 3 before it calls.

use rpcrdma_oncrpc::typed::{Bounds, Procedure};
use rpcrdma_oncrpc::{CacheLimits, Effect};
use rpcrdma_xdr::Bounded;

/// Most bytes of an RPC reply in front of the results, with a verifier of 400 bytes (RFC 5531 §8.2, §9).
const REPLY_HEADER: usize = 24 + 400;

/// Returns whether the reply cache can hold the longest reply of this procedure, if it has to.
pub(crate) const fn is_kept_whole<P: Procedure>() -> bool {
    matches!(P::EFFECT, Effect::Idempotent)
        || REPLY_HEADER.saturating_add(P::Results::BOUND.unreduced()) <= CacheLimits::REPLY_LEN
}

/// Declares the procedures of one version of a program: an enum of all, NULL included, and [`Procedure`] for the type of
/// each other one. The results have the bounds of their type, or those of the function after `bounds`.
macro_rules! procedures {
    (
        $(#[$note:meta])*
        pub enum $all:ident, program $program:expr, version $version:expr;
        $(
            $variant:ident = $number:literal, $name:literal,
            $procedure:ty: ($arguments:ty) -> $results:ty, $effect:ident $(, bounds $bounds:expr)?;
        )*
    ) => {
        $(#[$note])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $all {
            /// Procedure 0, NULL: does nothing. The RPC layer answers it.
            Null = 0,
            $(#[doc = concat!("Procedure ", $number, ", ", $name, ".")] $variant = $number,)*
        }

        impl $all {
            /// All procedures, by number.
            pub const ALL: &[Self] = &[Self::Null, $(Self::$variant,)*];

            /// Returns the procedure of this number.
            pub fn from_number(number: u32) -> Option<Self> {
                match number {
                    0 => Some(Self::Null),
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// Returns the procedure's number.
            pub fn number(self) -> u32 {
                self as u32
            }

            /// Returns the procedure's name in capitals.
            pub fn name(self) -> &'static str {
                self.info().name
            }

            /// Returns the procedure's name and effect.
            pub fn info(self) -> ::rpcrdma_oncrpc::ProcedureInfo {
                match self {
                    Self::Null => ::rpcrdma_oncrpc::ProcedureInfo {
                        name: "NULL",
                        effect: ::rpcrdma_oncrpc::Effect::Idempotent,
                    },
                    $(Self::$variant => ::rpcrdma_oncrpc::typed::info::<$procedure>(),)*
                }
            }

            /// Returns the numbers of DDP-eligible arguments and results, which the types mark (RFC 8267 §4, §5).
            pub fn eligibility(self) -> (usize, usize) {
                match self {
                    Self::Null => (0, 0),
                    $(Self::$variant => ::rpcrdma_oncrpc::typed::eligible::<$procedure>(),)*
                }
            }
        }

        impl ::std::fmt::Display for $all {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.name())
            }
        }

        $(
            impl ::rpcrdma_oncrpc::typed::Procedure for $procedure {
                type Arguments = $arguments;
                type Results = $results;
                const PROGRAM: u32 = $program;
                const VERSION: u32 = $version;
                const NUMBER: u32 = $number;
                const NAME: &'static str = $name;
                const EFFECT: ::rpcrdma_oncrpc::Effect = ::rpcrdma_oncrpc::Effect::$effect;

                $(
                    fn bounds(arguments: &Self::Arguments) -> ::rpcrdma_oncrpc::typed::Bounds {
                        $crate::procedures::given::<Self>($bounds, arguments)
                    }
                )?
            }

            const _: () = assert!(
                $crate::procedures::is_kept_whole::<$procedure>(),
                "the reply cache must hold the longest reply"
            );
        )*
    };
}

pub(crate) use procedures;

/// Returns the bounds that a function gives.
pub(crate) fn given<P: Procedure>(bounds: fn(&P::Arguments) -> Bounds, arguments: &P::Arguments) -> Bounds {
    bounds(arguments)
}
