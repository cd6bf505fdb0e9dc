//! The environment of the proofs: a folder, an engine, and events from outside.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use tokio::runtime::Runtime;

use super::Trouble;
use super::processes::Processes;
use super::record::Record;
use super::screen::Screen;
use crate::args::Source;
use crate::engine;
use crate::failure::{CANNOT_CREATE, Failure, INTERNAL, USAGE};
use crate::settings::{Address, Settings};
use crate::signals;

/// How long holds last if the engine notices the end of a process at once: so long that they never end by their
/// ttl.
const TTL_AT_ONCE: Duration = Duration::from_secs(20);
/// How long they last if only the ttl ends them.
const TTL_ELSEWHERE: Duration = Duration::from_secs(3);

/// The environment of the proofs.
pub(super) struct Environment<'w> {
    pub(super) screen: Screen<'w>,
    /// How often each process of the race takes a number.
    pub(super) count: u32,
    pub(super) engine: Engine,
    pub(super) events: Receiver<Event>,
    pub(super) tell: Sender<Event>,
    /// The number of processes started so far.
    pub(super) started: usize,
    folder: Folder,
}

/// The engine that all processes use.
pub(super) struct Engine {
    url: String,
    own: bool,
    /// The prefix of all names.
    pub(super) prefix: String,
    /// How long holds last unless renewed.
    pub(super) ttl: Duration,
    /// Whether it notices the end of a process at once.
    pub(super) at_once: bool,
}

/// What is heard.
pub(super) enum Event {
    /// A process said this.
    Said(usize, String),
    /// A process sends nothing more: it has exited, or is about to.
    Ended(usize),
    /// This process was asked to end, by a signal.
    Signal(u8),
}

/// The user wants the demo to end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interrupted(pub(super) u8);

impl<'w> Environment<'w> {
    /// Prepares everything. From then on signals are handled, so that nothing is left behind.
    pub(super) fn new(
        settings: &Settings,
        count: u32,
        screen: Screen<'w>,
    ) -> Result<Environment<'w>, Failure> {
        let runtime = engine::runtime()?;
        let own = settings.address.source == Source::Default;
        if !own {
            check_shared(settings)?;
            // Before signals are handled: the user can interrupt a server that does not answer.
            runtime.block_on(reach(settings))?;
        }
        let (tell, events) = mpsc::channel();
        let interrupted = {
            let _within = runtime.enter();
            signals::interrupted()?
        };
        let folder = Folder::new()?;
        let settings = if own { &folder.settings(settings)? } else { settings };
        if own {
            runtime.block_on(reach(settings))?;
        }
        listen(runtime, interrupted, tell.clone()).map_err(|error| limits(&error))?;
        let at_once = settings.address.scheme() == Some("file");
        let engine = Engine {
            url: settings.address.url()?.to_owned(),
            own,
            prefix: settings.full_name(&format!("tenure-demo/{:012x}/", random() >> 16)),
            ttl: if at_once { TTL_AT_ONCE } else { TTL_ELSEWHERE },
            at_once,
        };
        Ok(Environment { screen, count, engine, events, tell, started: 0, folder })
    }

    /// Whether the engine is in the folder of this run.
    pub(super) fn is_own(&self) -> bool {
        self.engine.own
    }

    /// The folder of this run.
    pub(super) fn folder(&self) -> &Path {
        &self.folder.path
    }

    /// A record that processes share, with this value.
    pub(super) fn record(&self, name: &str, value: &str) -> Result<Record, Trouble> {
        Record::create(self.folder(), name, value)
    }

    /// The processes of one side of a proof. They are gone when this is dropped.
    pub(super) fn processes(&mut self) -> Processes<'_, 'w> {
        Processes::new(self)
    }
}

impl Engine {
    /// The URL, which may be a secret.
    pub(super) fn url(&self) -> &str {
        &self.url
    }
}

/// Connects once, so that a problem with the engine is reported once and well.
async fn reach(settings: &Settings) -> Result<(), Failure> {
    engine::connect(settings).await?.close().await;
    Ok(())
}

fn check_shared(settings: &Settings) -> Result<(), Failure> {
    if settings.address.scheme() != Some("memory") {
        return Ok(());
    }
    Err(Failure::new(
        USAGE,
        "the demo cannot be played on memory:",
        "it has several processes, and memory: is within one",
        "leave the URL out to play it on a file of its own",
    ))
}

fn limits(error: &io::Error) -> Failure {
    let help = "check the limits of this process (`ulimit -a`)";
    Failure::new(INTERNAL, "the demo cannot be started", error.to_string(), help)
}

/// Waits on a separate thread for a signal that asks this process to end.
fn listen(
    runtime: Runtime,
    interrupted: impl Future<Output = u8> + Send + 'static,
    tell: Sender<Event>,
) -> io::Result<()> {
    let hear = move || {
        let signal = runtime.block_on(interrupted);
        // If nobody receives it, the demo is over.
        let _ = tell.send(Event::Signal(signal));
    };
    thread::Builder::new().name("tenure-demo-signals".into()).spawn(hear).map(drop)
}

/// A new folder, which is removed when this is dropped, no matter how the demo ends.
struct Folder {
    path: PathBuf,
}

impl Folder {
    fn new() -> Result<Folder, Failure> {
        let name = format!("tenure-demo-{}-{:012x}", std::process::id(), random() >> 16);
        let failed = |path: &Path, error: &io::Error| {
            Failure::new(
                CANNOT_CREATE,
                format!("cannot create {}", path.display()),
                error.to_string(),
                "set TMPDIR to a folder that you can write to",
            )
        };
        let path = std::env::temp_dir().join(name);
        let path = std::path::absolute(&path).map_err(|error| failed(&path, &error))?;
        // It must not exist yet, and is for this user only: everyone can write to the folder above it.
        let created = fs::DirBuilder::new().mode(0o700).create(&path);
        created.map_err(|error| failed(&path, &error))?;
        Ok(Folder { path })
    }

    /// The settings with an engine in this folder.
    fn settings(&self, settings: &Settings) -> Result<Settings, Failure> {
        let file = self.path.join("tenure.db");
        // In a URL a question mark ends the path.
        let url = file.to_str().filter(|path| !path.contains('?'));
        let url = url.map(|path| format!("file:{path}")).ok_or_else(|| {
            Failure::new(
                CANNOT_CREATE,
                format!("{} cannot be written as a URL", file.display()),
                "it is not valid UTF-8, or has a question mark in it",
                "set TMPDIR to a folder with a plainer name",
            )
        })?;
        Ok(Settings { address: Address::new(url), ..settings.clone() })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Nothing depends on it: at worst a few bytes stay in the folder for temporary files.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// A random number, from the seeds of the standard library's hash tables.
pub(super) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "interrupted by signal {}", self.0)
    }
}

impl std::error::Error for Interrupted {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_folder_is_for_this_user_only_and_gone_in_the_end() {
        let folder = Folder::new().unwrap();
        let path = folder.path.clone();
        fs::write(path.join("x"), "y").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        drop(folder);
        assert!(!path.exists());
    }
}
