//! A writer is killed between any two steps; then the files are checked.

use std::process::Command;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};

use super::*;

const POINTS: [Point; 5] =
    [Point::Checked, Point::Written, Point::Noted, Point::Raised, Point::Replaced];
/// Set in a process that is to be killed: the file, and where.
const SIGN: &str = "TENURE_TEST_KILLED_AT";

fn fence(number: u64) -> Fence {
    Fence::new(number)
}

/// A fresh folder, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(purpose: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("tenure-{purpose}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn is_stale(written: Result<(), GuardError<io::Error>>) -> bool {
    matches!(written, Err(GuardError::Stale(_)))
}

/// Not a test: the process that is killed.
#[test]
fn writes_until_it_is_killed() {
    let Ok(sign) = std::env::var(SIGN) else { return };
    let (point, path) = sign.split_once(' ').unwrap();
    let _ = replace(Path::new(path), fence(7), b"seven", |at| {
        if format!("{at:?}") == point {
            kill_process(getpid(), Signal::KILL).unwrap();
        }
    });
}

#[test]
fn whoever_is_killed_at_any_point_leaves_whole_contents_and_a_fence_that_holds() {
    let folder = Folder::new("fence-killed");
    for point in POINTS {
        let path = folder.0.join(format!("{point:?}"));
        write(&path, fence(5), "five").unwrap();
        let me = "guards::fencing::file::tests::writes_until_it_is_killed";
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", me, "--nocapture"]);
        child.env(SIGN, format!("{point:?} {}", path.display()));
        let ended = child.output().unwrap().status;
        let signal = std::os::unix::process::ExitStatusExt::signal(&ended);
        assert_eq!(signal, Some(Signal::KILL.as_raw()), "{point:?}");

        let raised = matches!(point, Point::Raised | Point::Replaced);
        let contents = std::fs::read_to_string(&path).unwrap();
        assert_eq!(contents == "seven", point == Point::Replaced, "{point:?}: {contents}");
        assert!(is_stale(write(&path, fence(4), "four")), "{point:?}");
        assert_eq!(is_stale(write(&path, fence(6), "six")), raised, "{point:?}");
        // The writer that was killed tries again.
        write(&path, fence(7), "seven").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "seven");
        assert!(is_stale(write(&path, fence(6), "six")), "{point:?}");
    }
    let left = std::fs::read_dir(&folder.0).unwrap().count();
    assert_eq!(left, 2 * POINTS.len(), "each has its fence beside it, and nothing else");
}

#[test]
fn whoever_comes_at_any_point_comes_after() {
    let folder = Folder::new("fence-meets");
    for point in POINTS {
        let path = folder.0.join(format!("{point:?}"));
        write(&path, fence(5), "five").unwrap();
        let mut next = None;
        let written = replace(&path, fence(7), b"seven", |at| {
            if at == point {
                let its = path.clone();
                next = Some(std::thread::spawn(move || write(its, fence(8), "eight")));
                // Time to do harm, for a writer that does not wait.
                std::thread::sleep(Duration::from_millis(100));
                assert_ne!(std::fs::read_to_string(&path).unwrap(), "eight", "{point:?}");
            }
        });
        written.unwrap();
        next.unwrap().join().unwrap().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "eight", "{point:?}");
        assert!(is_stale(write(&path, fence(7), "seven")), "{point:?}");
    }
}

#[test]
fn the_first_write_makes_the_file_and_links_lead_to_the_same_fence() {
    let folder = Folder::new("fence-links");
    let (path, link) = (folder.0.join("report"), folder.0.join("link"));
    std::os::unix::fs::symlink("report", &link).unwrap();
    write(&path, fence(7), "seven").unwrap();
    assert!(is_stale(write(&link, fence(6), "six")));
    write(&link, fence(8), "eight").unwrap();
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "eight");
}

#[test]
fn the_file_keeps_its_mode() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("fence-mode");
    let path = folder.0.join("secret");
    std::fs::write(&path, "").unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    write(&path, fence(1), "one").unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn what_cannot_be_read_is_not_taken_for_nothing() {
    let folder = Folder::new("fence-garbage");
    let path = folder.0.join("report");
    for garbage in ["x", "7", "-7\n", "0\n", "9007199254740992\n", "7\n7\n"] {
        std::fs::write(folder.0.join("report.fence"), garbage).unwrap();
        let error = write(&path, fence(8), "eight").unwrap_err();
        assert!(matches!(error, GuardError::Failed(_)), "{garbage:?}: {error}");
    }
    assert!(!path.exists());
    assert!(matches!(write(&path, fence(0), ""), Err(GuardError::NoFence(_))));
}

#[test]
fn a_write_that_fails_leaves_no_draft() {
    let folder = Folder::new("fence-failed");
    let path = folder.0.join("folder");
    std::fs::create_dir(&path).unwrap();
    assert!(matches!(write(&path, fence(8), "eight"), Err(GuardError::Failed(_))));
    let left: Vec<_> = std::fs::read_dir(&folder.0).unwrap().flatten().collect();
    assert_eq!(left.len(), 2, "{left:?}");
}
