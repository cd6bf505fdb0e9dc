//! The pictures in the docs, each drawn by its own file. The tests fail if a picture differs from what its file
//! draws.

mod expiry;
mod replicas;
mod shutdown;
mod svg;
mod worker;

use crate::failure::Failure;
use crate::workspace;

/// A picture: its path, and the function that draws it.
type Picture = (&'static str, fn() -> Result<String, Failure>);

const PICTURES: [Picture; 4] = [
    ("docs/worker.svg", worker::draw),
    ("docs/replicas.svg", replicas::draw),
    ("docs/shutdown.svg", shutdown::draw),
    ("docs/expiry.svg", expiry::draw),
];

/// Compares the pictures with the current drawings, or writes them again.
pub(crate) fn run(write: bool) -> Result<(), Failure> {
    if !write {
        return check();
    }
    for (path, draw) in PICTURES {
        std::fs::write(workspace::root().join(path), draw()?)
            .map_err(|error| Failure::new(format!("cannot write {path}: {error}")))?;
        println!("wrote {path}");
    }
    Ok(())
}

/// Compares the pictures with the current drawings.
pub(crate) fn check() -> Result<(), Failure> {
    let write = "draw it again with `cargo xtask chart --write`, and look at it";
    for (path, draw) in PICTURES {
        let kept = workspace::read(&workspace::root(), path).map_err(|f| f.next(write))?;
        if kept != draw()? {
            return Err(
                Failure::new(format!("{path} differs from the current drawing")).next(write)
            );
        }
    }
    Ok(())
}
