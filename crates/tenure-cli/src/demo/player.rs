//! A process of a proof: what it is told, what it says, and what it plays on.
//!
//! It is this binary, started again as `tenure demo-worker PROOF WORDS…`. It is told what to do line by
//! line on standard input, and answers on standard output. Where the engine is comes by a variable,
//! because arguments can be seen by others. When standard input ends, the demo is gone, and so is this
//! process.

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

/// The word that makes this binary such a process.
pub(super) const COMMAND: &str = "demo-worker";
/// The variables that tell it where it is.
pub(super) const URL: &str = "TENURE_URL";
pub(super) const FOLDER: &str = "TENURE_DEMO_FOLDER";
pub(super) const PREFIX: &str = "TENURE_DEMO_PREFIX";
pub(super) const TTL: &str = "TENURE_DEMO_TTL";

/// How often it is looked whether a claim stands in line.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(2);

/// What a process of a proof has.
pub(super) struct Player {
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

/// Where a claim is.
pub(super) enum At {
    /// It holds.
    Head,
    /// It waits.
    Line,
}

/// Plays a part if this process was started for that.
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
    // Whatever ends the demo ends this process as well, even if it is stopped at that moment. If the
    // demo is gone already, there is nobody to tell us anything.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let (tell, cues) = mpsc::unbounded_channel();
    thread::spawn(move || listen(&tell));
    let runtime = engine::runtime()?;
    let mut player = Player { folder: folder.into(), cues, names: None };
    let played = runtime.block_on(async {
        super::work(words, &mut player).await?;
        player.finish().await;
        Ok::<_, Trouble>(())
    });
    match played {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(trouble) => {
            player.say(&format!("trouble {}", trouble.to_string().replace('\n', " ")));
            Ok(ExitCode::from(NO))
        }
    }
}

fn listen(tell: &UnboundedSender<String>) {
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        // Whoever does not listen any more is about to end.
        let _ = tell.send(line);
    }
    exit(NO.into());
}

/// Tells the demo something.
pub(super) fn say(line: &str) {
    let mut out = io::stdout().lock();
    let said = out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush());
    if said.is_err() {
        exit(NO.into());
    }
}

impl Player {
    /// Tells the demo something.
    pub(super) fn say(&self, line: &str) {
        say(line);
    }

    /// Waits until the demo says something.
    pub(super) async fn cue(&mut self) -> String {
        match self.cues.recv().await {
            Some(cue) => cue,
            None => exit(NO.into()),
        }
    }

    /// What the processes of the proof share.
    pub(super) fn record(&self, name: &str) -> Record {
        Record::at(&self.folder, name)
    }

    /// A file that the processes of the proof share.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The engine, connected when it is asked for first.
    pub(super) async fn tenure(&mut self) -> Result<Names, Trouble> {
        if self.names.is_none() {
            let variable = |name| env::var(name).map_err(|_| format!("{name} is not set"));
            let (url, prefix) = (variable(URL)?, variable(PREFIX)?);
            let tenure = Tenure::connect(&url).await?;
            // Nothing of what the URL may say besides: a proof depends on the times that it says.
            let mut options = tenure.defaults();
            options.ttl = Duration::from_millis(variable(TTL)?.parse()?);
            options.wait = Some(PATIENCE);
            (options.renew, options.max_hold, options.max_waiters) = (true, None, None);
            options.hold_for = Duration::ZERO;
            self.names = Some(Names { tenure: tenure.with_defaults(options)?, prefix });
        }
        self.names.clone().ok_or_else(|| "not connected".into())
    }

    /// Waits until what was let go is on its way.
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

    /// The engine itself, and the namespace that all names are within.
    #[cfg(feature = "relay")]
    pub(super) fn parts(&self) -> (Tenure, String) {
        (self.tenure.clone(), self.prefix.trim_end_matches('/').to_owned())
    }

    /// Where the engine shows this owner, of a lock or of an election.
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

    /// Says so when this owner is about to stand in line and the engine shows it.
    pub(super) fn announce(&self, name: &'static str, owner: &str) {
        let (names, owner) = (self.clone(), owner.to_owned());
        tokio::spawn(async move {
            loop {
                match names.look(name, &owner).await {
                    Ok(None) => tokio::time::sleep(LOOK_EVERY).await,
                    Ok(Some(At::Line)) => return say("waits"),
                    // It holds already; or the engine is gone, and whoever asks it hears that, too.
                    Ok(Some(At::Head)) | Err(_) => return,
                }
            }
        });
    }

    fn full(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}
