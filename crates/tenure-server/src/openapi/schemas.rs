//! What requests and answers are made of.

use super::Field;

pub(super) const NAME: Field = ("name", "name", true, "what is contended: 1 to 1024 bytes");
pub(super) const KIND: Field = ("kind", "kind", false, "default lock");
pub(super) const CLAIM: Field =
    ("claim", "claim?", false, "the secret that proves ownership: 32 hex digits");
pub(super) const FENCE: Field = ("fence", "integer", true, "the number of the grant");
pub(super) const TTL: Field =
    ("ttl", "duration?", false, "how long the hold lasts without renewal");
pub(super) const WAIT: Field = ("wait", "duration?", false, "how long to wait in line");
pub(super) const TICKET: Field = ("ticket", "string?", false, "from a 202: keeps the place");
pub(super) const OWNER: Field = ("owner", "text?", false, "shown to others");
pub(super) const REASON: Field = ("reason", "text?", false, "shown to others");
pub(super) const META: Field = ("meta", "texts", false, "shown to others");
pub(super) const MAX_WAITERS: Field =
    ("max_waiters", "integer?", false, "do not join a longer line");
pub(super) const CONFIRM: Field =
    ("confirm", "boolean?", false, "false: the server confirms for you");
pub(super) const PERMITS: Field = ("permits", "integer?", false, "the size of a semaphore");
pub(super) const WEIGHT: Field = ("weight", "integer?", false, "units of a semaphore");
pub(super) const VALUE: Field = ("value", "text?", false, "what a leader publishes");
pub(super) const IDEMPOTENCY: Field = ("Idempotency-Key", "key", false, "stands for a claim");

/// What answers are made of, and lists in requests.
pub(super) const SCHEMAS: &[(&str, &[Field])] = &[
    (
        "Problem",
        &[
            ("type", "string", true, "where it is explained"),
            ("title", "string", true, "what the code means"),
            ("status", "integer", true, "as in the head"),
            ("code", "string", true, "what to match on"),
            ("detail", "string", true, "for people"),
            ("name", "string", false, "the name"),
            ("holder", "Holder", false, "who holds it"),
            ("position", "integer", false, "where you were in line"),
            ("ended", "ended", false, "how the hold has ended"),
            ("by", "string", false, "who broke it"),
            ("reason", "string", false, "why it was broken"),
            ("history", "[Event]", false, "what this server has seen of the name"),
        ],
    ),
    (
        "Hold",
        &[
            ("name", "string", true, "the name"),
            ("kind", "kind", true, "what was asked for"),
            ("claim", "claim", true, "the secret that proves ownership"),
            FENCE,
            ("ttl_ms", "integer", true, "how long it lasts without renewal"),
            ("left_ms", "integer", true, "how long it lasts from the arrival of the request"),
            ("renew_ms", "integer", true, "how often to renew"),
            ("waited_ms", "integer", true, "how long the request waited"),
            ("confirm", "boolean", true, "whether to renew once before work starts"),
        ],
    ),
    (
        "Place",
        &[
            ("name", "string", true, "the name"),
            ("kind", "kind", true, "what was asked for"),
            ("claim", "claim", true, "the secret that proves ownership"),
            ("ticket", "string", true, "keeps the place"),
            ("position", "integer", true, "1 for the next in line"),
            ("poll_within_ms", "integer", true, "how soon to ask again"),
            ("waited_ms", "integer", true, "how long the request waited"),
            ("holder", "Holder?", true, "who holds it"),
        ],
    ),
    (
        "Holder",
        &[
            ("owner", "string", true, "who"),
            ("reason", "string", false, "why"),
            ("value", "string", false, "what a leader publishes"),
            ("trace", "string", false, "of distributed tracing"),
            META,
            FENCE,
            ("weight", "integer", true, "units"),
            ("held_ms", "integer", true, "for how long so far"),
            ("left_ms", "integer", true, "until it ends without renewal"),
        ],
    ),
    (
        "Waiter",
        &[
            ("owner", "string", true, "who"),
            ("reason", "string", false, "why"),
            ("value", "string", false, "what a leader would publish"),
            ("trace", "string", false, "of distributed tracing"),
            META,
            ("ticket", "integer", true, "the number of arrival"),
            ("weight", "integer", true, "units"),
            ("waited_ms", "integer", true, "for how long so far"),
        ],
    ),
    (
        "Name",
        &[
            ("name", "string", true, "the name"),
            ("kind", "kind", true, "lock, election or once"),
            ("capacity", "integer", true, "units there are"),
            ("holders", "[Holder]", true, "who holds it"),
            ("waiters", "[Waiter]", true, "who waits, in order"),
            ("record", "Record", false, "of a once"),
            ("history", "[Event]", false, "what this server has seen of it"),
        ],
    ),
    ("Names", &[("names", "[Name]", true, "in order"), ("next", "string", false, "for after")]),
    (
        "Record",
        &[
            ("settled", "boolean", true, "whether it is done"),
            FENCE,
            ("age_ms", "integer", true, "since it was begun or settled"),
            ("remaining_ms", "integer", true, "until it is forgotten"),
            ("outcome", "any", false, "how it ended"),
            ("outcome_base64", "string", false, "the same, if it is not JSON"),
        ],
    ),
    (
        "Event",
        &[
            ("id", "integer", true, "the number of the event"),
            ("ago_ms", "integer", true, "how long ago"),
            ("event", "string", true, "what happened"),
            ("name", "string", true, "to which name"),
            ("kind", "kind", true, "lock, election or once"),
            ("owner", "string", true, "whose claim, or who did it"),
            ("fence", "integer", false, "of the hold"),
            ("note", "string", false, "why"),
        ],
    ),
    (
        "Renewed",
        &[
            ("name", "string", true, "the name"),
            FENCE,
            ("left_ms", "integer", true, "how long it lasts from the arrival of the request"),
            ("renew_ms", "integer", false, "how often to renew"),
            ("status", "integer", false, "200, in a list"),
        ],
    ),
    ("AllRenewed", &[("holds", "[Renewed|Problem]", true, "in the order of the request")]),
    (
        "Settled",
        &[
            ("name", "string", true, "the name"),
            ("settled", "boolean", true, "true"),
            ("outcome", "any", false, "how it ended"),
            ("outcome_base64", "string", false, "the same, if it is not JSON"),
        ],
    ),
    (
        "Leader",
        &[
            ("name", "string", true, "the name"),
            ("term", "integer", true, "the fence of the leader"),
            ("owner", "string", true, "who"),
            ("value", "string?", true, "what it publishes"),
            ("led_ms", "integer", true, "for how long so far"),
            ("left_ms", "integer", true, "until it ends without renewal"),
        ],
    ),
    (
        "Me",
        &[
            ("name", "string", true, "the token's, or the address of the client"),
            ("roles", "[role]", true, "what this request may do"),
            ("prefix", "string", true, "of the names that it may lock"),
            ("open", "boolean", true, "whether there are no tokens"),
        ],
    ),
    (
        "Check",
        &[
            ("engine", "string", true, "where it is"),
            ("fit", "boolean", true, "whether there is no problem"),
            ("ok", "integer", true, "how many are good"),
            ("warnings", "integer", true, "how many are warnings"),
            ("problems", "integer", true, "how many are problems"),
            ("age_ms", "integer", true, "since it was checked"),
            ("findings", "[Finding]", true, "one by one"),
        ],
    ),
    (
        "Finding",
        &[
            ("check", "string", true, "what was checked"),
            ("mark", "mark", true, "good, warning or problem"),
            ("what", "string", true, "what was found"),
            ("why", "string", false, "what that means for locks"),
            ("fix", "string", false, "how to fix it"),
            ("code", "string", false, "where the docs explain it"),
        ],
    ),
    (
        "Broken",
        &[
            ("name", "string", true, "the name"),
            FENCE,
            ("broken", "boolean", false, "true"),
            ("status", "integer", false, "200 or the status of the problem, in a list"),
            ("code", "string?", false, "of the problem, in a list"),
        ],
    ),
    ("AllBroken", &[("holds", "[Broken]", true, "in the order of the request")]),
    (
        "Ready",
        &[
            ("ready", "boolean", true, "whether requests will be served"),
            ("engine", "string", false, "where it is, for those who may look"),
        ],
    ),
    ("Held", &[NAME, KIND, CLAIM, ("fence", "integer?", false, "the number of the grant"), TTL]),
    ("Target", &[NAME, FENCE]),
];
