//! A worker that is told to stop, and the one that takes over: `docs/shutdown.svg`.

use super::svg::{Anchor, Svg};
use crate::failure::Failure;

pub(super) fn draw() -> Result<String, Failure> {
    let label = "On SIGTERM worker A takes no more requests, stops its work, releases its term; B leads at once";
    let mut svg = Svg::new((900, 300), label);
    let (a, engine, b, end) = (100, 170, 240, 870);
    svg.lane(a, end, "worker A");
    svg.lane(engine, end, "engine");
    svg.lane(b, end, "worker B");

    svg.bar("works", a, (130, 330), "works");
    svg.bar("ends", a, (330, 470), "no more requests");
    svg.bar("ends", a, (470, 590), "stops the work");
    svg.bar("", a, (590, 690), "exit 0");
    svg.bar("works", engine, (130, 610), "A's term, renewed at a third of the ttl");
    svg.bar("works", engine, (610, 870), "B's term, a higher fence");
    svg.bar("", b, (130, 640), "waits in line");
    svg.bar("works", b, (640, 870), "works");

    svg.moment(330, (50, 118), "SIGTERM");
    svg.pass(605, a, engine);
    svg.text("event", (615, 140), Anchor::Start, "releases: its work has ended");
    svg.pass(640, engine, b);
    svg.text("event", (650, 210), Anchor::Start, "your turn, by push");
    svg.text(
        "note",
        (500, 282),
        Anchor::Middle,
        "The ttl plays no part: the next works milliseconds after the last has stopped.",
    );
    Ok(svg.end())
}
