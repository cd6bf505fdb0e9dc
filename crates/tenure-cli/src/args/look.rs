//! `tenure ls`, `show`, `watch`, `wait`, `break`, `forget` and `doctor`: looking at names and at the engine, and
//! stepping in.

use clap::{Arg, ArgAction, Command};
use tenure::Fence;
use tenure::engine::Space;

use super::Named;
use super::define::{flag, option, spoken, word};
use super::given::Given;
use crate::commands::break_hold::Break;
use crate::commands::forget::Forget;
use crate::failure::{Failure, USAGE};

const WATCH: &str = "\
Events: held and waiting at the first look, then granted, released (by whoever held it, by the end of its
ttl, or broken), queued and left. Renewals are none. It looks again and again, so what begins and ends
between two looks is not seen.";

const DOCTOR: &str = "\
Looks at what locks depend on: settings, rights, room, speed. Nothing is claimed and nothing is changed. A
warning is a weakness to know about; a problem means that locks cannot be relied on, or do not work.";

pub(super) fn define_commands() -> [Command; 7] {
    let prefix = || word("prefix", "PREFIX", "Only names that begin with this");
    let name = || word("name", "NAME", "Which name").required(true);
    [
        Command::new("ls").about("Show who holds what, and who waits").arg(prefix()),
        Command::new("show")
            .about("Show who holds a name and who waits for it, or what a once left; exit code 1 if nothing is known")
            .arg(name())
            .arg(kind()),
        Command::new("watch")
            .about("Show what happens, as it happens")
            .after_help(WATCH)
            .arg(prefix())
            .arg(option("interval", None, "D", "How long between two looks [default: 250ms]")),
        Command::new("wait")
            .about("Wait until a name is free; take nothing")
            .arg(name())
            .arg(kind())
            .arg(
                flag("no-wait", Some('n'), "Only look: exit code 75 if it is not free")
                    .conflicts_with("wait"),
            )
            .arg(option(
                "wait",
                Some('w'),
                "D",
                "Wait at most so long, then end with exit code 75",
            )),
        Command::new("break")
            .about("End a hold by force; without --fence, say first what that would mean")
            .after_help("None of them is taken from a variable: a break must be meant.")
            .arg(name())
            .arg(kind())
            .arg(spoken("fence", "N", "The fence of the hold to break, as `tenure show` has it"))
            .arg(spoken("reason", "TEXT", "Why, for the holder and for the log")),
        Command::new("forget")
            .about("Forget work that was done once; without --fence, say first what that would mean")
            .after_help("None of them is taken from a variable: it must be meant.")
            .arg(word("name", "KEY", "Which work, as `tenure once` calls it").required(true))
            .arg(spoken("fence", "N", "The fence of the run to forget, as `tenure show` has it"))
            .arg(
                Arg::new("done")
                    .long("done")
                    .action(ArgAction::SetTrue)
                    .help("Also if it was done: it will be done a second time"),
            ),
        Command::new("doctor")
            .about("Say whether the engine is fit for locks; exit code 1 if it is not")
            .after_help(DOCTOR)
            .arg(flag("brief", None, "One line, for health checks")),
    ]
}

/// The words for `--kind`: a semaphore and a read-write lock are names of the same space as a lock.
const KINDS: [(&str, Space); 5] = [
    ("lock", Space::Lock),
    ("sem", Space::Lock),
    ("rwlock", Space::Lock),
    ("leader", Space::Election),
    ("once", Space::Once),
];

/// Not by a variable: TENURE_KIND is what `run` tells its command.
fn kind() -> Arg {
    spoken(
        "kind",
        "KIND",
        "What the name is, if several things are called that: lock, leader or once",
    )
}

pub(super) fn read_named(given: &Given<'_>) -> Result<Named, Failure> {
    let given = given.spoken_only();
    let space = given.choice("kind", &KINDS)?.map(|found| found.value);
    Ok(Named { name: given.name()?, space })
}

pub(super) fn read_break(given: &Given<'_>) -> Result<Break, Failure> {
    let named = read_named(given)?;
    let given = given.spoken_only();
    let reason = given.text("reason")?.map(|found| found.value);
    let reason = reason.filter(|reason| !reason.trim().is_empty());
    let meant = match (given.number("fence", 1..=(1 << 53))?, reason) {
        (Some(fence), Some(reason)) => Some((Fence::new(fence), reason)),
        (Some(_), None) => {
            return Err(Failure::new(
                USAGE,
                "a break needs a reason",
                "the holder and the log are told why",
                "add `--reason \"…\"`",
            ));
        }
        (None, _) => None,
    };
    Ok(Break { named, meant })
}

pub(super) fn read_forget(given: &Given<'_>) -> Result<Forget, Failure> {
    let given = given.spoken_only();
    Ok(Forget {
        name: given.name()?,
        fence: given.number("fence", 1..=(1 << 53))?.map(Fence::new),
        done: given.is_spoken("done"),
    })
}
