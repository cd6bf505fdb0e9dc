//! The responses to requests that do not reach their handler.

use http::StatusCode;

use crate::guards::problem::Problem;
use crate::model::error::{Error, ErrorKind};

pub(super) fn bad(what: &str) -> Problem {
    let title = "The Idempotency-Key cannot be read";
    Problem::new(StatusCode::BAD_REQUEST, "bad-key", title, what)
}

pub(super) fn missing() -> Problem {
    let detail =
        "this request writes; send a key of your choice, and the same key when you try again";
    let title = "An Idempotency-Key is required";
    Problem::new(StatusCode::BAD_REQUEST, "no-key", title, detail)
}

/// Not 401 or 403: authorization is for other layers.
pub(super) fn nobodys() -> Problem {
    let detail = "the key belongs to no known user, so it would protect nobody; authenticate as this \
                  service requires";
    Problem::new(StatusCode::BAD_REQUEST, "no-owner", "The Idempotency-Key has no owner", detail)
}

pub(super) fn too_long(longest: usize) -> Problem {
    let detail = format!("a request with an Idempotency-Key has at most {longest} bytes");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "long-body", "The body is too long", &detail)
}

pub(super) fn in_progress() -> Problem {
    let detail = "the first request with this key is still being handled; try again";
    Problem::new(StatusCode::CONFLICT, "in-progress", "The request is in progress", detail)
}

pub(super) fn unsettled() -> Problem {
    let detail = "the first request with this key failed or never ended, and may or may not have been \
                  done; find out before you send it with another key";
    Problem::new(StatusCode::CONFLICT, "unsettled", "The outcome is unknown", detail)
}

pub(super) fn not_kept() -> Problem {
    let detail = "the request was done, and its answer was too long to be kept";
    Problem::new(StatusCode::CONFLICT, "not-kept", "It was done before", detail)
}

pub(super) fn broke_off() -> Problem {
    let detail = "the handler failed; the request may or may not have been done";
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "broke-off", "The handler failed", detail)
}

pub(super) fn failed(error: &Error) -> Problem {
    match error.kind() {
        ErrorKind::Conflict => {
            let (kind, title) = ("other-request", "The Idempotency-Key was used before");
            let detail = "it was used with another request; every request needs a key of its own";
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, kind, title, detail)
        }
        ErrorKind::Invalid => bad(error.reason()),
        // The engine's error is for the log, not for a stranger.
        _ => {
            crate::observe::unsettled(error);
            let detail =
                "it cannot be checked now whether it was done before; nothing was done, try again";
            let (kind, title) = ("unknown-key", "The Idempotency-Key cannot be checked");
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, kind, title, detail)
        }
    }
}
