//! The responses to refused requests.

use ::http::StatusCode;

use crate::guards::fencing::Stale;
use crate::guards::problem::Problem;

pub(super) fn stale(stale: Stale) -> Problem {
    let (status, title) = (StatusCode::PRECONDITION_FAILED, "The fence is too low");
    let problem = Problem::new(status, "stale-fence", title, &stale.to_string());
    let problem = problem.text("name", &stale.name).number("offered", stale.offered.get());
    match stale.seen {
        Some(seen) => problem.number("seen", seen.get()),
        None => problem,
    }
}

pub(super) fn no_fence() -> Problem {
    let detail = "this request writes; send the fence of your hold as Tenure-Fence";
    Problem::new(StatusCode::PRECONDITION_REQUIRED, "no-fence", "A fence is required", detail)
}

pub(super) fn bad(what: &str) -> Problem {
    let title = "The fence or its name cannot be read";
    Problem::new(StatusCode::BAD_REQUEST, "bad-fence", title, what)
}

pub(super) fn unknown() -> Problem {
    let detail = "the fence cannot be checked now; nothing was done, try again";
    let title = "The fence cannot be checked";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unknown-fence", title, detail)
}
