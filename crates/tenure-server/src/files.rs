//! Files that are part of the program: the dashboard, and the clients as one file each.
//!
//! They need no token. The dashboard asks for one itself, and the clients contain no secret.

use axum::extract::Path;
use axum::response::Response;
use hyper::StatusCode;
use hyper::header::{HeaderValue, LOCATION};

use crate::app::text;
use crate::problem::Problem;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SVG: &str = "image/svg+xml";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const PYTHON: &str = "text/x-python; charset=utf-8";

/// The path below `/ui/`, the content type and the text of each file of the dashboard.
type File = (&'static str, &'static str, &'static str);

macro_rules! files {
    ($($kind:ident: $($path:literal)+;)+) => {
        [$($(($path, $kind, include_str!(concat!("../ui/", $path))),)+)+]
    };
}

const DASHBOARD: [File; 22] = files! {
    HTML: "index.html";
    CSS: "style.css";
    SVG: "icon.svg";
    SCRIPT: "access.js" "api.js" "app.js" "dialogs.js" "dom.js" "facts.js" "graph.js" "live.js" "past.js" "sse.js"
        "store.js" "text.js" "views/blocked.js" "views/drawing.js" "views/events.js" "views/health.js" "views/list.js"
        "views/name.js" "views/now.js";
};

/// `GET /ui`: the paths in the page are relative to `/ui/`.
pub(crate) async fn to_dashboard() -> Response {
    let mut response = text(StatusCode::PERMANENT_REDIRECT, "text/plain", "see /ui/\n");
    response.headers_mut().insert(LOCATION, HeaderValue::from_static("/ui/"));
    response
}

/// `GET /ui/`.
pub(crate) async fn dashboard() -> Result<Response, Problem> {
    find("index.html")
}

/// `GET /ui/FILE`.
pub(crate) async fn dashboard_file(Path(path): Path<String>) -> Result<Response, Problem> {
    find(&path)
}

fn find(path: &str) -> Result<Response, Problem> {
    let file = DASHBOARD.iter().find(|(known, ..)| *known == path);
    let (_, kind, content) =
        file.ok_or_else(|| Problem::not_found("the dashboard has no such file: see /ui/"))?;
    Ok(text(StatusCode::OK, kind, *content))
}

/// `GET /client.mjs`: the Node.js client.
pub(crate) async fn node_client() -> Response {
    text(StatusCode::OK, SCRIPT, include_str!("../../../clients/node/tenure.mjs"))
}

/// `GET /client.py`: the Python client.
pub(crate) async fn python_client() -> Response {
    let client = include_str!("../../../clients/python/src/tenure_client/__init__.py");
    text(StatusCode::OK, PYTHON, client)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::DASHBOARD;

    fn files_in(folder: &Path, prefix: &str, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            match entry.file_type().unwrap().is_dir() {
                true => files_in(&entry.path(), &format!("{name}/"), found),
                false => drop(found.insert(name)),
            }
        }
    }

    #[test]
    fn every_file_of_the_dashboard_is_served() {
        let mut found = BTreeSet::new();
        files_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("ui"), "", &mut found);
        let served = DASHBOARD.iter().map(|(path, ..)| (*path).to_owned()).collect();
        assert_eq!(found, served);
    }
}
