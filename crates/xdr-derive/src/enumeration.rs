//! Enumerations (RFC 4506 §4.3): unit variants, each with its value.

use proc_macro2::{Ident, TokenStream as Tokens};
use quote::quote;
use syn::ext::IdentExt;
use syn::{DataEnum, Error, Fields};

use crate::Codec;

pub(crate) fn codec(xdr: &Tokens, name: &Ident, data: &DataEnum) -> syn::Result<Codec> {
    if data.variants.is_empty() {
        return Err(Error::new(name.span(), "an enumeration without values has no XDR form"));
    }
    for variant in &data.variants {
        if !matches!(variant.fields, Fields::Unit) {
            let message = "an arm with data needs `#[xdr(value = N)]` or `#[xdr(default)]`";
            return Err(Error::new(variant.ident.span(), message));
        }
        if variant.discriminant.is_none() {
            return Err(Error::new(variant.ident.span(), "an enumeration needs explicit values: `Name = N`"));
        }
    }
    let variants: Vec<_> = data.variants.iter().map(|variant| &variant.ident).collect();
    let text = name.unraw().to_string();
    Ok(Codec {
        min_len: quote!(4),
        bound: quote!(#xdr::Bound::words(1)),
        encode: quote! {
            encoder.i32(match self { #(Self::#variants => Self::#variants as i32),* });
        },
        decode: quote! {
            let position = decoder.position();
            let value = decoder.i32()?;
            #(
                if value == Self::#variants as i32 {
                    return ::core::result::Result::Ok(Self::#variants);
                }
            )*
            ::core::result::Result::Err(#xdr::DecodeError::UnknownEnumValue { name: #text, position, value })
        },
    })
}
