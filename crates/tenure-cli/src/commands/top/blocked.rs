//! Who waits for whom: a holder of one name that waits for another is found by its owner.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure::View;

use crate::facts;
use crate::output::{clean, span};
use crate::settings::Settings;

/// A line of the tree: an owner, and below it the owners that wait for its names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Line {
    pub(super) depth: usize,
    pub(super) text: String,
    /// Whether it waits for an owner that waits for it.
    pub(super) circle: bool,
}

/// The waiters of one owner for one name.
struct Waiting<'a> {
    name: &'a str,
    owner: &'a str,
    many: usize,
    longest: Duration,
}

/// The tree. The owners that block most come first.
pub(super) fn lines(views: &[View], settings: &Settings) -> Vec<Line> {
    let graph = Graph::new(views);
    let mut picture = Picture { graph: &graph, settings, lines: Vec::new(), seen: BTreeSet::new() };
    let mut roots: Vec<_> =
        graph.behind.keys().map(|owner| (graph.blocked_by(owner), *owner)).collect();
    roots.sort_by(|(many, owner), (more, other)| more.cmp(many).then(owner.cmp(other)));
    // Start with owners that wait for nobody; the remaining ones are in cycles.
    for waits in [false, true] {
        for (many, owner) in roots.iter().filter(|(_, owner)| graph.waits(owner) == waits) {
            picture.root(owner, *many);
        }
    }
    picture.lines
}

struct Graph<'a> {
    /// The owners that wait for a name that this owner holds.
    behind: BTreeMap<&'a str, Vec<Waiting<'a>>>,
    who: BTreeMap<&'a str, String>,
}

impl<'a> Graph<'a> {
    fn new(views: &'a [View]) -> Graph<'a> {
        let mut graph = Graph { behind: BTreeMap::new(), who: BTreeMap::new() };
        for view in views.iter().filter(|view| !view.waiters.is_empty()) {
            for holder in &view.holders {
                let owner = &*holder.details.owner;
                graph.who.insert(owner, facts::who(&holder.details));
                graph.behind.entry(owner).or_default().extend(in_line(view));
            }
            for waiter in &view.waiters {
                let who = || facts::who(&waiter.details);
                graph.who.entry(&waiter.details.owner).or_insert_with(who);
            }
        }
        graph
    }

    fn waits(&self, owner: &str) -> bool {
        let others = self.behind.iter().filter(|(holder, _)| **holder != owner);
        others.flat_map(|(_, waiting)| waiting).any(|waiting| waiting.owner == owner)
    }

    /// How many owners wait for it, directly or through others.
    fn blocked_by(&self, owner: &'a str) -> usize {
        let (mut count, mut seen, mut next) = (0, BTreeSet::new(), vec![owner]);
        while let Some(owner) = next.pop() {
            if seen.insert(owner) {
                for waiting in self.behind.get(owner).into_iter().flatten() {
                    count += waiting.many;
                    next.push(waiting.owner);
                }
            }
        }
        count
    }
}

/// The owners that wait for a name, in the order of their first place.
fn in_line(view: &View) -> Vec<Waiting<'_>> {
    let mut all: Vec<Waiting<'_>> = Vec::new();
    for waiter in &view.waiters {
        let owner = &*waiter.details.owner;
        match all.iter_mut().find(|waiting| waiting.owner == owner) {
            Some(waiting) => {
                waiting.many += 1;
                waiting.longest = waiting.longest.max(waiter.waited);
            }
            None => {
                let name = view.name.as_str();
                all.push(Waiting { name, owner, many: 1, longest: waiter.waited });
            }
        }
    }
    all
}

struct Picture<'a> {
    graph: &'a Graph<'a>,
    settings: &'a Settings,
    lines: Vec<Line>,
    /// Owners that were already shown with their waiters.
    seen: BTreeSet<&'a str>,
}

impl<'a> Picture<'a> {
    fn root(&mut self, owner: &'a str, many: usize) {
        if self.seen.contains(owner) {
            return;
        }
        let text = format!("{} blocks {many}", self.name_of(owner));
        self.lines.push(Line { depth: 0, text, circle: false });
        self.walk(owner, &mut Vec::new());
    }

    fn name_of(&self, owner: &str) -> String {
        self.graph.who.get(owner).cloned().unwrap_or_else(|| clean(owner))
    }

    fn walk(&mut self, owner: &'a str, path: &mut Vec<&'a str>) {
        self.seen.insert(owner);
        path.push(owner);
        for waiting in self.graph.behind.get(owner).into_iter().flatten() {
            let (name, waited) =
                (clean(self.settings.short_name(waiting.name)), span(waiting.longest));
            let times = match waiting.many {
                1 => String::new(),
                many => format!(" x{many}"),
            };
            let who = self.name_of(waiting.owner);
            let mut text = format!("{who}{times} waits for {name} ({waited})");
            // Tasks of one process often want the same name; that is not a cycle.
            let circle = waiting.owner != owner && path.contains(&waiting.owner);
            let blocks = self.graph.behind.contains_key(waiting.owner) && waiting.owner != owner;
            let again = blocks && !circle && self.seen.contains(waiting.owner);
            if circle {
                text.push_str(": DEADLOCK, each waits for the other");
            } else if again {
                text.push_str(", and blocks others: see above");
            }
            self.lines.push(Line { depth: path.len(), text, circle });
            if blocks && !circle && !again {
                self.walk(waiting.owner, path);
            }
        }
        path.pop();
    }
}
