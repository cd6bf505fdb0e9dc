//! The pictures of the docs, each drawn by a file of its own: a picture that is not what its file draws is
//! found by the tests.

mod expiry;
mod replicas;
mod shutdown;
mod svg;
mod worker;

use crate::failure::Failure;
use crate::workspace;

/// A picture: where it is kept, and who draws it.
type Picture = (&'static str, fn() -> Result<String, Failure>);

const PICTURES: [Picture; 4] = [
    ("docs/worker.svg", worker::draw),
    ("docs/replicas.svg", replicas::draw),
    ("docs/shutdown.svg", shutdown::draw),
    ("docs/expiry.svg", expiry::draw),
];

/// Compares the pictures with what is drawn now, or draws them anew.
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

/// Compares the pictures with what is drawn now.
pub(crate) fn check() -> Result<(), Failure> {
    let write = "draw it anew: cargo xtask chart --write, and look at it";
    for (path, draw) in PICTURES {
        let kept = workspace::read(&workspace::root(), path).map_err(|f| f.next(write))?;
        if kept != draw()? {
            return Err(Failure::new(format!("{path} is not what is drawn now")).next(write));
        }
    }
    Ok(())
}
