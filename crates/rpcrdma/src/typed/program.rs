//! [`program!`](crate::program): a version of a program from the list of its procedures.

/// Declares one version of a program: a type for each procedure, a trait for services, and a client.
///
/// ```
/// use rpcrdma::CallFailure;
/// use rpcrdma::CallContext;
///
/// rpcrdma::program! {
///     /// Counts.
///     pub mod counter {
///         program 0x2000_0001, version 1;
///         /// Adds to the number, and returns the sum.
///         fn add = 1, Add(u32) -> u32, State;
///         /// Returns the number.
///         fn get = 2, Get() -> u32, Idempotent;
///     }
/// }
///
/// struct Seven;
///
/// impl counter::Service for Seven {
///     async fn add(&self, _: &CallContext, more: u32) -> Result<u32, CallFailure> {
///         7u32.checked_add(more).ok_or(CallFailure::SystemError)
///     }
///
///     async fn get(&self, _: &CallContext) -> Result<u32, CallFailure> {
///         Ok(7)
///     }
/// }
///
/// let program = counter::serve(Seven);
/// # let _ = program;
/// ```
///
/// Inside the braces stand program number and version, then a line for each procedure. It has the name of the methods, the
/// number, and the name of the type. Then come arguments in parentheses (nothing for void), results (`()` for void), and the
/// [`Effect`](crate::Effect). Options may follow:
///
/// | option | meaning |
/// | --- | --- |
/// | `integrity` | calls need RPCSEC_GSS with integrity or privacy ([`Procedure::INTEGRITY`](crate::Procedure::INTEGRITY)) |
/// | `eligible = N` | [`Procedure::ELIGIBLE_ARGUMENTS`](crate::Procedure::ELIGIBLE_ARGUMENTS): the most arguments in Read chunks of their own. Needed only if a list without a maximum holds DDP-eligible items |
/// | `bounds = F` | the function `F(&Arguments) -> Bounds` is [`Procedure::bounds`](crate::Procedure::bounds) |
/// | `within` | the client's method takes the [`Bounds`](crate::Bounds) of its results, as [`Caller::call_within`](crate::Caller::call_within) does |
///
/// The module is `pub`, `pub(crate)`, `pub(super)` or private, and its items are as visible. It begins with `use super::*`, and
/// has:
///
/// | item | |
/// | --- | --- |
/// | `PROGRAM`, `VERSION` | the numbers |
/// | a type for each procedure | a [`Procedure`](crate::Procedure), for [`Client::call`](crate::Client::call) |
/// | `trait Service` | an `async` method for each procedure, with the [`CallContext`](crate::CallContext) and the arguments; `accepts_flavor`, `requires_integrity` and `is_light` may be overridden, as of [`Program`](crate::Program) |
/// | `serve` | makes a [`Binding`](crate::Binding) of a service, for [`ServerBuilder::program`](crate::ServerBuilder::program) or [`ClientBuilder::program`](crate::ClientBuilder::program) |
/// | `struct Server` | a service as a [`Version`](crate::typed::Version) |
/// | `struct Client` | a method for each procedure, on any [`Caller`](crate::Caller) |
///
/// Procedure 0 is not declared: it takes and returns nothing, and every program has it. No method can have the name `new`,
/// `caller`, `accepts_flavor`, `requires_integrity` or `is_light`.
///
/// A declaration that cannot be served does not compile. Two procedures with one number:
///
/// ```compile_fail,E0080
/// rpcrdma::program! {
///     pub mod twice {
///         program 0x2000_0001, version 1;
///         fn one = 1, One() -> (), State;
///         fn other = 1, Other() -> (), State;
///     }
/// }
/// # fn main() {}
/// ```
///
/// Procedure 0:
///
/// ```compile_fail,E0080
/// rpcrdma::program! {
///     pub mod null {
///         program 0x2000_0001, version 1;
///         fn null = 0, Null() -> (), Idempotent;
///     }
/// }
/// # fn main() {}
/// ```
///
/// A reserved program number (RFC 5531 §8.3), or version 0:
///
/// ```compile_fail,E0080
/// rpcrdma::program! {
///     pub mod reserved {
///         program 0x6000_0000, version 1;
///         fn one = 1, One() -> (), State;
///     }
/// }
/// # fn main() {}
/// ```
///
/// ```compile_fail,E0080
/// rpcrdma::program! {
///     pub mod nought {
///         program 0x2000_0001, version 0;
///         fn one = 1, One() -> (), State;
///     }
/// }
/// # fn main() {}
/// ```
///
/// An effect that there is not:
///
/// ```compile_fail,E0599
/// rpcrdma::program! {
///     pub mod effect {
///         program 0x2000_0001, version 1;
///         fn one = 1, One() -> (), Nothing;
///     }
/// }
/// # fn main() {}
/// ```
///
/// An option that there is not:
///
/// ```compile_fail
/// rpcrdma::program! {
///     pub mod option {
///         program 0x2000_0001, version 1;
///         fn one = 1, One() -> (), State, privacy;
///     }
/// }
/// # fn main() {}
/// ```
///
/// Arguments or results without an XDR form. Here a string needs its maximum, so it needs a type of its own:
///
/// ```compile_fail,E0277
/// rpcrdma::program! {
///     pub mod form {
///         program 0x2000_0001, version 1;
///         fn one = 1, One(String) -> (), State;
///     }
/// }
/// # fn main() {}
/// ```
///
/// Results without a largest size: a caller knows no size for which to provide memory. The option `bounds` gives one to
/// all calls, and `within` lets each call give its own.
///
/// ```compile_fail,E0080
/// #[derive(rpcrdma::xdr::Xdr)]
/// pub struct Endless(#[xdr(list)] Vec<u32>);
///
/// rpcrdma::program! {
///     pub mod endless {
///         program 0x2000_0001, version 1;
///         fn one = 1, One() -> Endless, Idempotent;
///     }
/// }
/// # fn main() {}
/// ```
///
/// ```
/// use rpcrdma::{Bounds, CallError, Client};
///
/// #[derive(rpcrdma::xdr::Xdr)]
/// pub struct Endless(#[xdr(list)] Vec<u32>);
///
/// rpcrdma::program! {
///     pub mod endless {
///         program 0x2000_0001, version 1;
///         fn one = 1, One(u32) -> Endless, Idempotent, within;
///     }
/// }
///
/// async fn call(client: &Client) -> Result<Endless, CallError> {
///     // At most a hundred elements of 8 bytes, and the end of the list.
///     endless::Client::new(client).one(100, Bounds::inline(100 * 8 + 4)).await
/// }
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! program {
    ($(#[$attribute:meta])* pub mod $module:ident { $($declarations:tt)* }) => {
        $crate::__program! { [$(#[$attribute])* pub] [pub] $module $($declarations)* }
    };
    ($(#[$attribute:meta])* pub(crate) mod $module:ident { $($declarations:tt)* }) => {
        $crate::__program! { [$(#[$attribute])* pub(crate)] [pub(crate)] $module $($declarations)* }
    };
    ($(#[$attribute:meta])* pub(super) mod $module:ident { $($declarations:tt)* }) => {
        $crate::__program! { [$(#[$attribute])* pub(super)] [pub(in super::super)] $module $($declarations)* }
    };
    ($(#[$attribute:meta])* mod $module:ident { $($declarations:tt)* }) => {
        $crate::__program! { [$(#[$attribute])*] [pub(super)] $module $($declarations)* }
    };
}

/// The module of [`program!`](crate::program): its attributes and visibility, the visibility of its items, its name, and
/// what stands in its braces.
#[doc(hidden)]
#[macro_export]
macro_rules! __program {
    (
        [$($head:tt)*] [$visibility:vis] $module:ident
        program $program:expr, version $version:expr;
        $(
            $(#[$note:meta])*
            fn $method:ident = $number:expr,
                $procedure:ident($($arguments:ty)?) -> $results:ty, $effect:ident
                $(, $option:ident $(= $value:expr)?)*;
        )*
    ) => {
        $($head)* mod $module {
            #[allow(unused_imports)]
            use super::*;

            #[doc = concat!("Program number of `", stringify!($module), "`.")]
            $visibility const PROGRAM: u32 = $program;
            #[doc = concat!("Version of `", stringify!($module), "`.")]
            $visibility const VERSION: u32 = $version;

            const _: () = $crate::typed::parts::check_numbers(
                PROGRAM,
                VERSION,
                &[$(<$procedure as $crate::Procedure>::NUMBER),*],
            );

            $(
                $(#[$note])*
                #[doc = ""]
                #[doc = concat!("Procedure ", stringify!($number), ".")]
                #[derive(Clone, Copy, Debug)]
                $visibility struct $procedure;

                #[allow(unused_parens)]
                impl $crate::Procedure for $procedure {
                    type Arguments = ($($arguments)?);
                    type Results = $results;
                    const PROGRAM: u32 = PROGRAM;
                    const VERSION: u32 = VERSION;
                    const NUMBER: u32 = $number;
                    const NAME: &'static str = {
                        const NAME: &[u8] =
                            &$crate::typed::parts::upper::<{ stringify!($method).len() }>(stringify!($method));
                        $crate::typed::parts::name(NAME)
                    };
                    const EFFECT: $crate::Effect = $crate::Effect::$effect;
                    $($crate::__program_option!($option $(= $value)?);)*
                }

                $crate::__program_size!([$($option)*] $method $results);
            )*

            #[doc = concat!("The procedures of `", stringify!($module), "`, to serve them.")]
            $visibility trait Service: ::core::marker::Send + ::core::marker::Sync + 'static {
                $(
                    $(#[$note])*
                    #[doc = ""]
                    #[doc = "# Errors"]
                    #[doc = "A failure is the reply that RFC 5531 has for it."]
                    fn $method(
                        &self,
                        context: &$crate::CallContext,
                        $(arguments: $arguments,)?
                    ) -> impl ::core::future::Future<
                        Output = ::core::result::Result<$results, $crate::CallFailure>,
                    > + ::core::marker::Send;
                )*

                /// Returns whether a credential of this flavour is accepted. By default AUTH_NONE and AUTH_SYS are.
                fn accepts_flavor(&self, flavor: u32) -> bool {
                    $crate::oncrpc::program::accepted_by_default(flavor)
                }

                /// Returns whether handlers only wait for others once they have begun, and need no tasks of their own. By
                /// default none is light.
                fn is_light(&self) -> bool {
                    false
                }

                /// Returns whether this procedure needs RPCSEC_GSS with integrity or privacy. By default those do that
                /// are declared so.
                fn requires_integrity(&self, procedure: u32) -> bool {
                    match procedure {
                        $(
                            <$procedure as $crate::Procedure>::NUMBER => {
                                <$procedure as $crate::Procedure>::INTEGRITY
                            }
                        )*
                        _ => false,
                    }
                }
            }

            impl<S: Service> Service for ::std::sync::Arc<S> {
                $(
                    fn $method(
                        &self,
                        context: &$crate::CallContext,
                        $(arguments: $arguments,)?
                    ) -> impl ::core::future::Future<
                        Output = ::core::result::Result<$results, $crate::CallFailure>,
                    > + ::core::marker::Send {
                        <S as Service>::$method(
                            self,
                            context,
                            $($crate::typed::parts::same::<$arguments>(arguments),)?
                        )
                    }
                )*

                fn accepts_flavor(&self, flavor: u32) -> bool {
                    <S as Service>::accepts_flavor(self, flavor)
                }

                fn is_light(&self) -> bool {
                    <S as Service>::is_light(self)
                }

                fn requires_integrity(&self, procedure: u32) -> bool {
                    <S as Service>::requires_integrity(self, procedure)
                }
            }

            #[doc = concat!("Serves the procedures of `", stringify!($module), "`.")]
            #[must_use]
            $visibility fn serve<S: Service>(service: S) -> impl $crate::Binding {
                $crate::typed::Served::new(Server::new(service))
            }

            #[doc = concat!("A service of `", stringify!($module), "`, as a version of the program.")]
            #[derive(Debug)]
            $visibility struct Server<S> {
                service: S,
            }

            impl<S: Service> Server<S> {
                /// Creates a version that this service serves.
                #[must_use]
                pub const fn new(service: S) -> Self {
                    Self { service }
                }
            }

            impl<S: Service> $crate::typed::Version for Server<S> {
                fn number(&self) -> u32 {
                    PROGRAM
                }

                fn version(&self) -> u32 {
                    VERSION
                }

                fn procedure(
                    &self,
                    procedure: u32,
                ) -> ::core::option::Option<$crate::oncrpc::ProcedureInfo> {
                    match procedure {
                        $(
                            <$procedure as $crate::Procedure>::NUMBER => {
                                ::core::option::Option::Some($crate::typed::info::<$procedure>())
                            }
                        )*
                        _ => ::core::option::Option::None,
                    }
                }

                fn eligibility(&self, procedure: u32) -> (usize, usize) {
                    match procedure {
                        $(
                            <$procedure as $crate::Procedure>::NUMBER => {
                                $crate::typed::eligible::<$procedure>()
                            }
                        )*
                        _ => (0, 0),
                    }
                }

                fn requires_integrity(&self, procedure: u32) -> bool {
                    <S as Service>::requires_integrity(&self.service, procedure)
                }

                fn accepts_flavor(&self, flavor: u32) -> bool {
                    <S as Service>::accepts_flavor(&self.service, flavor)
                }

                fn is_light(&self) -> bool {
                    <S as Service>::is_light(&self.service)
                }

                // Void arguments are decoded, and no method takes them.
                #[allow(unused_variables)]
                fn call(
                    self: ::std::sync::Arc<Self>,
                    context: $crate::CallContext,
                    arguments: $crate::xdr::Decoder,
                ) -> $crate::ResponseFuture {
                    match context.procedure {
                        $(
                            <$procedure as $crate::Procedure>::NUMBER => {
                                match $crate::typed::arguments::<$procedure>(arguments) {
                                    ::core::result::Result::Ok(arguments) => {
                                        ::std::boxed::Box::pin(async move {
                                            let results = <S as Service>::$method(
                                                &self.service,
                                                &context,
                                                $($crate::typed::parts::same::<$arguments>(arguments),)?
                                            ).await?;
                                            $crate::typed::results::<$procedure>(&results)
                                        })
                                    }
                                    ::core::result::Result::Err(failure) => $crate::typed::parts::failed(failure),
                                }
                            }
                        )*
                        _ => $crate::typed::parts::failed($crate::CallFailure::ProcedureUnavailable),
                    }
                }
            }

            #[doc = concat!("Calls the procedures of `", stringify!($module), "`.")]
            #[derive(Clone, Debug)]
            $visibility struct Client<C> {
                caller: C,
            }

            impl<C: $crate::Caller> Client<C> {
                /// Creates a client that makes its calls through this caller.
                pub const fn new(caller: C) -> Self {
                    Self { caller }
                }

                /// Returns the caller.
                pub const fn caller(&self) -> &C {
                    &self.caller
                }

                $(
                    $crate::__program_call! {
                        [$($option)*]
                        [$(#[$note])*]
                        $method $procedure [$($arguments)?] $results
                    }
                )*
            }
        }
    };
}

/// The method of a client for one procedure. With the option `within` it takes the bounds of the results.
#[doc(hidden)]
#[macro_export]
macro_rules! __program_call {
    (
        [within $($rest:ident)*] [$(#[$note:meta])*]
        $method:ident $procedure:ident [$($arguments:ty)?] $results:ty
    ) => {
        $(#[$note])*
        #[doc = ""]
        #[doc = "`bounds` are the largest results of this call."]
        #[doc = ""]
        #[doc = "# Errors"]
        #[doc = "As `Caller::call_within`."]
        #[allow(unused_parens)]
        pub fn $method(
            &self,
            $(arguments: impl ::core::borrow::Borrow<$arguments> + ::core::marker::Send,)?
            bounds: $crate::Bounds,
        ) -> impl ::core::future::Future<
            Output = ::core::result::Result<$results, $crate::CallError>,
        > + ::core::marker::Send {
            $crate::Caller::call_within::<$procedure>(
                &self.caller,
                ($($crate::typed::parts::lent::<$arguments, _>(arguments))?),
                bounds,
            )
        }
    };
    ([$option:ident $($rest:ident)*] $($of_method:tt)*) => {
        $crate::__program_call! { [$($rest)*] $($of_method)* }
    };
    (
        [] [$(#[$note:meta])*]
        $method:ident $procedure:ident [$($arguments:ty)?] $results:ty
    ) => {
        $(#[$note])*
        #[doc = ""]
        #[doc = "# Errors"]
        #[doc = "As `Caller::call`."]
        #[allow(unused_parens)]
        pub fn $method(
            &self,
            $(arguments: impl ::core::borrow::Borrow<$arguments> + ::core::marker::Send,)?
        ) -> impl ::core::future::Future<
            Output = ::core::result::Result<$results, $crate::CallError>,
        > + ::core::marker::Send {
            $crate::Caller::call::<$procedure>(
                &self.caller,
                ($($crate::typed::parts::lent::<$arguments, _>(arguments))?),
            )
        }
    };
}

/// Checks that a procedure's results have a largest size, or an option that gives one.
#[doc(hidden)]
#[macro_export]
macro_rules! __program_size {
    ([] $method:ident $results:ty) => {
        const _: () = ::core::assert!(
            <$results as $crate::xdr::Bounded>::BOUND.is_bounded(),
            ::core::concat!(
                "the results of `",
                ::core::stringify!($method),
                "` have no largest size: give their lists and other counted items a `max`, or the procedure the option \
                 `bounds = FUNCTION` (the size for given arguments) or `within` (the caller gives the size)"
            )
        );
    };
    ([bounds $($rest:ident)*] $method:ident $results:ty) => {};
    ([within $($rest:ident)*] $method:ident $results:ty) => {};
    ([$option:ident $($rest:ident)*] $method:ident $results:ty) => {
        $crate::__program_size!([$($rest)*] $method $results);
    };
}

/// An option of a procedure in [`program!`](crate::program).
#[doc(hidden)]
#[macro_export]
macro_rules! __program_option {
    (integrity) => {
        const INTEGRITY: bool = true;
    };
    (within) => {};
    (eligible = $arguments:expr) => {
        const ELIGIBLE_ARGUMENTS: usize = $arguments;
    };
    (bounds = $bounds:expr) => {
        fn bounds(arguments: &Self::Arguments) -> $crate::Bounds {
            $crate::typed::parts::bounds::<Self>($bounds, arguments)
        }
    };
    ($option:ident $($rest:tt)*) => {
        ::core::compile_error!(::core::concat!(
            "`",
            ::core::stringify!($option),
            "` is no option of a procedure: there are `integrity`, `eligible = NUMBER`, `bounds = FUNCTION` and `within`"
        ));
    };
}
