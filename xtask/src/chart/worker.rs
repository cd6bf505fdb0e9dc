//! The picture of the worker's states: `docs/worker.svg`.
//!
//! It is drawn from the library's own table, whose file is compiled in here: a transition that is not in the
//! table cannot be drawn, and a transition without a place in the picture is an error. Only the positions are
//! written by hand.

#[allow(dead_code, unreachable_pub, reason = "the library's file, of which a part is needed")]
#[path = "../../../crates/tenure/src/api/primitives/worker/machine.rs"]
mod machine;

use machine::{Action, Event, Machine, State};

use super::svg::{Anchor, Svg};
use crate::failure::Failure;

/// The size of the picture, and half the size of a state.
const SIZE: (i32, i32) = (1060, 570);
const HALF: (i32, i32) = (75, 30);
/// The distance between two lines of text.
const LINE: i32 = 17;

/// The middle of a state.
const fn place(state: State) -> (i32, i32) {
    match state {
        State::Idle => (120, 80),
        State::Acquiring => (430, 80),
        State::Working => (760, 80),
        State::Waiting => (430, 290),
        State::AtRisk => (760, 290),
        State::Releasing => (430, 500),
        State::Pausing => (760, 500),
    }
}

/// The path of an arrow, and where the first line of its text begins or ends.
struct Road {
    from: State,
    to: State,
    path: &'static str,
    text: (i32, i32),
    /// The text ends at this point instead of beginning there.
    before: bool,
}

const fn road(from: State, to: State, path: &'static str, text: (i32, i32), before: bool) -> Road {
    Road { from, to, path, text, before }
}

const ROADS: [Road; 13] = [
    road(State::Idle, State::Acquiring, "M195 68 H349", (213, 42), false),
    road(State::Acquiring, State::Idle, "M355 94 H201", (213, 114), false),
    road(State::Acquiring, State::Working, "M505 80 H679", (530, 54), false),
    road(State::Acquiring, State::Waiting, "M418 110 V254", (408, 180), true),
    road(State::Waiting, State::Acquiring, "M442 260 V116", (452, 180), false),
    road(State::Waiting, State::Idle, "M355 284 C250 270 150 210 140 116", (230, 214), false),
    road(State::Working, State::AtRisk, "M748 110 V254", (738, 190), true),
    road(State::AtRisk, State::Working, "M772 260 V116", (782, 190), false),
    road(State::Working, State::Pausing, "M835 80 C920 90 920 490 841 498", (912, 240), false),
    road(State::AtRisk, State::Pausing, "M760 320 V464", (750, 360), true),
    road(State::Pausing, State::Releasing, "M685 500 H511", (526, 438), false),
    road(State::Releasing, State::Waiting, "M430 470 V326", (440, 390), false),
    road(State::Releasing, State::Idle, "M355 506 C190 500 104 340 104 116", (180, 350), false),
];

/// The transitions from one state to another in the table.
#[derive(Debug, PartialEq, Eq)]
struct Arrow {
    from: State,
    to: State,
    /// The action of each event.
    on: Vec<(Event, Option<Action>)>,
    /// Only if the worker was told to stop.
    told: bool,
}

/// Every arrow of the table. A transition that only records an order to stop has no arrow.
fn arrows() -> Vec<Arrow> {
    let mut arrows: Vec<Arrow> = Vec::new();
    for machine in Machine::ALL {
        for event in Event::ALL {
            let Some(next) = machine.on(event) else { continue };
            let (from, to, told) = (machine.state(), next.machine.state(), machine.is_stopping());
            if from == to {
                continue;
            }
            let on = (event, next.action);
            match arrows.iter_mut().find(|arrow| (arrow.from, arrow.to) == (from, to)) {
                Some(arrow) if arrow.on.contains(&on) => {}
                Some(arrow) => arrow.on.push(on),
                None => arrows.push(Arrow { from, to, on: vec![on], told }),
            }
        }
    }
    arrows
}

/// The lines of an arrow's text: events with the same action share a line.
fn lines(arrow: &Arrow) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    for same in arrow.on.chunk_by(|(_, one), (_, other)| one == other) {
        lines.extend(same.iter().map(|(event, _)| ("event", event.to_string())));
        if arrow.told {
            lines.push(("note", "told to stop".to_owned()));
        }
        if let Some(action) = same[0].1 {
            lines.push(("action", format!("→ {}", spell(action))));
        }
    }
    lines
}

const fn spell(action: Action) -> &'static str {
    match action {
        Action::Campaign => "stand in line",
        Action::StartWork => "start the work",
        Action::StopWork => "stop the work",
        Action::Release => "release the term",
        Action::LetGo => "let the term run out",
        Action::Rest => "rest",
    }
}

pub(super) fn draw() -> Result<String, Failure> {
    let mut svg = Svg::new(SIZE, "The states of a worker, and what leads from one to another");
    svg.rect("state works", (45, 536), (22, 16), 4);
    svg.text("action", (76, 549), Anchor::Start, "the work runs");
    let mut arrows = arrows();
    for Road { from, to, path, text, before } in &ROADS {
        let Some(at) = arrows.iter().position(|arrow| (arrow.from, arrow.to) == (*from, *to))
        else {
            let what = format!("the picture has a way from {from} to {to}, and the table has none");
            return Err(
                Failure::new(what).next("take it out of ROADS in xtask/src/chart/worker.rs")
            );
        };
        let arrow = arrows.swap_remove(at);
        svg.arrow(path);
        let anchor = if *before { Anchor::End } else { Anchor::Start };
        for (line, (class, words)) in (0..).zip(lines(&arrow)) {
            svg.text(class, (text.0, text.1 + line * LINE), anchor, &words);
        }
    }
    if let Some(Arrow { from, to, .. }) = arrows.first() {
        let what = format!("the picture has no way from {from} to {to}");
        return Err(Failure::new(what).next("give it one in ROADS in xtask/src/chart/worker.rs"));
    }
    State::ALL.into_iter().for_each(|state| draw_state(&mut svg, state));
    Ok(svg.end())
}

fn draw_state(svg: &mut Svg, state: State) {
    let works = matches!(state, State::Working | State::AtRisk | State::Pausing);
    let (x, y) = place(state);
    svg.block(if works { "state works" } else { "state" }, (x, y), HALF);
    svg.text("name", (x, y + 6), Anchor::Middle, &state.to_string());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_shows_every_event_that_leads_somewhere() {
        let svg = draw().unwrap();
        for event in Event::ALL {
            assert!(svg.contains(&format!(">{event}</text>")), "{event}");
        }
        assert_eq!(svg.matches("marker-end").count(), arrows().len());
    }

    #[test]
    fn an_arrow_says_what_is_done_and_when() {
        let arrows = arrows();
        let text = |from, to| {
            let arrow = arrows.iter().find(|arrow| (arrow.from, arrow.to) == (from, to)).unwrap();
            lines(arrow).into_iter().map(|(_, words)| words).collect::<Vec<_>>().join("; ")
        };
        let ends = "stopped; → release the term; stuck; → let the term run out";
        assert_eq!(text(State::Pausing, State::Releasing), ends);
        assert_eq!(text(State::Releasing, State::Idle), "released; told to stop");
        assert_eq!(text(State::Releasing, State::Waiting), "released; → rest");
    }
}
