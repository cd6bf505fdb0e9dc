//! The error codes and topics, with their explanations.

/// An error that has a code.
pub(crate) struct Code {
    /// The code.
    pub(crate) code: &'static str,
    /// A title, in one line.
    pub(crate) title: &'static str,
    /// Why it happens.
    pub(crate) why: &'static str,
    /// What to do.
    pub(crate) next: &'static str,
}

/// All of them, in order.
pub(crate) const CODES: &[Code] = &[
    Code {
        code: "T001",
        title: "no command after `--`",
        why: "`tenure run NAME -- CMD` needs the two dashes, so that flags of CMD are not taken for flags of tenure.",
        next: "Put `--` before the command; the error shows your own command line with it.",
    },
    Code {
        code: "T002",
        title: "a duration without a unit",
        why: "In variables and URLs, a bare number could be seconds or milliseconds, and it is read far from where it was\n\
              written. On the command line it means seconds, as with flock.",
        next: "Write 30s, 500ms or 2h.",
    },
    Code {
        code: "T003",
        title: "the engine is unreachable",
        why: "Nothing listens at that address, a firewall is in between, the server is too busy to answer in time, or it\n\
              says that it cannot serve requests now (OOM, LOADING, NOREPLICAS): the second line of the error has the\n\
              details. Nothing was run.",
        next: "Run `tenure doctor`. TENURE_URL sets the engine; REDIS_URL is not read.",
    },
    Code {
        code: "T004",
        title: "unknown engine",
        why: "A URL begins with the name of the engine, such as file: or redis://.",
        next: "Use one of the engines that the error lists.",
    },
    Code {
        code: "T010",
        title: "busy",
        why: "Others hold the lock, and you chose not to wait (-n), or the wait timed out (-w).",
        next: "`tenure show NAME` shows who holds it. Wait longer with --wait 5m; in cron, use -n -E 0 to skip silently.",
    },
    Code {
        code: "T011",
        title: "you already hold it",
        why: "This runs inside a `tenure run` that holds the lock (TENURE_WITHIN lists such locks) and waits for this to\n\
              end, so waiting for the lock would never end. The same applies to waiting behind somebody who waits for that\n\
              lock: for example, behind a writer that waits for the read lock of the outer run.",
        next: "Remove the inner one, or use another name.",
    },
    Code {
        code: "T012",
        title: "the lock was lost while CMD was running",
        why: "Renewals failed, or the hold was broken. CMD was stopped before anyone else could get the lock. `elect`\n\
              campaigns again; the work of a `once` is unsettled (T015).",
        next: "Check the engine with `tenure doctor`, use a longer --ttl, and protect what CMD writes with the fence:\n\
               `tenure explain fencing`.",
    },
    Code {
        code: "T013",
        title: "released late",
        why: "The lock expired before it was released, because nobody renewed it in time. What was done after that was not\n\
              protected.",
        next: "Renew in time, use a longer --ttl, or let `tenure run` renew for you.",
    },
    Code {
        code: "T014",
        title: "the ttl is too short for kill-after",
        why: "CMD must have exited before anyone else can get the lock. So the ttl must leave room for a missed renewal and\n\
              for the time that CMD may take to exit: three times kill-after.",
        next: "Use a longer --ttl, or a shorter --kill-after.",
    },
    Code {
        code: "T015",
        title: "unsettled",
        why: "The work of a `tenure once` was started, and nobody knows how it ended: the process was killed, it lost the\n\
              lock, or the command was ended by a signal. The work may have been done, partly done or not done. Because it\n\
              must run at most once, nobody runs it again automatically.",
        next: "Check whether it was done. If not, `tenure once KEY --rerun -- CMD` runs it again, and `tenure forget KEY`\n\
               leaves that to the next caller. If it was, `tenure once KEY --rerun -- true` settles it. For work that may be\n\
               done twice, always use --rerun.",
    },
    Code {
        code: "T020",
        title: "number of slots differs",
        why: "The name is in use with another number of slots, and all its users must use the same.",
        next: "Use that number, or another name.",
    },
    Code {
        code: "T021",
        title: "kind mismatch",
        why: "A name is a lock, a read-write lock (-s, -x) or a semaphore (-j) as long as anyone uses it.",
        next: "Use it as the others do, or use another name.",
    },
    Code {
        code: "T022",
        title: "the fence does not match",
        why: "The hold that you wanted to break, or the record that you wanted to forget, has changed since you looked.\n\
              Nothing was changed.",
        next: "Run `tenure show NAME`, and decide again.",
    },
    Code {
        code: "T023",
        title: "different content",
        why: "The same key of `tenure once` means the same work. The work was started with another --content, so replaying its\n\
              outcome would answer a different question.",
        next: "Use another key for other work. If the first content was wrong, run `tenure forget KEY`.",
    },
    Code {
        code: "T041",
        title: "Redis may evict locks",
        why: "The server has a memory limit and a policy that removes keys when it is reached. Lock keys have a ttl, so the\n\
              volatile-… policies remove them first. A lock that is held then looks free: two holders.",
        next: "Set maxmemory-policy noeviction, or use a server for locks alone. `require=noeviction` in the URL refuses a\n\
               server that may evict.",
    },
    Code {
        code: "T042",
        title: "Redis may forget locks",
        why: "The server does not write each grant to disk before it answers. A crash or a restart forgets locks, and they are\n\
              granted again while others still hold them, for up to a ttl.",
        next: "Set `appendonly yes` and `appendfsync always` on the server, use `after_restart=wait` in the URL, or protect\n\
               what you write with the fence: `tenure explain fencing`.",
    },
];

/// What a lock cannot do.
pub(crate) const FENCING: &str = "\
A process can be paused in the middle of its work (by a debugger, a swapping machine, a full disk) and continue
long after its lock has expired and someone else holds it. No lock can prevent what it does then.

A fence can: a number that increases every time the lock is granted. `tenure run` passes it to the command as
TENURE_FENCE, and `tenure acquire --json` prints it. Send it along with every write, and let the receiver reject
numbers lower than the highest it has seen:

  UPDATE report SET body = :body, fence = :fence WHERE id = :id AND fence <= :fence

If this changes no row, a newer holder has written: stop. The holders of a semaphore, and the readers of a
read-write lock, have different fences at the same time and cannot be fenced against each other.
";
