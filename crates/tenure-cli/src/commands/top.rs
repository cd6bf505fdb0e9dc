//! `tenure top`: who holds what and who waits, live.
//!
//! `model` is the state and what a key does to it, with parts in `rows`, `blocked` and `breaking`; `draw` draws
//! it, `screen` is the terminal. Only this file uses the engine.

mod blocked;
mod breaking;
mod draw;
mod model;
mod rows;
mod screen;
mod text;

#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::pin::pin;
use std::time::{Duration, SystemTime};

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use tenure::Tenure;
use tenure::engine::Name;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::args::Top;
use crate::commands::break_hold;
use crate::engine;
use crate::facts;
use crate::failure::{Exit, Failure, OK, Stop, USAGE};
use crate::output::Paint;
use crate::settings::Settings;
use crate::signals;
use draw::{HEAD, Styles, draw};
use model::{Action, Look, Model};
use screen::{Input, Screen, inputs};

/// The width of a frame if there is no terminal.
const WIDTH: u16 = 80;
/// The most rows of one frame.
const MOST_ROWS: usize = 10_000;

/// Shows it, until the user quits.
pub(crate) async fn run(
    asked: &Top,
    settings: &Settings,
    out: &mut dyn Write,
) -> Result<Exit, Stop> {
    if asked.once {
        return once(asked, settings, out).await;
    }
    check_terminal()?;
    let tenure = engine::connect(settings).await?;
    let interrupted = signals::interrupted()?;
    let styles = Styles { colored: settings.paint() != Paint::PLAIN };
    let live = Live::new(asked, tenure, settings);
    let mut screen = Screen::open(out, styles)?;
    live.run(&mut screen, interrupted).await
}

fn check_terminal() -> Result<(), Failure> {
    let is_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    if is_terminal && std::env::var_os("TERM").is_none_or(|term| term != "dumb") {
        return Ok(());
    }
    Err(Failure::new(
        USAGE,
        "no terminal to draw on",
        "standard input or output is a pipe or a file, or the terminal is a dumb one",
        "`tenure top --once` prints one frame; `tenure watch` prints what changes",
    ))
}

/// One frame, as plain text.
async fn once(asked: &Top, settings: &Settings, out: &mut dyn Write) -> Result<Exit, Stop> {
    let tenure = engine::connect(settings).await?;
    let seen = look(&tenure, &settings.full_name(&asked.prefix)).await;
    let seen = seen.map_err(|error| engine::failure(&error, settings))?;
    if settings.json.value {
        for view in &seen.views {
            writeln!(out, "{}", facts::object(view, settings).end())?;
        }
        return Ok(OK);
    }
    let width = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let mut model = Model::new(settings.clone());
    model.seen(seen);
    out.write_all(frame(&model, width.unwrap_or(WIDTH).clamp(40, 500)).as_bytes())?;
    Ok(OK)
}

/// A picture with room for all rows, without the line of keys.
fn frame(model: &Model, width: u16) -> String {
    let rows = u16::try_from(model.rows().len().clamp(1, MOST_ROWS)).unwrap_or(u16::MAX);
    let area = Rect::new(0, 0, width, HEAD + 1 + rows + 1);
    let mut buf = Buffer::empty(area);
    draw(model, Styles { colored: false }, area, &mut buf);
    let mut text = String::new();
    for y in 0..area.height - 1 {
        let (mut line, mut x) = (String::new(), 0);
        while x < width {
            let symbol = buf[(x, y)].symbol();
            line.push_str(symbol);
            // A wide character covers the cells after its own.
            x += u16::try_from(text::width(symbol)).unwrap_or(1).max(1);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

async fn look(tenure: &Tenure, prefix: &str) -> tenure::Result<Look> {
    let views = tenure.list(prefix).await?;
    let trip = tenure.health().await?;
    let engine = tenure.profile().label.clone();
    Ok(Look { views, engine, trip, at: SystemTime::now() })
}

/// The same over a new connection, if the previous one cannot come back: a file that was replaced. A missing file
/// is not created just to look at it.
async fn look_anew(settings: &Settings, prefix: &str) -> Option<(Tenure, Look)> {
    let url = settings.address.url().ok()?;
    let path = url.strip_prefix("file:")?.split('?').next()?;
    if !Path::new(path).exists() {
        return None;
    }
    let tenure = Tenure::connect(url).await.ok()?;
    let seen = look(&tenure, prefix).await.ok()?;
    Some((tenure, seen))
}

/// The result of a request to the engine.
enum News {
    Seen(tenure::Result<Look>),
    /// Over another connection than before.
    SeenAnew(Tenure, Look),
    Broken(String, Result<(), Failure>),
}

/// The model, and the engine behind it.
struct Live {
    model: Model,
    tenure: Tenure,
    prefix: String,
    interval: Duration,
    /// When to look again; never two looks at a time.
    next: Option<Instant>,
    give: mpsc::UnboundedSender<News>,
    news: mpsc::UnboundedReceiver<News>,
}

impl Live {
    fn new(asked: &Top, tenure: Tenure, settings: &Settings) -> Live {
        let (give, news) = mpsc::unbounded_channel();
        Live {
            model: Model::new(settings.clone()),
            tenure,
            prefix: settings.full_name(&asked.prefix),
            interval: asked.interval,
            next: Some(Instant::now()),
            give,
            news,
        }
    }

    async fn run(
        mut self,
        screen: &mut Screen<'_>,
        interrupted: impl Future<Output = u8>,
    ) -> Result<Exit, Stop> {
        let mut interrupted = pin!(interrupted);
        let mut inputs = inputs();
        loop {
            screen.draw(&self.model)?;
            let next = self.next.filter(|_| !self.model.paused);
            tokio::select! {
                biased;
                signal = &mut interrupted => return Ok(Exit(128 + signal)),
                input = inputs.recv() => match input {
                    // The terminal is gone.
                    None => return Ok(OK),
                    Some(Input::Changed) => screen.forget()?,
                    Some(Input::Key(key)) => match self.model.key(key) {
                        Some(Action::Quit(None)) => return Ok(OK),
                        Some(Action::Quit(Some(signal))) => return Ok(Exit(128 + signal)),
                        Some(Action::Look) if self.next.is_some() => self.look(),
                        Some(Action::Break { id, fence, reason }) => {
                            self.break_hold(id, fence, reason);
                        }
                        _ => {}
                    },
                },
                Some(news) = self.news.recv() => self.hear(news),
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => self.look(),
            }
        }
    }

    /// Looks in the background, while keys still work: an engine that is down takes its time.
    fn look(&mut self) {
        self.next = None;
        let (tenure, prefix, give) = (self.tenure.clone(), self.prefix.clone(), self.give.clone());
        let settings = self.model.settings.clone();
        tokio::spawn(async move {
            let news = match look(&tenure, &prefix).await {
                Ok(seen) => News::Seen(Ok(seen)),
                Err(error) => match look_anew(&settings, &prefix).await {
                    Some((tenure, seen)) => News::SeenAnew(tenure, seen),
                    None => News::Seen(Err(error)),
                },
            };
            // Nobody receives it after the end.
            let _ = give.send(news);
        });
    }

    fn break_hold(&mut self, id: Name, fence: tenure::Fence, reason: String) {
        let (tenure, settings) = (self.tenure.clone(), self.model.settings.clone());
        let give = self.give.clone();
        tokio::spawn(async move {
            let name = settings.short_name(id.as_str()).to_owned();
            let done =
                break_hold::carry_out(id.space(), &name, fence, &reason, &tenure, &settings).await;
            let _ = give.send(News::Broken(name, done));
        });
    }

    fn hear(&mut self, news: News) {
        match news {
            News::Seen(seen) => {
                self.next = Some(Instant::now() + self.interval);
                match seen {
                    Ok(look) => self.model.seen(look),
                    Err(error) => {
                        let why = engine::reason(&error);
                        self.model.not_seen(why, SystemTime::now());
                    }
                }
            }
            News::SeenAnew(tenure, look) => {
                self.tenure = tenure;
                self.hear(News::Seen(Ok(look)));
            }
            News::Broken(name, outcome) => {
                self.model.broken(&name, outcome);
                if self.next.is_some() {
                    self.look();
                }
            }
        }
    }
}
