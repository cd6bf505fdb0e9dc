//! Checks the length of files and functions, file names, and leftovers such as `todo!`.

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Block, Item, Signature};

use super::Finding;
use crate::syntax;
use crate::workspace::Source;

/// The most lines of a Rust file.
const LONGEST_FILE: usize = 500;
/// The most lines of a function, from its signature to its last brace; tests may be longer.
const LONGEST_FUNCTION: usize = 60;
/// Names that say nothing about the contents.
const EMPTY_NAMES: &[&str] = &["utils", "helpers", "common", "misc", "manager"];
/// Macros that stand for missing code.
const UNFINISHED: &[&str] = &["todo", "unimplemented"];
/// The marker for "this is wrong and I know it"; in two parts, or this line would contain it.
const NOTE: &str = concat!("FIX", "ME");

/// Whether a file contains code.
pub(crate) fn is_source(path: &str) -> bool {
    let ending = path.rsplit_once('.').map(|(_, ending)| ending);
    matches!(ending, Some("rs" | "lua" | "sql" | "sh" | "toml" | "js" | "css" | "html"))
}

/// Checks a path.
pub(crate) fn check_name(path: &str) -> Option<Finding> {
    let empty = |part: &str| EMPTY_NAMES.contains(&part.split('.').next().unwrap_or(part));
    let part = path.split('/').find(|part| empty(part))?;
    let says = format!("{part:?} says nothing: name the file for what is in it");
    Some(Finding { file: path.to_owned(), line: 1, says })
}

/// The checks that need no parsing.
pub(crate) fn check_text(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut add = |line, says| findings.push(Finding { file: source.path.clone(), line, says });
    let lines = source.text.lines().count();
    if source.path.ends_with(".rs") && lines > LONGEST_FILE {
        add(lines, format!("{lines} lines; a file has at most {LONGEST_FILE}: split it"));
    }
    for (index, line) in source.text.lines().enumerate() {
        if line.contains(NOTE) {
            add(index + 1, format!("{NOTE}: do it now, or write down a decision"));
        }
    }
    findings
}

/// The checks that need parsing.
pub(crate) fn check_syntax(path: &str, file: &syn::File, in_tests: bool) -> Vec<Finding> {
    let mut shape = Shape { path, in_tests, findings: Vec::new() };
    shape.visit_file(file);
    shape.findings
}

struct Shape<'a> {
    path: &'a str,
    in_tests: bool,
    findings: Vec<Finding>,
}

impl Shape<'_> {
    fn add(&mut self, at: Span, says: String) {
        let (file, line) = (self.path.to_owned(), at.start().line);
        self.findings.push(Finding { file, line, says });
    }

    fn function(&mut self, attributes: &[Attribute], signature: &Signature, body: &Block) {
        if self.in_tests || syntax::is_test_only(attributes) {
            return;
        }
        let first = signature.fn_token.span.start().line;
        let lines = body.brace_token.span.close().end().line - first + 1;
        if lines > LONGEST_FUNCTION {
            let name = &signature.ident;
            let says =
                format!("`{name}` has {lines} lines; a function has at most {LONGEST_FUNCTION}");
            self.add(signature.fn_token.span, says);
        }
    }

    fn unfinished(&mut self, tokens: TokenStream) {
        let mut tokens = tokens.into_iter().peekable();
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Ident(ident) => {
                    let bang =
                        matches!(tokens.peek(), Some(TokenTree::Punct(p)) if p.as_char() == '!');
                    if bang && UNFINISHED.iter().any(|name| ident == name) {
                        self.add(ident.span(), format!("`{ident}!`: finish it, or leave it out"));
                    }
                }
                TokenTree::Group(group) => self.unfinished(group.stream()),
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Shape<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let before = self.in_tests;
        self.in_tests |= syntax::is_test_only(syntax::attributes(item));
        visit::visit_item(self, item);
        self.in_tests = before;
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.function(&function.attrs, &function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.function(&function.attrs, &function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(body) = &function.default {
            self.function(&function.attrs, &function.sig, body);
        }
        visit::visit_trait_item_fn(self, function);
    }

    fn visit_macro(&mut self, invocation: &'ast syn::Macro) {
        if let Some(name) = invocation.path.segments.last()
            && UNFINISHED.iter().any(|unfinished| name.ident == unfinished)
        {
            let says = format!("`{}!`: finish it, or leave it out", name.ident);
            self.add(name.ident.span(), says);
        }
        self.unfinished(invocation.tokens.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Vec<String> {
        let found = check_syntax("x.rs", &syn::parse_file(text).unwrap(), false);
        found.iter().map(ToString::to_string).collect()
    }

    fn function(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    work();\n".repeat(lines - 2))
    }

    #[test]
    fn a_function_that_is_too_long_is_found_wherever_it_is() {
        let long = function(61);
        let says = "`long` has 61 lines; a function has at most 60";
        assert_eq!(check(&long), [format!("x.rs:1: {says}")]);
        assert_eq!(check(&format!("impl X {{\n{long}}}")), [format!("x.rs:2: {says}")]);
        assert_eq!(check(&format!("trait X {{\n{long}}}")), [format!("x.rs:2: {says}")]);
        assert_eq!(check(&format!("mod x {{\n{long}}}")), [format!("x.rs:2: {says}")]);
        assert_eq!(check(&format!("fn outer() {{\n{long}}}")).len(), 2);
    }

    #[test]
    fn a_function_of_the_limit_and_a_long_test_are_fine() {
        assert_eq!(check(&function(60)), [""; 0]);
        let long = function(200);
        assert_eq!(check(&format!("#[test]\n{long}")), [""; 0]);
        assert_eq!(check(&format!("#[cfg(test)]\nmod tests {{\n{long}}}")), [""; 0]);
        let documented = format!("{}{}", "/// Long docs.\n".repeat(100), function(60));
        assert_eq!(check(&documented), [""; 0]);
        assert_eq!(check_syntax("x.rs", &syn::parse_file(&long).unwrap(), true), []);
    }

    #[test]
    fn unfinished_code_is_found_but_not_the_word() {
        assert_eq!(check("fn f() { todo!() }").len(), 1);
        assert_eq!(check("fn f() { let x = unimplemented!(\"later\"); }").len(), 1);
        assert_eq!(check("fn f() { assert!(x, \"{}\", todo!()) }").len(), 1);
        assert_eq!(check("fn f(todo: Todo) { let _ = \"todo!()\"; todo.is_empty() }"), [""; 0]);
    }

    #[test]
    fn long_files_and_notes_are_found() {
        let text = "fn f() {}\n".repeat(501);
        let found = check_text(&Source { path: "x.rs".into(), text });
        assert_eq!(found[0].says, "501 lines; a file has at most 500: split it");
        let text = format!("fn f() {{}}\n// {NOTE}: later\n");
        let found = check_text(&Source { path: "x.rs".into(), text });
        assert_eq!((found.len(), found[0].line), (1, 2));
    }

    #[test]
    fn names_that_say_nothing_are_found() {
        for path in ["src/utils.rs", "src/helpers/mod.rs", "tests/common/mod.rs", "misc.rs"] {
            assert!(check_name(path).is_some(), "{path}");
        }
        for path in ["src/ledger.rs", "src/commonplace.rs", "Cargo.toml"] {
            assert_eq!(check_name(path), None, "{path}");
        }
    }
}
