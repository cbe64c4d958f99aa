//! Fields of structures and of union arms: their attributes, and the code for each.

use proc_macro2::{Ident, Span, TokenStream as Tokens, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Attribute, Error, Expr, Fields, Index, Member, Path, Type};

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
    /// The field may hold its own type again: its bound must not be looked at.
    recursive: bool,
    /// The field is the only one, and has no name: a newtype.
    alone: bool,
}

impl Field {
    /// Returns a statement that encodes the field; `place` is a reference to it. `xdr` is the path of the crate, and
    /// `owner` names the type or arm in errors.
    pub(crate) fn encode(&self, xdr: &Tokens, owner: &str, place: &Tokens) -> Tokens {
        let span = self.kind.span();
        let write = match &self.form {
            Form::Plain => return quote_spanned!(span=> #xdr::Encode::encode(#place, encoder)?;),
            Form::Counted(max) => {
                quote_spanned!(span=> #xdr::Counted::encode_counted(#place, #max, encoder))
            }
            Form::Eligible(max) => {
                quote_spanned!(span=> #xdr::Eligible::encode_eligible(#place, #max, encoder))
            }
            Form::List(max) => {
                let max = list_max(max.as_ref());
                quote_spanned!(span=> #xdr::encode_list(#place, #max, encoder))
            }
        };
        let name = self.name(owner);
        quote_spanned!(span=> #write.map_err(|error| error.named(#name))?;)
    }

    /// Returns a member of a struct expression, which decodes the field.
    pub(crate) fn decode_member(&self, xdr: &Tokens) -> Tokens {
        let (member, kind, span) = (&self.member, &self.kind, self.kind.span());
        let value = match &self.form {
            Form::Plain => quote_spanned!(span=> <#kind as #xdr::Decode>::decode(decoder)?),
            Form::Counted(max) => {
                quote_spanned!(span=> <#kind as #xdr::Counted>::decode_counted(#max, decoder)?)
            }
            Form::Eligible(max) => {
                quote_spanned!(span=> <#kind as #xdr::Eligible>::decode_eligible(#max, decoder)?)
            }
            Form::List(max) => {
                let max = list_max(max.as_ref());
                quote_spanned!(span=> #xdr::decode_list(decoder, #max)?)
            }
        };
        quote!(#member: #value)
    }

    /// Returns whether no attribute changes the field's form.
    pub(crate) const fn is_plain(&self) -> bool {
        matches!(self.form, Form::Plain)
    }

    /// Returns the name of the field in errors. The only field of a newtype has the name of its type.
    fn name(&self, owner: &str) -> String {
        match &self.member {
            Member::Named(field) => format!("{owner}.{}", field.unraw()),
            Member::Unnamed(_) if self.alone => owner.to_owned(),
            Member::Unnamed(Index { index, .. }) => format!("{owner}.{index}"),
        }
    }

    fn min_len(&self, xdr: &Tokens) -> Tokens {
        let kind = &self.kind;
        match self.form {
            Form::Plain => quote_spanned!(kind.span()=> <#kind as #xdr::Decode>::MIN_LEN),
            Form::Counted(_) | Form::Eligible(_) | Form::List(_) => quote!(4),
        }
    }

    /// Returns the largest form of the field, a `Bound`. That of a recursive field or of a list without a maximum does
    /// not name the bound of another type: no cycle arises.
    fn bound(&self, xdr: &Tokens) -> Tokens {
        let (kind, span) = (&self.kind, self.kind.span());
        if self.recursive {
            return quote!(#xdr::Bound::UNBOUNDED);
        }
        match &self.form {
            Form::Plain => quote_spanned!(span=> <#kind as #xdr::Bounded>::BOUND),
            Form::Counted(max) => quote_spanned!(span=> <#kind as #xdr::Counted>::FORM.at_most(#max)),
            Form::Eligible(max) => quote!(#xdr::Bound::eligible(#max)),
            Form::List(Some(max)) => {
                quote_spanned!(span=> <#kind as #xdr::Counted>::FORM.list(#max))
            }
            Form::List(None) => quote!(#xdr::Bound::UNBOUNDED),
        }
    }
}

fn list_max(max: Option<&Expr>) -> Tokens {
    max.map_or_else(|| quote!(usize::MAX), |max| quote!(#max))
}

/// Returns the fewest bytes of all fields together.
pub(crate) fn min_len(xdr: &Tokens, fields: &[Field]) -> Tokens {
    let each = fields.iter().map(|field| field.min_len(xdr));
    quote!(0 #(+ #each)*)
}

/// Returns the bound of `head` and of all fields after it.
pub(crate) fn bound(xdr: &Tokens, head: &Tokens, fields: &[Field]) -> Tokens {
    let each = fields.iter().map(|field| field.bound(xdr));
    quote!(#head #(.then(#each))*)
}

/// Reads the fields of a type or of one of its arms; `owner` is the name of the type.
pub(crate) fn read(owner: &Ident, declared: &Fields) -> syn::Result<Vec<Field>> {
    let members = declared.iter().zip(0..).map(|(field, index)| {
        let member = field
            .ident
            .clone()
            .map_or_else(|| Member::Unnamed(Index { index, span: Span::call_site() }), Member::Named);
        let (form, recursive) = form(&field.attrs)?;
        let unlimited = matches!(form, Form::List(None));
        if !recursive && !unlimited && names(field.ty.to_token_stream(), owner) {
            let message = "a field that can hold its own type again needs `#[xdr(recursive)]`";
            return Err(Error::new(field.ty.span(), message));
        }
        let alone = declared.len() == 1 && field.ident.is_none();
        Ok(Field { member, kind: field.ty.clone(), form, recursive, alone })
    });
    members.collect()
}

/// Returns whether a type names `owner` or `Self`, alone and not as a part of a longer path.
fn names(kind: Tokens, owner: &Ident) -> bool {
    let mut in_path = false;
    let mut tokens = kind.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let path_follows = matches!(tokens.peek(), Some(TokenTree::Punct(next)) if next.as_char() == ':');
        let named = match token {
            TokenTree::Ident(ident) => !in_path && !path_follows && (ident == *owner || ident == "Self"),
            TokenTree::Group(group) => names(group.stream(), owner),
            TokenTree::Punct(punct) => {
                in_path = punct.as_char() == ':';
                continue;
            }
            TokenTree::Literal(_) => false,
        };
        if named {
            return true;
        }
        in_path = false;
    }
    false
}

/// Returns the form of a field, and whether it is recursive.
fn form(attributes: &[Attribute]) -> syn::Result<(Form, bool)> {
    let (mut max, mut ddp, mut list, mut recursive) = (None, None, None, None);
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("xdr")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("max") {
                max = Some(meta.value()?.parse::<Expr>()?);
            } else if meta.path.is_ident("ddp") {
                ddp = Some(meta.path.span());
            } else if meta.path.is_ident("list") {
                list = Some(meta.path.span());
            } else if meta.path.is_ident("recursive") {
                recursive = Some(meta.path.span());
            } else {
                return Err(meta.error("a field accepts only `max = N`, `ddp`, `list` and `recursive`"));
            }
            Ok(())
        })?;
    }
    let form = match (max, ddp, list) {
        (None, None, None) => Form::Plain,
        (Some(max), None, None) => Form::Counted(max),
        (Some(max), Some(_), None) => Form::Eligible(max),
        (max, None, Some(_)) => Form::List(max),
        (None, Some(span), None) => {
            return Err(Error::new(span, "a DDP-eligible item is counted: it needs `max = N`"));
        }
        (_, Some(span), Some(_)) => return Err(Error::new(span, "a linked list is not DDP-eligible")),
    };
    match (&form, recursive) {
        (Form::Eligible(_), Some(span)) => Err(Error::new(span, "a DDP-eligible item is not recursive")),
        (_, recursive) => Ok((form, recursive.is_some())),
    }
}

/// Returns the path of the crate that a type's attribute `#[xdr(crate = path)]` gives.
pub(crate) fn crate_path(attributes: &[Attribute]) -> syn::Result<Option<Path>> {
    let mut path = None;
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("xdr")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("crate") {
                return Err(meta.error(
                    "a type accepts only `crate = path`; other attributes belong to fields and arms",
                ));
            }
            if path.is_some() {
                return Err(meta.error("a type names one crate"));
            }
            path = Some(meta.value()?.call(Path::parse_mod_style)?);
            Ok(())
        })?;
    }
    Ok(path)
}
