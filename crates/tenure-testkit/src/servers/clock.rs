//! The time that a server sees.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::ServerError;
use super::folder::Folder;

const SHIM: &str = include_str!("clock_shim.c");
const LIBRARY: &str = "clock_shim.so";
/// Valkey reads the clock once a millisecond and extrapolates in between: after this time it has seen a change.
const GLANCE: Duration = Duration::from_millis(2);
/// The same, in milliseconds.
const NANOS: i64 = 1_000_000;

/// A wall clock for servers: [`Build::clock`](super::Build::clock). While the server runs, it can stand still,
/// jump, and run behind or ahead; it starts with the real time. When a call returns, servers see the change.
/// Clones are the same clock.
///
/// It is a small library that is loaded into the server, so the machine's own clock is never changed.
#[derive(Clone, Debug)]
pub struct Clock {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Where the library reads `face`.
    path: PathBuf,
    file: File,
    face: Mutex<Face>,
    library: Arc<Folder>,
    _folder: Folder,
}

/// The shown time; `clock_shim.c` defines the layout of the file.
#[derive(Clone, Copy, Debug, Default)]
struct Face {
    version: u64,
    frozen: bool,
    /// The time itself if it is frozen; otherwise its offset from the real time.
    nanos: i64,
    monotonic: bool,
}

impl Clock {
    /// A clock that shows the real time.
    pub fn new() -> Result<Clock, ServerError> {
        let folder = Folder::new("clock")?;
        let path = folder.write("face", "")?;
        let opened = File::options().write(true).open(&path);
        let file = opened.map_err(ServerError::during("cannot open the file of a clock"))?;
        let shared =
            Shared { path, file, face: Mutex::default(), library: library()?, _folder: folder };
        let clock = Clock { shared: Arc::new(shared) };
        clock.change(|_| {})?;
        Ok(clock)
    }

    /// Runs this many milliseconds ahead of the real time, or behind it if negative.
    pub fn offset(&self, millis: i64) -> Result<(), ServerError> {
        self.change(|face| {
            face.frozen = false;
            face.nanos = millis * NANOS;
        })
    }

    /// Stops at a time, in milliseconds since 1970.
    pub fn freeze_at(&self, unix_millis: i64) -> Result<(), ServerError> {
        self.change(|face| {
            face.frozen = true;
            face.nanos = unix_millis * NANOS;
        })
    }

    /// Stops at the time that it shows now.
    pub fn freeze(&self) -> Result<(), ServerError> {
        self.change(|face| {
            face.nanos = face.shown();
            face.frozen = true;
        })
    }

    /// Jumps this many milliseconds forward, or back if negative. It then stands or runs as before.
    pub fn advance(&self, millis: i64) -> Result<(), ServerError> {
        self.change(|face| face.nanos += millis * NANOS)
    }

    /// Continues from the time that it shows now.
    pub fn run(&self) -> Result<(), ServerError> {
        self.change(|face| {
            if face.frozen {
                face.nanos -= real();
                face.frozen = false;
            }
        })
    }

    /// Whether the server's monotonic clock jumps, too. Default: it keeps running normally.
    pub fn drag_monotonic(&self, along: bool) -> Result<(), ServerError> {
        self.change(|face| face.monotonic = along)
    }

    /// The time that it shows, in milliseconds since 1970.
    #[must_use]
    pub fn unix_millis(&self) -> i64 {
        self.face().shown() / NANOS
    }

    /// The environment variables for a program that is to see this clock.
    pub fn environment(&self) -> [(&'static str, PathBuf); 2] {
        let library = self.shared.library.path().join(LIBRARY);
        [("LD_PRELOAD", library), ("TENURE_CLOCK", self.shared.path.clone())]
    }

    fn face(&self) -> MutexGuard<'_, Face> {
        self.shared.face.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the shown time. The version is odd during the change, so that no server sees half of it.
    fn change(&self, change: impl FnOnce(&mut Face)) -> Result<(), ServerError> {
        let mut face = self.face();
        change(&mut face);
        face.version += 2;
        let words = [i64::from(face.frozen), face.nanos, i64::from(face.monotonic)];
        let words: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let version = |version: u64| self.shared.file.write_all_at(&version.to_ne_bytes(), 0);
        let written = version(face.version - 1)
            .and_then(|()| self.shared.file.write_all_at(&words, 8))
            .and_then(|()| version(face.version));
        written.map_err(ServerError::during("cannot set a clock"))?;
        std::thread::sleep(GLANCE);
        Ok(())
    }
}

impl Face {
    fn shown(&self) -> i64 {
        if self.frozen { self.nanos } else { real() + self.nanos }
    }
}

/// Nanoseconds since 1970.
fn real() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_nanos()).unwrap_or(i64::MAX)
}

/// The folder with the library, which is compiled once and exists as long as a clock does.
fn library() -> Result<Arc<Folder>, ServerError> {
    static COMPILED: Mutex<Weak<Folder>> = Mutex::new(Weak::new());
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(folder) = compiled.upgrade() {
        return Ok(folder);
    }
    let folder = Arc::new(Folder::new("shim")?);
    let source = folder.write("clock_shim.c", SHIM)?;
    compile(&source, &folder.path().join(LIBRARY))?;
    *compiled = Arc::downgrade(&folder);
    Ok(folder)
}

fn compile(source: &Path, library: &Path) -> Result<(), ServerError> {
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O2", "-o"]).arg(library).arg(source);
    let output = compiler.output().map_err(ServerError::during("cannot run `cc`"))?;
    if output.status.success() {
        return Ok(());
    }
    let says = String::from_utf8_lossy(&output.stderr);
    Err(ServerError::new(format!("the clock shim does not compile: {says}")))
}
