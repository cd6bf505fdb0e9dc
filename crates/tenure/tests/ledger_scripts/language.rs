//! A small language for what happens to one name, and what results from it.
//!
//! A script is a list of steps, separated by `;` or by line breaks. Each actor is one claim, known by its name; `a@1`
//! belongs to process 1.
//!
//! | step | what it does |
//! |---|---|
//! | `a claims`, `a tries`, `a keeps` | asks and may wait; asks and may not; keeps its place, with nobody there to take a grant |
//! | … `2 of 3`, `for 5s`, `ticket 7`, `seen 90`, `room 1`, `fixed` | weight and capacity, ttl, a place it had, the highest fence seen, the most that may wait, a capacity that no resize may change |
//! | … `behalf` | a server asks for one of its clients; `a@2 claims` asks at another server |
//! | … `once 60s`, `rerun` | for work that is done once, remembered for a minute; runs again what was never settled |
//! | `a renews`, `for 9s`, `fence 4` | with the ttl and the fence it knows, unless told otherwise |
//! | `a leaves`, `in doubt`, `done ok`, `undone`, `if waiting` | may settle a once; may depend on where it waits |
//! | `break a`, `break fence 4`, `resize 3`, `look` | by an operator; by nobody in particular |
//! | `3s pass`, `b is deaf`, `b hears`, `show` | time goes by; whether words reach it; the state |
//!
//! What an actor was told is remembered: it asks again as it asked before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tenure::engine::{
    Broken, Claim, ClaimId, Ended, Fence, Leave, Left, Moment, Name, Note, OnceTerms, Settle,
    Space, Ticket,
};
use tenure::ledger::{Answer, Entry, Ledger, Line, State, Storage, Word};

/// Runs `script` and compares the results, step by step and at the end, with `expected`.
#[track_caller]
pub(crate) fn check(script: &str, expected: &str) {
    Script::default().check(script, expected);
}

/// One name, and everyone who ever claimed it.
pub(crate) struct Script {
    line: Line<u64>,
    now: Moment,
    actors: BTreeMap<String, Actor>,
    deaf: BTreeSet<String>,
    /// Whether the report says who was told when to look.
    pub(crate) hints: bool,
    report: Vec<String>,
    waiting: Option<(u64, Duration)>,
}

/// What an actor remembers between its requests.
struct Actor {
    claim: Claim,
    process: u64,
    fence: Fence,
}

impl Default for Script {
    fn default() -> Script {
        Script {
            line: Line::new(0),
            now: Moment::ORIGIN + Duration::from_secs(1_000_000),
            actors: BTreeMap::new(),
            deaf: BTreeSet::new(),
            hints: false,
            report: Vec::new(),
            waiting: None,
        }
    }
}

impl Script {
    /// Continues with `script`, and compares the results and the state at its end.
    #[track_caller]
    pub(crate) fn check(&mut self, script: &str, expected: &str) {
        self.run(script);
        self.show();
        let got = std::mem::take(&mut self.report);
        let expected: Vec<_> = expected.lines().map(str::trim).filter(|s| !s.is_empty()).collect();
        if got != expected {
            let lines = got.len().max(expected.len());
            let both = (0..lines).map(|at| {
                let wanted = expected.get(at).copied().unwrap_or("(nothing)");
                match got.get(at).map_or("(nothing)", String::as_str) {
                    got if got == wanted => format!("    {got}\n"),
                    got => format!("got {got}\nnot {wanted}\n"),
                }
            });
            panic!("{script}\n\n{}", both.collect::<String>());
        }
    }

    /// Continues with `script`.
    pub(crate) fn run(&mut self, script: &str) {
        for step in script.split([';', '\n']).map(str::trim).filter(|step| !step.is_empty()) {
            let words: Vec<_> = step.split_whitespace().collect();
            self.step(&words).unwrap_or_else(|| panic!("what does {step:?} mean?"));
        }
    }

    /// The results of the steps since the last call.
    pub(crate) fn take_report(&mut self) -> Vec<String> {
        std::mem::take(&mut self.report)
    }

    /// The line as it is.
    pub(crate) fn line(&self) -> &Line<u64> {
        &self.line
    }

    /// What the last answer of `script` says besides the place: the floor, and how long until the
    /// first hold ends.
    pub(crate) fn waiting(&mut self, script: &str) -> (u64, Duration) {
        self.run(script);
        self.waiting.take().unwrap_or_else(|| panic!("{script:?} does not wait"))
    }

    fn step(&mut self, words: &[&str]) -> Option<()> {
        match *words {
            [span, "pass"] => self.now = self.now + duration(span)?,
            [who, "is", "deaf"] => drop(self.deaf.insert(who.to_owned())),
            [who, "hears"] => drop(self.deaf.remove(who)),
            ["show"] => self.show(),
            ["look"] => self.ledger("look", |ledger| {
                let Ok(()) = ledger.tick();
                "done".to_owned()
            }),
            ["resize", capacity] => {
                let capacity = capacity.parse().ok()?;
                self.ledger("resize", |ledger| {
                    let Ok(done) = ledger.resize(capacity);
                    if done { "done" } else { "refused" }.to_owned()
                });
            }
            ["break", "fence", fence] => self.break_hold(Fence::new(fence.parse().ok()?)),
            ["break", who] => self.break_hold(self.actors.get(who)?.fence),
            [who, verb, ref options @ ..] => self.ask(who, verb, options)?,
            _ => return None,
        }
        Some(())
    }

    fn ask(&mut self, who: &str, verb: &str, options: &[&str]) -> Option<()> {
        let (who, process) = who.split_once('@').unwrap_or((who, "0"));
        let process = process.parse().ok()?;
        let new = || {
            let mut claim = Claim::new(name(), id(who));
            claim.fixed = false;
            Actor { claim, process, fence: Fence::default() }
        };
        let actor = self.actors.entry(who.to_owned()).or_insert_with(new);
        match verb {
            "claims" | "tries" | "keeps" => {
                set(&mut actor.claim, options)?;
                actor.claim.may_wait = verb != "tries";
                if actor.claim.on_behalf {
                    actor.process = process;
                }
                let (claim, process) = (actor.claim.clone(), actor.process);
                self.answer(who, |ledger| {
                    let Ok(answer) = ledger.claim(&claim, process, verb != "keeps");
                    answer
                });
            }
            "renews" => {
                let (mut ttl, mut fence, id) = (actor.claim.ttl, actor.fence, actor.claim.id);
                for pair in options.chunks(2) {
                    match *pair {
                        ["for", span] => ttl = duration(span)?,
                        ["fence", number] => fence = Fence::new(number.parse().ok()?),
                        _ => return None,
                    }
                }
                self.answer(who, |ledger| {
                    let Ok(answer) = ledger.renew(&id, fence, ttl);
                    answer
                });
            }
            "leaves" => {
                let leave = leave(actor, options)?;
                self.ledger(who, |ledger| {
                    let Ok(left) = ledger.leave(&leave, process);
                    match left {
                        Left::Released => "released".to_owned(),
                        Left::Quit => "quit".to_owned(),
                        Left::Gone(why) => format!("gone, {}", ended(&why)),
                    }
                });
            }
            _ => return None,
        }
        Some(())
    }

    fn break_hold(&mut self, fence: Fence) {
        self.ledger("break", |ledger| {
            let note = Note { by: "ops".to_owned(), reason: "stuck".to_owned() };
            let Ok(broken) = ledger.break_hold(fence, &note);
            match broken {
                Broken::Done => "done".to_owned(),
                Broken::MovedOn => "moved on".to_owned(),
            }
        });
    }

    fn answer(&mut self, who: &str, act: impl FnOnce(&mut ScriptLedger<'_>) -> Answer) {
        let mut answer = Answer::Busy;
        self.ledger(who, |ledger| {
            answer = act(ledger);
            shown(&answer)
        });
        self.waiting = match answer {
            Answer::Waiting { floor, next_end, .. } => {
                Some((floor.get(), self.now.until(next_end)))
            }
            _ => None,
        };
        if let (Answer::Granted { fence, .. }, Some(actor)) = (answer, self.actors.get_mut(who)) {
            actor.fence = fence;
        }
    }

    /// One step of the ledger: what it answered, what it said to others, whether there is more.
    fn ledger(&mut self, who: &str, act: impl FnOnce(&mut ScriptLedger<'_>) -> String) {
        let mut said = Vec::new();
        let (deaf, hints, now) = (&self.deaf, self.hints, self.now);
        let mut say = |entry: &Entry, word: Word| {
            let heard = !deaf.contains(&who_is(&entry.id));
            // When to look, and whether a claim is there, is no news; scripts of their own ask for it.
            let is_news = match word {
                Word::LookAt(_) => false,
                Word::AreYouThere => !heard,
                _ => true,
            };
            if hints || is_news {
                said.push((who_is(&entry.id), word, heard));
            }
            heard
        };
        let mut ledger = Ledger::new(&mut self.line, self.now, &mut say as Say<'_>);
        let mut line = format!("{who}: {}", act(&mut ledger));
        if ledger.more() {
            line += "; more";
        }
        for (to, word, heard) in said {
            line +=
                &format!("; {to} {} {}", if heard { "hears" } else { "misses" }, told(&word, now));
            if let (true, Word::Granted { fence, .. }) = (heard, word)
                && let Some(actor) = self.actors.get_mut(&to)
            {
                actor.fence = fence;
            }
        }
        self.report.push(line);
    }

    fn show(&mut self) {
        let all = self.line.holders().into_iter().chain(self.line.waiters());
        let all: Vec<_> = all.map(|(entry, _)| place(&entry, self.now)).collect();
        let Ok(totals) = self.line.totals();
        let state = if all.is_empty() { "nobody".to_owned() } else { all.join(", ") };
        let remembers = self.line.remembers_until();
        let memory = if remembers > self.now {
            format!("; remembers for {:?}", self.now.until(remembers))
        } else {
            String::new()
        };
        let held = self.line.holders().iter().map(|(entry, _)| entry.weight).sum::<u32>();
        assert_eq!((totals.held, totals.waiting as usize), (held, self.line.waiters().len()));
        self.report.push(format!("= {state}{memory}"));
    }
}

type Say<'a> = &'a mut dyn FnMut(&Entry, Word) -> bool;
type ScriptLedger<'a> = Ledger<'a, Line<u64>, Say<'a>>;

fn name() -> Name {
    Name::new(Space::Lock, "script").expect("a good name")
}

fn id(who: &str) -> ClaimId {
    let mut bytes = [0; 16];
    bytes[..who.len()].copy_from_slice(who.as_bytes());
    ClaimId::from_bytes(bytes)
}

fn who_is(id: &ClaimId) -> String {
    String::from_utf8_lossy(&id.to_bytes()).trim_end_matches('\0').to_owned()
}

fn duration(text: &str) -> Option<Duration> {
    let unit = text.find(|c: char| c.is_alphabetic())?;
    let (number, unit) = text.split_at(unit);
    let number = number.parse().ok()?;
    Some(match unit {
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        "h" => Duration::from_secs(number * 3600),
        _ => return None,
    })
}

fn set(claim: &mut Claim, options: &[&str]) -> Option<()> {
    let mut rest = options;
    while !rest.is_empty() {
        rest = match *rest {
            [weight, "of", capacity, ref rest @ ..] => {
                claim.weight = weight.parse().ok()?;
                claim.capacity = capacity.parse().ok()?;
                rest
            }
            ["for", ttl, ref rest @ ..] => {
                claim.ttl = duration(ttl)?;
                rest
            }
            ["ticket", number, ref rest @ ..] => {
                claim.ticket = Some(Ticket::new(number.parse().ok()?));
                rest
            }
            ["seen", fence, ref rest @ ..] => {
                claim.seen = Fence::new(fence.parse().ok()?);
                rest
            }
            ["behalf", ref rest @ ..] => {
                claim.on_behalf = true;
                rest
            }
            ["fixed", ref rest @ ..] => {
                claim.fixed = true;
                rest
            }
            ["room", most, ref rest @ ..] => {
                claim.max_waiters = most.parse().ok()?;
                rest
            }
            ["once", keep, ref rest @ ..] => {
                claim.once = Some(OnceTerms { keep: duration(keep)?, rerun: false, content: 0 });
                rest
            }
            ["content", number, ref rest @ ..] => {
                claim.once.as_mut()?.content = number.parse().ok()?;
                rest
            }
            ["rerun", ref rest @ ..] => {
                claim.once.as_mut()?.rerun = true;
                rest
            }
            _ => return None,
        };
    }
    Some(())
}

fn leave(actor: &Actor, options: &[&str]) -> Option<Leave> {
    let mut leave = Leave::new(actor.claim.name.clone(), actor.claim.id);
    let mut settle = |outcome: Option<&str>| {
        let outcome = outcome.map(|text| Arc::from(text.as_bytes()));
        leave.settle = Some(Settle { fence: actor.fence, outcome });
    };
    match *options {
        [] => {}
        ["in", "doubt"] => leave.in_doubt = true,
        ["unbegun"] => leave.unbegun = true,
        ["if", "waiting"] => leave.only_waiting = true,
        // A turn that nobody took.
        ["turn", fence] => {
            leave.only = Some(Fence::new(fence.parse().ok()?));
            leave.unbegun = true;
        }
        ["done", outcome] => settle(Some(outcome)),
        ["undone"] => settle(None),
        _ => return None,
    }
    Some(leave)
}

fn place(entry: &Entry, now: Moment) -> String {
    let who = who_is(&entry.id);
    let weight = if entry.weight == 1 { String::new() } else { format!(" x{}", entry.weight) };
    match entry.state {
        State::Waiting => format!("{who}{weight} waits"),
        State::Aside => format!("{who}{weight} is aside"),
        State::Held { fence, first_life } => {
            let life = life(now.until(entry.until), first_life);
            format!("{who}{weight} holds {fence} {life}")
        }
    }
}

fn life(remaining: Duration, first_life: bool) -> String {
    format!("for {}{remaining:?}", if first_life { "at first " } else { "" })
}

fn shown(answer: &Answer) -> String {
    match answer {
        Answer::Granted { fence, remaining, first_life } => {
            format!("holds {fence} {}", life(*remaining, *first_life))
        }
        Answer::Waiting { ticket, ahead, .. } => format!("waits with {ticket}, {ahead} ahead"),
        Answer::Busy => "busy".to_owned(),
        Answer::Full => "full".to_owned(),
        Answer::Conflict { capacity } => format!("conflict with {capacity}"),
        Answer::Settled(outcome) => format!("settled {}", String::from_utf8_lossy(outcome)),
        Answer::Unsettled => "unsettled".to_owned(),
        Answer::OtherContent => "other content".to_owned(),
        Answer::Left => "left".to_owned(),
        Answer::Gone(why) => format!("gone, {}", ended(why)),
        Answer::Exhausted => "no numbers left".to_owned(),
    }
}

fn told(word: &Word, now: Moment) -> String {
    match word {
        Word::Granted { fence, life: remaining, first_life } => {
            format!("granted {fence} {}", life(*remaining, *first_life))
        }
        Word::Ended(why) => format!("ended, {}", ended(why)),
        Word::Settled(outcome) => format!("settled {}", String::from_utf8_lossy(outcome)),
        Word::LookAgain => "look again".to_owned(),
        Word::LookAt(at) => format!("look in {:?}", now.until(*at)),
        Word::AreYouThere => "are you there?".to_owned(),
    }
}

fn ended(why: &Ended) -> String {
    match why {
        Ended::Expired => "expired".to_owned(),
        other => other.to_string(),
    }
}
