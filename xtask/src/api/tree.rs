//! The modules of a crate with their items, as parsed from its files.

use std::collections::BTreeMap;

use syn::{Item, UseTree, Visibility};

use super::expand::Macros;
use super::spell::attributes;
use crate::failure::Failure;
use crate::syntax;

/// The path of a module from the root of the crate, which is the empty path.
pub(crate) type ModulePath = Vec<String>;

/// A module: its items, and the names that it brings into scope.
#[derive(Default)]
pub(crate) struct Module {
    /// All items except those for tests, with macros of the crate expanded.
    pub(crate) items: Vec<Item>,
    /// The modules inside it.
    pub(crate) children: BTreeMap<String, Child>,
    /// The names that `use` brings into scope.
    pub(crate) imports: Vec<Import>,
}

/// How a module is declared in its parent.
pub(crate) struct Child {
    /// Whether it is `pub`.
    pub(crate) public: bool,
    /// The attributes that matter to users, as text.
    pub(crate) marks: String,
}

/// One name that a `use` brings into scope.
pub(crate) struct Import {
    /// The name in this module; `*` for all names.
    pub(crate) name: String,
    /// The path as it is written.
    pub(crate) target: Vec<String>,
    /// Whether it is a `pub use`.
    pub(crate) public: bool,
}

/// All modules of a crate.
pub(crate) struct Tree {
    /// The modules by their paths.
    pub(crate) modules: BTreeMap<ModulePath, Module>,
}

impl Tree {
    /// Parses a crate, from its files by their paths below `src`.
    pub(crate) fn new(files: &BTreeMap<String, String>) -> Result<Tree, Failure> {
        let mut loading = Loading { files, macros: Macros::default(), parsed: BTreeMap::new() };
        let root = loading.parse("lib.rs")?;
        loading.add(ModulePath::new(), root)?;
        let Loading { macros, parsed, .. } = loading;
        let mut modules = BTreeMap::new();
        for (path, items) in parsed {
            modules.insert(path, Module::new(items, &macros)?);
        }
        Ok(Tree { modules })
    }
}

struct Loading<'a> {
    files: &'a BTreeMap<String, String>,
    macros: Macros,
    parsed: BTreeMap<ModulePath, Vec<Item>>,
}

impl Loading<'_> {
    fn parse(&self, path: &str) -> Result<Vec<Item>, Failure> {
        let text = self.files.get(path);
        let text = text.ok_or_else(|| Failure::new(format!("{path} is not there")))?;
        Ok(syntax::parse(path, text)?.items)
    }

    /// Adds a module and those inside it, from this file or from their own files.
    fn add(&mut self, path: ModulePath, items: Vec<Item>) -> Result<(), Failure> {
        let mut items = items;
        items.retain(|item| !syntax::is_test_only(syntax::attributes(item)));
        self.macros.learn(&items);
        for item in &items {
            let Item::Mod(module) = item else { continue };
            let mut inner = path.clone();
            inner.push(module.ident.to_string());
            let content = match &module.content {
                Some((_, content)) => content.clone(),
                None => {
                    let folder = format!("{}/mod.rs", inner.join("/"));
                    let file = format!("{}.rs", inner.join("/"));
                    self.parse(if self.files.contains_key(&folder) { &folder } else { &file })?
                }
            };
            self.add(inner, content)?;
        }
        self.parsed.insert(path, items);
        Ok(())
    }
}

impl Module {
    fn new(items: Vec<Item>, macros: &Macros) -> Result<Module, Failure> {
        let mut module = Module::default();
        for item in items {
            match item {
                Item::Mod(inner) => {
                    let public = matches!(inner.vis, Visibility::Public(_));
                    let child = Child { public, marks: attributes(&inner.attrs) };
                    module.children.insert(inner.ident.to_string(), child);
                }
                Item::Use(import) => {
                    let public = matches!(import.vis, Visibility::Public(_));
                    for (name, target) in imported(&import.tree) {
                        module.imports.push(Import { name, target, public });
                    }
                }
                Item::Macro(invocation) if invocation.ident.is_none() => {
                    module.items.extend(macros.expand(&invocation.mac)?);
                }
                item => module.items.push(item),
            }
        }
        Ok(module)
    }
}

/// The names that a `use` brings into scope, each with its path.
fn imported(tree: &UseTree) -> Vec<(String, Vec<String>)> {
    match tree {
        UseTree::Path(path) => {
            let first = path.ident.to_string();
            let mut rest = imported(&path.tree);
            for (name, target) in &mut rest {
                // `use a::{self}` is `use a`.
                if target.as_slice() == ["self"] {
                    target.clear();
                    if name == "self" {
                        name.clone_from(&first);
                    }
                }
                target.insert(0, first.clone());
            }
            rest
        }
        UseTree::Name(name) => vec![(name.ident.to_string(), vec![name.ident.to_string()])],
        UseTree::Rename(rename) => {
            vec![(rename.rename.to_string(), vec![rename.ident.to_string()])]
        }
        UseTree::Glob(_) => vec![("*".to_owned(), vec!["*".to_owned()])],
        UseTree::Group(group) => group.items.iter().flat_map(imported).collect(),
    }
}
