//! Expands the crate's own macros that define items, such as the setters of the primitives.
//!
//! It supports only what such macros need: one arm, whose parameters are single fragments. Macros of other
//! crates define no part of our API and are skipped.

use std::collections::HashMap;

use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};
use syn::{Item, ItemMacro};

use crate::failure::Failure;

/// The `macro_rules!` of a crate, by name.
#[derive(Default)]
pub(crate) struct Macros {
    bodies: HashMap<String, TokenStream>,
}

impl Macros {
    /// Collects the macros that are defined among `items`.
    pub(crate) fn learn(&mut self, items: &[Item]) {
        for item in items {
            if let Item::Macro(ItemMacro { ident: Some(name), mac, .. }) = item {
                self.bodies.insert(name.to_string(), mac.tokens.clone());
            }
        }
    }

    /// The items that an invocation expands to; none if the macro is not the crate's own.
    pub(crate) fn expand(&self, invocation: &syn::Macro) -> Result<Vec<Item>, Failure> {
        let name = invocation.path.segments.last().map(|part| part.ident.to_string());
        let name = name.unwrap_or_default();
        let Some(definition) = self.bodies.get(&name) else { return Ok(Vec::new()) };
        let cannot = |why: &str| {
            Failure::new(format!("cannot expand `{name}!`: {why}"))
                .next("write the items out, or teach xtask/src/api/expand.rs")
        };
        let (parameters, body) = arm(definition.clone()).map_err(cannot)?;
        let arguments = split_at_commas(invocation.tokens.clone());
        if parameters.len() != arguments.len() {
            return Err(cannot("it is called with another number of arguments"));
        }
        let values = parameters.into_iter().zip(arguments).collect();
        let written = substitute(body, &values).map_err(cannot)?;
        let file: syn::File = syn::parse2(written).map_err(|error| cannot(&error.to_string()))?;
        Ok(file.items)
    }
}

/// The parameters and the body of the only arm: `($a:ident, $b:ty) => { … };`.
fn arm(definition: TokenStream) -> Result<(Vec<String>, TokenStream), &'static str> {
    let mut tokens = definition.into_iter();
    let Some(TokenTree::Group(matcher)) = tokens.next() else { return Err("it has no arm") };
    // The arrow is two tokens.
    let Some(TokenTree::Group(body)) = tokens.nth(2) else { return Err("its arm has no body") };
    if tokens.any(|token| matches!(token, TokenTree::Group(_))) {
        return Err("it has several arms");
    }
    let parameters = split_at_commas(matcher.stream()).into_iter().map(|parameter| {
        let parts: Vec<_> = parameter.into_iter().collect();
        match parts.as_slice() {
            [
                TokenTree::Punct(_),
                TokenTree::Ident(name),
                TokenTree::Punct(_),
                TokenTree::Ident(_),
            ] => Ok(name.to_string()),
            _ => Err("its parameters are more than single fragments"),
        }
    });
    Ok((parameters.collect::<Result<_, _>>()?, body.stream()))
}

fn split_at_commas(tokens: TokenStream) -> Vec<TokenStream> {
    let mut parts = vec![Vec::new()];
    for token in tokens {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == ',' => parts.push(Vec::new()),
            token => parts.last_mut().into_iter().for_each(|part| part.push(token.clone())),
        }
    }
    // A trailing comma separates nothing.
    parts.retain(|part| !part.is_empty());
    parts.into_iter().map(|part| part.into_iter().collect()).collect()
}

/// Replaces `$name` by its value, and `$crate` by `crate`.
fn substitute(
    body: TokenStream,
    values: &HashMap<String, TokenStream>,
) -> Result<TokenStream, &'static str> {
    let mut written = TokenStream::new();
    let mut tokens = body.into_iter();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '$' => match tokens.next() {
                Some(TokenTree::Ident(name)) if name == "crate" => {
                    written.extend([TokenTree::Ident(Ident::new("crate", name.span()))]);
                }
                Some(TokenTree::Ident(name)) => {
                    let value = values.get(&name.to_string());
                    written.extend(value.ok_or("its body names a parameter it has not")?.clone());
                }
                _ => return Err("its body repeats something"),
            },
            TokenTree::Group(group) => {
                let inner = substitute(group.stream(), values)?;
                let delimiter: Delimiter = group.delimiter();
                written.extend([TokenTree::Group(Group::new(delimiter, inner))]);
            }
            token => written.extend([token]),
        }
    }
    Ok(written)
}
