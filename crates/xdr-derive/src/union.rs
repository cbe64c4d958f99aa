//! Discriminated unions (RFC 4506 §4.15): an arm for each value, and perhaps a default arm, which keeps its
//! discriminant.

use proc_macro2::{Ident, TokenStream as Tokens};
use quote::{format_ident, quote};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Attribute, DataEnum, Error, Expr, Variant};

use crate::Codec;
use crate::fields::{self, Field};

enum Selector {
    Value(Expr),
    Default,
}

struct Arm<'a> {
    name: &'a Ident,
    selector: Selector,
    fields: Vec<Field>,
}

/// Returns whether any variant states its discriminant.
pub(crate) fn is_union(data: &DataEnum) -> bool {
    data.variants.iter().any(|variant| variant.attrs.iter().any(|attribute| attribute.path().is_ident("xdr")))
}

pub(crate) fn codec(xdr: &Tokens, name: &Ident, data: &DataEnum) -> syn::Result<Codec> {
    let arms = data.variants.iter().map(|variant| read(name, variant)).collect::<syn::Result<Vec<_>>>()?;
    let text = name.unraw().to_string();

    // Values are constants: they serve as patterns, and any constant expression may be a value.
    let values: Vec<_> = arms
        .iter()
        .filter_map(|arm| match &arm.selector {
            Selector::Value(value) => Some(value),
            Selector::Default => None,
        })
        .collect();
    let constants: Vec<_> = (0..values.len()).map(|index| format_ident!("__VALUE_{index}")).collect();
    let declarations = quote!(#(const #constants: u32 = #values;)*);

    let (mut encode_arms, mut decode_arms) = (Vec::new(), Vec::new());
    let mut default = None;
    let mut next = constants.iter();
    for arm in &arms {
        match &arm.selector {
            Selector::Value(_) => {
                let Some(constant) = next.next() else { continue };
                encode_arms.push(arm.encode(xdr, &text, &quote!(encoder.u32(#constant);), 0));
                let body = arm.decode(xdr);
                decode_arms.push(quote!(#constant => { decoder.u32()?; #body }));
            }
            Selector::Default => {
                if default.is_some() {
                    return Err(Error::new(arm.name.span(), "a union has one default arm"));
                }
                let head = quote!(encoder.default_discriminant(#text, field_0, &[#(#constants),*])?;);
                encode_arms.push(arm.encode(xdr, &text, &head, 1));
                default = Some(arm.decode(xdr));
            }
        }
    }
    let otherwise = default.map_or_else(
        || {
            quote! {
                value => ::core::result::Result::Err(
                    #xdr::DecodeError::UnknownArm { name: #text, position: decoder.position(), value }
                )
            }
        },
        |body| quote!(_ => { #body }),
    );
    let mut bounds = arms.iter().map(|arm| arm.bound(xdr));
    let first = bounds.next();
    Ok(Codec {
        min_len: quote!(4),
        bound: quote!(#first #(.or(#bounds))*),
        encode: quote!(#declarations match self { #(#encode_arms)* }),
        decode: quote!(#declarations match decoder.peek_u32()? { #(#decode_arms)* #otherwise }),
    })
}

impl Arm<'_> {
    /// Returns a match arm that writes `head`, then the fields from number `skip` on.
    fn encode(&self, xdr: &Tokens, union: &str, head: &Tokens, skip: usize) -> Tokens {
        let name = self.name;
        let owner = format!("{union}::{}", name.unraw());
        let members = self.fields.iter().map(|field| &field.member);
        let places: Vec<_> = (0..self.fields.len()).map(|index| format_ident!("field_{index}")).collect();
        let written = self.fields.iter().zip(&places).skip(skip);
        let body = written.map(|(field, place)| field.encode(xdr, &owner, &quote!(#place)));
        quote!(Self::#name { #(#members: #places),* } => { #head #(#body)* })
    }

    fn decode(&self, xdr: &Tokens) -> Tokens {
        let name = self.name;
        let members = self.fields.iter().map(|field| field.decode_member(xdr));
        quote!(::core::result::Result::Ok(Self::#name { #(#members),* }))
    }

    /// Returns the largest form of the arm. The default arm's discriminant is its first field.
    fn bound(&self, xdr: &Tokens) -> Tokens {
        let discriminant = match self.selector {
            Selector::Value(_) => quote!(#xdr::Bound::words(1)),
            Selector::Default => quote!(#xdr::Bound::NONE),
        };
        fields::bound(xdr, &discriminant, &self.fields)
    }
}

fn read<'a>(union: &Ident, variant: &'a Variant) -> syn::Result<Arm<'a>> {
    if let Some((_, discriminant)) = &variant.discriminant {
        return Err(Error::new(discriminant.span(), "an arm's value is given by `#[xdr(value = N)]`"));
    }
    let selector = selector(&variant.attrs)?.ok_or_else(|| {
        Error::new(variant.ident.span(), "an arm needs `#[xdr(value = N)]` or `#[xdr(default)]`")
    })?;
    let fields = fields::read(union, &variant.fields)?;
    if matches!(selector, Selector::Default) && !fields.first().is_some_and(Field::is_plain) {
        let message = "the first field of a default arm holds the discriminant";
        return Err(Error::new(variant.ident.span(), message));
    }
    Ok(Arm { name: &variant.ident, selector, fields })
}

fn selector(attributes: &[Attribute]) -> syn::Result<Option<Selector>> {
    let mut selector = None;
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("xdr")) {
        attribute.parse_nested_meta(|meta| {
            if selector.is_some() {
                return Err(meta.error("an arm has one selector"));
            }
            if meta.path.is_ident("value") {
                selector = Some(Selector::Value(meta.value()?.parse()?));
            } else if meta.path.is_ident("default") {
                selector = Some(Selector::Default);
            } else {
                return Err(meta.error("an arm accepts only `value = N` or `default`"));
            }
            Ok(())
        })?;
    }
    Ok(selector)
}
