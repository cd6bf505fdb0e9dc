//! Finds pages that are not in the table of contents, and broken links.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use crate::workspace::Source;

/// The table of contents of `docs/`.
pub(crate) const SUMMARY: &str = "docs/SUMMARY.md";

/// Checks all pages: each one below `docs/` is in the table of contents, and every link resolves. `paths` are
/// all files.
pub(crate) fn check(paths: &[String], pages: &[Source]) -> Vec<Finding> {
    let anchors: BTreeMap<&str, BTreeSet<String>> =
        pages.iter().map(|page| (&*page.path, anchors(&page.text))).collect();
    let (mut findings, mut listed) = (Vec::new(), BTreeSet::new());
    for page in pages {
        for (line, link) in links(&page.text) {
            let (target, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let path = resolve(&page.path, target);
            let says = if !exists(paths, &path) {
                format!("the link leads to {path:?}, which does not exist")
            } else if !anchor.is_empty()
                && anchors.get(&*path).is_some_and(|known| !known.contains(anchor))
            {
                format!("{path} has no heading for #{anchor}")
            } else {
                if page.path == SUMMARY {
                    listed.insert(path);
                }
                continue;
            };
            findings.push(Finding { file: page.path.clone(), line, says });
        }
    }
    for page in pages.iter().filter(|page| page.path.starts_with("docs/")) {
        if page.path != SUMMARY && !listed.contains(&page.path) {
            let says = format!("the page is not in {SUMMARY}");
            findings.push(Finding { file: page.path.clone(), line: 1, says });
        }
    }
    findings
}

/// A file, or a folder with files.
fn exists(paths: &[String], path: &str) -> bool {
    paths.iter().any(|it| {
        it == path
            || it.strip_prefix(path).is_some_and(|rest| path.is_empty() || rest.starts_with('/'))
    })
}

/// The path from the root that a relative link leads to.
fn resolve(page: &str, target: &str) -> String {
    if target.is_empty() {
        return page.to_owned();
    }
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in target.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The lines of a page outside of its code blocks, with their numbers from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        (!is_fence && !in_code).then_some((index + 1, line))
    })
}

/// The links of a page to files of this repository, each with its line.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        // Text between backticks is no link.
        let plain: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        for part in plain.split("](").skip(1) {
            let Some((target, _)) = part.split_once(')') else { continue };
            if !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:") {
                found.push((number, target.to_owned()));
            }
        }
    }
    found
}

/// The anchors of a page's headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (_, line) in prose(text) {
        let Some(heading) = line.strip_prefix('#').map(|rest| rest.trim_start_matches('#')) else {
            continue;
        };
        let Some(heading) = heading.strip_prefix(' ') else { continue };
        // Of a link in a heading, only the text counts.
        let mut shown = String::new();
        for part in heading.split("](") {
            let rest =
                if shown.is_empty() { part } else { part.split_once(')').map_or("", |it| it.1) };
            shown.push_str(rest);
        }
        let kept = |c: char| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
            _ => None,
        };
        let anchor: String = shown.trim().to_lowercase().chars().filter_map(kept).collect();
        let another = (1..).map(|number| format!("{anchor}-{number}"));
        let mut names = std::iter::once(anchor.clone()).chain(another);
        found.extend(names.find(|name| !found.contains(name)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(pages: &[(&str, &str)], others: &[&str]) -> Vec<String> {
        let paths = pages.iter().map(|page| page.0).chain(others.iter().copied());
        let paths: Vec<String> = paths.map(str::to_owned).collect();
        let page =
            |(path, text): &(&str, &str)| Source { path: (*path).into(), text: (*text).into() };
        let pages: Vec<Source> = pages.iter().map(page).collect();
        check(&paths, &pages).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_page_that_is_not_in_the_contents_is_found() {
        let contents = (SUMMARY, "- [A](a.md)\n- [Nothing yet]()\n");
        let found = says(&[contents, ("docs/a.md", ""), ("docs/b/c.md", "")], &[]);
        assert_eq!(found, ["docs/b/c.md:1: the page is not in docs/SUMMARY.md"]);
        assert!(says(&[contents, ("docs/a.md", ""), ("other.md", "")], &[]).is_empty());
    }

    #[test]
    fn a_link_that_leads_nowhere_is_found() {
        let page = "[x](../b.rs) [y](c.md)\n`[z](d)` [w](https://e) [v](..)\n```\n[f](g)\n```\n[b](../crates/)\n";
        let found =
            says(&[("README.md", "[gone](docs/gone.md)"), (SUMMARY, page)], &["b.rs", "crates/a"]);
        assert_eq!(
            found,
            [
                "README.md:1: the link leads to \"docs/gone.md\", which does not exist",
                "docs/SUMMARY.md:1: the link leads to \"docs/c.md\", which does not exist",
            ]
        );
    }

    #[test]
    fn a_heading_that_does_not_exist_is_found() {
        let page = "# One `two`, three\n## [Four](x://y) five\n# Again\n# Again\n```\n# code\n```\n\
            [a](#one-two-three) [b](#four-five) [c](#again-1) [d](#code) [e](b.md#x)\n";
        let found = says(&[("a.md", page)], &["b.md"]);
        assert_eq!(found, ["a.md:8: a.md has no heading for #code"]);
    }
}
