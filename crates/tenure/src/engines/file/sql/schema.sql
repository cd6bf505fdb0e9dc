-- What a file of tenure's contains. Moments are nanoseconds of CLOCK_BOOTTIME, and mean something
-- only together with `meta.boot`.

-- One row.
CREATE TABLE meta (
    boot    TEXT    NOT NULL,   -- the boot that all moments belong to
    machine TEXT    NOT NULL,   -- the machine; empty if it has no id
    number  INTEGER NOT NULL,   -- the last fence, ticket or process number; only ever rises
    swept   INTEGER NOT NULL    -- when what nobody asks for was last removed
) STRICT;

-- Who can have claims: a client of this file, which lives and dies with its process.
CREATE TABLE process (
    number INTEGER PRIMARY KEY,
    pid    INTEGER NOT NULL,
    start  INTEGER NOT NULL,    -- when it was started: pids come again, this pair does not
    space  INTEGER NOT NULL,    -- the pid namespace; a pid of another one says nothing
    guard_pid   INTEGER,        -- a second process that must have ended before this client is gone
    guard_start INTEGER
) STRICT;

-- A name that someone uses, or that has something to remember.
CREATE TABLE name (
    id            INTEGER PRIMARY KEY,
    space         INTEGER NOT NULL,   -- 0 locks, 1 elections, 2 onces
    text          TEXT    NOT NULL,
    capacity      INTEGER NOT NULL,
    resized_until INTEGER NOT NULL,
    held          INTEGER NOT NULL,   -- units
    waiting       INTEGER NOT NULL,   -- claims, those set aside included
    fixed         INTEGER NOT NULL,   -- claims, waiting or holding, with a fixed capacity
    quiet_until   INTEGER NOT NULL,   -- no claim ends before this moment
    traces_until  INTEGER NOT NULL,   -- no trace lasts longer than this
    once_fence    INTEGER,            -- set if a once was started here
    once_keep     INTEGER,
    once_until    INTEGER,
    once_outcome  BLOB,               -- set if it was settled
    once_content  BLOB,               -- the fingerprint of what it was started with, if it has one
    once_doubt    INTEGER             -- whether one before it was never settled
) STRICT;
CREATE UNIQUE INDEX name_text ON name (space, text);

CREATE TABLE claim (
    id         BLOB    PRIMARY KEY,   -- a secret
    name       INTEGER NOT NULL,
    state      INTEGER NOT NULL,      -- 0 waiting, 1 set aside, 2 held
    ticket     INTEGER NOT NULL,
    fence      INTEGER NOT NULL,      -- 0 while it waits
    first_life INTEGER NOT NULL,
    weight     INTEGER NOT NULL,
    fixed      INTEGER NOT NULL,      -- 1 a fixed capacity, 2 made by a server for a client, 3 both
    ttl        INTEGER NOT NULL,
    process    INTEGER NOT NULL,      -- 0 for one that does not end with a process
    once_keep  INTEGER,
    once_rerun INTEGER NOT NULL,
    since      INTEGER NOT NULL,
    until      INTEGER NOT NULL,
    once_content BLOB,
    owner      TEXT    NOT NULL,
    reason     TEXT,
    meta       TEXT    NOT NULL,
    value      TEXT,
    trace      TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX claim_line ON claim (name, state, ticket);

-- What a claim left behind: broken by someone, or gone in doubt.
CREATE TABLE trace (
    id     BLOB    PRIMARY KEY,
    name   INTEGER NOT NULL,
    until  INTEGER NOT NULL,
    by     TEXT,                      -- who broke it; null for one that left in doubt
    reason TEXT
) STRICT, WITHOUT ROWID;
