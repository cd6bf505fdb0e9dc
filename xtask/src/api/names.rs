//! Resolves names within modules, and finds the names by which users know an item.

use std::collections::{BTreeMap, BTreeSet};

use syn::{Item, Visibility};

use super::tree::{Import, Module, ModulePath, Tree};
use crate::failure::Failure;

/// How many `use`s are followed from one name: more than any real chain, and the end of a cycle.
const DEEPEST: u32 = 32;

/// Where an item is defined: its module and its own name.
pub(crate) type Definition = (ModulePath, String);

/// The target of a path.
pub(crate) enum Found {
    /// An item of this crate.
    Item(Definition),
    /// A module of this crate.
    Module(ModulePath),
    /// Something of another crate, by its full path.
    Foreign(Vec<String>),
}

/// The names of a crate's public items.
pub(crate) struct Names<'a> {
    tree: &'a Tree,
    /// The name of the crate.
    pub(crate) krate: &'a str,
    /// For each public item, all the paths that users can write, the shortest first.
    pub(crate) public: BTreeMap<Definition, BTreeSet<(usize, String)>>,
    /// The paths of public modules, with the attributes that matter.
    pub(crate) modules: BTreeMap<String, String>,
    /// The re-exports of items of other crates: our path, and theirs.
    pub(crate) foreign: BTreeSet<(String, String)>,
}

impl<'a> Names<'a> {
    /// Finds the names that users of the crate, which they know as `krate`, can write.
    pub(crate) fn new(krate: &'a str, tree: &'a Tree) -> Result<Names<'a>, Failure> {
        let mut names = Names {
            tree,
            krate,
            public: BTreeMap::new(),
            modules: BTreeMap::new(),
            foreign: BTreeSet::new(),
        };
        names.export(&ModulePath::new(), &mut vec![krate.to_owned()])?;
        Ok(names)
    }

    /// Marks the `pub` items of a module as public; users know the module as `known_as`.
    fn export(&mut self, path: &ModulePath, known_as: &mut Vec<String>) -> Result<(), Failure> {
        let module = &self.tree.modules[path];
        for name in module.items.iter().filter_map(public_name) {
            self.add((path.clone(), name.clone()), known_as, &name);
        }
        for (name, _) in module.children.iter().filter(|(_, child)| child.public) {
            let mut inner = path.clone();
            inner.push(name.clone());
            self.export_module(&inner, known_as, name)?;
        }
        for Import { name, target, .. } in module.imports.iter().filter(|import| import.public) {
            if name == "*" {
                let shown = format!("{}::{}", known_as.join("::"), target.join("::"));
                return Err(Failure::new(format!("`{shown}` hides what the API is"))
                    .next("name what is re-exported, one by one"));
            }
            match self.resolve(path, target) {
                Some(Found::Item(definition)) => self.add(definition, known_as, name),
                Some(Found::Module(inner)) => self.export_module(&inner, known_as, name)?,
                Some(Found::Foreign(target)) => {
                    let ours = format!("{}::{name}", known_as.join("::"));
                    self.foreign.insert((ours, target.join("::")));
                }
                None => {}
            }
        }
        Ok(())
    }

    fn export_module(
        &mut self,
        path: &ModulePath,
        known_as: &mut Vec<String>,
        name: &str,
    ) -> Result<(), Failure> {
        known_as.push(name.to_owned());
        let marks = path.split_last().and_then(|(name, outer)| {
            self.tree.modules.get(outer)?.children.get(name).map(|child| child.marks.clone())
        });
        self.modules.insert(known_as.join("::"), marks.unwrap_or_default());
        let exported = self.export(path, known_as);
        known_as.pop();
        exported
    }

    fn add(&mut self, definition: Definition, known_as: &[String], name: &str) {
        let path = format!("{}::{name}", known_as.join("::"));
        self.public.entry(definition).or_default().insert((known_as.len(), path));
    }

    /// The shortest path by which users can name an item, if there is one.
    pub(crate) fn known_as(&self, definition: &Definition) -> Option<&str> {
        let (_, path) = self.public.get(definition)?.first()?;
        Some(path)
    }

    /// The full path of the target of `written` in a module, if it differs from `written`.
    pub(crate) fn full(&self, module: &ModulePath, written: &[String]) -> Option<String> {
        // A type with a suffix, as in `Fence::MAX`: the suffix stays.
        for end in (1..=written.len()).rev() {
            let behind = &written[end..];
            let full = match self.resolve(module, &written[..end]) {
                None => continue,
                Some(Found::Foreign(path)) => path.join("::"),
                Some(Found::Module(path)) => format!("{}::{}", self.krate, path.join("::")),
                Some(Found::Item(definition)) => match self.known_as(&definition) {
                    Some(known_as) => known_as.to_owned(),
                    None => format!("{}::{}", self.krate, definition_path(&definition)),
                },
            };
            let parts = std::iter::once(full.as_str()).chain(behind.iter().map(String::as_str));
            return Some(parts.collect::<Vec<_>>().join("::"));
        }
        None
    }

    /// The target of a path that is written in a module; `None` for the prelude and for generics.
    pub(crate) fn resolve(&self, module: &ModulePath, written: &[String]) -> Option<Found> {
        self.resolve_within(module, written, DEEPEST)
    }

    fn resolve_within(&self, from: &ModulePath, written: &[String], depth: u32) -> Option<Found> {
        let depth = depth.checked_sub(1)?;
        let (first, rest) = written.split_first()?;
        let start = match first.as_str() {
            "crate" => Found::Module(ModulePath::new()),
            "self" => Found::Module(from.clone()),
            "super" => Found::Module(from.split_last()?.1.to_vec()),
            name => match self.member(from, name, depth) {
                Some(found) => found,
                // A path of several parts whose first part is not in the module starts at a crate.
                None if is_crate(name, rest) => Found::Foreign(vec![name.to_owned()]),
                None => return None,
            },
        };
        rest.iter().try_fold(start, |found, part| match found {
            Found::Module(path) if part == "super" => {
                Some(Found::Module(path.split_last()?.1.to_vec()))
            }
            Found::Module(path) => self.member(&path, part, depth),
            Found::Foreign(mut path) => {
                path.push(part.clone());
                Some(Found::Foreign(path))
            }
            Found::Item(_) => None,
        })
    }

    /// The meaning of a single name in a module.
    fn member(&self, path: &ModulePath, name: &str, depth: u32) -> Option<Found> {
        let module: &Module = self.tree.modules.get(path)?;
        if module.items.iter().any(|item| item_name(item).as_deref() == Some(name)) {
            return Some(Found::Item((path.clone(), name.to_owned())));
        }
        if module.children.contains_key(name) {
            let mut inner = path.clone();
            inner.push(name.to_owned());
            return Some(Found::Module(inner));
        }
        let mut imports = module.imports.iter().filter(|import| import.name == name);
        imports.find_map(|import| self.resolve_within(path, &import.target, depth))
    }
}

/// Whether a path whose first part is not in the module starts at another crate. A type parameter, as in
/// `S::Error`, and `Self` begin with a capital letter; crates do not.
fn is_crate(name: &str, rest: &[String]) -> bool {
    !rest.is_empty() && name.starts_with(|first: char| first.is_lowercase())
}

fn definition_path((module, name): &Definition) -> String {
    let parts = module.iter().chain([name]).map(String::as_str);
    parts.collect::<Vec<_>>().join("::")
}

/// The name that an item defines.
pub(crate) fn item_name(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

/// The name that an item defines, if it is `pub`.
fn public_name(item: &Item) -> Option<String> {
    let visibility = match item {
        Item::Const(item) => &item.vis,
        Item::Enum(item) => &item.vis,
        Item::Fn(item) => &item.vis,
        Item::Static(item) => &item.vis,
        Item::Struct(item) => &item.vis,
        Item::Trait(item) => &item.vis,
        Item::TraitAlias(item) => &item.vis,
        Item::Type(item) => &item.vis,
        Item::Union(item) => &item.vis,
        _ => return None,
    };
    matches!(visibility, Visibility::Public(_)).then(|| item_name(item)).flatten()
}
