//! Questions about Rust syntax that several commands ask.

use proc_macro2::{TokenStream, TokenTree};
use syn::{Attribute, Expr, Item, Lit, Meta};

use crate::failure::Failure;

/// Parses a file, or says where the syntax error is.
pub(crate) fn parse(path: &str, text: &str) -> Result<syn::File, Failure> {
    syn::parse_file(text).map_err(|error| {
        let line = error.span().start().line;
        Failure::new(format!("{path}:{line}: cannot be read as Rust: {error}"))
    })
}

/// Whether a path from the root belongs to tests as a whole.
pub(crate) fn is_test_file(path: &str) -> bool {
    path.split('/').any(|part| part == "tests" || part == "tests.rs")
}

/// Whether an item exists in tests only: `#[test]`, `#[tokio::test]`, `#[cfg(test)]` and the like.
pub(crate) fn is_test_only(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let last = attribute.path().segments.last();
        if last.is_some_and(|segment| segment.ident == "test") {
            return true;
        }
        match &attribute.meta {
            Meta::List(list) if list.path.is_ident("cfg") => {
                let words = words(list.tokens.clone());
                words.iter().any(|word| word == "test") && !words.iter().any(|word| word == "not")
            }
            _ => false,
        }
    })
}

fn words(tokens: TokenStream) -> Vec<String> {
    let mut found = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => found.push(ident.to_string()),
            TokenTree::Group(group) => found.extend(words(group.stream())),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
    found
}

/// The attributes of an item of any kind.
pub(crate) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// The lines of an item's documentation.
pub(crate) fn doc_lines(attributes: &[Attribute]) -> Vec<String> {
    let text = |attribute: &Attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(text) => Some(text.value()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    };
    let texts: Vec<_> = attributes.iter().filter_map(text).collect();
    texts.iter().flat_map(|text| text.lines()).map(|line| line.trim().to_owned()).collect()
}

/// The module path of a file below `src`: `ledger/line.rs` is `["ledger", "line"]`.
pub(crate) fn module_of(file: &str) -> Vec<String> {
    let stem = file.strip_suffix(".rs").unwrap_or(file);
    let stem = stem.strip_suffix("/mod").unwrap_or(stem);
    if stem == "lib" || stem == "main" {
        return Vec::new();
    }
    stem.split('/').map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_exists_in_tests_only_is_known_by_its_attributes() {
        for (text, only) in [
            ("#[cfg(test)] mod tests {}", true),
            ("#[test] fn x() {}", true),
            ("#[tokio::test] async fn x() {}", true),
            ("#[cfg(all(test, unix))] fn x() {}", true),
            ("#[cfg(not(test))] fn x() {}", false),
            ("#[cfg(unix)] fn x() {}", false),
            ("/// test\nfn x() {}", false),
        ] {
            let item: Item = syn::parse_str(text).unwrap();
            assert_eq!(is_test_only(attributes(&item)), only, "{text}");
        }
    }

    #[test]
    fn files_are_modules() {
        assert_eq!(module_of("ledger/line.rs"), ["ledger", "line"]);
        assert_eq!(module_of("engines/redis/mod.rs"), ["engines", "redis"]);
        assert!(module_of("lib.rs").is_empty());
    }
}
