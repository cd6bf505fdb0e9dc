//! What to run, and with which settings.

use std::fmt;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use super::lockers::Kind;
use super::{FILE_WORKLOADS, WORKLOADS, Workload};

/// The kind of tokio runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavour {
    CurrentThread,
    /// Two workers.
    MultiThread,
}

impl Flavour {
    pub(crate) const ALL: [Flavour; 2] = [Flavour::CurrentThread, Flavour::MultiThread];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Flavour::CurrentThread => "current-thread",
            Flavour::MultiThread => "multi-thread",
        }
    }

    /// The runtime with that label.
    pub(crate) fn build(label: &str) -> std::io::Result<Runtime> {
        match label == Flavour::CurrentThread.label() {
            true => Builder::new_current_thread().enable_all().build(),
            false => Builder::new_multi_thread().worker_threads(2).enable_all().build(),
        }
    }
}

impl fmt::Display for Flavour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.label())
    }
}

/// The options of the command line.
pub(crate) struct Options {
    /// All workloads of the engine, by name.
    pub(super) known: &'static [(&'static str, Workload)],
    /// The requested workloads; empty for all of them.
    pub(crate) workloads: Vec<String>,
    pub(crate) rounds: usize,
    pub(crate) length: Duration,
    pub(crate) kinds: Vec<Kind>,
    /// The CPU of the server and the clients; `None` for any.
    pub(crate) cpu: Option<usize>,
    /// The numbers of names for `holds`, one run each; `None` for the usual number.
    pub(crate) holds: Option<Vec<usize>>,
}

impl Options {
    /// Parses the command line after the name of the engine, which is `redis` or `file`.
    pub(crate) fn read(engine: &str, given: &[String]) -> Result<Options, String> {
        // A machine with one core has no second.
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let mut options = Options {
            known: if engine == "file" { FILE_WORKLOADS } else { WORKLOADS },
            workloads: Vec::new(),
            rounds: 5,
            length: Duration::from_secs(1),
            kinds: Kind::ALL.to_vec(),
            cpu: Some(usize::from(cores > 1)),
            holds: None,
        };
        let mut given = given.iter();
        while let Some(word) = given.next() {
            let mut value = || given.next().ok_or_else(|| format!("{word} needs a value"));
            match word.as_str() {
                "--free" => options.cpu = None,
                "--rounds" => options.rounds = number(value()?)? as usize,
                "--seconds" => options.length = Duration::from_secs_f64(number(value()?)?),
                "--names" => {
                    let count = |text: &str| text.parse().map_err(|_| format!("no count: {text}"));
                    options.holds = Some(value()?.split(',').map(count).collect::<Result<_, _>>()?);
                }
                "--kinds" => {
                    let kind = |label| Kind::of(label).ok_or_else(|| format!("no kind {label}"));
                    options.kinds = value()?.split(',').map(kind).collect::<Result<_, _>>()?;
                }
                name if options.known.iter().any(|(known, _)| *known == name) => {
                    options.workloads.push(name.to_owned());
                }
                other => return Err(format!("{other}: not a workload and not an option")),
            }
        }
        Ok(options)
    }

    pub(crate) fn asks_for(&self, workload: &str) -> bool {
        self.workloads.is_empty() || self.workloads.iter().any(|name| name == workload)
    }
}

fn number(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.01..=3600.0).contains(number));
    number.ok_or_else(|| format!("{text}: a number from 0.01 to 3600 was meant"))
}
