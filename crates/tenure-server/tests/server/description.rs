//! `/openapi.json` against what the server does: every answer of every test is compared with it.

use serde_json::Value;

use super::probe::{Answer, Site};

/// Checks that an answer is described. Paths that are not part of the API are ignored.
pub(crate) fn check(document: &Value, method: &str, path: &str, answer: &Answer) {
    let path = path.split('?').next().unwrap_or_default();
    let operation = &document["paths"][path][method.to_lowercase()];
    if operation.is_null() {
        return;
    }
    let case = format!("{method} {path}: {answer:?}");
    let described = &operation["responses"][answer.status.to_string()];
    assert!(!described.is_null(), "not described: {case}");
    let content = &described["content"];
    if content.is_null() {
        assert!(answer.body.is_null(), "{case}");
        return;
    }
    let media = answer.head.split("content-type: ").nth(1).unwrap_or_default();
    let media = media.split([';', '\r']).next().unwrap_or_default();
    assert!(!content[media].is_null(), "{media} is not described: {case}");
    if media.ends_with("json") {
        let fits = fits(document, &content[media]["schema"], &answer.body);
        fits.unwrap_or_else(|why| panic!("{why}: {case}"));
    }
}

/// Checks that a value fits a schema, as far as the schemas used here go.
fn fits(document: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.rsplit('/').next().unwrap_or_default();
        let schema = &document["components"]["schemas"][name];
        assert!(schema.is_object(), "there is no {name}");
        return fits(document, schema, value);
    }
    if let Some(all) = schema["anyOf"].as_array() {
        let tried: Vec<_> = all.iter().map(|schema| fits(document, schema, value)).collect();
        return match tried.iter().any(Result::is_ok) {
            true => Ok(()),
            false => Err(format!("{tried:?}")),
        };
    }
    if let Some(words) = schema["enum"].as_array()
        && !words.contains(value)
    {
        return Err(format!("{value} is none of {words:?}"));
    }
    let is_kind = match schema["type"].as_str() {
        None => true,
        Some("string") => value.is_string(),
        Some("integer") => value.is_u64(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        Some(other) => panic!("there is no type {other}"),
    };
    if !is_kind {
        return Err(format!("{value} is not of the type {}", schema["type"]));
    }
    for item in value.as_array().into_iter().flatten() {
        fits(document, &schema["items"], item)?;
    }
    let Some(fields) = value.as_object() else { return Ok(()) };
    for required in schema["required"].as_array().into_iter().flatten() {
        let name = required.as_str().unwrap_or_default();
        fields.get(name).ok_or_else(|| format!("{name} is missing"))?;
    }
    let Some(known) = schema["properties"].as_object() else { return Ok(()) };
    for (name, value) in fields {
        let schema = known.get(name).ok_or_else(|| format!("{name} is not described"))?;
        fits(document, schema, value).map_err(|why| format!("{name}: {why}"))?;
    }
    Ok(())
}

/// The fields that an error lists, sorted.
fn listed(detail: &str, before: &str, between: char) -> Vec<String> {
    let list = detail.split(before).nth(1).unwrap_or_else(|| panic!("{detail}"));
    let list = list.split(" at line").next().unwrap_or_default();
    let words = list.split(between).map(|word| word.trim_matches([' ', '`']).to_owned());
    let mut words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    words.sort();
    words
}

/// The documented fields of requests are those that the server reads.
#[tokio::test]
async fn requests_have_the_described_fields() {
    let site = Site::memory().await;
    let document = site.get("/openapi.json").await.body;
    let mut compared = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            // These two read their bodies differently; the others have no fields.
            let own_way = ["/v1/holds/renew", "/v1/steps"];
            let no_fields = ["/healthz", "/readyz", "/metrics", "/v1/profile", "/v1/turns"];
            if own_way.contains(&path.as_str()) || no_fields.contains(&path.as_str()) {
                continue;
            }
            let (mut described, mut read): (Vec<String>, _) = match method.as_str() {
                "post" => {
                    let answer = site.post(path, r#"{"no such field":1}"#).await;
                    let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
                    let known = schema["properties"].as_object().unwrap();
                    let detail = answer.is(400, "invalid").text("detail").replace(" or ", ", ");
                    let detail = detail.replace("expected one of", "expected");
                    (known.keys().cloned().collect(), listed(&detail, "expected ", ','))
                }
                _ => {
                    let answer = site.get(&format!("{path}?no+such+field=1")).await;
                    let parameters =
                        operation["parameters"].as_array().cloned().unwrap_or_default();
                    let query = parameters.iter().filter(|one| one["in"] == "query");
                    let known = query.map(|one| one["name"].as_str().unwrap().to_owned());
                    let detail = answer.is(400, "invalid").text("detail");
                    (known.collect(), listed(&detail, "the query may have", ','))
                }
            };
            // These are refused in words of their own.
            let refused = match path.as_str() {
                "/v1/tethers" => "confirm",
                "/v1/holds/read" => "ttl",
                _ => "",
            };
            read.retain(|field| field != refused);
            described.sort();
            assert_eq!(read, described, "{method} {path}");
            compared += 1;
        }
    }
    assert!(compared > 10, "{compared}");
}

#[tokio::test]
async fn endpoints_have_the_described_methods() {
    let site = Site::memory().await;
    let document = site.get("/openapi.json").await.body;
    for (path, operations) in document["paths"].as_object().unwrap() {
        let known = operations.as_object().unwrap();
        for method in ["GET", "POST", "PUT", "DELETE", "PATCH"] {
            // A stream does not end.
            if ["/v1/events", "/v1/turns"].contains(&path.as_str()) && method == "GET" {
                continue;
            }
            let answer = site.send(method, path, "", "").await;
            let is_known = known.contains_key(&method.to_lowercase());
            assert_eq!(answer.status != 405, is_known, "{method} {path}: {answer:?}");
            if !is_known {
                let allowed = known.keys().next().unwrap().to_lowercase();
                let allow = answer.head.split("allow: ").nth(1).unwrap_or_default();
                assert!(allow.starts_with(&allowed), "{method} {path}: {answer:?}");
            }
        }
    }
}
