//! Breaking a hold from its row: first the consequences, then the reason, then its fence, typed by hand.

use tenure::engine::Name;
use tenure::{Fence, View};

use super::model::Key;
use crate::commands::break_hold;

/// The longest reason, in characters; the library keeps 256 bytes.
const LONGEST: usize = 60;
/// How many of its last digits identify a fence: fences can have sixteen.
const ENOUGH: usize = 4;

/// A break that is being confirmed.
#[derive(Clone, Debug)]
pub(super) struct Breaking {
    /// The name.
    pub(super) id: Name,
    /// The name as its users type it.
    pub(super) name: String,
    /// What a break would do.
    pub(super) meaning: Vec<String>,
    pub(super) fences: Vec<Fence>,
    pub(super) reason: String,
    pub(super) typed: String,
    pub(super) step: Step,
    /// What is wrong with the input.
    pub(super) wrong: Option<&'static str>,
}

/// The current question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    Reason,
    Fence,
}

/// The result of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Decision {
    /// Nothing yet.
    Open,
    /// Do not break.
    Leave,
    /// Break the hold with this fence.
    Break(Fence),
}

impl Breaking {
    pub(super) fn new(name: &str, view: &View) -> Breaking {
        Breaking {
            id: view.name.clone(),
            name: name.to_owned(),
            meaning: break_hold::meaning(name, view),
            fences: view.holders.iter().map(|holder| holder.fence).collect(),
            reason: String::new(),
            typed: String::new(),
            step: Step::Reason,
            wrong: None,
        }
    }

    pub(super) fn key(&mut self, key: Key) -> Decision {
        self.wrong = None;
        let (text, longest) = match self.step {
            Step::Reason => (&mut self.reason, LONGEST),
            Step::Fence => (&mut self.typed, 20),
        };
        match key {
            Key::Escape => return Decision::Leave,
            Key::Char(c) if text.chars().count() < longest && !c.is_control() => text.push(c),
            Key::Backspace => drop(text.pop()),
            Key::Enter if self.step == Step::Reason => {
                if self.reason.trim().is_empty() {
                    self.wrong =
                        Some("a break needs a reason: it is shown to the holder and logged");
                } else {
                    self.step = Step::Fence;
                }
            }
            Key::Enter => match self.meant() {
                Ok(fence) => return Decision::Break(fence),
                Err(wrong) => {
                    self.wrong = Some(wrong);
                    self.typed.clear();
                }
            },
            _ => {}
        }
        Decision::Open
    }

    /// The fence that was typed, in full or by its last digits.
    fn meant(&self) -> Result<Fence, &'static str> {
        let typed = self.typed.trim();
        let fits = |fence: &Fence| {
            let fence = fence.to_string();
            fence == typed || typed.len() >= ENOUGH && fence.ends_with(typed)
        };
        let mut fitting = self.fences.iter().filter(|fence| fits(fence));
        match (fitting.next(), fitting.next()) {
            (Some(fence), None) => Ok(*fence),
            (Some(_), Some(_)) => Err("several fences end like this: type the whole fence"),
            _ => Err("that is not its fence"),
        }
    }

    /// The question for the fence.
    pub(super) fn question(&self) -> String {
        match &*self.fences {
            [fence] if fence.to_string().len() > ENOUGH => {
                format!("To break it, type its fence {fence}, or the last {ENOUGH} digits:")
            }
            [fence] => format!("To break it, type its fence {fence}:"),
            _ => "To break one of them, type its fence:".to_owned(),
        }
    }
}
