//! A process of a proof: its orders, its answers, and its environment.
//!
//! It is this binary, started again as `tenure demo-worker PROOF WORDS…`. It gets its orders line by line on
//! standard input, and answers on standard output. The URL of the engine is in a variable, because others can see
//! arguments. When standard input ends, the demo is gone, and this process exits.

use std::env;
use std::ffi::OsString;
use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::process::{ExitCode, exit};
use std::thread;
use std::time::Duration;

use rustix::process::{Signal, set_parent_process_death_signal};
use tenure::{Election, Mutex, Once, Semaphore, Tenure, Worker};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use super::record::Record;
use super::{PATIENCE, Trouble};
use crate::engine;
use crate::failure::{Failure, NO, Stop, USAGE};
use crate::output::{Color, Paint};

/// The argument that makes this binary such a process.
pub(super) const COMMAND: &str = "demo-worker";
/// The variables with its settings.
pub(super) const URL: &str = "TENURE_URL";
pub(super) const FOLDER: &str = "TENURE_DEMO_FOLDER";
pub(super) const PREFIX: &str = "TENURE_DEMO_PREFIX";
pub(super) const TTL: &str = "TENURE_DEMO_TTL";

/// How often to check whether a claim is in line.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(2);

/// The state of such a process.
pub(super) struct Participant {
    folder: PathBuf,
    cues: UnboundedReceiver<String>,
    names: Option<Names>,
}

/// The engine, with names that nobody else uses.
#[derive(Clone)]
pub(super) struct Names {
    tenure: Tenure,
    prefix: String,
}

/// The state of a claim.
pub(super) enum At {
    /// It holds.
    Head,
    /// It waits.
    Line,
}

/// Runs a part, if this process was started for that.
pub(crate) fn take_part(args: &[OsString]) -> Option<ExitCode> {
    let (_, [command, words @ ..]) = args.split_first()? else { return None };
    if command != COMMAND {
        return None;
    }
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let words: Vec<_> = words.iter().map(|word| &**word).collect();
    Some(play(&words).unwrap_or_else(|stop| stop.report(Paint::for_stderr(Color::Auto))))
}

fn play(words: &[&str]) -> Result<ExitCode, Stop> {
    let Some(folder) = env::var_os(FOLDER) else {
        return Err(Failure::new(
            USAGE,
            format!("`{COMMAND}` is a part of the demo"),
            "the demo starts it, and tells it what to do",
            "see `tenure demo --help`",
        )
        .into());
    };
    // Anything that ends the demo ends this process as well, even if it is stopped at that moment. If the demo is
    // gone already, there is nobody to give orders.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let (tell, cues) = mpsc::unbounded_channel();
    thread::spawn(move || listen(&tell));
    let runtime = engine::runtime()?;
    let mut participant = Participant { folder: folder.into(), cues, names: None };
    let played = runtime.block_on(async {
        super::work(words, &mut participant).await?;
        participant.finish().await;
        Ok::<_, Trouble>(())
    });
    match played {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(trouble) => {
            participant.say(&format!("trouble {}", trouble.to_string().replace('\n', " ")));
            Ok(ExitCode::from(NO))
        }
    }
}

fn listen(tell: &UnboundedSender<String>) {
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        // A receiver that is gone is about to exit.
        let _ = tell.send(line);
    }
    exit(NO.into());
}

/// Sends a line to the demo.
pub(super) fn say(line: &str) {
    let mut out = io::stdout().lock();
    let said = out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush());
    if said.is_err() {
        exit(NO.into());
    }
}

impl Participant {
    /// Sends a line to the demo.
    pub(super) fn say(&self, line: &str) {
        say(line);
    }

    /// Waits for the next order.
    pub(super) async fn cue(&mut self) -> String {
        match self.cues.recv().await {
            Some(cue) => cue,
            None => exit(NO.into()),
        }
    }

    /// The record that the processes of the proof share.
    pub(super) fn record(&self, name: &str) -> Record {
        Record::at(&self.folder, name)
    }

    /// A file that the processes of the proof share.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The engine, which is connected on first use.
    pub(super) async fn tenure(&mut self) -> Result<Names, Trouble> {
        if self.names.is_none() {
            let variable = |name| env::var(name).map_err(|_| format!("{name} is not set"));
            let (url, prefix) = (variable(URL)?, variable(PREFIX)?);
            let tenure = Tenure::connect(&url).await?;
            // Without the URL's defaults: the proof depends on its own times.
            let mut options = tenure.defaults();
            options.ttl = Duration::from_millis(variable(TTL)?.parse()?);
            options.wait = Some(PATIENCE);
            (options.renew, options.max_hold, options.max_waiters) = (true, None, None);
            options.hold_for = Duration::ZERO;
            self.names = Some(Names { tenure: tenure.with_defaults(options)?, prefix });
        }
        self.names.clone().ok_or_else(|| "not connected".into())
    }

    /// Waits until releases are on their way.
    async fn finish(&mut self) {
        if let Some(names) = self.names.take() {
            names.tenure.close().await;
        }
    }
}

impl Names {
    pub(super) fn mutex(&self, name: &str) -> Mutex {
        self.tenure.mutex(self.full(name))
    }

    pub(super) fn semaphore(&self, name: &str, capacity: u32) -> Semaphore {
        self.tenure.semaphore(self.full(name), capacity)
    }

    pub(super) fn election(&self, name: &str) -> Election {
        self.tenure.election(self.full(name))
    }

    pub(super) fn worker(&self, name: &str) -> Worker {
        self.tenure.worker(self.full(name))
    }

    pub(super) fn once(&self, name: &str) -> Once {
        self.tenure.once(self.full(name))
    }

    /// The engine itself, and the namespace of all names.
    #[cfg(feature = "relay")]
    pub(super) fn parts(&self) -> (Tenure, String) {
        (self.tenure.clone(), self.prefix.trim_end_matches('/').to_owned())
    }

    /// The state of this owner's claim, of a lock or of an election.
    pub(super) async fn look(&self, name: &str, owner: &str) -> Result<Option<At>, Trouble> {
        let view = match self.tenure.inspect(self.full(name)).await? {
            None => self.election(name).inspect().await?,
            view => view,
        };
        let Some(view) = view else { return Ok(None) };
        if view.holders.iter().any(|holder| holder.details.owner == owner) {
            return Ok(Some(At::Head));
        }
        let waits = view.waiters.iter().any(|waiter| waiter.details.owner == owner);
        Ok(waits.then_some(At::Line))
    }

    /// Reports when the engine shows this owner in line.
    pub(super) fn announce(&self, name: &'static str, owner: &str) {
        let (names, owner) = (self.clone(), owner.to_owned());
        tokio::spawn(async move {
            loop {
                match names.look(name, &owner).await {
                    Ok(None) => tokio::time::sleep(LOOK_EVERY).await,
                    Ok(Some(At::Line)) => return say("waits"),
                    // It holds already; or the engine is gone, and its next request will fail, too.
                    Ok(Some(At::Head)) | Err(_) => return,
                }
            }
        });
    }

    fn full(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}
