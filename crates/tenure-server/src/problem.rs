//! Answers other than success, as `application/problem+json`.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use hyper::StatusCode;
use hyper::header::{self, HeaderValue};
use serde_json::{Map, Value, json};
use tenure::engine::{Ended, Error, ErrorKind};

/// Why a request was not done.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    detail: String,
    more: Map<String, Value>,
    retry_after: Option<u64>,
}

impl Problem {
    pub(crate) fn new(
        status: StatusCode,
        code: &'static str,
        detail: impl Into<String>,
    ) -> Problem {
        Problem { status, code, detail: detail.into(), more: Map::new(), retry_after: None }
    }

    pub(crate) fn invalid(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, "invalid", detail)
    }

    pub(crate) fn forbidden(detail: &str) -> Problem {
        Problem::new(StatusCode::FORBIDDEN, "forbidden", detail)
    }

    pub(crate) fn not_found(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, "not_found", detail)
    }

    /// Only `/v1/once` looks at the record of a once.
    pub(crate) fn once_elsewhere() -> Problem {
        Problem::invalid("a once begins with POST /v1/once")
    }

    pub(crate) fn unavailable(detail: impl Into<String>, retry_after: u64) -> Problem {
        let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail);
        Problem { retry_after: Some(retry_after), ..problem }
    }

    pub(crate) fn too_many(detail: &str) -> Problem {
        let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many", detail);
        Problem { retry_after: Some(1), ..problem }
    }

    /// Says when to try again.
    pub(crate) fn after(self, left: std::time::Duration) -> Problem {
        Problem { retry_after: Some(left.as_secs() + 1), ..self }
    }

    /// The claim was released.
    pub(crate) fn left() -> Problem {
        Problem::new(StatusCode::GONE, "left", "this claim was released: use a new one")
    }

    /// The claim has ended.
    pub(crate) fn gone(ended: &Ended) -> Problem {
        let mut problem =
            Problem::new(StatusCode::GONE, "gone", format!("the hold has ended: {ended}"));
        problem.more = ended_fields(ended);
        problem
    }

    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    /// The claim has ended while it waited.
    pub(crate) fn ended(ended: Ended) -> Problem {
        match ended {
            // It no longer fits.
            Ended::Conflict { .. } => Error::from(ended).into(),
            ended => Problem::gone(&ended),
        }
    }

    /// Adds a field.
    pub(crate) fn with(mut self, field: &str, value: impl Into<Value>) -> Problem {
        self.more.insert(field.to_owned(), value.into());
        self
    }

    /// The whole problem.
    pub(crate) fn to_json(&self) -> Value {
        let mut all = self.more.clone();
        let status = self.status.as_u16();
        for (field, value) in [
            ("type", json!(format!("/docs#{}", self.code))),
            ("title", json!(title(self.code))),
            ("status", json!(status)),
            ("code", json!(self.code)),
            ("detail", json!(self.detail)),
        ] {
            all.insert(field.to_owned(), value);
        }
        Value::Object(all)
    }
}

/// The fields that describe an end.
pub(crate) fn ended_fields(ended: &Ended) -> Map<String, Value> {
    let mut fields = Map::new();
    let kind = match ended {
        Ended::Expired => "expired",
        Ended::Broken(note) => {
            fields.insert("by".to_owned(), json!(note.by));
            fields.insert("reason".to_owned(), json!(note.reason));
            "broken"
        }
        Ended::Conflict { .. } => "conflict",
        Ended::Forgotten => "forgotten",
        Ended::ClockStep { .. } => "clock_step",
        _ => "elsewhere",
    };
    fields.insert("ended".to_owned(), json!(kind));
    fields
}

fn title(code: &str) -> &'static str {
    match code {
        "busy" => "somebody else holds it",
        "conflict" => "the name is used with another size",
        "forbidden" => "this is not allowed",
        "full" | "too_many" => "there are too many already",
        "gone" => "the hold has ended",
        "in_doubt" => "it may have happened",
        "internal" => "a bug",
        "left" => "the claim was released",
        "misdirected" => "this is another server",
        "moved_on" => "no hold has that fence any more",
        "not_found" => "there is nothing by that name",
        "other_body" | "other_content" => "the same key with something else",
        "too_large" => "the body is too large",
        "too_slow" => "the body did not arrive in time",
        "unauthorized" => "a token is required",
        "unavailable" => "nothing happened: the engine or this server is not available",
        "unsettled" => "it was begun, and nobody knows how it ended",
        _ => "the request is wrong",
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Problem {
        let detail = match error.advice() {
            Some(advice) => format!("{}: {advice}", error.reason()),
            None => error.reason().to_owned(),
        };
        match error.kind() {
            ErrorKind::Invalid | ErrorKind::Unsupported => Problem::invalid(detail),
            ErrorKind::Conflict if error.reason().contains("other content") => {
                Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "other_content", detail)
            }
            ErrorKind::Conflict => Problem::new(StatusCode::CONFLICT, "conflict", detail),
            ErrorKind::Full => Problem::new(StatusCode::TOO_MANY_REQUESTS, "full", detail),
            ErrorKind::Lost => {
                Problem::new(StatusCode::GONE, "gone", detail).with("ended", "expired")
            }
            ErrorKind::Internal => {
                Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail)
            }
            _ if error.may_have_happened() => {
                Problem::new(StatusCode::GATEWAY_TIMEOUT, "in_doubt", detail)
            }
            _ => Problem::unavailable(detail, 1),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.to_json().to_string()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        let kind = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, kind);
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
