//! Checks that the docs of public futures say what dropping them does.

use syn::visit::{self, Visit};
use syn::{Attribute, Item, ReturnType, Signature, Type, TypeParamBound, Visibility};

use super::Finding;
use crate::syntax;

/// The required heading of a public function that returns a future.
const HEADING: &str = "# Cancel safety";

/// Finds the public functions of a file that return a future and do not say what dropping it does.
pub(crate) fn check(path: &str, file: &syn::File) -> Vec<Finding> {
    let mut docs = Docs { path, findings: Vec::new() };
    docs.visit_file(file);
    docs.findings
}

struct Docs<'a> {
    path: &'a str,
    findings: Vec<Finding>,
}

impl Docs<'_> {
    fn function(&mut self, attributes: &[Attribute], public: &Visibility, signature: &Signature) {
        let public = matches!(public, Visibility::Public(_));
        if !public || !is_async(signature) || syntax::is_test_only(attributes) {
            return;
        }
        if !syntax::doc_lines(attributes).iter().any(|line| line == HEADING) {
            let says = format!("`{}` needs a `{HEADING}` heading in its docs", signature.ident);
            let line = signature.fn_token.span.start().line;
            self.findings.push(Finding { file: self.path.to_owned(), line, says });
        }
    }
}

/// Whether a call returns a future: `async fn`, or `-> impl Future`.
fn is_async(signature: &Signature) -> bool {
    let returns_future = match &signature.output {
        ReturnType::Type(_, output) => match &**output {
            Type::ImplTrait(promised) => promised.bounds.iter().any(|bound| match bound {
                TypeParamBound::Trait(bound) => {
                    bound.path.segments.last().is_some_and(|part| part.ident == "Future")
                }
                _ => false,
            }),
            _ => false,
        },
        ReturnType::Default => false,
    };
    signature.asyncness.is_some() || returns_future
}

impl<'ast> Visit<'ast> for Docs<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !syntax::is_test_only(syntax::attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.function(&function.attrs, &function.vis, &function.sig);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.function(&function.attrs, &function.vis, &function.sig);
        visit::visit_impl_item_fn(self, function);
    }
}

#[cfg(test)]
mod tests {
    fn check(text: &str) -> Vec<String> {
        let found = super::check("x.rs", &syn::parse_file(text).unwrap());
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_public_future_without_the_heading_is_found() {
        let needs =
            |name| format!("x.rs:2: `{name}` needs a `# Cancel safety` heading in its docs");
        let bare = "impl X {\n    pub async fn acquire(self) {}\n}";
        assert_eq!(check(bare), [needs("acquire")]);
        let promised = "impl X {\n    pub fn join(self) -> impl Future<Output = ()> + Send {}\n}";
        assert_eq!(check(promised), [needs("join")]);
        assert_eq!(check("/// Cancel safety: none.\npub async fn f() {}").len(), 1);
    }

    #[test]
    fn a_heading_is_enough_and_private_futures_need_none() {
        for text in [
            "/// Waits.\n///\n/// # Cancel safety\n/// Safe.\npub async fn f() {}",
            "pub(crate) async fn f() {}",
            "async fn f() {}",
            "pub fn f() -> impl Iterator<Item = u8> {}",
            "#[cfg(test)] mod tests { pub async fn f() {} }",
        ] {
            assert_eq!(check(text), [""; 0], "{text}");
        }
    }
}
