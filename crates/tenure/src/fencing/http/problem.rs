//! What a request that is refused is told: a problem as of RFC 9457.

use std::fmt::Write;

use ::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use ::http::{Response, StatusCode};

use crate::fencing::Stale;

pub(super) struct Problem {
    status: StatusCode,
    kind: &'static str,
    title: &'static str,
    detail: String,
    stale: Option<Stale>,
}

impl Problem {
    fn new(status: StatusCode, kind: &'static str, title: &'static str, detail: &str) -> Problem {
        Problem { status, kind, title, detail: detail.to_owned(), stale: None }
    }

    pub(super) fn stale(stale: Stale) -> Problem {
        let (status, title) = (StatusCode::PRECONDITION_FAILED, "The fence is too low");
        let problem = Problem::new(status, "stale-fence", title, &stale.to_string());
        Problem { stale: Some(stale), ..problem }
    }

    pub(super) fn no_fence() -> Problem {
        let detail = "this request writes; send the fence of your hold as Tenure-Fence";
        let status = StatusCode::PRECONDITION_REQUIRED;
        Problem::new(status, "no-fence", "A fence is required", detail)
    }

    pub(super) fn bad(what: &str) -> Problem {
        let title = "The fence or its name cannot be read";
        Problem::new(StatusCode::BAD_REQUEST, "bad-fence", title, what)
    }

    pub(super) fn unknown() -> Problem {
        let detail = "whether the fence is too low cannot be told now; nothing was done, try again";
        let status = StatusCode::SERVICE_UNAVAILABLE;
        Problem::new(status, "unknown-fence", "The fence cannot be checked", detail)
    }

    pub(super) fn into_response<Body: From<String>>(self) -> Response<Body> {
        let mut response = Response::new(Body::from(self.body()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }

    fn body(&self) -> String {
        let mut body = String::from("{");
        text(&mut body, "type", &format!("urn:tenure:{}", self.kind));
        body.push(',');
        text(&mut body, "title", self.title);
        let _ = write!(body, ",\"status\":{},", self.status.as_u16());
        text(&mut body, "detail", &self.detail);
        if let Some(stale) = &self.stale {
            body.push(',');
            text(&mut body, "name", &stale.name);
            let _ = write!(body, ",\"offered\":{}", stale.offered);
            if let Some(seen) = stale.seen {
                let _ = write!(body, ",\"seen\":{seen}");
            }
        }
        body.push('}');
        body
    }
}

/// A member whose value is a text that somebody else may have chosen.
fn text(body: &mut String, key: &str, value: &str) {
    let _ = write!(body, "\"{key}\":\"");
    for character in value.chars() {
        match character {
            '"' | '\\' => body.extend(['\\', character]),
            '\0'..='\x1f' => {
                let _ = write!(body, "\\u{:04x}", character as u32);
            }
            _ => body.push(character),
        }
    }
    body.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Fence;
    use crate::fencing::check;

    #[test]
    fn a_name_cannot_break_out_of_its_text() {
        let stale = check("a\"b\\c\n", Fence::new(4), Fence::new(7)).unwrap_err();
        let body = Problem::stale(stale).body();
        assert!(body.contains(r#""name":"a\"b\\c\u000a","offered":4,"seen":7}"#), "{body}");
        assert!(body.starts_with(r#"{"type":"urn:tenure:stale-fence","title":"The"#), "{body}");
    }
}
