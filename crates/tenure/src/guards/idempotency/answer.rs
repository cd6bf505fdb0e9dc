//! The stored form of an answer.

use bytes::Bytes;
use http::header::{
    CONNECTION, CONTENT_LENGTH, DATE, HeaderMap, HeaderName, HeaderValue, SET_COOKIE,
    TRANSFER_ENCODING,
};
use http::{Response, StatusCode};

use super::{REPLAYED, refusal};
use crate::api::primitives::LONGEST_OUTCOME;

/// The version of the format.
const FORM: u8 = 1;
/// It was done, but the answer was too long.
const NOT_KEPT: u8 = 2;

/// Headers that belong to one exchange rather than to the answer, or to one user and not to those who retry.
const NOT_OURS: [HeaderName; 5] = [CONNECTION, CONTENT_LENGTH, DATE, SET_COOKIE, TRANSFER_ENCODING];

pub(super) struct Answer {
    pub(super) status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Answer {
    pub(super) fn new(status: StatusCode, headers: HeaderMap, body: Bytes) -> Answer {
        Answer { status, headers, body }
    }

    /// The bytes to remember.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let kept = self.headers.iter().filter(|(name, _)| !NOT_OURS.contains(name));
        let kept: Vec<_> = kept.collect();
        let mut bytes = vec![FORM];
        bytes.extend(self.status.as_u16().to_be_bytes());
        bytes.extend((kept.len() as u16).to_be_bytes());
        for (name, value) in kept {
            for part in [name.as_str().as_bytes(), value.as_bytes()] {
                bytes.extend((part.len() as u32).to_be_bytes());
                bytes.extend(part);
            }
        }
        bytes.extend(&self.body);
        if bytes.len() > LONGEST_OUTCOME { vec![NOT_KEPT] } else { bytes }
    }

    /// Parses the remembered bytes; `None` if they are not ours.
    fn read(mut bytes: &[u8]) -> Option<Answer> {
        let (form, status, count) =
            (take(&mut bytes, 1)?, take(&mut bytes, 2)?, take(&mut bytes, 2)?);
        if form != [FORM] {
            return None;
        }
        let status = StatusCode::from_u16(number(status) as u16).ok()?;
        let mut headers = HeaderMap::new();
        for _ in 0..number(count) {
            let length = number(take(&mut bytes, 4)?);
            let name = HeaderName::from_bytes(take(&mut bytes, length)?).ok()?;
            let length = number(take(&mut bytes, 4)?);
            headers.append(name, HeaderValue::from_bytes(take(&mut bytes, length)?).ok()?);
        }
        Some(Answer { status, headers, body: Bytes::copy_from_slice(bytes) })
    }

    pub(super) fn into_response<Body: From<Bytes>>(self) -> Response<Body> {
        let mut response = Response::new(Body::from(self.body));
        (*response.status_mut(), *response.headers_mut()) = (self.status, self.headers);
        response
    }
}

/// The answer to a repeated request.
pub(super) fn replay<Body: From<Bytes> + From<String>>(outcome: &[u8]) -> Response<Body> {
    let mut response = match Answer::read(outcome) {
        Some(answer) => answer.into_response(),
        None => refusal::not_kept().into_response(),
    };
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    response
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(taken)
}

fn number(bytes: &[u8]) -> usize {
    bytes.iter().fold(0, |number, byte| number << 8 | usize::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(body: Vec<u8>) -> Answer {
        let mut headers = HeaderMap::new();
        headers.append("x-one", HeaderValue::from_static("1"));
        headers.append("x-one", HeaderValue::from_static("another"));
        headers.append(SET_COOKIE, HeaderValue::from_static("secret"));
        Answer::new(StatusCode::CREATED, headers, body.into())
    }

    #[test]
    fn an_answer_comes_back_as_it_was() {
        let body: Vec<u8> = (0..=255).collect();
        let read = Answer::read(&answer(body.clone()).to_bytes()).expect("one of ours");
        assert_eq!((read.status, &*read.body), (StatusCode::CREATED, &body[..]));
        let values: Vec<_> = read.headers.get_all("x-one").iter().collect();
        assert_eq!(values, ["1", "another"]);
        assert!(!read.headers.contains_key(SET_COOKIE));
    }

    #[test]
    fn bytes_that_are_none_of_ours_are_refused_and_not_believed() {
        let good = answer(vec![7; 20]).to_bytes();
        for cut in 0..good.len() - 20 {
            assert!(Answer::read(&good[..cut]).is_none(), "cut at {cut}");
        }
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bent = good.clone();
                bent[at] ^= 1 << bit;
                // No matter what it contains, it must not panic.
                let _ = Answer::read(&bent);
            }
        }
        assert!(Answer::read(&answer(vec![0; LONGEST_OUTCOME]).to_bytes()).is_none());
    }
}
