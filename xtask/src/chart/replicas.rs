//! Several replicas, one lock, and the database that it protects: `docs/replicas.svg`.

use super::svg::{Anchor, Svg};
use crate::failure::Failure;

pub(super) fn draw() -> Result<String, Failure> {
    let label =
        "Three replicas ask an engine for a lock; the one that holds it writes with its fence";
    let mut svg = Svg::new((880, 320), label);
    let replicas =
        [(70, "replica 1", "holds"), (170, "replica 2", "waits"), (270, "replica 3", "waits")];
    for (y, who, does) in replicas {
        let class = if does == "holds" { "state works" } else { "state" };
        svg.block(class, (110, y), (80, 30));
        svg.text("name", (110, y), Anchor::Middle, who);
        svg.text("action", (110, y + 19), Anchor::Middle, does);
    }
    svg.arrow("M190 170 H344");
    svg.arrow("M190 80 C260 90 280 120 344 140");
    svg.arrow("M190 262 C260 250 280 220 344 200");
    svg.text("event", (250, 84), Anchor::Start, "renews");
    svg.text("event", (212, 162), Anchor::Start, "stands in line");
    svg.text("event", (225, 286), Anchor::Start, "stands in line");

    svg.block("state", (450, 170), (100, 75));
    svg.text("name", (450, 118), Anchor::Middle, "engine");
    svg.text("action", (450, 142), Anchor::Middle, "one line for each name");
    svg.text("strong", (450, 170), Anchor::Middle, "1 holds, fence 7");
    svg.text("action", (450, 194), Anchor::Middle, "then 2, then 3");
    svg.text("action", (450, 220), Anchor::Middle, "a file or Redis");
    svg.text("note", (450, 268), Anchor::Middle, "pushes the turn to the next");

    svg.block("state", (755, 70), (108, 45));
    svg.text("name", (755, 58), Anchor::Middle, "what is written");
    svg.text("action", (755, 82), Anchor::Middle, "refuses fences");
    svg.text("action", (755, 99), Anchor::Middle, "lower than the highest seen");
    svg.arrow("M190 56 C330 20 520 20 641 56");
    svg.text("event", (420, 22), Anchor::Middle, "writes with fence 7");
    svg.text("note", (755, 150), Anchor::Middle, "a replica that was stopped");
    svg.text("note", (755, 167), Anchor::Middle, "and comes back with fence 6");
    svg.text("note", (755, 184), Anchor::Middle, "is refused here");
    Ok(svg.end())
}
