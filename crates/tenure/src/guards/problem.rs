//! The body of a refusal: a problem according to RFC 9457.

use std::fmt::Write;

use ::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use ::http::{Response, StatusCode};

#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    kind: &'static str,
    title: &'static str,
    detail: String,
    /// Additional members of the object, each with a comma before it.
    more: String,
}

impl Problem {
    pub(crate) fn new(
        status: StatusCode,
        kind: &'static str,
        title: &'static str,
        detail: &str,
    ) -> Problem {
        Problem { status, kind, title, detail: detail.to_owned(), more: String::new() }
    }

    #[cfg(feature = "fence-http")]
    pub(crate) fn text(mut self, key: &str, value: &str) -> Problem {
        self.more.push(',');
        text(&mut self.more, key, value);
        self
    }

    #[cfg(feature = "fence-http")]
    pub(crate) fn number(mut self, key: &str, value: u64) -> Problem {
        let _ = write!(self.more, ",\"{key}\":{value}");
        self
    }

    pub(crate) fn into_response<Body: From<String>>(self) -> Response<Body> {
        let mut response = Response::new(Body::from(self.body()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if self.status == StatusCode::SERVICE_UNAVAILABLE || self.kind == "in-progress" {
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
        body.push_str(&self.more);
        body.push('}');
        body
    }
}

/// Adds a member whose text may have been chosen by a stranger.
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

#[cfg(all(test, feature = "fence-http"))]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_break_out_of_its_text() {
        let problem = Problem::new(StatusCode::CONFLICT, "kind", "The title", "why");
        let body = problem.text("name", "a\"b\\c\n").number("seen", 7).body();
        assert_eq!(
            body,
            r#"{"type":"urn:tenure:kind","title":"The title","status":409,"detail":"why","#
                .to_owned()
                + r#""name":"a\"b\\c\u000a","seen":7}"#
        );
    }
}
