//! Derive macro for XDR types with limits and marks of DDP-eligibility.
//!
//! `#[derive(Xdr)]` implements `Encode`, `Decode` and `Bounded` of the crate `rpcrdma-xdr`, which re-exports the macro.
//! The macro owns no data. A declaration without an XDR form is a compile error at its place.
//!
//! | declaration | XDR (RFC 4506) |
//! | --- | --- |
//! | `struct`, its fields in order; newtypes and generic ones too | structure, §4.14 |
//! | `enum` of unit variants with explicit discriminants | enumeration, §4.3 |
//! | `enum` whose variants carry `#[xdr(value = N)]` or `#[xdr(default)]` | discriminated union, §4.15 |
//!
//! | on a field | |
//! | --- | --- |
//! | `#[xdr(max = N)]` | counted item (`Bytes`, `Text`, `String`, `Vec<_>`, or `Option` of one) of at most N bytes or elements |
//! | `#[xdr(ddp, max = N)]` | `Payload`, `Bytes` or `Text` that the Upper-Layer Binding lets travel in a chunk (RFC 8166 §6.1) |
//! | `#[xdr(list)]`, `#[xdr(list, max = N)]` | `Vec<T>` as a linked list (§4.19) |
//! | `#[xdr(recursive)]`, also beside `max = N` | a field that can hold its own type again: it has no bound |
//!
//! The first field of a default arm holds the discriminant: any type whose XDR form is one word.
//!
//! *Bounds.* `BOUND` is the sum of the fields' bounds, or the largest arm. A list without `max` and a recursive field have
//! no bound. DDP-eligible items inside them are not counted. A recursive type without `#[xdr(recursive)]` doesn't
//! compile: its bound would need itself.
//!
//! *Names.* An item that is longer than its `max` is an error that names the field: `Put.value`, `File::Data.creator`, or
//! `Name` for the only field of a newtype.
//!
//! *The crate's path.* Generated code names `rpcrdma-xdr` by an absolute path. A macro can't see the path by which it was
//! called, so there are two macros, equal but for the path that they write. `rpcrdma_xdr::Xdr` writes `::rpcrdma_xdr`,
//! and `rpcrdma::xdr::Xdr` writes `::rpcrdma::xdr`: either door needs one dependency and no attribute. A crate that
//! renames its dependency, or hands it on, states the path at the type: `#[xdr(crate = ::kv::xdr)]`. A declarative macro
//! may write `#[xdr(crate = $crate::xdr)]`.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic))]

use proc_macro::TokenStream;
use proc_macro2::{Ident, TokenStream as Tokens};
use quote::quote;
use syn::ext::IdentExt;
use syn::{Data, DeriveInput, Error, Generics, parse_macro_input, parse_quote};

mod enumeration;
mod fields;
mod union;

/// Derives `Encode`, `Decode` and `Bounded` for a crate that depends on `rpcrdma-xdr`. The crate's introduction lists the
/// declarations.
#[proc_macro_derive(Xdr, attributes(xdr))]
pub fn derive_xdr(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input, quote!(::rpcrdma_xdr)).unwrap_or_else(Error::into_compile_error).into()
}

/// Derives the same for a crate that depends on `rpcrdma` alone, which re-exports this macro as `rpcrdma::xdr::Xdr`.
#[proc_macro_derive(RpcrdmaXdr, attributes(xdr))]
pub fn derive_rpcrdma_xdr(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input, quote!(::rpcrdma::xdr)).unwrap_or_else(Error::into_compile_error).into()
}

/// Bodies of the functions to generate, in the scope of `encoder` or `decoder`, and the values of the constants.
struct Codec {
    min_len: Tokens,
    bound: Tokens,
    encode: Tokens,
    decode: Tokens,
}

/// Returns the implementations for a type, which name the crate as `default` unless the type's attribute names it.
fn expand(input: &DeriveInput, default: Tokens) -> syn::Result<Tokens> {
    let xdr = &fields::crate_path(&input.attrs)?.map_or(default, |path| quote!(#path));
    let codec = match &input.data {
        Data::Struct(data) => structure(xdr, &input.ident, &data.fields)?,
        Data::Enum(data) if union::is_union(data) => union::codec(xdr, &input.ident, data)?,
        Data::Enum(data) => enumeration::codec(xdr, &input.ident, data)?,
        Data::Union(data) => {
            return Err(Error::new(data.union_token.span, "an XDR union is declared as an enum"));
        }
    };
    let Codec { min_len, bound, encode, decode } = codec;
    let name = &input.ident;
    let generics = [quote!(#xdr::Encode), quote!(#xdr::Decode), quote!(#xdr::Bounded)]
        .map(|of| bounded(&input.generics, &of));
    let [(encode_impl, types, encode_where), (decode_impl, _, decode_where), (bound_impl, _, bound_where)] =
        generics.each_ref().map(Generics::split_for_impl);
    // The bound of a type without parameters is computed at its declaration, where an error of it belongs.
    let checked = input
        .generics
        .params
        .is_empty()
        .then(|| quote!(const _: #xdr::Bound = <#name as #xdr::Bounded>::BOUND;));
    Ok(quote! {
        #[automatically_derived]
        impl #encode_impl #xdr::Encode for #name #types #encode_where {
            #[allow(unused_variables)]
            fn encode(
                &self,
                encoder: &mut #xdr::Encoder,
            ) -> ::core::result::Result<(), #xdr::EncodeError> {
                #encode
                ::core::result::Result::Ok(())
            }
        }

        #[automatically_derived]
        impl #decode_impl #xdr::Decode for #name #types #decode_where {
            const MIN_LEN: usize = #min_len;

            #[allow(unused_variables)]
            fn decode(
                decoder: &mut #xdr::Decoder,
            ) -> ::core::result::Result<Self, #xdr::DecodeError> {
                #decode
            }
        }

        #[automatically_derived]
        impl #bound_impl #xdr::Bounded for #name #types #bound_where {
            const BOUND: #xdr::Bound = #bound;
        }

        #checked
    })
}

fn structure(xdr: &Tokens, name: &Ident, declared: &syn::Fields) -> syn::Result<Codec> {
    let owner = name.unraw().to_string();
    let fields = fields::read(name, declared)?;
    let encode = fields.iter().map(|field| {
        let member = &field.member;
        field.encode(xdr, &owner, &quote!(&self.#member))
    });
    let members = fields.iter().map(|field| field.decode_member(xdr));
    Ok(Codec {
        min_len: fields::min_len(xdr, &fields),
        bound: fields::bound(xdr, &quote!(#xdr::Bound::NONE), &fields),
        encode: quote!(#(#encode)*),
        decode: quote!(::core::result::Result::Ok(Self { #(#members),* })),
    })
}

/// Returns the generics with `bound` on every type parameter.
fn bounded(generics: &Generics, bound: &Tokens) -> Generics {
    let mut bounded = generics.clone();
    for parameter in bounded.type_params_mut() {
        parameter.bounds.push(parse_quote!(#bound));
    }
    bounded
}

#[cfg(test)]
mod tests;
