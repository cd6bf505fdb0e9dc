//! The elements of pictures. The page that shows a picture chooses between light and dark.

use std::fmt::Write;

/// A picture that is being drawn.
pub(super) struct Svg(String);

/// The side of its point on which a text stands.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// The left end of the time line, and the width of a lane's label.
const LANE: i32 = 130;
/// Half the height of a bar.
const HALF_BAR: i32 = 15;

impl Svg {
    pub(super) fn new((width, height): (i32, i32), label: &str) -> Svg {
        Svg(format!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" aria-label="{label}">
<style>
text {{ font: 14px system-ui, sans-serif; fill: #1f2328 }}
.page {{ fill: #ffffff }}
.state {{ fill: #f0f3f6; stroke: #8c959f; stroke-width: 1.5 }}
.works {{ fill: #d8f0dd }}
.ends {{ fill: #fde3c8 }}
.name {{ font-size: 17px; font-weight: 600; text-anchor: middle }}
.strong {{ font-weight: 600 }}
.action, .note {{ fill: #59636e; font-size: 13px }}
.note {{ font-style: italic }}
.road {{ fill: none; stroke: #6e7781; stroke-width: 1.5 }}
.axis {{ stroke: #d1d9e0; stroke-width: 1 }}
.moment {{ stroke: #cf222e; stroke-width: 1.5; stroke-dasharray: 4 3 }}
.tip {{ fill: #6e7781 }}
@media (prefers-color-scheme: dark) {{
text {{ fill: #f0f6fc }}
.page {{ fill: #0d1117 }}
.state {{ fill: #1f2630; stroke: #6e7681 }}
.works {{ fill: #163d24 }}
.ends {{ fill: #5a3410 }}
.action, .note {{ fill: #a5adb8 }}
.road {{ stroke: #8b949e }}
.axis {{ stroke: #3d444d }}
.moment {{ stroke: #f85149 }}
.tip {{ fill: #8b949e }}
}}
</style>
<defs><marker id="tip" viewBox="0 0 10 10" refX="4" refY="5" markerWidth="8" markerHeight="8" orient="auto"><path class="tip" d="M0 1 L10 5 L0 9 z"/></marker></defs>
<rect class="page" width="{width}" height="{height}"/>
"##
        ))
    }

    pub(super) fn end(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }

    pub(super) fn text(&mut self, class: &str, (x, y): (i32, i32), anchor: Anchor, words: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let _ = writeln!(
            self.0,
            r#"<text class="{class}" x="{x}" y="{y}" text-anchor="{anchor}">{words}</text>"#
        );
    }

    /// A box around a point.
    pub(super) fn block(&mut self, class: &str, (x, y): (i32, i32), half: (i32, i32)) {
        let (left, top, width, height) = (x - half.0, y - half.1, 2 * half.0, 2 * half.1);
        self.rect(class, (left, top), (width, height), 12);
    }

    pub(super) fn rect(&mut self, class: &str, at: (i32, i32), size: (i32, i32), round: i32) {
        let ((x, y), (width, height)) = (at, size);
        let _ = writeln!(
            self.0,
            r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}" rx="{round}"/>"#
        );
    }

    pub(super) fn arrow(&mut self, path: &str) {
        let _ = writeln!(self.0, r#"<path class="road" d="{path}" marker-end="url(#tip)"/>"#);
    }

    /// A lane: one participant, with its events from left to right.
    pub(super) fn lane(&mut self, y: i32, to: i32, who: &str) {
        let _ = writeln!(self.0, r#"<path class="axis" d="M{LANE} {y} H{to}"/>"#);
        self.text("strong", (LANE - 14, y + 5), Anchor::End, who);
    }

    /// A period of time in a lane.
    pub(super) fn bar(&mut self, class: &str, y: i32, (from, to): (i32, i32), words: &str) {
        let class = format!("state {class}");
        self.rect(class.trim_end(), (from, y - HALF_BAR), (to - from, 2 * HALF_BAR), 5);
        self.text("action", ((from + to) / 2, y + 5), Anchor::Middle, words);
    }

    /// An arrow from one lane to another, at one moment.
    pub(super) fn pass(&mut self, x: i32, from: i32, to: i32) {
        let gap = if to > from { HALF_BAR } else { -HALF_BAR };
        self.arrow(&format!("M{x} {} V{}", from + gap, to - gap - gap.signum() * 6));
    }

    /// A moment that affects all lanes.
    pub(super) fn moment(&mut self, x: i32, (from, to): (i32, i32), words: &str) {
        let _ = writeln!(self.0, r#"<path class="moment" d="M{x} {from} V{to}"/>"#);
        self.text("strong", (x, from - 8), Anchor::Middle, words);
    }
}
