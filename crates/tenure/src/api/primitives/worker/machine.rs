//! What a worker does when something happens, as a table.
//!
//! No IO, no clock, no async, and nothing of the rest of the library: the picture in the docs is drawn
//! from this file. Work is started once a term, and a term is given back only when its work has ended.

use std::fmt;

/// What a worker is doing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// Nothing: it was not started yet, or has come to its end.
    Idle,
    /// Stands in line, or asks to.
    Acquiring,
    /// Leads, and the work runs.
    Working,
    /// Leads, and the work runs, but renewals fail.
    AtRisk,
    /// The work is being stopped. It still leads, unless the term was lost.
    Pausing,
    /// The work has ended and the term is being given back.
    Releasing,
    /// Rests for a moment before it stands in line again.
    Waiting,
}

impl State {
    /// All of them.
    pub const ALL: [State; 7] = [
        State::Idle,
        State::Acquiring,
        State::Working,
        State::AtRisk,
        State::Pausing,
        State::Releasing,
        State::Waiting,
    ];

    /// As people read it.
    pub const fn as_str(self) -> &'static str {
        match self {
            State::Idle => "idle",
            State::Acquiring => "acquiring",
            State::Working => "working",
            State::AtRisk => "at risk",
            State::Pausing => "pausing",
            State::Releasing => "releasing",
            State::Waiting => "waiting",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What happens to a worker.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// It is to begin.
    Start,
    /// It leads.
    Granted,
    /// It does not lead: the engine cannot be reached, or refused.
    Failed,
    /// Renewals fail.
    Late,
    /// Renewals succeed again.
    Renewed,
    /// The work could not be started.
    StartFailed,
    /// What is left of the term is what stopping the work may take.
    RunningOut,
    /// The term is over.
    Lost,
    /// The work has ended.
    Stopped,
    /// The work could not be stopped, and may still run.
    Stuck,
    /// The term was given back, or is left to run out.
    Released,
    /// The rest is over.
    Due,
    /// It is to end.
    Stop,
}

impl Event {
    /// All of them.
    pub const ALL: [Event; 13] = [
        Event::Start,
        Event::Granted,
        Event::Failed,
        Event::Late,
        Event::Renewed,
        Event::StartFailed,
        Event::RunningOut,
        Event::Lost,
        Event::Stopped,
        Event::Stuck,
        Event::Released,
        Event::Due,
        Event::Stop,
    ];

    /// As people read it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Event::Start => "start",
            Event::Granted => "granted",
            Event::Failed => "failed",
            Event::Late => "late",
            Event::Renewed => "renewed",
            Event::StartFailed => "start failed",
            Event::RunningOut => "running out",
            Event::Lost => "lost",
            Event::Stopped => "stopped",
            Event::Stuck => "stuck",
            Event::Released => "released",
            Event::Due => "due",
            Event::Stop => "stop",
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a transition asks for. Each ends with an event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Stand in line, until granted or failed.
    Campaign,
    /// Start the work, and watch over the term.
    StartWork,
    /// Stop the work, until stopped or stuck.
    StopWork,
    /// Give the term back.
    Release,
    /// Renew the term no more and leave it to run out: its work may still run.
    LetGo,
    /// Rest, until due.
    Rest,
}

/// A worker's state, and whether it was told to stop.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Machine {
    state: State,
    stopping: bool,
}

/// Where an event leads.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Next {
    /// The worker after it.
    pub machine: Machine,
    /// What is to be done now; nothing if what was being done goes on.
    pub action: Option<Action>,
}

impl Machine {
    /// Every machine there is. Whether it was told to stop matters to two of the states: from the
    /// others it stops at once, or by way of these.
    pub const ALL: [Machine; 9] = [
        Machine::at(State::Idle),
        Machine::at(State::Acquiring),
        Machine::at(State::Working),
        Machine::at(State::AtRisk),
        Machine::at(State::Pausing),
        Machine::stopping(State::Pausing),
        Machine::at(State::Releasing),
        Machine::stopping(State::Releasing),
        Machine::at(State::Waiting),
    ];

    /// Idle.
    pub const fn new() -> Machine {
        Machine::at(State::Idle)
    }

    const fn at(state: State) -> Machine {
        Machine { state, stopping: false }
    }

    const fn stopping(state: State) -> Machine {
        Machine { state, stopping: true }
    }

    /// What it is doing.
    pub const fn state(self) -> State {
        self.state
    }

    /// Whether it was told to stop, and does.
    pub const fn is_stopping(self) -> bool {
        self.stopping
    }

    /// What follows from an event; `None` if it means nothing now.
    pub fn on(self, event: Event) -> Option<Next> {
        use Event::*;
        let Machine { state, stopping } = self;
        let next = match (state, event) {
            (State::Idle, Start) => Next::to(State::Acquiring, Action::Campaign),
            (State::Acquiring, Granted) => Next::to(State::Working, Action::StartWork),
            (State::Acquiring, Failed) => Next::to(State::Waiting, Action::Rest),
            (State::Waiting, Due) => Next::to(State::Acquiring, Action::Campaign),
            // Nothing is held and nothing runs.
            (State::Acquiring | State::Waiting, Stop) => Next::rest(Machine::new()),

            (State::Working, Late) => Next::rest(Machine::at(State::AtRisk)),
            (State::AtRisk, Renewed) => Next::rest(Machine::at(State::Working)),
            (State::Working | State::AtRisk, StartFailed | RunningOut | Lost) => {
                Next::to(State::Pausing, Action::StopWork)
            }
            (State::Working | State::AtRisk, Stop) => {
                let machine = Machine::stopping(State::Pausing);
                Next { machine, action: Some(Action::StopWork) }
            }

            // Every term ends the same way: first the work, then the term.
            (State::Pausing, Stopped | Stuck) => {
                let machine = Machine { state: State::Releasing, stopping };
                let action = if event == Stopped { Action::Release } else { Action::LetGo };
                Next { machine, action: Some(action) }
            }
            (State::Releasing, Released) if stopping => Next::rest(Machine::new()),
            (State::Releasing, Released) => Next::to(State::Waiting, Action::Rest),
            (State::Pausing | State::Releasing, Stop) if !stopping => {
                Next::rest(Machine::stopping(state))
            }
            _ => return None,
        };
        Some(next)
    }
}

impl Default for Machine {
    fn default() -> Machine {
        Machine::new()
    }
}

impl Next {
    fn to(state: State, action: Action) -> Next {
        Next { machine: Machine::at(state), action: Some(action) }
    }

    /// With nothing to be done.
    fn rest(machine: Machine) -> Next {
        Next { machine, action: None }
    }
}
