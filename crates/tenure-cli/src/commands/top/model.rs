//! The state of the view, and what a key does to it. No terminal, no engine, no clock.

use std::time::{Duration, SystemTime};

use tenure::engine::Name;
use tenure::{Fence, View};

use super::blocked::{self, Line};
use super::breaking::{Breaking, Decision};
use super::rows::{Row, Sort, rows};
use crate::commands::show;
use crate::failure::Failure;
use crate::output::{clean_sentence, quoted};
use crate::settings::Settings;

/// The longest filter, in characters.
const LONGEST: usize = 60;
/// How far PageUp and PageDown go.
const PAGE: usize = 10;

/// A key that has a meaning here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Key {
    Char(char),
    Enter,
    Escape,
    Backspace,
    Tab,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Interrupt,
}

/// An action that a key asks for and the model cannot do itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Action {
    /// Quit, as if by this signal.
    Quit(Option<u8>),
    /// Look at once.
    Look,
    /// Break a hold.
    Break { id: Name, fence: Fence, reason: String },
}

/// What was seen at a certain time.
#[derive(Clone, Debug)]
pub(super) struct Look {
    pub(super) views: Vec<View>,
    pub(super) engine: String,
    /// How long the engine took to answer.
    pub(super) trip: Duration,
    pub(super) at: SystemTime,
}

/// The page that is shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Page {
    Names,
    /// Who waits for whom, from this line on.
    Blocked(usize),
    /// Everything about a name, from this line on.
    Details(Name, usize),
}

/// A message that is shown until the next key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Notice {
    pub(super) text: String,
    pub(super) bad: bool,
}

/// The whole state.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) settings: Settings,
    pub(super) look: Option<Look>,
    /// Why the engine cannot be inspected, and since when.
    pub(super) trouble: Option<(SystemTime, String)>,
    pub(super) page: Page,
    pub(super) sort: Sort,
    pub(super) filter: String,
    /// Whether keys go to the filter.
    pub(super) typing: bool,
    pub(super) paused: bool,
    pub(super) help: bool,
    pub(super) breaking: Option<Breaking>,
    pub(super) notice: Option<Notice>,
    /// The selected row: by its name, which stays the same when others come and go, and by its position.
    selected: (Option<Name>, usize),
}

impl Model {
    pub(super) fn new(settings: Settings) -> Model {
        Model {
            settings,
            look: None,
            trouble: None,
            page: Page::Names,
            sort: Sort::Trouble,
            filter: String::new(),
            typing: false,
            paused: false,
            help: false,
            breaking: None,
            notice: None,
            selected: (None, 0),
        }
    }

    /// The engine answered.
    pub(super) fn seen(&mut self, look: Look) {
        if self.trouble.take().is_some() {
            self.notice = Some(Notice { text: "the engine is reachable again".into(), bad: false });
        }
        self.look = Some(look);
        if let Some(at) = self.selected_at(&self.rows()) {
            self.selected.1 = at;
        }
    }

    /// The engine did not answer.
    pub(super) fn not_seen(&mut self, why: String, at: SystemTime) {
        let since = self.trouble.as_ref().map_or(at, |(since, _)| *since);
        self.trouble = Some((since, why));
    }

    /// A break was carried out, or not.
    pub(super) fn broken(&mut self, name: &str, outcome: Result<(), Failure>) {
        self.notice = Some(match outcome {
            Ok(()) => Notice { text: format!("broke {}", quoted(name)), bad: false },
            Err(Failure { code, what, why, .. }) => {
                let code = code.map(|code| format!("[{code}]")).unwrap_or_default();
                Notice { text: clean_sentence(&format!("error{code}: {what}; {why}")), bad: true }
            }
        });
    }

    /// Who waits for whom.
    pub(super) fn blocked(&self) -> Vec<Line> {
        blocked::lines(views(&self.look), &self.settings)
    }

    /// Everything about a name, line by line.
    pub(super) fn details(&self, id: &Name) -> Vec<String> {
        details(view(&self.look, id), &self.settings)
    }

    /// The rows that are shown.
    pub(super) fn rows(&self) -> Vec<Row> {
        rows(views(&self.look), &self.filter, self.sort, &self.settings)
    }

    /// Which of the rows is selected.
    pub(super) fn selected_at(&self, rows: &[Row]) -> Option<usize> {
        let (id, at) = &self.selected;
        let named = id.as_ref().and_then(|id| rows.iter().position(|row| row.id == *id));
        named.or_else(|| Some((*at).min(rows.len().checked_sub(1)?)))
    }

    /// What a key does.
    pub(super) fn key(&mut self, key: Key) -> Option<Action> {
        self.notice = None;
        if key == Key::Interrupt {
            return Some(Action::Quit(Some(2)));
        }
        if self.help {
            self.help = false;
            return None;
        }
        if let Some(breaking) = &mut self.breaking {
            return match breaking.key(key) {
                Decision::Open => None,
                Decision::Leave => {
                    self.breaking = None;
                    None
                }
                Decision::Break(fence) => {
                    self.breaking.take().map(|Breaking { id, reason, .. }| Action::Break {
                        id,
                        fence,
                        reason: reason.trim().to_owned(),
                    })
                }
            };
        }
        match self.typing {
            true => {
                self.type_filter(key);
                None
            }
            false => self.command(key),
        }
    }

    fn type_filter(&mut self, key: Key) {
        match key {
            Key::Char(c) if self.filter.chars().count() < LONGEST => self.filter.push(c),
            Key::Backspace => drop(self.filter.pop()),
            Key::Enter => self.typing = false,
            Key::Escape => {
                self.filter.clear();
                self.typing = false;
            }
            key => self.go(key),
        }
    }

    fn command(&mut self, key: Key) -> Option<Action> {
        match key {
            Key::Char('q') => return Some(Action::Quit(None)),
            Key::Char('?' | 'h') => self.help = true,
            Key::Char('s') => self.sort = self.sort.next(),
            Key::Char('b') => self.think_over_a_break(),
            Key::Char('w') | Key::Tab => {
                self.page = match self.page {
                    Page::Blocked(_) => Page::Names,
                    _ => Page::Blocked(0),
                }
            }
            Key::Char('/') => {
                self.page = Page::Names;
                self.typing = true;
            }
            Key::Char(' ') => {
                self.paused = !self.paused;
                return (!self.paused).then_some(Action::Look);
            }
            Key::Char('r') => return Some(Action::Look),
            Key::Enter if self.page == Page::Names => {
                if let Some(id) = self.meant() {
                    self.page = Page::Details(id, 0);
                }
            }
            Key::Escape if self.page == Page::Names => self.filter.clear(),
            Key::Escape | Key::Enter | Key::Backspace => self.page = Page::Names,
            Key::Char('k') => self.go(Key::Up),
            Key::Char('j') => self.go(Key::Down),
            key => self.go(key),
        }
        None
    }

    /// The name whose details are shown, or that is selected.
    fn meant(&self) -> Option<Name> {
        match &self.page {
            Page::Details(id, _) => Some(id.clone()),
            Page::Blocked(_) => None,
            Page::Names => {
                let rows = self.rows();
                Some(rows.get(self.selected_at(&rows)?)?.id.clone())
            }
        }
    }

    fn think_over_a_break(&mut self) {
        let say = |text: String| Some(Notice { text, bad: true });
        let Some(id) = self.meant() else {
            self.notice = say("nothing to break here: choose a name in the list".into());
            return;
        };
        let name = self.settings.short_name(id.as_str());
        match view(&self.look, &id).filter(|view| !view.holders.is_empty()) {
            Some(view) => self.breaking = Some(Breaking::new(name, view)),
            None => self.notice = say(format!("nobody holds {}", quoted(name))),
        }
    }

    fn go(&mut self, key: Key) {
        let rows = self.rows();
        let last = rows.len().saturating_sub(1);
        let move_from = |at: usize, last: usize| match key {
            Key::Up => at.saturating_sub(1),
            Key::Down => (at + 1).min(last),
            Key::PageUp => at.saturating_sub(PAGE),
            Key::PageDown => (at + PAGE).min(last),
            Key::Home => 0,
            Key::End => last,
            _ => at,
        };
        match &mut self.page {
            Page::Names => {
                let Some(at) = self.selected_at(&rows) else { return };
                let at = move_from(at, last);
                self.selected = (rows.get(at).map(|row| row.id.clone()), at);
            }
            Page::Blocked(scroll) => {
                let last = blocked::lines(views(&self.look), &self.settings).len();
                *scroll = move_from(*scroll, last.saturating_sub(1));
            }
            Page::Details(id, scroll) => {
                let last = details(view(&self.look, id), &self.settings).len();
                *scroll = move_from(*scroll, last.saturating_sub(1));
            }
        }
    }
}

// Functions, so that the content can be used while the page changes.

fn views(look: &Option<Look>) -> &[View] {
    look.as_ref().map_or(&[], |look| &look.views)
}

fn view<'a>(look: &'a Option<Look>, id: &Name) -> Option<&'a View> {
    views(look).iter().find(|view| view.name == *id)
}

fn details(view: Option<&View>, settings: &Settings) -> Vec<String> {
    let Some(view) = view else { return vec!["Nobody holds it and nobody waits.".into()] };
    let mut text = Vec::new();
    // Writing to memory does not fail.
    let _ = show::show(view, settings, &mut text);
    String::from_utf8_lossy(&text).lines().map(str::to_owned).collect()
}
