//! The state machine of a worker, as a table.
//!
//! No IO, no clock, no async, and nothing of the rest of the library: the picture in the docs is drawn
//! from this file. Work is started once per term, and a term is given back only when its work has ended.

use std::fmt;

/// What a worker is doing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// Nothing: it has not been started, or has ended.
    Idle,
    /// Waiting in line, or asking to.
    Acquiring,
    /// Leads, and the work runs.
    Working,
    /// Leads, and the work runs, but renewals fail.
    AtRisk,
    /// The work is being stopped. It still leads, unless the term was lost.
    Pausing,
    /// The work has ended and the term is being given back.
    Releasing,
    /// Pausing before it waits in line again.
    Waiting,
}

impl State {
    /// All states.
    pub const ALL: [State; 7] = [
        State::Idle,
        State::Acquiring,
        State::Working,
        State::AtRisk,
        State::Pausing,
        State::Releasing,
        State::Waiting,
    ];

    /// The name of the state.
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
    /// It is started.
    Start,
    /// It leads.
    Granted,
    /// It does not lead: the engine cannot be reached, or has refused.
    Failed,
    /// Renewals fail.
    Late,
    /// Renewals succeed again.
    Renewed,
    /// The work could not be started.
    StartFailed,
    /// Only as much of the term is left as stopping the work may take.
    RunningOut,
    /// The term is over.
    Lost,
    /// The work has ended.
    Stopped,
    /// The work could not be stopped, and may still be running.
    Stuck,
    /// The term was given back, or runs out.
    Released,
    /// The pause is over.
    Due,
    /// It is told to stop.
    Stop,
}

impl Event {
    /// All events.
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

    /// The name of the event.
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

/// What a transition asks for. Each action ends with an event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Wait in line, until granted or failed.
    Campaign,
    /// Start the work, and watch the term.
    StartWork,
    /// Stop the work, until stopped or stuck.
    StopWork,
    /// Give the term back.
    Release,
    /// Stop renewing the term, so that it runs out: its work may still be running.
    LetGo,
    /// Pause, until due.
    Rest,
}

/// A worker's state, and whether it was told to stop.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Machine {
    state: State,
    stopping: bool,
}

/// The result of an event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Next {
    /// The machine after it.
    pub machine: Machine,
    /// What to do now; `None` if the current action continues.
    pub action: Option<Action>,
}

impl Machine {
    /// All machines. Whether it was told to stop matters in only two states: in the others it stops at once, or
    /// by way of these.
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

    /// A machine that is idle.
    pub const fn new() -> Machine {
        Machine::at(State::Idle)
    }

    const fn at(state: State) -> Machine {
        Machine { state, stopping: false }
    }

    const fn stopping(state: State) -> Machine {
        Machine { state, stopping: true }
    }

    /// The state.
    pub const fn state(self) -> State {
        self.state
    }

    /// Whether it was told to stop, and is stopping.
    pub const fn is_stopping(self) -> bool {
        self.stopping
    }

    /// The result of an event; `None` if it has no meaning in this state.
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

    /// A result without an action.
    fn rest(machine: Machine) -> Next {
        Next { machine, action: None }
    }
}
