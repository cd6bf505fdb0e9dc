//! The public API of the libraries as a text that is reviewed: `docs/api.txt`.
//!
//! The snapshot is made from the sources, without a compiler. Names are resolved by this program, so the
//! snapshot shows the names that users write and not where an item happens to be defined. Moving an item
//! between private modules changes nothing; changing a signature does.

mod expand;
mod lines;
mod names;
mod spell;
mod tree;

use std::collections::BTreeMap;

use crate::failure::Failure;
use crate::workspace;

/// The libraries, and the names by which their users know them.
const LIBRARIES: [(&str, &str); 2] =
    [("crates/tenure/src/", "tenure"), ("crates/tenure-relay/src/", "tenure_relay")];
/// Where the snapshot is kept.
const SNAPSHOT: &str = "docs/api.txt";

/// Compares the API with the snapshot, or writes the snapshot again.
pub(crate) fn run(write: bool) -> Result<(), Failure> {
    if !write {
        return check();
    }
    let path = workspace::root().join(SNAPSHOT);
    std::fs::write(&path, present()?)
        .map_err(|error| Failure::new(format!("cannot write {SNAPSHOT}: {error}")))?;
    println!("wrote {SNAPSHOT}");
    Ok(())
}

/// Compares the API with the snapshot.
pub(crate) fn check() -> Result<(), Failure> {
    let write = "if you intended the change, run `cargo xtask api --write` and commit docs/api.txt";
    let kept = workspace::read(&workspace::root(), SNAPSHOT).map_err(|f| f.next(write))?;
    let changes = diff(&kept, &present()?);
    if changes.is_empty() {
        return Ok(());
    }
    changes.iter().for_each(|line| println!("{line}"));
    Err(Failure::new(format!("the public API differs from {SNAPSHOT}")).next(write))
}

/// The current API of the sources.
fn present() -> Result<String, Failure> {
    LIBRARIES.into_iter().map(|(folder, name)| of_library(folder, name)).collect()
}

fn of_library(folder: &str, name: &str) -> Result<String, Failure> {
    let wanted = |path: &str| path.starts_with(folder) && path.ends_with(".rs");
    let sources = workspace::sources(&workspace::root(), wanted)?;
    let below = |path: &str| path.strip_prefix(folder).unwrap_or(path).to_owned();
    let files = sources.into_iter().map(|source| (below(&source.path), source.text)).collect();
    snapshot(name, &files)
}

/// The API of a crate, from its files by their paths below `src`.
fn snapshot(name: &str, files: &BTreeMap<String, String>) -> Result<String, Failure> {
    let tree = tree::Tree::new(files)?;
    let names = names::Names::new(name, &tree)?;
    let mut text = lines::all(&tree, &names).join("\n");
    text.push('\n');
    Ok(text)
}

/// The lines that only one of two texts has, in order, with `-` or `+` before each.
fn diff(old: &str, new: &str) -> Vec<String> {
    let (old, new): (Vec<_>, Vec<_>) = (old.lines().collect(), new.lines().collect());
    // common[i][j]: the number of lines that old[i..] and new[j..] have in common.
    let mut common = vec![vec![0_usize; new.len() + 1]; old.len() + 1];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i][j] = if old[i] == new[j] {
                common[i + 1][j + 1] + 1
            } else {
                common[i + 1][j].max(common[i][j + 1])
            };
        }
    }
    let (mut i, mut j, mut changes) = (0, 0, Vec::new());
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            (i, j) = (i + 1, j + 1);
        } else if j == new.len() || i < old.len() && common[i + 1][j] >= common[i][j + 1] {
            changes.push(format!("- {}", old[i]));
            i += 1;
        } else {
            changes.push(format!("+ {}", new[j]));
            j += 1;
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api(files: &[(&str, &str)]) -> Result<String, Failure> {
        let own = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
        snapshot("x", &files.iter().map(own).collect())
    }

    #[track_caller]
    fn check(files: &[(&str, &str)], expected: &[&str]) {
        let text = api(files).unwrap();
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn only_what_a_user_can_name_is_listed() {
        check(
            &[
                ("lib.rs", "mod inner; pub mod outer; pub use inner::Seen; fn private() {}"),
                ("inner.rs", "pub struct Seen; pub struct Unseen; pub(crate) struct Ours;"),
                ("outer.rs", "pub fn call(a: crate::inner::Seen) {} #[cfg(test)] pub fn t() {}"),
            ],
            &["pub struct x::Seen", "pub mod x::outer", "pub fn x::outer::call(a: x::Seen)"],
        );
    }

    #[test]
    fn what_is_derived_with_a_feature_is_listed_with_it() {
        check(
            &[(
                "lib.rs",
                "#[derive(Clone)]
                #[cfg_attr(feature = \"serde\", derive(serde::Serialize, Debug), serde(transparent))]
                #[cfg_attr(docsrs, doc(cfg(all())))]
                pub struct Fence(u64);
                #[cfg_attr(unix, cfg_attr(feature = \"hash\", derive(Hash)))]
                pub enum Order { Arrival }",
            )],
            &[
                "pub struct x::Fence(_)",
                "#[cfg(feature = \"serde\")] impl Debug for x::Fence",
                "#[cfg(feature = \"serde\")] impl Serialize for x::Fence",
                "impl Clone for x::Fence",
                "pub enum x::Order",
                "#[cfg(unix)] #[cfg(feature = \"hash\")] impl Hash for x::Order",
                "pub x::Order::Arrival",
            ],
        );
    }

    #[test]
    fn methods_fields_variants_and_impls_are_listed_under_their_type() {
        check(
            &[(
                "lib.rs",
                "use std::fmt; use std::time::Duration;
                /// Docs are not part of the API.
                #[derive(Clone, Debug)] #[non_exhaustive]
                pub struct Options { /// Ttl.
                    pub ttl: Duration, secret: u8 }
                impl Options {
                    pub fn ttl(mut self, mut ttl: Duration) -> Options { loop {} }
                    pub async fn wait(&mut self) -> Result<(), fmt::Error> { loop {} }
                    fn hidden() {}
                    pub const MOST: u32 = 3;
                }
                impl fmt::Display for Options { fn fmt(&self) {} }
                pub enum Order { Arrival, Named { /// Which.
                    name: String }, Numbered(u8) }",
            )],
            &[
                "#[non_exhaustive] pub struct x::Options { .. }",
                "impl Clone for x::Options",
                "impl Debug for x::Options",
                "impl Display for x::Options",
                "pub async fn x::Options::wait(&mut self) -> Result<(), std::fmt::Error>",
                "pub const x::Options::MOST: u32",
                "pub fn x::Options::ttl(self, ttl: std::time::Duration) -> x::Options",
                "pub x::Options.ttl: std::time::Duration",
                "pub enum x::Order",
                "pub x::Order::Arrival",
                "pub x::Order::Named { name: String }",
                "pub x::Order::Numbered(u8)",
            ],
        );
    }

    #[test]
    fn traits_generics_and_other_names_are_spelled_out() {
        check(
            &[(
                "lib.rs",
                "mod a { pub trait Engine: Send + 'static { type Error; fn step(&self) -> u8;
                        fn shard(&self) -> u32 { 0 } }
                    pub struct Step<T>(T, pub u8);
                    pub type Fallible<T> = Result<T, ()>;
                    impl<T: Clone> Step<T> { pub fn ready(t: T) -> Step<T> { loop {} } }
                    impl<T: Unpin> std::future::Future for Step<T> where T: Send { type Output = T; }
                    impl Engine for u64 { type Error = (); }
                    struct Private; impl Engine for Private { type Error = (); } }
                pub use a::{Engine, Step, Fallible as Answer};
                pub mod engine { pub use crate::a::{Engine, Step as Stride}; }",
            )],
            &[
                "pub type x::Answer<T> = Result<T, ()>",
                "pub trait x::Engine: Send + 'static",
                "fn x::Engine::shard(&self) -> u32 { .. }",
                "fn x::Engine::step(&self) -> u8",
                "impl x::Engine for u64 { type Error = () }",
                "type x::Engine::Error",
                "pub struct x::Step<T>(_, pub u8)",
                "impl<T: Unpin> Future for x::Step<T> where T: Send { type Output = T }",
                "pub fn x::Step::ready(t: T) -> x::Step<T> in impl<T: Clone> x::Step<T>",
                "pub mod x::engine",
                "pub use x::engine::Engine = x::Engine",
                "pub use x::engine::Stride = x::Step",
            ],
        );
    }

    #[test]
    fn what_a_macro_of_the_crate_writes_is_listed() {
        check(
            &[
                ("lib.rs", "mod options; mod mutex; pub use mutex::Mutex; pub struct Options;"),
                (
                    "options.rs",
                    "macro_rules! setters { ($type:ident) => { impl $type {
                        pub fn options(mut self, options: $crate::Options) -> $type { self } } }; }
                    pub(crate) use setters;",
                ),
                ("mutex.rs", "use crate::options::setters; pub struct Mutex; setters!(Mutex);"),
            ],
            &[
                "pub struct x::Mutex",
                "pub fn x::Mutex::options(self, options: x::Options) -> x::Mutex",
                "pub struct x::Options",
            ],
        );
    }

    #[test]
    fn what_depends_on_a_feature_or_is_another_crates_says_so() {
        check(
            &[(
                "lib.rs",
                "#[cfg(feature = \"redis\")] pub mod redis { pub struct Redis; }
                pub use std::time::Duration as Span;
                #[macro_export] macro_rules! shout { () => {} }",
            )],
            &[
                "pub use x::Span = std::time::Duration",
                "#[cfg(feature = \"redis\")] pub mod x::redis",
                "pub struct x::redis::Redis",
                "pub macro x::shout!",
            ],
        );
    }

    #[test]
    fn a_changed_signature_is_a_difference_and_a_move_is_none() {
        let before = api(&[
            ("lib.rs", "mod a; pub use a::f;"),
            ("a.rs", "use std::time::Duration; pub fn f(d: Duration) {}"),
        ]);
        let moved = api(&[
            ("lib.rs", "mod b; pub use b::c::f;"),
            ("b.rs", "pub mod c;"),
            ("b/c.rs", "pub fn f(d: std::time::Duration) {}"),
        ]);
        let changed = api(&[("lib.rs", "pub fn f(d: std::time::Duration) -> bool { true }")]);
        let (before, moved, changed) = (before.unwrap(), moved.unwrap(), changed.unwrap());
        assert_eq!(diff(&before, &moved), [""; 0]);
        assert_eq!(
            diff(&before, &changed),
            [
                "- pub fn x::f(d: std::time::Duration)",
                "+ pub fn x::f(d: std::time::Duration) -> bool"
            ]
        );
    }

    #[test]
    fn what_cannot_be_followed_is_refused() {
        for (text, says) in [
            ("mod gone;", "gone.rs is not there"),
            ("mod a { pub struct S; } pub use a::*;", "name what is re-exported"),
            ("macro_rules! m { ($($x:ident),*) => {} } m!(a, b);", "cannot expand"),
        ] {
            let failure = api(&[("lib.rs", text)]).unwrap_err().to_string();
            assert!(failure.contains(says), "{text}: {failure}");
        }
    }

    #[test]
    fn a_difference_shows_both_sides_in_order() {
        assert_eq!(diff("a\nb\nc\n", "a\nB\nc\nd\n"), ["- b", "+ B", "+ d"]);
        assert_eq!(diff("a\n", "a\n"), [""; 0]);
        assert_eq!(diff("", "a\n"), ["+ a"]);
        assert_eq!(diff("a\n", ""), ["- a"]);
    }
}
