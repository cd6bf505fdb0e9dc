//! All statements that run more than once. Values are bound, never written into the text.

pub(super) const META: &str = "SELECT boot, machine, number FROM meta";
pub(super) const SET_NUMBER: &str = "UPDATE meta SET number = ?1";
pub(super) const SET_META: &str = "UPDATE meta SET boot = ?1, machine = ?2, number = ?3";
pub(super) const SWEEP: &str = "UPDATE meta SET swept = ?1 WHERE swept NOT BETWEEN ?2 AND ?1";

pub(super) const PROCESS: &str =
    "SELECT pid, start, space, guard_pid, guard_start FROM process WHERE number = ?1";
pub(super) const PROCESSES: &str = "SELECT number FROM process";
pub(super) const COUNT_PROCESSES: &str = "SELECT count(*) FROM process";
pub(super) const ADD_PROCESS: &str = "
    INSERT OR REPLACE INTO process (number, pid, start, space, guard_pid, guard_start)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
pub(super) const REMOVE_PROCESS: &str = "DELETE FROM process WHERE number = ?1";
pub(super) const PROCESS_HAS_CLAIMS: &str = "SELECT 1 FROM claim WHERE process = ?1 LIMIT 1";
pub(super) const NAMES_OF_PROCESS: &str = "
    SELECT DISTINCT name.space, name.text FROM claim JOIN name ON name.id = claim.name
    WHERE claim.process = ?1 ORDER BY name.text";
pub(super) const CLAIMS_OF_PROCESS: &str = "SELECT id FROM claim WHERE name = ?1 AND process = ?2";

pub(super) const NAME: &str = "
    SELECT id, capacity, resized_until, held, waiting, fixed, quiet_until, traces_until,
           once_fence, once_keep, once_until, once_outcome, once_content, once_doubt
    FROM name WHERE space = ?1 AND text = ?2";
pub(super) const ADD_NAME: &str = "
    INSERT INTO name (space, text, capacity, resized_until, held, waiting, fixed, quiet_until,
                      traces_until)
    VALUES (?1, ?2, 0, 0, 0, 0, 0, 0, 0)";
pub(super) const CHANGE_NAME: &str = "
    UPDATE name SET capacity = ?2, resized_until = ?3, held = ?4, waiting = ?5, fixed = ?6,
           quiet_until = ?7, traces_until = ?8, once_fence = ?9, once_keep = ?10, once_until = ?11,
           once_outcome = ?12, once_content = ?13, once_doubt = ?14
    WHERE id = ?1";
pub(super) const REMOVE_NAME: &str = "DELETE FROM name WHERE id = ?1";
/// Names that begin with a prefix are those between it and the next text that does not begin with it.
pub(super) const USED_NAMES: &str = "
    SELECT text FROM name
    WHERE space = ?1 AND text >= ?2 AND text > ?3 AND (?4 IS NULL OR text < ?4)
          AND held + waiting > 0
    ORDER BY text LIMIT ?5";
pub(super) const NAMES_WITH_ENDED_CLAIMS: &str = "
    SELECT space, text FROM name WHERE held + waiting > 0 AND quiet_until <= ?1 LIMIT ?2";
pub(super) const REMOVE_FORGOTTEN_NAMES: &str = "
    DELETE FROM name WHERE held = 0 AND waiting = 0 AND resized_until <= ?1 AND traces_until <= ?1
           AND coalesce(once_until, 0) <= ?1";

pub(super) const CLAIM: &str = "
    SELECT id, state, ticket, fence, first_life, weight, fixed, ttl, process, once_keep, once_rerun,
           since, until, once_content
    FROM claim WHERE id = ?1 AND name = ?2";
pub(super) const ADD_CLAIM: &str = "
    INSERT INTO claim (id, name, state, ticket, fence, first_life, weight, fixed, ttl, process,
                       once_keep, once_rerun, since, until, once_content, owner, reason, meta,
                       value, trace)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19,
            ?20)";
pub(super) const CHANGE_CLAIM: &str = "
    UPDATE claim SET state = ?3, fence = ?4, first_life = ?5, since = ?6, until = ?7, process = ?8
    WHERE id = ?1 AND name = ?2";
pub(super) const DESCRIBE_CLAIM: &str = "
    UPDATE claim SET owner = ?3, reason = ?4, meta = ?5, value = ?6, trace = ?7
    WHERE id = ?1 AND name = ?2";
pub(super) const REMOVE_CLAIM: &str = "DELETE FROM claim WHERE id = ?1 AND name = ?2";
pub(super) const DETACH_CLAIM: &str = "UPDATE claim SET process = 0 WHERE id = ?1 AND state = 2";

pub(super) const HEAD: &str = "
    SELECT id, state, ticket, fence, first_life, weight, fixed, ttl, process, once_keep, once_rerun,
           since, until, once_content
    FROM claim WHERE name = ?1 AND state = 0 ORDER BY ticket LIMIT 1";
pub(super) const FIRST: &str = "
    SELECT id, state, ticket, fence, first_life, weight, fixed, ttl, process, once_keep, once_rerun,
           since, until, once_content
    FROM claim WHERE name = ?1 AND state = 0 ORDER BY ticket LIMIT ?2";
pub(super) const AHEAD: &str =
    "SELECT count(*) FROM claim WHERE name = ?1 AND state = 0 AND ticket < ?2";
pub(super) const BEFORE: &str = "
    SELECT process FROM claim WHERE name = ?1 AND state = 0 AND ticket < ?2
    ORDER BY ticket DESC LIMIT 1";
pub(super) const AFTER: &str = "
    SELECT id, state, ticket, fence, first_life, weight, fixed, ttl, process, once_keep, once_rerun,
           since, until, once_content
    FROM claim WHERE name = ?1 AND state = 0 AND ticket > ?2 ORDER BY ticket LIMIT 1";
pub(super) const FOREMOST: &str =
    "SELECT min(ticket) FROM claim WHERE name = ?1 AND state < 2 AND process = ?2";
pub(super) const HOLDING_PROCESSES: &str =
    "SELECT DISTINCT process FROM claim WHERE name = ?1 AND state = 2";
pub(super) const CLIENTS: &str = "SELECT DISTINCT process FROM claim WHERE name = ?1";
pub(super) const NEXT_END: &str = "SELECT min(until) FROM claim WHERE name = ?1 AND state = 2";
pub(super) const QUIET_UNTIL: &str = "SELECT min(until) FROM claim WHERE name = ?1";
/// Holds before places, the earliest first: the order in which separate steps would have found them.
pub(super) const ENDED: &str = "
    SELECT id, state, ticket, fence, first_life, weight, fixed, ttl, process, once_keep, once_rerun,
           since, until, once_content
    FROM claim WHERE name = ?1 AND until <= ?2 ORDER BY state < 2, until, ticket LIMIT ?3";
pub(super) const HOLDING: &str = "
    SELECT id, state, ticket, fence, first_life, weight, fixed, ttl, process, once_keep, once_rerun,
           since, until, once_content
    FROM claim WHERE name = ?1 AND state = 2 AND fence = ?2";
pub(super) const HEAVIER: &str = "
    SELECT id, state, ticket, fence, first_life, weight, fixed, ttl, process, once_keep, once_rerun,
           since, until, once_content
    FROM claim WHERE name = ?1 AND state < 2 AND weight > ?2 LIMIT ?3";
pub(super) const REACH: &str =
    "UPDATE claim SET state = ?4 WHERE name = ?1 AND process = ?2 AND state = ?3";
/// Holds by fence, then places by ticket.
pub(super) const SHOWN: &str = "
    SELECT id, state, ticket, fence, first_life, weight, fixed, ttl, process, once_keep, once_rerun,
           since, until, once_content, owner, reason, meta, value, trace
    FROM claim WHERE name = ?1 ORDER BY state < 2, fence, ticket";
pub(super) const FIRST_TO_END: &str = "
    SELECT id, state, ticket, fence, first_life, weight, fixed, ttl, process, once_keep, once_rerun,
           since, until, once_content, owner, reason, meta, value, trace
    FROM claim WHERE name = ?1 AND state = 2 ORDER BY until LIMIT 1";

pub(super) const TRACE: &str =
    "SELECT by, reason FROM trace WHERE id = ?1 AND name = ?2 AND until > ?3";
pub(super) const ADD_TRACE: &str = "
    INSERT OR REPLACE INTO trace (id, name, until, by, reason) VALUES (?1, ?2, ?3, ?4, ?5)";
pub(super) const REMOVE_OLD_TRACES: &str = "DELETE FROM trace WHERE until <= ?1";
pub(super) const OWN_CLAIMS: &str = "
    SELECT name.space, name.text, claim.id FROM claim JOIN name ON name.id = claim.name
    WHERE claim.process = ?1";
pub(super) const OWN_GRANTS_SINCE: &str = "
    SELECT name.space, name.text, claim.id FROM claim JOIN name ON name.id = claim.name
    WHERE claim.process = ?1 AND claim.state = 2 AND claim.since >= ?2";
pub(super) const AFTER_A_REBOOT: &str = include_str!("sql/reboot.sql");
/// Records of onces and capacities are remembered for their whole time again: nobody knows how long the machine
/// was off, and too long is the safe side.
pub(super) const REMEMBER_AGAIN: &str = "
    UPDATE name SET held = 0, waiting = 0, fixed = 0, quiet_until = 0, traces_until = 0,
           resized_until = CASE resized_until WHEN 0 THEN 0 ELSE ?1 + ?2 END,
           once_until = CASE WHEN once_keep > ?3 - ?1 THEN ?3 ELSE ?1 + once_keep END";
pub(super) const NEW_META: &str = "
    INSERT INTO meta (boot, machine, number, swept) VALUES (?1, ?2, ?3, 0)";
pub(super) const SCHEMA: &str = include_str!("sql/schema.sql");
