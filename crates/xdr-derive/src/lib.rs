//! Derive macro for XDR types with limits and DDP-eligibility marks

use proc_macro::TokenStream;

/// Derives `Encode` and `Decode`.
#[proc_macro_derive(Xdr, attributes(xdr))]
pub fn derive_xdr(_input: TokenStream) -> TokenStream {
    TokenStream::new()
}
