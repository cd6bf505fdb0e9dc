//! Prints syntax as one line of text, independent of its formatting and imports.

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::punctuated::Punctuated;
use syn::visit_mut::{self, VisitMut};
use syn::{Attribute, Fields, FnArg, Pat, PathSegment, Signature, Visibility};

use super::names::Names;
use super::tree::ModulePath;

/// Prints the syntax of one module.
#[derive(Clone, Copy)]
pub(crate) struct Speller<'a> {
    /// Resolves names.
    pub(crate) names: &'a Names<'a>,
    /// The module.
    pub(crate) module: &'a ModulePath,
}

impl Speller<'_> {
    /// Syntax with full paths.
    pub(crate) fn full<T: ToTokens + Clone>(
        &self,
        syntax: &T,
        visit: impl Fn(&mut Full<'_>, &mut T),
    ) -> String {
        let mut syntax = syntax.clone();
        visit(&mut Full { speller: *self }, &mut syntax);
        join(syntax.to_token_stream())
    }

    /// A type.
    pub(crate) fn ty(&self, ty: &syn::Type) -> String {
        self.full(ty, |full, ty| full.visit_type_mut(ty))
    }

    /// The parameters of something generic, with `<>`, and its `where` with a space before it.
    pub(crate) fn generics(&self, generics: &syn::Generics) -> (String, String) {
        let parameters = self.full(generics, |full, generics| full.visit_generics_mut(generics));
        let Some(clause) = &generics.where_clause else { return (parameters, String::new()) };
        let mut clause = clause.clone();
        // A comma after the last bound is only formatting.
        clause.predicates = clause.predicates.into_iter().collect::<Punctuated<_, _>>();
        let clause = self.full(&clause, |full, clause| full.visit_where_clause_mut(clause));
        (parameters, format!(" {clause}"))
    }

    /// A signature without its body; `mut` before a parameter is not part of the API.
    pub(crate) fn signature(&self, signature: &Signature, path: &str) -> String {
        let mut signature = signature.clone();
        signature.inputs = signature.inputs.into_iter().collect();
        for input in &mut signature.inputs {
            match input {
                FnArg::Receiver(receiver) => {
                    receiver.attrs.clear();
                    receiver.mutability = None;
                }
                FnArg::Typed(input) => {
                    input.attrs.clear();
                    if let Pat::Ident(name) = &mut *input.pat {
                        name.mutability = None;
                    }
                }
            }
        }
        let (name, text) = (
            signature.ident.to_string(),
            self.full(&signature, |full, signature| full.visit_signature_mut(signature)),
        );
        text.replacen(&format!("fn {name}"), &format!("fn {path}"), 1)
    }

    /// The fields of a variant or of a tuple, as they follow its name.
    pub(crate) fn fields(&self, fields: &Fields, always_public: bool) -> String {
        let field = |field: &syn::Field| {
            let shown = if matches!(field.vis, Visibility::Public(_)) { "pub " } else { "" };
            if shown.is_empty() && !always_public {
                return "_".to_owned();
            }
            let name = field.ident.as_ref().map(|name| format!("{name}: ")).unwrap_or_default();
            format!("{shown}{name}{}", self.ty(&field.ty))
        };
        let all = fields.iter().map(field).collect::<Vec<_>>().join(", ");
        match fields {
            Fields::Named(_) => format!(" {{ {all} }}"),
            Fields::Unnamed(_) => format!("({all})"),
            Fields::Unit => String::new(),
        }
    }
}

/// The attributes that change what users can do, each followed by a space.
pub(crate) fn attributes(attributes: &[Attribute]) -> String {
    let matters = |attribute: &&Attribute| {
        let path = attribute.path();
        path.is_ident("non_exhaustive") || path.is_ident("deprecated") || path.is_ident("cfg")
    };
    let spelled = |attribute: &Attribute| join(attribute.to_token_stream()) + " ";
    attributes.iter().filter(matters).map(spelled).collect()
}

/// Replaces each path by its target.
pub(crate) struct Full<'a> {
    speller: Speller<'a>,
}

impl VisitMut for Full<'_> {
    fn visit_path_mut(&mut self, path: &mut syn::Path) {
        visit_mut::visit_path_mut(self, path);
        let written: Vec<_> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        let Some(full) = self.speller.names.full(self.speller.module, &written) else { return };
        let Ok(mut full) = syn::parse_str::<syn::Path>(&full) else { return };
        // Generic arguments stay with the last part.
        let arguments = path.segments.last().map(|part| part.arguments.clone());
        if let (Some(last), Some(arguments)) = (full.segments.last_mut(), arguments) {
            *last = PathSegment { ident: last.ident.clone(), arguments };
        }
        *path = full;
    }
}

/// Tokens with the usual spaces.
pub(crate) fn join(tokens: TokenStream) -> String {
    let mut flat = Vec::new();
    flatten(tokens, &mut flat);
    let mut text = String::new();
    let mut before = String::new();
    for token in flat {
        if needs_space(&before, &token) {
            text.push(' ');
        }
        text += &token;
        before = token;
    }
    text
}

/// Words, and punctuation that belongs together: `::`, `->`, `'a`.
fn flatten(tokens: TokenStream, flat: &mut Vec<String>) {
    let mut joint = String::new();
    for token in tokens {
        match token {
            TokenTree::Punct(punct) => {
                joint.push(punct.as_char());
                // `&'a` and `<'a` are joint, but only the quote belongs to the name.
                let pair = matches!(joint.as_str(), "::" | "->" | "=>" | "==" | "..");
                let half = matches!(joint.as_str(), ":" | "-" | "=" | ".");
                let more = half && punct.spacing() == proc_macro2::Spacing::Joint;
                if pair || !more && joint != "'" {
                    flat.push(std::mem::take(&mut joint));
                }
            }
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    proc_macro2::Delimiter::Parenthesis => ("(", ")"),
                    proc_macro2::Delimiter::Brace => ("{", "}"),
                    proc_macro2::Delimiter::Bracket => ("[", "]"),
                    proc_macro2::Delimiter::None => ("", ""),
                };
                flat.push(open.to_owned());
                flatten(group.stream(), flat);
                flat.push(close.to_owned());
            }
            // The quote of a lifetime is a separate punctuation token before the word.
            word => flat.push(std::mem::take(&mut joint) + &word.to_string()),
        }
    }
}

/// Whether a space stands between two tokens. It covers the tokens that a type, a bound or a signature can
/// have.
fn needs_space(before: &str, token: &str) -> bool {
    let word = |text: &str| text.chars().last().is_some_and(|c| c.is_alphanumeric() || c == '_');
    match (before, token) {
        ("", _) | (_, "," | ";" | ":" | "::" | ")" | "]" | ">" | "!") => false,
        ("(" | "[" | "<" | "&" | "::" | "#" | "!" | "?" | "*", _) => false,
        ("dyn" | "impl" | "for" | "in" | "as" | "mut", "(" | "[") => true,
        (_, "<" | "(" | "[") => !word(before) && before != ">",
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_spaced_as_people_do() {
        for text in [
            "fn f<'a, T: Clone + 'static>(&'a mut self, t: &[T; 4]) -> Result<(), std::io::Error>",
            "impl<T> From<(u8, u8)> for Step<T> where T: Send + ?Sized",
            "impl Future<Output = Result<T>> + Send + use<>",
            "Pin<Box<dyn Future<Output = ()> + Send>>",
            "impl for<'a> FnOnce(&'a str) -> (u8, [u8; 2])",
            "fn f(work: impl AsyncFnOnce(&Hold) -> T) -> <T as Trait>::Output",
            "#[cfg(feature = \"redis\")]",
            "*const u8",
        ] {
            let loose: TokenStream = text.parse().unwrap();
            assert_eq!(join(loose), text);
        }
    }
}
