//! Derive macro for XDR types with limits and marks of DDP-eligibility.
//!
//! `#[derive(Xdr)]` implements `Encode` and `Decode` of the crate `rpcrdma-xdr`, which re-exports the macro; generated
//! code names that crate as `::rpcrdma_xdr`. The macro owns no data. A declaration without an XDR form is a compile
//! error at its place.
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
//!
//! The first field of a default arm holds the discriminant: any type whose XDR form is one word.

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::{ToTokens, quote};
use syn::{Data, DeriveInput, Error, Generics, parse_macro_input, parse_quote};

mod enumeration;
mod fields;
mod union;

/// Derives `Encode` and `Decode`; the crate's introduction lists the declarations.
#[proc_macro_derive(Xdr, attributes(xdr))]
pub fn derive_xdr(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input).unwrap_or_else(Error::into_compile_error).into()
}

/// Bodies of the functions to generate, in the scope of `encoder` or `decoder`.
struct Codec {
    min_len: Tokens,
    encode: Tokens,
    decode: Tokens,
}

fn expand(input: &DeriveInput) -> syn::Result<Tokens> {
    fields::refuse_attributes(&input.attrs)?;
    let codec = match &input.data {
        Data::Struct(data) => structure(&data.fields)?,
        Data::Enum(data) if union::is_union(data) => union::codec(&input.ident, data)?,
        Data::Enum(data) => enumeration::codec(&input.ident, data)?,
        Data::Union(data) => {
            return Err(Error::new(data.union_token.span, "an XDR union is declared as an enum"));
        }
    };
    let Codec { min_len, encode, decode } = codec;
    let name = &input.ident;
    let encode_generics = bound(&input.generics, &quote!(::rpcrdma_xdr::Encode));
    let decode_generics = bound(&input.generics, &quote!(::rpcrdma_xdr::Decode));
    let (encode_impl, types, encode_where) = encode_generics.split_for_impl();
    let (decode_impl, _, decode_where) = decode_generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #encode_impl ::rpcrdma_xdr::Encode for #name #types #encode_where {
            #[allow(unused_variables)]
            fn encode(
                &self,
                encoder: &mut ::rpcrdma_xdr::Encoder,
            ) -> ::core::result::Result<(), ::rpcrdma_xdr::EncodeError> {
                #encode
                ::core::result::Result::Ok(())
            }
        }

        #[automatically_derived]
        impl #decode_impl ::rpcrdma_xdr::Decode for #name #types #decode_where {
            const MIN_LEN: usize = #min_len;

            #[allow(unused_variables)]
            fn decode(
                decoder: &mut ::rpcrdma_xdr::Decoder,
            ) -> ::core::result::Result<Self, ::rpcrdma_xdr::DecodeError> {
                #decode
            }
        }
    })
}

fn structure(declared: &syn::Fields) -> syn::Result<Codec> {
    let fields = fields::read(declared)?;
    let encode = fields.iter().map(|field| {
        let member = &field.member;
        field.encode(&quote!(&self.#member))
    });
    let members = fields.iter().map(fields::Field::decode_member);
    Ok(Codec {
        min_len: fields::min_len(&fields),
        encode: quote!(#(#encode)*),
        decode: quote!(::core::result::Result::Ok(Self { #(#members),* })),
    })
}

/// Returns the generics with `bound` on every type parameter.
fn bound(generics: &Generics, bound: &dyn ToTokens) -> Generics {
    let mut bounded = generics.clone();
    for parameter in bounded.type_params_mut() {
        parameter.bounds.push(parse_quote!(#bound));
    }
    bounded
}
