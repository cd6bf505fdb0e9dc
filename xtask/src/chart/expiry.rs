//! A holder that dies, and one that is cut off from the engine: `docs/expiry.svg`.

use super::svg::{Anchor, Svg};
use crate::failure::Failure;

const END: i32 = 870;
/// A ttl is 240 wide, with a renewal at each third of it. The hold ends a ttl after the last renewal.
const RENEWALS: [i32; 3] = [210, 290, 370];

pub(super) fn draw() -> Result<String, Failure> {
    let label = "A holder that is killed is followed when its ttl is over; one that is cut off stops before that";
    let mut svg = Svg::new((900, 560), label);
    let (a, engine, b) = (90, 160, 230);
    svg.lane(a, END, "A is killed");
    svg.lane(engine, END, "engine");
    svg.lane(b, END, "B");
    svg.bar("works", a, (130, 450), "works");
    svg.bar("works", engine, (130, 610), "A holds: its ttl counts from the last renewal");
    svg.bar("works", engine, (610, END), "B holds, a higher fence");
    svg.bar("", b, (130, 620), "waits in line");
    svg.bar("works", b, (620, END), "works");
    renewals(&mut svg, a, engine);
    svg.moment(450, (55, 108), "kill -9");
    svg.pass(620, engine, b);
    svg.text("event", (630, 201), Anchor::Start, "your turn");
    svg.text(
        "note",
        (500, 268),
        Anchor::Middle,
        "On a file the engine sees that the process is gone: B has it at once.",
    );

    let (a, engine, b) = (360, 430, 500);
    svg.lane(a, END, "A is cut off");
    svg.lane(engine, END, "engine");
    svg.lane(b, END, "B");
    svg.bar("works", a, (130, 450), "works");
    svg.bar("ends", a, (450, 520), "at risk");
    svg.bar("ends", a, (520, 590), "stops");
    svg.bar("", a, (590, END), "has lost it, by its own clock");
    svg.bar("works", engine, (130, 610), "A holds: its ttl counts from the last renewal");
    svg.bar("works", engine, (610, END), "B holds, a higher fence");
    svg.bar("", b, (130, 620), "waits in line");
    svg.bar("works", b, (620, END), "works");
    renewals(&mut svg, a, engine);
    svg.moment(410, (325, 378), "the network ends");
    svg.pass(620, engine, b);
    svg.text("event", (630, 471), Anchor::Start, "your turn");
    svg.text(
        "note",
        (500, 540),
        Anchor::Middle,
        "A has stopped before B can begin, without a word from the engine.",
    );
    Ok(svg.end())
}

fn renewals(svg: &mut Svg, from: i32, to: i32) {
    RENEWALS.into_iter().for_each(|x| svg.pass(x, from, to));
    svg.text("action", (RENEWALS[0] - 8, (from + to) / 2 + 5), Anchor::End, "renews");
}
