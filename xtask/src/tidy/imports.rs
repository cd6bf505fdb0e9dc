//! Checks imports: every path of the library that leads into another of its modules.

use std::collections::{HashMap, HashSet};

use proc_macro2::{Spacing, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Item, UseTree};

use super::{Finding, Folder, LIBRARY};
use crate::syntax;

/// The contents of `lib.rs`: its modules, and the path of each name that it re-exports.
pub(crate) struct Root {
    modules: HashSet<String>,
    re_exports: HashMap<String, Vec<String>>,
}

impl Root {
    /// Parses a `lib.rs`.
    pub(crate) fn new(file: &syn::File) -> Root {
        let mut root = Root { modules: HashSet::new(), re_exports: HashMap::new() };
        for item in &file.items {
            match item {
                Item::Mod(module) => {
                    root.modules.insert(module.ident.to_string());
                }
                Item::Use(import) => {
                    for (path, _) in use_paths(&import.tree) {
                        let from_root = |part: &String| part != "crate" && part != "self";
                        let path: Vec<_> = path.into_iter().filter(from_root).collect();
                        if let [_, .., name] = path.as_slice() {
                            root.re_exports.insert(name.clone(), path.clone());
                        }
                    }
                }
                _ => {}
            }
        }
        root
    }

    /// The module that a path from the root leads to; a re-exported name leads to its origin.
    fn resolve(&self, path: Vec<String>) -> Vec<String> {
        match path.first() {
            Some(first) if !self.modules.contains(first) => {
                // A name that is neither a module nor re-exported is defined in lib.rs itself, where nothing
                // should be.
                self.re_exports.get(first).cloned().unwrap_or_else(|| vec!["lib".to_owned()])
            }
            _ => path,
        }
    }
}

impl Folder {
    /// The layer of a module.
    fn layer(&self, module: &str) -> Option<usize> {
        self.layers.iter().position(|layer| layer.contains(&module))
    }
}

/// Finds the imports in a file of the library that do not lead to a lower layer.
pub(crate) fn check(path: &str, file: &syn::File, root: &Root, folders: &[Folder]) -> Vec<Finding> {
    let module = syntax::module_of(path.strip_prefix(LIBRARY).unwrap_or(path));
    let finding = |line, says| Finding { file: path.to_owned(), line, says };
    for folder in folders {
        if let Some(name) = child(folder.name, &module)
            && folder.layer(name).is_none()
        {
            let place = if folder.name.is_empty() { "src" } else { folder.name };
            let says = format!("`{name}` has no layer in `{place}` in xtask/src/tidy.rs");
            return vec![finding(1, says)];
        }
    }
    if module.is_empty() {
        return Vec::new();
    }
    let mut imports = Imports { module: module.clone(), found: Vec::new() };
    imports.visit_file(file);
    let mut findings = Vec::new();
    for Import { path, line } in imports.found {
        let import = path.join("::");
        if let Some(reason) = forbids(&module, &root.resolve(path), folders) {
            findings.push(finding(line, format!("`crate::{import}` is out of order: {reason}")));
        }
    }
    findings
}

/// The part of a path that lies directly in a folder.
fn child<'a>(folder: &str, path: &'a [String]) -> Option<&'a str> {
    match folder.is_empty() {
        true => path.first().map(String::as_str),
        false => path.get(1).filter(|_| path[0] == folder).map(String::as_str),
    }
}

/// Why a module may not import from there, by the folder that contains both.
fn forbids(module: &[String], target: &[String], folders: &[Folder]) -> Option<String> {
    let folder = folders.iter().rev().find(|folder| {
        let inside = |path: &[String]| {
            folder.name.is_empty() || path.first().is_some_and(|first| first == folder.name)
        };
        inside(module) && inside(target)
    })?;
    let (own, other) = (child(folder.name, module), child(folder.name, target)?);
    let Some(own) = own else {
        return None; // The file that opens the folder.
    };
    if own == other {
        return None;
    }
    match folder.layer(other) {
        Some(layer) if Some(layer) < folder.layer(own) => None,
        Some(_) => Some(format!("`{other}` is not before `{own}`")),
        None => Some(format!("other modules may not import `{other}`")),
    }
}

/// A path from the root of the crate, and the line it is on.
struct Import {
    path: Vec<String>,
    line: usize,
}

struct Imports {
    /// The module that is being checked.
    module: Vec<String>,
    found: Vec<Import>,
}

impl Imports {
    /// Records a path if it leads through this crate.
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

/// Every path in a `use`, with its line.
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

/// The paths in the tokens of a macro, which are not parsed: every `a::b`.
fn token_paths(tokens: TokenStream) -> Vec<(Vec<String>, usize)> {
    let mut found: Vec<(Vec<String>, usize)> = Vec::new();
    // The number of colons between the last word and this token.
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
    use crate::tidy::FOLDERS;

    const ROOT: &str = "mod api; mod core; mod engines; mod ledger; mod model; mod observe;
        pub use api::hold::{Hold, Lost}; pub use self::core::claim::Released; pub use model::claim::Fence;";

    fn check(file: &str, text: &str) -> Vec<String> {
        let root = Root::new(&syn::parse_file(ROOT).unwrap());
        let path = format!("{LIBRARY}{file}");
        let found = super::check(&path, &syn::parse_file(text).unwrap(), &root, FOLDERS);
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_import_that_leads_up_is_found_with_its_line() {
        let text = "use crate::model::claim::Fence;\nuse crate::api::hold::Hold;";
        let expected = "crates/tenure/src/engines/memory.rs:2: `crate::api::hold::Hold` is out of \
            order: `api` is not before `engines`";
        assert_eq!(check("engines/memory.rs", text), [expected]);
    }

    #[test]
    fn an_import_is_found_however_it_is_written() {
        for text in [
            "use crate::{model::claim::Fence, api::hold::{self, Hold}};",
            "use super::super::api::hold::Hold;",
            "use super::{super::api};",
            "use crate::Hold;",
            "use crate::*;",
            "pub use crate::api::hold::Hold as Held;",
            "fn f() -> crate::api::Hold { loop {} }",
            "fn f() { crate::api::start() }",
            "fn f() { assert!(crate::api::start()) }",
            "fn f() { println!(\"{}\", { crate::api::start() }) }",
            "macro_rules! m { () => { $crate::Hold } }",
            "mod inner { fn f() { super::super::super::api::start() } }",
            "impl Foo for Bar { fn f(_: crate::Lost) {} }",
            "use crate::Released;",
        ] {
            assert!(!check("engines/memory.rs", text).is_empty(), "{text}");
        }
    }

    #[test]
    fn what_leads_down_or_is_not_code_is_not_found() {
        for text in [
            "use crate::model::claim::Fence;\nuse crate::ledger::Line;\nuse std::api::Hold;",
            "use super::redis::Redis;\nuse crate::engines::redis;\nuse self::inner::X;",
            "use crate::Fence;",
            "/// See [`crate::api::hold::Hold`].\nfn f() { println!(\"crate::api::Hold\") }",
            "// use crate::api::hold::Hold;",
            "#[cfg(test)] mod tests { use crate::api::hold::Hold; }",
            "pub(crate) fn f(hold: u8) -> u8 { hold }",
            "fn f() { matches!(a, api::X) }",
        ] {
            assert_eq!(check("engines/memory.rs", text), [""; 0], "{text}");
        }
        assert_eq!(check("api/tenure.rs", "use crate::{engines::memory, core::handle};"), [""; 0]);
        assert_eq!(check("core/acquire/patience.rs", "use super::{OpenStep, WaitLoop};"), [""; 0]);
    }

    #[test]
    fn the_layers_of_the_design_hold() {
        for (file, text) in [
            ("model/claim.rs", "use crate::ledger::Line;"),
            ("model/name.rs", "use super::claim::Claim;"),
            ("ledger/line.rs", "use crate::core::handle::Core;"),
            ("engine.rs", "use crate::core::claim_table::ClaimTable;"),
            ("observe.rs", "use crate::core::live_claim::LiveClaim;"),
            ("core/claim_state.rs", "use crate::core::live_claim::LiveClaim;"),
            ("core/claim_state/due.rs", "use super::super::watchdog;"),
            ("core/watchdog.rs", "use crate::engines::memory::Memory;"),
            ("core/acquire.rs", "use crate::api::tenure::Tenure;"),
            ("engines/file/store.rs", "use crate::core::handle::Core;"),
            ("api/primitives/mutex.rs", "use crate::api::tenure::Tenure;"),
            ("guards/fencing.rs", "use crate::guards::idempotency;"),
        ] {
            assert_eq!(check(file, text).len(), 1, "{file}: {text}");
        }
    }

    #[test]
    fn a_module_on_no_layer_is_found() {
        for (file, says) in [("gossip.rs", "layer in `src`"), ("core/gossip.rs", "layer in `core`")]
        {
            let found = check(file, "");
            assert!(found[0].contains("`gossip` has no") && found[0].contains(says), "{found:?}");
        }
    }

    #[test]
    fn there_is_a_module_for_each_entry() {
        for folder in FOLDERS {
            for module in folder.layers.iter().flat_map(|layer| *layer) {
                let path = std::path::Path::new(LIBRARY).join(folder.name).join(module);
                let path = crate::workspace::root().join(path).with_extension("rs");
                assert!(path.exists(), "{} is in the order and not there", path.display());
            }
        }
    }
}
