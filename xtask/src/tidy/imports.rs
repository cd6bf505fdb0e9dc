//! Who imports whom: every path of the library that leads into another of its modules.

use std::collections::{HashMap, HashSet};

use proc_macro2::{Spacing, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Item, UseTree};

use super::{Finding, LIBRARY, Rule};
use crate::syntax;

/// What `lib.rs` declares: its modules, and from which of them each re-exported name comes.
pub(crate) struct Root {
    modules: HashSet<String>,
    re_exports: HashMap<String, String>,
}

impl Root {
    /// Reads a `lib.rs`.
    pub(crate) fn new(file: &syn::File) -> Root {
        let mut root = Root { modules: HashSet::new(), re_exports: HashMap::new() };
        for item in &file.items {
            match item {
                Item::Mod(module) => {
                    root.modules.insert(module.ident.to_string());
                }
                Item::Use(import) => {
                    for (path, _) in use_paths(&import.tree) {
                        let path: Vec<_> = path.iter().filter(|part| *part != "crate").collect();
                        if let [module, .., name] = path.as_slice() {
                            root.re_exports.insert((*name).clone(), (*module).clone());
                        }
                    }
                }
                _ => {}
            }
        }
        root
    }

    /// The module that a path from the root leads into.
    fn module(&self, path: &[String]) -> Option<String> {
        let first = path.first()?;
        if self.modules.contains(first) {
            return Some(first.clone());
        }
        // What is neither a module nor from one is defined in lib.rs, where nothing should be.
        Some(self.re_exports.get(first).cloned().unwrap_or_else(|| "lib".to_owned()))
    }
}

/// Finds the imports of one file of the library that its rule does not allow.
pub(crate) fn check(path: &str, file: &syn::File, root: &Root, rules: &[Rule]) -> Vec<Finding> {
    let module = syntax::module_of(path.strip_prefix(LIBRARY).unwrap_or(path));
    let Some(own) = module.first().cloned() else { return Vec::new() };
    let finding = |line, says| Finding { file: path.to_owned(), line, says };
    let Some(rule) = rules.iter().find(|rule| rule.module == own) else {
        let says = format!("the module `{own}` has no row in the table of xtask/src/tidy.rs");
        return vec![finding(1, says)];
    };
    let mut imports = Imports { module, found: Vec::new() };
    imports.visit_file(file);
    let mut findings = Vec::new();
    for Import { path, line } in imports.found {
        let Some(target) = root.module(&path) else { continue };
        let mut allowed = rule.may_import.iter().flat_map(|modules| modules.iter());
        if target != own && !allowed.any(|module| *module == target) {
            let import = path.join("::");
            let because = rule.because;
            let says = format!("`{own}` may not import `crate::{import}`: {because}");
            findings.push(finding(line, says));
        }
    }
    findings
}

/// A path from the root of the crate, and the line it is on.
struct Import {
    path: Vec<String>,
    line: usize,
}

struct Imports {
    /// The module that is being looked at.
    module: Vec<String>,
    found: Vec<Import>,
}

impl Imports {
    /// Takes note of a path as it is written, if it leads through this crate.
    fn note(&mut self, written: &[String], line: usize) {
        let mut path = match written.first().map(String::as_str) {
            Some("crate") => Vec::new(),
            Some("self" | "super") => self.module.clone(),
            _ => return,
        };
        for part in written {
            match part.as_str() {
                "crate" | "self" => {}
                "super" => {
                    path.pop();
                }
                _ => path.push(part.clone()),
            }
        }
        self.found.push(Import { path, line });
    }
}

impl<'ast> Visit<'ast> for Imports {
    fn visit_item(&mut self, item: &'ast Item) {
        if !syntax::is_test_only(syntax::attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        self.module.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.module.pop();
    }

    fn visit_item_use(&mut self, import: &'ast syn::ItemUse) {
        for (path, line) in use_paths(&import.tree) {
            self.note(&path, line);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let written: Vec<_> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        // `pub(crate)` is a path of one part and imports nothing.
        if written.len() > 1 {
            self.note(&written, path.span().start().line);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, invocation: &'ast syn::Macro) {
        for (path, line) in token_paths(invocation.tokens.clone()) {
            self.note(&path, line);
        }
        visit::visit_macro(self, invocation);
    }
}

/// Every path that a `use` names, with its line.
fn use_paths(tree: &UseTree) -> Vec<(Vec<String>, usize)> {
    let single = |ident: &syn::Ident| vec![(vec![ident.to_string()], ident.span().start().line)];
    match tree {
        UseTree::Path(path) => {
            let first = path.ident.to_string();
            let mut rest = use_paths(&path.tree);
            rest.iter_mut().for_each(|(path, _)| path.insert(0, first.clone()));
            rest
        }
        UseTree::Name(name) => single(&name.ident),
        UseTree::Rename(rename) => single(&rename.ident),
        UseTree::Glob(glob) => vec![(vec!["*".to_owned()], glob.star_token.span().start().line)],
        UseTree::Group(group) => group.items.iter().flat_map(use_paths).collect(),
    }
}

/// The paths in the tokens of a macro, which are not parsed: `a::b` wherever it occurs.
fn token_paths(tokens: TokenStream) -> Vec<(Vec<String>, usize)> {
    let mut found: Vec<(Vec<String>, usize)> = Vec::new();
    // How many colons stand between the last word and here.
    let mut colons = 0;
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => {
                match found.last_mut() {
                    Some((path, _)) if colons == 2 => path.push(ident.to_string()),
                    _ => found.push((vec![ident.to_string()], ident.span().start().line)),
                }
                colons = 0;
            }
            TokenTree::Punct(punct) if punct.as_char() == ':' => {
                let continues = colons == 1 || punct.spacing() == Spacing::Joint;
                colons = if continues { colons + 1 } else { 0 };
            }
            TokenTree::Group(group) => {
                found.extend(token_paths(group.stream()));
                colons = 0;
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => colons = 0,
        }
    }
    found.retain(|(path, _)| path.len() > 1);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::RULES;

    const ROOT: &str = "mod hold; mod client; mod engines; mod ledger; mod claim; mod stake;
        pub use hold::{Hold, Lost}; pub use claim::Fence;";

    fn check(file: &str, text: &str) -> Vec<String> {
        let root = Root::new(&syn::parse_file(ROOT).unwrap());
        let path = format!("{LIBRARY}{file}");
        let found = super::check(&path, &syn::parse_file(text).unwrap(), &root, RULES);
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_forbidden_import_is_found_with_its_line_and_the_rule() {
        let found = check("engines/memory.rs", "use crate::claim::Fence;\nuse crate::hold::Hold;");
        let expected = "crates/tenure/src/engines/memory.rs:2: `engines` may not import \
            `crate::hold::Hold`: engines see the trait, the words and the ledger, never who waits, \
            holds or renews";
        assert_eq!(found, [expected]);
    }

    #[test]
    fn an_import_is_found_however_it_is_written() {
        for text in [
            "use crate::{claim::Fence, hold::{self, Hold}};",
            "use super::super::hold::Hold;",
            "use super::{super::hold};",
            "use crate::Hold;",
            "use crate::*;",
            "pub use crate::hold::Hold as Held;",
            "fn f() -> crate::hold::Hold { loop {} }",
            "fn f() { crate::hold::start() }",
            "fn f() { assert!(crate::hold::start()) }",
            "fn f() { println!(\"{}\", { crate::hold::start() }) }",
            "macro_rules! m { () => { $crate::Hold } }",
            "mod inner { fn f() { super::super::super::hold::start() } }",
            "impl Foo for Bar { fn f(_: crate::Lost) {} }",
        ] {
            assert!(!check("engines/memory.rs", text).is_empty(), "{text}");
        }
    }

    #[test]
    fn what_is_allowed_or_not_code_is_not_found() {
        for text in [
            "use crate::claim::Fence;\nuse crate::ledger::Line;\nuse std::hold::Hold;",
            "use super::redis::Redis;\nuse crate::engines::redis;\nuse self::inner::X;",
            "/// See [`crate::hold::Hold`].\nfn f() { println!(\"crate::hold::Hold\") }",
            "// use crate::hold::Hold;",
            "#[cfg(test)] mod tests { use crate::hold::Hold; }",
            "pub(crate) fn f(hold: u8) -> u8 { hold }",
            "fn f() { matches!(a, hold::X) }",
        ] {
            assert_eq!(check("engines/memory.rs", text), [""; 0], "{text}");
        }
        assert_eq!(check("client.rs", "use crate::{engines::memory, stake::Stake};"), [""; 0]);
    }

    #[test]
    fn the_layers_of_the_design_hold() {
        for (file, text) in [
            ("ledger/line.rs", "use crate::stake::Stake;"),
            ("claim.rs", "use crate::ledger::Line;"),
            ("stake.rs", "use crate::client::Core;"),
            ("watchdog.rs", "use crate::engines::memory::Memory;"),
            ("acquire.rs", "use crate::engines::memory::Memory;"),
            ("hold/lost.rs", "use crate::engines;"),
            ("primitives/mutex.rs", "use crate::engines;"),
            ("options.rs", "use crate::engines;"),
            ("observe.rs", "use crate::engines;"),
        ] {
            assert_eq!(check(file, text).len(), 1, "{file}: {text}");
        }
    }

    #[test]
    fn a_module_without_a_row_is_found() {
        let found = check("gossip.rs", "");
        assert!(found[0].contains("`gossip` has no row"), "{found:?}");
    }

    #[test]
    fn there_is_a_row_for_each_module_and_a_module_for_each_row() {
        let source = crate::workspace::read(&crate::workspace::root(), "crates/tenure/src/lib.rs");
        let root = Root::new(&syn::parse_file(&source.unwrap()).unwrap());
        let rows: HashSet<_> = RULES.iter().map(|rule| rule.module.to_owned()).collect();
        assert_eq!(rows, root.modules);
        for module in RULES.iter().flat_map(|rule| rule.may_import).flat_map(|group| *group) {
            assert!(rows.contains(*module), "{module} is in the table and not in the library");
        }
    }
}
