//! The description of the API for programs (`/openapi.json`) and for people (`/docs`), from one table.

mod endpoints;
mod schemas;

use serde_json::{Map, Value, json};

use self::endpoints::{ALWAYS, ENDPOINTS, WITH_BODY};
use self::schemas::SCHEMAS;

/// The style of the page.
pub(crate) const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;\
color-scheme:light dark}code{font-family:ui-monospace,monospace}table{border-collapse:collapse}td,th{text-align:left;\
padding:.2rem .8rem .2rem 0;vertical-align:top}h2{margin-top:2rem}";

/// One endpoint.
struct Endpoint {
    method: &'static str,
    path: &'static str,
    what: &'static str,
    /// Fields of the body or the query.
    fields: &'static [Field],
    /// Headers that mean something here.
    headers: &'static [Field],
    answers: &'static [Answer],
}

/// A field: its name, its type, whether it is required, what it means. See [`schema`] for the types.
type Field = (&'static str, &'static str, bool, &'static str);
/// A status, what it means, and the type of the body: one of [`SCHEMAS`], or a media type.
type Answer = (u16, &'static str, &'static str);

/// The schema of a type: a word of the match below, the name of one of [`SCHEMAS`], several of them (`A|B`), a list (`[A]`),
/// or one that may be null (`A?`).
fn schema(kind: &str) -> Value {
    if let Some(kind) = kind.strip_suffix('?') {
        return json!({ "anyOf": [schema(kind), { "type": "null" }] });
    }
    if let Some(kind) = kind.strip_prefix('[') {
        return json!({ "type": "array", "items": schema(kind.trim_end_matches(']')) });
    }
    if kind.contains('|') {
        return json!({ "anyOf": kind.split('|').map(schema).collect::<Vec<_>>() });
    }
    if SCHEMAS.iter().any(|(name, _)| *name == kind) {
        return json!({ "$ref": format!("#/components/schemas/{kind}") });
    }
    let one_of = |words: &[&str]| json!({ "type": "string", "enum": words });
    match kind {
        "duration" => json!({ "anyOf": [
            { "type": "string", "pattern": "^([0-9]+(ms|s|m|h))+$", "example": "30s" },
            { "type": "integer", "minimum": 0, "description": "milliseconds" } ] }),
        "kind" => one_of(&["lock", "semaphore", "read", "write", "election", "once"]),
        "ended" => {
            one_of(&["expired", "broken", "forgotten", "clock_step", "conflict", "elsewhere"])
        }
        "role" => one_of(&["read", "lock", "admin", "engine"]),
        "mark" => one_of(&["good", "warning", "problem"]),
        "state" => one_of(&["held", "waiting"]),
        "sort" => one_of(&["name", "held", "waiting"]),
        "claim" => json!({ "type": "string", "pattern": "^[0-9a-fA-F]{32}$" }),
        "name" => {
            json!({ "type": "string", "minLength": 1, "maxLength": 1024, "pattern": PRINTABLE })
        }
        "text" => json!({ "type": "string", "pattern": PRINTABLE }),
        "key" => json!({ "type": "string", "pattern": "^[ -~]{1,256}$" }),
        "texts" => json!({ "type": "object", "additionalProperties": { "type": "string" } }),
        "limit" => json!({ "type": "integer", "minimum": 1, "maximum": 1000 }),
        "any" => json!({}),
        "integer" => json!({ "type": "integer", "minimum": 0 }),
        kind => json!({ "type": kind }),
    }
}

/// Without control characters.
const PRINTABLE: &str = "^[^\\u0000-\\u001F\\u007F-\\u009F]*$";

/// An object with these fields and no others.
fn object(fields: &[Field]) -> Value {
    let properties: Map<_, _> = fields
        .iter()
        .map(|(name, kind, _, what)| {
            let mut schema = schema(kind);
            schema["description"] = json!(what);
            ((*name).to_owned(), schema)
        })
        .collect();
    let required: Vec<_> = fields.iter().filter(|field| field.2).map(|field| field.0).collect();
    let mut object =
        json!({ "type": "object", "properties": properties, "additionalProperties": false });
    if !required.is_empty() {
        object["required"] = json!(required);
    }
    object
}

fn answer((status, what, body): &Answer) -> Value {
    let mut headers = json!({ "Tenure-Engine": { "$ref": "#/components/headers/Tenure-Engine" } });
    if [429, 503].contains(status) {
        headers["Retry-After"] = json!({ "description": "seconds", "schema": schema("integer") });
    }
    let mut answer = json!({ "description": what, "headers": headers });
    let content: Vec<(&str, Value)> = match *body {
        "" => return answer,
        "application/json" => vec![(body, json!({}))],
        media if media.contains('/') => vec![(media, json!({ "schema": schema("string") }))],
        // It may be either.
        "Ready|Problem" => vec![
            ("application/json", json!({ "schema": schema("Ready") })),
            ("application/problem+json", json!({ "schema": schema("Problem") })),
        ],
        "Problem" => vec![("application/problem+json", json!({ "schema": schema("Problem") }))],
        kind => vec![("application/json", json!({ "schema": schema(kind) }))],
    };
    answer["content"] = content
        .into_iter()
        .map(|(media, body)| (media.to_owned(), body))
        .collect::<Map<_, _>>()
        .into();
    answer
}

fn operation(endpoint: &Endpoint) -> Value {
    let is_get = endpoint.method == "get";
    let with_body: &[Answer] = if is_get { &[] } else { &WITH_BODY };
    let mut answers = Map::new();
    for one in endpoint.answers.iter().chain(&ALWAYS).chain(with_body) {
        answers.entry(one.0.to_string()).or_insert_with(|| answer(one));
    }
    let mut operation = json!({ "summary": endpoint.what, "responses": answers });
    let parameter = |place: &'static str| move |(name, kind, required, what): &Field| json!({ "name": name, "in": place, "required": required, "description": what, "schema": schema(kind) });
    let query = if is_get { endpoint.fields } else { &[] };
    let parameters: Vec<_> = query
        .iter()
        .map(parameter("query"))
        .chain(endpoint.headers.iter().map(parameter("header")))
        .collect();
    if !parameters.is_empty() {
        operation["parameters"] = json!(parameters);
    }
    if !is_get {
        // The steps of the engine have a form of their own.
        let body = match endpoint.fields {
            [] => json!({ "type": "object" }),
            fields => object(fields),
        };
        operation["requestBody"] =
            json!({ "required": true, "content": { "application/json": { "schema": body } } });
    }
    if ["/healthz", "/readyz"].contains(&endpoint.path) {
        operation["security"] = json!([]);
    }
    operation
}

/// The description for programs.
pub(crate) fn document() -> Value {
    let mut paths = Map::new();
    for endpoint in ENDPOINTS {
        paths.insert(endpoint.path.to_owned(), json!({ endpoint.method: operation(endpoint) }));
    }
    json!({
        "openapi": "3.1.0",
        "info": { "title": "tenure", "version": env!("CARGO_PKG_VERSION"), "license": { "name": "MIT" },
                  "description": "Locks, semaphores, leaders and once-only work over HTTP. docs/http.md has the rules that a client must keep." },
        "paths": paths,
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            "headers": { "Tenure-Engine": {
                "description": "which engine it is: if it changes, what you hold is lost", "schema": schema("string") } },
            "schemas": SCHEMAS.iter().map(|(name, fields)| ((*name).to_owned(), object(fields))).collect::<Map<_, _>>(),
        },
        "security": [{ "token": [] }, {}],
    })
}

/// The description for people. It loads nothing but its style, from this server.
pub(crate) fn page() -> String {
    let mut page = String::from(
        "<!doctype html><html lang=en><meta charset=utf-8><title>tenure over HTTP</title>\
<link rel=stylesheet href=/docs.css><h1>tenure over HTTP</h1><p>Requests and answers. <code>docs/http.md</code> has the rules that a \
client must keep; <a href=/openapi.json>openapi.json</a> is this page for programs.</p>",
    );
    for endpoint in ENDPOINTS {
        let method = endpoint.method.to_uppercase();
        page.push_str(&format!(
            "<h2><code>{method} {}</code></h2><p>{}</p>",
            endpoint.path,
            escaped(endpoint.what)
        ));
        if !endpoint.fields.is_empty() || !endpoint.headers.is_empty() {
            page.push_str("<table>");
            for (name, kind, required, what) in endpoint.fields.iter().chain(endpoint.headers) {
                let required = if *required { "required" } else { "" };
                page.push_str(&format!(
                    "<tr><td><code>{name}</code><td>{}<td>{required}<td>{}",
                    kind.trim_end_matches('?'),
                    escaped(what)
                ));
            }
            page.push_str("</table>");
        }
        page.push_str("<table>");
        for (status, what, _) in endpoint.answers {
            page.push_str(&format!("<tr><td>{status}<td>{}", escaped(what)));
        }
        page.push_str("</table>");
    }
    page
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is not part of the API: pages, and files.
    const OTHERS: [&str; 7] =
        ["/openapi.json", "/docs", "/docs.css", "/ui", "/ui/", "/client.mjs", "/client.py"];

    #[test]
    fn every_path_is_described_and_every_described_path_exists() {
        let described = ENDPOINTS.iter().map(|endpoint| endpoint.path).chain(OTHERS);
        let mut described: Vec<_> = described.collect();
        let mut routes: Vec<_> =
            crate::routes::endpoints().into_iter().map(|(path, _)| path).collect();
        described.sort_unstable();
        routes.sort_unstable();
        assert_eq!(described, routes);
    }

    #[test]
    fn every_endpoint_is_described_once() {
        let mut paths: Vec<_> = ENDPOINTS.iter().map(|endpoint| endpoint.path).collect();
        paths.sort_unstable();
        paths.dedup();
        assert_eq!(paths.len(), ENDPOINTS.len());
        assert_eq!(document()["paths"].as_object().unwrap().len(), ENDPOINTS.len());
        assert!(page().contains("POST /v1/holds/renew"));
        assert!(
            !page().contains("=http") && !page().contains("<script"),
            "loads nothing from elsewhere"
        );
    }
}
