//! Fields of structures and of union arms: their attributes, and the code for each.

use proc_macro2::{Span, TokenStream as Tokens};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Attribute, Error, Expr, Fields, Index, Member, Type};

/// The layout of a field's content.
enum Form {
    /// The form of the type's own `Encode` and `Decode`.
    Plain,
    /// A count, then at most this many bytes or elements.
    Counted(Expr),
    /// A count, then at most this many bytes, which may travel in a chunk.
    Eligible(Expr),
    /// A linked list, with or without a maximum.
    List(Option<Expr>),
}

pub(crate) struct Field {
    pub(crate) member: Member,
    kind: Type,
    form: Form,
}

impl Field {
    /// Returns a statement that encodes the field; `place` is a reference to it.
    pub(crate) fn encode(&self, place: &Tokens) -> Tokens {
        let span = self.kind.span();
        match &self.form {
            Form::Plain => quote_spanned!(span=> ::rpcrdma_xdr::Encode::encode(#place, encoder)?;),
            Form::Counted(max) => {
                quote_spanned!(span=> ::rpcrdma_xdr::Counted::encode_counted(#place, #max, encoder)?;)
            }
            Form::Eligible(max) => quote_spanned! {span=>
                ::rpcrdma_xdr::Eligible::encode_eligible(#place, #max, encoder)?;
            },
            Form::List(max) => {
                let max = list_max(max.as_ref());
                quote_spanned!(span=> ::rpcrdma_xdr::encode_list(#place, #max, encoder)?;)
            }
        }
    }

    /// Returns a member of a struct expression, which decodes the field.
    pub(crate) fn decode_member(&self) -> Tokens {
        let (member, kind, span) = (&self.member, &self.kind, self.kind.span());
        let value = match &self.form {
            Form::Plain => quote_spanned!(span=> <#kind as ::rpcrdma_xdr::Decode>::decode(decoder)?),
            Form::Counted(max) => {
                quote_spanned!(span=> <#kind as ::rpcrdma_xdr::Counted>::decode_counted(#max, decoder)?)
            }
            Form::Eligible(max) => {
                quote_spanned!(span=> <#kind as ::rpcrdma_xdr::Eligible>::decode_eligible(#max, decoder)?)
            }
            Form::List(max) => {
                let max = list_max(max.as_ref());
                quote_spanned!(span=> ::rpcrdma_xdr::decode_list(decoder, #max)?)
            }
        };
        quote!(#member: #value)
    }

    /// Returns whether no attribute changes the field's form.
    pub(crate) const fn is_plain(&self) -> bool {
        matches!(self.form, Form::Plain)
    }

    fn min_len(&self) -> Tokens {
        let kind = &self.kind;
        match self.form {
            Form::Plain => quote_spanned!(kind.span()=> <#kind as ::rpcrdma_xdr::Decode>::MIN_LEN),
            Form::Counted(_) | Form::Eligible(_) | Form::List(_) => quote!(4),
        }
    }
}

fn list_max(max: Option<&Expr>) -> Tokens {
    max.map_or_else(|| quote!(usize::MAX), |max| quote!(#max))
}

/// Returns the fewest bytes of all fields together.
pub(crate) fn min_len(fields: &[Field]) -> Tokens {
    let each = fields.iter().map(Field::min_len);
    quote!(0 #(+ #each)*)
}

pub(crate) fn read(declared: &Fields) -> syn::Result<Vec<Field>> {
    let members = declared.iter().zip(0..).map(|(field, index)| {
        let member = field
            .ident
            .clone()
            .map_or_else(|| Member::Unnamed(Index { index, span: Span::call_site() }), Member::Named);
        Ok(Field { member, kind: field.ty.clone(), form: form(&field.attrs)? })
    });
    members.collect()
}

fn form(attributes: &[Attribute]) -> syn::Result<Form> {
    let (mut max, mut ddp, mut list) = (None, None, None);
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("xdr")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("max") {
                max = Some(meta.value()?.parse::<Expr>()?);
            } else if meta.path.is_ident("ddp") {
                ddp = Some(meta.path.span());
            } else if meta.path.is_ident("list") {
                list = Some(meta.path.span());
            } else {
                return Err(meta.error("a field accepts only `max = N`, `ddp` and `list`"));
            }
            Ok(())
        })?;
    }
    match (max, ddp, list) {
        (None, None, None) => Ok(Form::Plain),
        (Some(max), None, None) => Ok(Form::Counted(max)),
        (Some(max), Some(_), None) => Ok(Form::Eligible(max)),
        (max, None, Some(_)) => Ok(Form::List(max)),
        (None, Some(span), None) => {
            Err(Error::new(span, "a DDP-eligible item is counted: it needs `max = N`"))
        }
        (_, Some(span), Some(_)) => Err(Error::new(span, "a linked list is not DDP-eligible")),
    }
}

/// Refuses `#[xdr(..)]` where it has no meaning.
pub(crate) fn refuse_attributes(attributes: &[Attribute]) -> syn::Result<()> {
    match attributes.iter().find(|attribute| attribute.path().is_ident("xdr")) {
        Some(attribute) => {
            Err(Error::new(attribute.span(), "`xdr` has no meaning here, only on fields and arms"))
        }
        None => Ok(()),
    }
}
