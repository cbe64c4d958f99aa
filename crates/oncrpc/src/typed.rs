//! Procedures and versions of programs as types.
//!
//! A [`Procedure`] names the types of its arguments and results, which know their own sizes and DDP-eligible items
//! ([`Bounded`]). So the memory for results, and what may travel in chunks, come from the types. A [`Version`] serves
//! the procedures of one version. The macro `rpcrdma::program!` makes both from a list of procedures.
//!
//! *Buffers.* Decoded arguments are slices of the received message. Encoded results share the memory of their value.
//!
//! *Errors.* Arguments that do not decode, and bytes behind them, are [`CallFailure::GarbageArgs`]. Results that break
//! the limits of their type are [`CallFailure::Results`].

use std::sync::Arc;

use rpcrdma_xdr::{Bound, Bounded, Decode, Decoder, Encode, EncodeError, Stream, encode, padded_len};

use crate::program::{CallContext, CallFailure, Effect, ProcedureInfo, ResponseFuture, accepted_by_default};

/// A procedure of one version of a program, with the types of its arguments and results.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no procedure",
    note = "`rpcrdma::program!` declares procedures, with a type for each of them"
)]
pub trait Procedure: Send + Sync + 'static {
    /// Arguments; `()` for void.
    type Arguments: Encode + Decode + Bounded + Send + Sync + 'static;
    /// Results; `()` for void.
    type Results: Encode + Decode + Bounded + Send + 'static;
    /// Program number.
    const PROGRAM: u32;
    /// Version of the program.
    const VERSION: u32;
    /// Number of the procedure in this version.
    const NUMBER: u32;
    /// The name, for logs and counters.
    const NAME: &'static str;
    /// The kind of change that the execution makes.
    const EFFECT: Effect;
    /// Whether calls need RPCSEC_GSS with integrity or privacy ([`Program`](crate::Program::requires_integrity)).
    const INTEGRITY: bool = false;

    /// Most DDP-eligible arguments of a call that travel in Read chunks of their own (RFC 8166 §6.1), by default those that
    /// the type counts. A type counts no items in a list without a maximum and in a recursive field, for instance in the
    /// operations of a COMPOUND. There the author states the number. The caller leaves further items in the message, and
    /// the server refuses a Call with more chunks. A client's `Config::max_read_chunks`, 1 by default, may allow fewer.
    const ELIGIBLE_ARGUMENTS: usize = Self::Arguments::DDP_ITEMS;

    /// Returns the largest results of a call with these arguments, by default those of the type. Results without an upper
    /// bound need a function of their own here, or do not compile.
    #[must_use]
    fn bounds(arguments: &Self::Arguments) -> Bounds {
        let _ = arguments;
        Bounds::of::<Self::Results>()
    }
}

/// Returns name and effect of a procedure.
#[must_use]
pub const fn info<P: Procedure>() -> ProcedureInfo {
    ProcedureInfo { name: P::NAME, effect: P::EFFECT }
}

/// Returns the numbers of DDP-eligible arguments and results of a procedure, for [`Version::eligibility`].
#[must_use]
pub const fn eligible<P: Procedure>() -> (usize, usize) {
    (P::ELIGIBLE_ARGUMENTS, P::Results::DDP_ITEMS)
}

/// Encodes the arguments of a call. No more items than [`Procedure::ELIGIBLE_ARGUMENTS`] may travel in chunks of their own.
///
/// # Errors
/// [`EncodeError`] if they break the limits of their type.
pub fn encode_arguments<P: Procedure>(arguments: &P::Arguments) -> Result<Stream, EncodeError> {
    let mut stream = stream(arguments)?;
    // Only a bound says that there are no more items than the type counts.
    let counted =
        const { P::Arguments::BOUND.is_bounded() && P::Arguments::DDP_ITEMS <= P::ELIGIBLE_ARGUMENTS };
    if !counted {
        stream.limit_eligible(P::ELIGIBLE_ARGUMENTS);
    }
    Ok(stream)
}

/// Decodes all arguments of a call.
///
/// # Errors
/// [`CallFailure::GarbageArgs`], also for bytes that are left over.
pub fn arguments<P: Procedure>(arguments: Decoder) -> Result<P::Arguments, CallFailure> {
    Ok(arguments.decode_all()?)
}

/// Encodes the results of a call.
///
/// # Errors
/// [`CallFailure::Results`] if they break the limits of their type.
pub fn results<P: Procedure>(results: &P::Results) -> Result<Stream, CallFailure> {
    Ok(stream(results)?)
}

/// Encodes a value; void needs no memory.
///
/// # Errors
/// [`EncodeError`] if the value breaks the limits of its type.
pub fn stream<T: Encode + Bounded>(value: &T) -> Result<Stream, EncodeError> {
    if T::MAX_LEN == 0 { Ok(Stream::new()) } else { encode(value) }
}

/// The largest results of one call, in bytes.
///
/// ```
/// use rpcrdma_oncrpc::typed::Bounds;
///
/// // 104 bytes, with a DDP-eligible result of at most 1 MiB beside them.
/// let bounds = Bounds::inline(104).item(1 << 20);
/// assert_eq!((bounds.inline, bounds.items()), (104, &[1 << 20][..]));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Size without the data of the DDP-eligible results.
    pub inline: usize,
    items: [usize; Bound::ITEMS_MAX],
    count: usize,
}

impl Bounds {
    /// Returns the bounds of results without DDP-eligible items.
    #[must_use]
    pub const fn inline(max_len: usize) -> Self {
        Self { inline: max_len, items: [0; Bound::ITEMS_MAX], count: 0 }
    }

    /// Adds the next DDP-eligible result, with the most bytes of its data. Beyond [`Bound::ITEMS_MAX`] items it
    /// counts as a result that is not eligible.
    #[must_use]
    pub const fn item(mut self, max: usize) -> Self {
        match self.items.split_at_mut_checked(self.count) {
            Some((_, [item, ..])) => {
                *item = max;
                self.count += 1;
            }
            _ => self.inline = self.inline.saturating_add(padded_len(max)),
        }
        self
    }

    /// Returns the bounds of all values of a type. A type without an upper bound does not compile.
    #[must_use]
    pub const fn of<R: Bounded>() -> Self {
        const {
            assert!(
                R::BOUND.is_bounded(),
                "these results have no largest size: call the procedure by `call_within`, or give it `Procedure::bounds`"
            );
        }
        let mut bounds = Self::inline(R::MAX_LEN);
        let mut maxima = R::BOUND.maxima();
        while let [max, rest @ ..] = maxima {
            bounds = bounds.item(*max);
            maxima = rest;
        }
        bounds
    }

    /// Returns the most bytes of data of each DDP-eligible result, in their order.
    #[must_use]
    pub fn items(&self) -> &[usize] {
        self.items.get(..self.count).unwrap_or_default()
    }
}

/// A version of a program, which serves calls.
pub trait Version: Send + Sync + 'static {
    /// Returns the program number.
    fn number(&self) -> u32;

    /// Returns the number of the version.
    fn version(&self) -> u32;

    /// Returns the procedure with this number, if there is one.
    fn procedure(&self, procedure: u32) -> Option<ProcedureInfo>;

    /// Returns the numbers of DDP-eligible arguments and results of this procedure (RFC 8166 §6.1).
    fn eligibility(&self, procedure: u32) -> (usize, usize);

    /// Returns whether this procedure needs RPCSEC_GSS with integrity or privacy. By default no procedure does.
    fn requires_integrity(&self, procedure: u32) -> bool {
        let _ = procedure;
        false
    }

    /// Returns whether a credential of this flavour is accepted. By default AUTH_NONE and AUTH_SYS are.
    fn accepts_flavor(&self, flavor: u32) -> bool {
        accepted_by_default(flavor)
    }

    /// Returns whether handlers only wait for others once they have begun, as [`Program::is_light`](crate::Program::is_light)
    /// says. By default none is light.
    fn is_light(&self) -> bool {
        false
    }

    /// Serves one call. `arguments` stands at the first argument.
    fn call(self: Arc<Self>, context: CallContext, arguments: Decoder) -> ResponseFuture;
}
