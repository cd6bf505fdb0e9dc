//! The lines of the snapshot: one for each thing that a user can name, below its owner.

use syn::punctuated::Punctuated;
use syn::visit_mut::VisitMut;
use syn::{
    Fields, ImplItem, Item, ItemImpl, Meta, MetaList, PathArguments, Token, TraitItem, Type,
    Visibility,
};

use super::names::{Definition, Found, Names};
use super::spell::{Speller, attributes, join};
use super::tree::Tree;

/// A line of the snapshot. The order of the fields is the order of the lines.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Line {
    /// The path of its owner.
    of: String,
    /// Whether it comes after the line of its owner.
    member: bool,
    text: String,
}

impl Line {
    fn item(of: &str, text: String) -> Line {
        Line { of: of.to_owned(), member: false, text }
    }

    fn member(of: &str, text: String) -> Line {
        Line { of: of.to_owned(), member: true, text }
    }
}

/// All lines, sorted by their owners.
pub(crate) fn all(tree: &Tree, names: &Names<'_>) -> Vec<String> {
    let mut lines: Vec<Line> = Vec::new();
    for (path, marks) in &names.modules {
        lines.push(Line::item(path, format!("{marks}pub mod {path}")));
    }
    for (ours, theirs) in &names.foreign {
        lines.push(Line::item(ours, format!("pub use {ours} = {theirs}")));
    }
    for (definition, paths) in &names.public {
        let mut paths = paths.iter().map(|(_, path)| path);
        let Some(first) = paths.next() else { continue };
        lines.extend(paths.map(|path| Line::item(path, format!("pub use {path} = {first}"))));
        lines.extend(of_definition(tree, names, definition, first));
    }
    for (module, content) in &tree.modules {
        let speller = Speller { names, module };
        for item in &content.items {
            match item {
                Item::Impl(block) => lines.extend(Block { speller, block }.lines()),
                Item::Macro(item) => lines.extend(exported_macro(names, item)),
                _ => {}
            }
        }
    }
    lines.sort();
    lines.into_iter().map(|line| line.text).collect()
}

/// `#[macro_export]` puts a macro at the root, wherever it is defined.
fn exported_macro(names: &Names<'_>, item: &syn::ItemMacro) -> Option<Line> {
    let exported = item.attrs.iter().any(|attribute| attribute.path().is_ident("macro_export"));
    let path = format!("{}::{}", names.krate, item.ident.as_ref()?);
    exported.then(|| Line::item(&path, format!("pub macro {path}!")))
}

fn of_definition(tree: &Tree, names: &Names<'_>, definition: &Definition, path: &str) -> Vec<Line> {
    let (module, name) = definition;
    let speller = Speller { names, module };
    let mut lines = Vec::new();
    for item in tree.modules.get(module).into_iter().flat_map(|module| &module.items) {
        if super::names::item_name(item).as_ref() == Some(name) {
            let mut texts = of_item(&speller, item, path).into_iter();
            lines.extend(texts.next().map(|text| Line::item(path, text)));
            lines.extend(texts.map(|text| Line::member(path, text)));
        }
    }
    lines
}

/// The lines of an item and of its parts.
fn of_item(speller: &Speller<'_>, item: &Item, path: &str) -> Vec<String> {
    let marks = attributes(crate::syntax::attributes(item));
    match item {
        Item::Const(item) => vec![format!("{marks}pub const {path}: {}", speller.ty(&item.ty))],
        Item::Static(item) => vec![format!("{marks}pub static {path}: {}", speller.ty(&item.ty))],
        Item::Fn(item) => vec![format!("{marks}pub {}", speller.signature(&item.sig, path))],
        Item::Type(item) => {
            let (parameters, clause) = speller.generics(&item.generics);
            let ty = speller.ty(&item.ty);
            vec![format!("{marks}pub type {path}{parameters} = {ty}{clause}")]
        }
        Item::Struct(item) => of_struct(speller, item, path, &marks),
        Item::Enum(item) => {
            let (parameters, clause) = speller.generics(&item.generics);
            let mut lines = vec![format!("{marks}pub enum {path}{parameters}{clause}")];
            for variant in &item.variants {
                let (marks, name) = (attributes(&variant.attrs), &variant.ident);
                let fields = speller.fields(&variant.fields, true);
                lines.push(format!("{marks}pub {path}::{name}{fields}"));
            }
            lines.extend(derived(&item.attrs, &item.generics, path));
            lines
        }
        Item::Trait(item) => of_trait(speller, item, path, &marks),
        // Other items are not used here; if one is added, it appears in the snapshot as written.
        other => vec![format!("{marks}pub {path}: {}", join(quote::quote!(#other)))],
    }
}

fn of_struct(
    speller: &Speller<'_>,
    item: &syn::ItemStruct,
    path: &str,
    marks: &str,
) -> Vec<String> {
    let (parameters, clause) = speller.generics(&item.generics);
    let public = |field: &&syn::Field| matches!(field.vis, Visibility::Public(_));
    let mut lines = Vec::new();
    let shown = match &item.fields {
        Fields::Named(fields) => {
            for field in fields.named.iter().filter(public) {
                let name = field.ident.as_ref().map(ToString::to_string).unwrap_or_default();
                let marks = attributes(&field.attrs);
                lines.push(format!("{marks}pub {path}.{name}: {}", speller.ty(&field.ty)));
            }
            // A struct with a private field cannot be constructed or destructured by users.
            let all_public = fields.named.iter().filter(public).count() == fields.named.len();
            if all_public { String::new() } else { " { .. }".to_owned() }
        }
        fields => speller.fields(fields, false),
    };
    lines.insert(0, format!("{marks}pub struct {path}{parameters}{shown}{clause}"));
    lines.extend(derived(&item.attrs, &item.generics, path));
    lines
}

fn of_trait(speller: &Speller<'_>, item: &syn::ItemTrait, path: &str, marks: &str) -> Vec<String> {
    let (parameters, clause) = speller.generics(&item.generics);
    let bound = |bound| speller.full(bound, |full, bound| full.visit_type_param_bound_mut(bound));
    let bounds: Vec<_> = item.supertraits.iter().map(bound).collect();
    let bounds =
        if bounds.is_empty() { String::new() } else { format!(": {}", bounds.join(" + ")) };
    let safety = if item.unsafety.is_some() { "unsafe " } else { "" };
    let mut lines = vec![format!("{marks}pub {safety}trait {path}{parameters}{bounds}{clause}")];
    for member in &item.items {
        lines.push(match member {
            TraitItem::Fn(function) => {
                let marks = attributes(&function.attrs);
                let name = format!("{path}::{}", function.sig.ident);
                // An implementor need not write a method with a body.
                let body = if function.default.is_some() { " { .. }" } else { "" };
                format!("{marks}{}{body}", speller.signature(&function.sig, &name))
            }
            TraitItem::Type(member) => {
                let bounds: Vec<_> = member.bounds.iter().map(bound).collect();
                let colon = if bounds.is_empty() { "" } else { ": " };
                format!("type {path}::{}{colon}{}", member.ident, bounds.join(" + "))
            }
            TraitItem::Const(member) => {
                let body = if member.default.is_some() { " = .." } else { "" };
                format!("const {path}::{}: {}{body}", member.ident, speller.ty(&member.ty))
            }
            other => join(quote::quote!(#other)),
        });
    }
    lines
}

/// The impls of `#[derive(…)]`, as if they were written out.
fn derived(attrs: &[syn::Attribute], generics: &syn::Generics, path: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let derives = attrs.iter().flat_map(|attribute| derives(&attribute.meta, ""));
    for (condition, derive) in derives {
        // An error loses nothing: the compiler would have refused such a derive.
        let parts = derive.parse_args_with(Punctuated::<syn::Path, Token![,]>::parse_terminated);
        for name in parts.iter().flatten().filter_map(|derived| derived.segments.last()) {
            let (bounded, plain, _) = generics.split_for_impl();
            let (bounded, plain) = (join(quote::quote!(#bounded)), join(quote::quote!(#plain)));
            let name = &name.ident;
            lines.push(format!("{condition}impl{bounded} {name} for {path}{plain}"));
        }
    }
    lines
}

/// The `derive(…)` in an attribute, or those in a `cfg_attr(…)` with the `#[cfg(…)]` that they depend on.
fn derives(attribute: &Meta, condition: &str) -> Vec<(String, MetaList)> {
    match attribute {
        Meta::List(list) if list.path.is_ident("derive") => {
            vec![(condition.to_owned(), list.clone())]
        }
        Meta::List(list) if list.path.is_ident("cfg_attr") => {
            let parts = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
            let mut parts = parts.into_iter().flatten();
            let Some(feature) = parts.next() else { return Vec::new() };
            let condition = format!("{condition}#[cfg({})] ", join(quote::quote!(#feature)));
            parts.flat_map(|part| derives(&part, &condition)).collect()
        }
        _ => Vec::new(),
    }
}

/// An `impl` block and where it is written.
struct Block<'a> {
    speller: Speller<'a>,
    block: &'a ItemImpl,
}

impl Block<'_> {
    fn lines(&self) -> Vec<Line> {
        let own = match &*self.block.self_ty {
            Type::Path(ty) if ty.qself.is_none() => self.look_up(&ty.path),
            _ => None,
        };
        let own = match &own {
            Some(Found::Item(definition)) => match self.speller.names.known_as(definition) {
                Some(path) => Some(path),
                // Nobody outside can name the type, so nobody can see its impls.
                None => return Vec::new(),
            },
            _ => None,
        };
        match (&self.block.trait_, own) {
            (Some((implemented, _)), own) => self.of_trait(implemented, own).into_iter().collect(),
            (None, Some(own)) => self.members(own),
            (None, None) => Vec::new(),
        }
    }

    fn look_up(&self, path: &syn::Path) -> Option<Found> {
        let written: Vec<_> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        self.speller.names.resolve(self.speller.module, &written)
    }

    /// `impl Trait for Type`, with the associated types that it sets, and its owner.
    fn of_trait(&self, implemented: &syn::Path, own: Option<&str>) -> Option<Line> {
        let (speller, block) = (&self.speller, self.block);
        let last = implemented.segments.last()?;
        let (name, sort_by) = match self.look_up(implemented) {
            Some(Found::Item(definition)) => {
                let path = speller.names.known_as(&definition)?.to_owned();
                (path.clone(), own.map_or(path, str::to_owned))
            }
            // Derived or written out, with a full path or imported: it is the same trait.
            _ => (last.ident.to_string(), own.unwrap_or("~").to_owned()),
        };
        let arguments = match &last.arguments {
            PathArguments::None => String::new(),
            arguments => {
                speller.full(arguments, |full, arguments| full.visit_path_arguments_mut(arguments))
            }
        };
        let (parameters, clause) = speller.generics(&block.generics);
        let ty = speller.ty(&block.self_ty);
        let set = |item: &ImplItem| match item {
            ImplItem::Type(item) => Some(format!("type {} = {}", item.ident, speller.ty(&item.ty))),
            _ => None,
        };
        let types: Vec<_> = block.items.iter().filter_map(set).collect();
        let types = match types.is_empty() {
            true => String::new(),
            false => format!(" {{ {} }}", types.join("; ")),
        };
        let marks = attributes(&block.attrs);
        let line = format!("{marks}impl{parameters} {name}{arguments} for {ty}{clause}{types}");
        Some(Line::member(&sort_by, line))
    }

    /// The public members of `impl Type`.
    fn members(&self, own: &str) -> Vec<Line> {
        let (speller, block) = (&self.speller, self.block);
        let (parameters, clause) = speller.generics(&block.generics);
        let context = match parameters.is_empty() {
            true => String::new(),
            false => format!(" in impl{parameters} {}{clause}", speller.ty(&block.self_ty)),
        };
        let member = |item: &ImplItem| match item {
            ImplItem::Fn(item) if matches!(item.vis, Visibility::Public(_)) => {
                let path = format!("{own}::{}", item.sig.ident);
                let signature = speller.signature(&item.sig, &path);
                Some(format!("{}pub {signature}{context}", attributes(&item.attrs)))
            }
            ImplItem::Const(item) if matches!(item.vis, Visibility::Public(_)) => {
                let ty = speller.ty(&item.ty);
                let marks = attributes(&item.attrs);
                Some(format!("{marks}pub const {own}::{}: {ty}{context}", item.ident))
            }
            _ => None,
        };
        block.items.iter().filter_map(member).map(|line| Line::member(own, line)).collect()
    }
}
