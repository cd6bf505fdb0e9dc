//! What keys do, and how it looks, without a terminal and without an engine.

mod keys;
mod looks;

use std::time::{Duration, SystemTime};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use tenure::engine::{Name, Space, Ticket};
use tenure::{Details, Fence, Holder, View, Waiter};

use super::draw::{Styles, draw};
use super::model::{Key, Look, Model};
use crate::args::{self, Invocation};
use crate::settings::Settings;

fn settings() -> Settings {
    let asked = args::parse(vec!["tenure".into(), "top".into()], &|_| None).unwrap();
    let Invocation::Run(settings, _) = asked else { panic!("{asked:?}") };
    *settings
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn details(owner: &str, reason: Option<&str>) -> std::sync::Arc<Details> {
    let mut details = Details::default();
    details.owner = owner.to_owned();
    details.reason = reason.map(str::to_owned);
    details.meta = vec![("ttl".into(), "30s".into())];
    details.into()
}

/// A name with a capacity, its holders (fence, owner, held, left) and those who wait (owner, waited).
fn view(
    name: &str,
    capacity: u32,
    holders: &[(u64, &str, u64, u64)],
    waiters: &[(&str, u64)],
) -> View {
    let holder = |(fence, owner, held, left): &(u64, &str, u64, u64)| Holder {
        fence: Fence::new(*fence),
        weight: 1,
        held_for: seconds(*held),
        remaining: seconds(*left),
        details: details(owner, (name == "backup").then_some("nightly dump")),
    };
    let waiter = |(ticket, (owner, waited)): (usize, &(&str, u64))| Waiter {
        ticket: Ticket::new(ticket as u64),
        weight: 1,
        waited: seconds(*waited),
        details: details(owner, None),
    };
    View {
        name: Name::new(Space::Lock, name).unwrap(),
        capacity,
        holders: holders.iter().map(holder).collect(),
        waiters: waiters.iter().enumerate().map(waiter).collect(),
        record: None,
    }
}

fn look(views: Vec<View>) -> Look {
    Look {
        views,
        engine: "redis://redis-1:6379".into(),
        trip: Duration::from_micros(412),
        at: SystemTime::UNIX_EPOCH + seconds(43_391),
    }
}

/// The names of the documentation: some are held, some waited for, one is in trouble.
fn example() -> Model {
    let mut model = Model::new(settings());
    model.seen(look(vec![
        view("api:partner", 5, &[(975, "web-1:7", 12, 28), (977, "web-2:9", 11, 29)], &[]),
        view("backup", 1, &[(1842, "web-3:4121", 192, 27)], &[("web-5:912", 41), ("web-6:1", 3)]),
        view("deploy", 1, &[(7, "web-5:912", 60, 25)], &[("cron-1:88", 50)]),
        view("wallet:0x9f", 1, &[(1_794_766_643_223, "relay-7:1", 58, 2)], &[]),
    ]));
    model
}

fn press(model: &mut Model, keys: &str) -> Option<super::model::Action> {
    let mut action = None;
    for c in keys.chars() {
        let key = match c {
            '\n' => Key::Enter,
            '\x1b' => Key::Escape,
            '\x08' => Key::Backspace,
            '\t' => Key::Tab,
            '↓' => Key::Down,
            '↑' => Key::Up,
            c => Key::Char(c),
        };
        action = model.key(key);
    }
    action
}

fn drawn(model: &Model, colored: bool, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let frame = terminal.draw(|frame| {
        let area = frame.area();
        draw(model, Styles { colored }, area, frame.buffer_mut());
    });
    frame.unwrap();
    terminal.backend().buffer().clone()
}

/// The lines of a picture, without the blanks at their ends and the empty lines at its end.
fn shown(model: &Model, width: u16, height: u16) -> Vec<String> {
    let buf = drawn(model, false, width, height);
    let line = |y| (0..width).map(|x| buf[(x, y)].symbol()).collect::<String>();
    let mut lines: Vec<_> = (0..height).map(|y| line(y).trim_end().to_owned()).collect();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}
