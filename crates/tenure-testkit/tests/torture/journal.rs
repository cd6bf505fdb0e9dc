//! A worker's journal, one line per event, in its own file.
//!
//! A line is one `write` to a file opened for appending, made before the worker acts on it: a worker that is killed
//! has recorded everything that it did, and nothing by half.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tenure::engine::Moment;

/// The clock that all processes of a machine share, and that holds are measured with.
pub(crate) fn now() -> Moment {
    let time = clock_gettime(ClockId::Boottime);
    Moment::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Something that happened to the request with this number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) serial: u64,
    pub(crate) event: Event,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The claim is about to be sent. A patient one waits until it is served.
    Asked { at: Moment, patient: bool, ttl: Duration, name: String },
    /// The engine has answered that it waits in line. Only recorded where the engine is called through one that
    /// records it.
    Stood { at: Moment },
    /// It led to nothing: the name was busy, the wait was over, the caller gave up or nobody answered.
    GaveUp { at: Moment },
    /// The hold is there and is about to be used.
    Acquired { at: Moment, deadline: Moment, fence: u64, weight: u32, capacity: u32 },
    /// It was seen to last longer.
    Extended { deadline: Moment },
    /// The resource was written to; `live`: the hold was still good when the answer was there.
    Wrote { accepted: bool, live: bool },
    /// The hold is no longer used; `live`: it lasted until then.
    Left { at: Moment, live: bool },
    /// Something that no fault explains.
    Failed { what: String },
    /// The worker has done everything that it was told to.
    Done,
}

/// Where a worker writes.
#[derive(Debug)]
pub(crate) struct Journal(File);

impl Journal {
    pub(crate) fn create(path: &Path) -> io::Result<Journal> {
        File::options().create(true).append(true).open(path).map(Journal)
    }

    pub(crate) fn write(&self, serial: u64, event: &Event) {
        let line = format!("{serial} {}\n", event.text());
        let wrote = (&self.0).write(line.as_bytes()).expect("room for a journal");
        assert_eq!(wrote, line.len(), "a line of a journal is written at once");
    }
}

/// Reads a journal while it is written.
#[derive(Debug)]
pub(crate) struct Reading {
    file: File,
    rest: String,
}

impl Reading {
    pub(crate) fn open(path: &Path) -> io::Result<Reading> {
        let file = File::options().read(true).open(path)?;
        Ok(Reading { file, rest: String::new() })
    }

    /// The lines that were added since the last time.
    pub(crate) fn next(&mut self) -> Vec<Entry> {
        self.file.read_to_string(&mut self.rest).expect("a journal can be read");
        let end = self.rest.rfind('\n').map_or(0, |at| at + 1);
        let rest = self.rest.split_off(end);
        let lines = std::mem::replace(&mut self.rest, rest);
        lines
            .lines()
            .map(|line| read(line).unwrap_or_else(|| panic!("no entry: {line:?}")))
            .collect()
    }
}

impl Event {
    fn text(&self) -> String {
        match self {
            Event::Asked { at, patient, ttl, name } => {
                let ttl = ttl.as_millis();
                format!("asked {} {} {ttl} {name}", at.as_nanos(), u8::from(*patient))
            }
            Event::Stood { at } => format!("stood {}", at.as_nanos()),
            Event::GaveUp { at } => format!("gave-up {}", at.as_nanos()),
            Event::Acquired { at, deadline, fence, weight, capacity } => {
                let [at, deadline] = [at, deadline].map(|moment| moment.as_nanos());
                format!("acquired {at} {deadline} {fence} {weight} {capacity}")
            }
            Event::Extended { deadline } => format!("extended {}", deadline.as_nanos()),
            Event::Wrote { accepted, live } => {
                format!("wrote {} {}", u8::from(*accepted), u8::from(*live))
            }
            Event::Left { at, live } => format!("left {} {}", at.as_nanos(), u8::from(*live)),
            Event::Failed { what } => format!("failed {}", what.replace('\n', " ")),
            Event::Done => "done".to_owned(),
        }
    }
}

fn read(line: &str) -> Option<Entry> {
    let (serial, line) = line.split_once(' ')?;
    let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
    let mut words = rest.split(' ');
    let mut number = || words.next()?.parse::<u64>().ok();
    let event = match kind {
        "asked" => Event::Asked {
            at: Moment::from_nanos(number()?),
            patient: number()? == 1,
            ttl: Duration::from_millis(number()?),
            name: words.next()?.to_owned(),
        },
        "stood" => Event::Stood { at: Moment::from_nanos(number()?) },
        "gave-up" => Event::GaveUp { at: Moment::from_nanos(number()?) },
        "acquired" => Event::Acquired {
            at: Moment::from_nanos(number()?),
            deadline: Moment::from_nanos(number()?),
            fence: number()?,
            weight: number()?.try_into().ok()?,
            capacity: number()?.try_into().ok()?,
        },
        "extended" => Event::Extended { deadline: Moment::from_nanos(number()?) },
        "wrote" => Event::Wrote { accepted: number()? == 1, live: number()? == 1 },
        "left" => Event::Left { at: Moment::from_nanos(number()?), live: number()? == 1 },
        "failed" => Event::Failed { what: rest.to_owned() },
        "done" => Event::Done,
        _ => return None,
    };
    Some(Entry { serial: serial.parse().ok()?, event })
}
