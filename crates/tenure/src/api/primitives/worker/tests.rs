//! Tests every pair of a machine and an event, and every path through them.

use std::collections::HashSet;
use std::time::Duration;

use super::machine::{Action, Event, Machine, Next, State};

/// What must be true if the actions are carried out as asked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct World {
    /// There is a term that was neither given back nor left to run out.
    term: bool,
    /// The term's work was started, and may be running.
    work: bool,
    /// How often work was started in this term.
    starts: u8,
    /// Stopping the work has failed.
    stuck: bool,
}

impl World {
    /// Follows an event, and checks that its action is allowed.
    fn after(mut self, event: Event, next: Next) -> World {
        match event {
            Event::Granted => self = World { term: true, ..World::default() },
            Event::Lost => assert!(self.term, "lost before it was had"),
            Event::Stopped => self.work = false,
            Event::Stuck => self.stuck = true,
            Event::Released => self = World::default(),
            _ => {}
        }
        match next.action {
            Some(Action::Campaign) => assert!(!self.term && !self.work, "{event}: {self:?}"),
            Some(Action::StartWork) => {
                assert!(self.term && !self.work, "{event}: {self:?}");
                (self.work, self.starts) = (true, self.starts + 1);
                assert_eq!(self.starts, 1, "once a term");
            }
            Some(Action::StopWork) => assert!(self.work, "{event}: {self:?}"),
            Some(Action::Release) => assert!(self.term && !self.work, "{event}: {self:?}"),
            Some(Action::LetGo) => assert!(self.term && self.stuck, "{event}: {self:?}"),
            Some(Action::Rest) | None => {}
        }
        let led = matches!(
            next.machine.state(),
            State::Working | State::AtRisk | State::Pausing | State::Releasing
        );
        assert_eq!(self.term, led, "{event}: {self:?}");
        self
    }
}

/// Everything that can be reached from idle by any events in any order, and the pairs on the way.
fn walk() -> (HashSet<Machine>, HashSet<(Machine, Event)>) {
    let mut seen = HashSet::new();
    let mut taken = HashSet::new();
    let mut open = vec![(Machine::new(), World::default())];
    while let Some((machine, world)) = open.pop() {
        if !seen.insert((machine, world)) {
            continue;
        }
        for event in Event::ALL {
            if let Some(next) = machine.on(event) {
                taken.insert((machine, event));
                open.push((next.machine, world.after(event, next)));
            }
        }
    }
    (seen.into_iter().map(|(machine, _)| machine).collect(), taken)
}

#[test]
fn on_every_path_work_is_started_once_a_term_and_a_term_is_given_back_after_its_work() {
    let (reached, _) = walk();
    assert_eq!(reached, HashSet::from(Machine::ALL), "all there is, and nothing else");
}

#[test]
fn every_pair_leads_where_the_table_says() {
    let mut table = String::new();
    for machine in Machine::ALL {
        let told = if machine.is_stopping() { ", told to stop" } else { "" };
        for event in Event::ALL {
            let Some(Next { machine: to, action }) = machine.on(event) else { continue };
            let then = if to.is_stopping() { ", told to stop" } else { "" };
            let action = action.map_or(String::new(), |action| format!(": {action:?}"));
            let (from, to) = (machine.state(), to.state());
            table += &format!("{from}{told} | {event} | {to}{then}{action}\n");
        }
    }
    let expected = "\
idle | start | acquiring: Campaign
acquiring | granted | working: StartWork
acquiring | failed | waiting: Rest
acquiring | stop | idle
working | late | at risk
working | start failed | pausing: StopWork
working | running out | pausing: StopWork
working | lost | pausing: StopWork
working | stop | pausing, told to stop: StopWork
at risk | renewed | working
at risk | start failed | pausing: StopWork
at risk | running out | pausing: StopWork
at risk | lost | pausing: StopWork
at risk | stop | pausing, told to stop: StopWork
pausing | stopped | releasing: Release
pausing | stuck | releasing: LetGo
pausing | stop | pausing, told to stop
pausing, told to stop | stopped | releasing, told to stop: Release
pausing, told to stop | stuck | releasing, told to stop: LetGo
releasing | released | waiting: Rest
releasing | stop | releasing, told to stop
releasing, told to stop | released | idle
waiting | due | acquiring: Campaign
waiting | stop | idle
";
    assert_eq!(table, expected);
}

/// Once told to stop, it becomes idle, no matter what else happens and how its callbacks end.
#[test]
fn from_every_state_stop_leads_to_idle() {
    for machine in Machine::ALL {
        let mut open = vec![machine.on(Event::Stop).map_or(machine, |next| next.machine)];
        for _ in 0..3 {
            open = open.into_iter().flat_map(after_anything).collect();
        }
        assert!(open.is_empty(), "{machine:?} is still at {open:?}");
    }
}

/// Where a machine that was told to stop can be after one more event; nowhere, if it is idle.
fn after_anything(machine: Machine) -> Vec<Machine> {
    if machine.state() == State::Idle {
        return Vec::new();
    }
    assert!(machine.is_stopping(), "{machine:?} has forgotten that it was told to stop");
    let all = Event::ALL.into_iter().filter_map(|event| machine.on(event));
    let all: Vec<_> = all.map(|next| next.machine).collect();
    assert!(!all.is_empty(), "{machine:?} can go nowhere");
    all
}

#[test]
fn whoever_was_never_elected_loses_nothing() {
    let (_, taken) = walk();
    let losers: HashSet<State> = taken
        .iter()
        .filter(|(_, event)| *event == Event::Lost)
        .map(|(machine, _)| machine.state())
        .collect();
    assert_eq!(losers, HashSet::from([State::Working, State::AtRisk]));
}

/// No matter what a callback does, there is an event for it that continues.
#[test]
fn no_callback_can_block_a_transition() {
    for machine in Machine::ALL {
        let ends: &[Event] = match machine.state() {
            State::Working | State::AtRisk => &[Event::StartFailed],
            State::Pausing => &[Event::Stopped, Event::Stuck],
            _ => continue,
        };
        for event in ends {
            let next = machine.on(*event).unwrap();
            assert_ne!(next.machine.state(), machine.state(), "{event}");
        }
    }
}

#[test]
fn a_renewal_at_half_of_the_ttl_leaves_time_to_stop_unless_stopping_takes_half_of_it_too() {
    for seconds in [1, 7, 10] {
        let ttl = Duration::from_secs(seconds);
        let check = |stop, every| super::check_bounds(ttl / 3, stop, ttl, Some(every)).is_ok();
        assert!(check(ttl / 3, ttl / 2) && check(ttl / 2, ttl / 3));
        assert!(!check(ttl / 2, ttl / 2) && !check(ttl / 3, Duration::MAX));
    }
}
