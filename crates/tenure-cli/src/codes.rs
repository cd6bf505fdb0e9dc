//! The codes of errors that have one, and the topics, with what there is to say about them.

/// One error that has a code.
pub(crate) struct Code {
    /// The code.
    pub(crate) code: &'static str,
    /// What it is, in a line.
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
        why: "`tenure run NAME -- CMD` needs the two dashes, so that flags of CMD stay its own.",
        next: "Put `--` before the command; the error prints the line with your own words.",
    },
    Code {
        code: "T002",
        title: "a duration without a unit",
        why: "In variables and URLs a bare number could be seconds or milliseconds, and is read far\n\
              from where it was written. On the command line it is seconds, as flock has it.",
        next: "Write 30s, 500ms or 2h.",
    },
    Code {
        code: "T003",
        title: "the engine cannot be reached",
        why: "Nothing listens at that address, a firewall is in between, or the server is too busy to\n\
              answer in time, or says that it cannot serve now (OOM, LOADING, NOREPLICAS): the second\n\
              line of the error has its words. Nothing was run.",
        next: "`tenure doctor`. TENURE_URL names the engine; REDIS_URL is not read.",
    },
    Code {
        code: "T004",
        title: "unknown engine",
        why: "A URL begins with the engine that it names, such as file: or redis://.",
        next: "Compare with the known ones that the error lists.",
    },
    Code {
        code: "T010",
        title: "busy",
        why: "Others hold the name, and you asked not to wait (-n) or the wait is over (-w).",
        next: "`tenure show NAME` says who. Wait longer with --wait 5m; in cron, -n -E 0 skips quietly.",
    },
    Code {
        code: "T011",
        title: "you already hold it",
        why: "A `tenure run` around this one holds the name, and waits for this one to end: TENURE_WITHIN\n\
              says so. Waiting for it would never end, however many others are held in between.",
        next: "Drop the inner one, or give it another name.",
    },
    Code {
        code: "T012",
        title: "the hold was lost while CMD ran",
        why: "Renewals failed, or the hold was broken. CMD was stopped before anyone else could have\n\
              the name. `elect` campaigns again; the work of a `once` is unsettled (T015).",
        next: "Look at the engine (`tenure doctor`), use a longer --ttl, and guard what CMD writes with\n\
               the fence: `tenure explain fencing`.",
    },
    Code {
        code: "T013",
        title: "released late",
        why: "The hold had ended before it was released: its time ran out and nobody renewed it. What\n\
              was done after that was not protected.",
        next: "Renew in time, use a longer --ttl, or let `tenure run` renew for you.",
    },
    Code {
        code: "T014",
        title: "the ttl is too short for kill-after",
        why: "CMD must have ended before anyone else can have the name, so the ttl must leave room for\n\
              a missed renewal and for the time that CMD may take to end: three times kill-after.",
        next: "A longer --ttl, or a shorter --kill-after.",
    },
    Code {
        code: "T015",
        title: "unsettled",
        why: "Someone started this work (`tenure once`) and never said how it ended: it was killed, its hold\n\
              was lost, or its command was ended by a signal. The work may have been done, in part or not at\n\
              all. At most once means that nobody runs it again by itself.",
        next: "Look whether it was done. If not: `tenure once KEY --rerun -- CMD` runs it again, and\n\
               `tenure forget KEY` leaves that to whoever asks next. If it was:\n\
               `tenure once KEY --rerun -- true` settles it. Work that may be done twice says --rerun always.",
    },
    Code {
        code: "T020",
        title: "slots disagree",
        why: "The name exists with another number of slots, and all its users must say the same.",
        next: "Say that number, or use another name.",
    },
    Code {
        code: "T021",
        title: "kind clash",
        why: "A name is a lock, a read-write lock (-s, -x) or a semaphore (-j) for as long as anyone\n\
              uses it.",
        next: "Use it as the others do, or use another name.",
    },
    Code {
        code: "T022",
        title: "the fence does not match",
        why: "The hold that you wanted to break, or the once that you wanted to forget, has moved on since you\n\
              looked. Nothing was changed.",
        next: "`tenure show NAME`, and decide again.",
    },
    Code {
        code: "T023",
        title: "other content",
        why: "The same key of `tenure once` is the same work. It was started with another --content than this\n\
              one, so that replaying its outcome would answer another question.",
        next: "Another key for other work; or, if the first one was wrong, `tenure forget KEY`.",
    },
    Code {
        code: "T041",
        title: "Redis may evict locks",
        why: "The server has a limit of memory and a policy that removes keys when it is reached. Lock\n\
              keys have a ttl, so that the policies called volatile-… remove them first, and a name that\n\
              is held looks free: two holders.",
        next: "maxmemory-policy noeviction, or a server for locks alone. `require=noeviction` in the URL\n\
               refuses a server that may evict.",
    },
    Code {
        code: "T042",
        title: "Redis may forget locks",
        why: "The server does not write each grant down before it answers, so that a crash or a restart\n\
              forgets holds, and the next one to come is granted what others still hold, for up to a ttl.",
        next: "`appendonly yes` and `appendfsync always` on the server, `after_restart=wait` in the URL, or\n\
               guard what you write with the fence: `tenure explain fencing`.",
    },
];

/// What a lock cannot do.
pub(crate) const FENCING: &str = "\
A process can be stopped in the middle of its work (a full disk, a swapped-out machine, a debugger) and
go on when its hold has long ended and someone else has the name. No lock can prevent what it does then.

The fence can: a number that rises with every grant of a name. `tenure run` gives it to the command as
TENURE_FENCE, `tenure acquire --json` prints it. Pass it along with every write, and have what is written
to refuse a number lower than the highest that it has seen:

  UPDATE report SET body = :body, fence = :fence WHERE id = :id AND fence <= :fence

If that changes no row, someone newer was there: stop. The holders of one semaphore or the readers of one
read-write lock have different fences at the same time and cannot be fenced against each other.
";
