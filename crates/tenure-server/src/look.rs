//! Who holds what: `/v1/names`, `/v1/name`, `/v1/leader`, `/v1/events`.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use hyper::StatusCode;
use serde_json::{Value, json};
use tenure::engine::{Name, Scope, Space, SystemWorld, View, World};

use crate::access::Role;
use crate::app::{App, Asked, json};
use crate::problem::Problem;
use crate::sse::{self, MOST_UNREAD_CHUNKS, PING_EVERY};
use crate::wire::{self, Kind, Span};

/// How many names one request looks at, at most.
const MOST_LOOKED_AT: usize = 100_000;
/// How many names the engine is asked for at once.
const PAGE: usize = 1000;
/// How many events of a name are shown.
const HISTORY: usize = 50;
/// How long a stream of events waits for more of them, at least.
const GATHER: Duration = Duration::from_millis(50);
/// How many events are sent with one write.
const TOGETHER: usize = 64;

/// Which names are wanted.
struct Filter<'a> {
    owner: Option<&'a str>,
    host: Option<&'a str>,
    state: Option<&'a str>,
    held_longer: Option<Duration>,
}

impl Filter<'_> {
    fn fits(&self, view: &View) -> bool {
        let owners = || {
            let holders = view.holders.iter().map(|holder| &holder.details.owner);
            holders.chain(view.waiters.iter().map(|waiter| &waiter.details.owner))
        };
        let on_host = |host: &str| {
            owners().any(|owner| {
                owner
                    .strip_prefix(host)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
            })
        };
        let longest = view.holders.iter().map(|holder| holder.held_for).max();
        self.owner.is_none_or(|text| owners().any(|owner| owner.contains(text)))
            && self.host.is_none_or(on_host)
            && self.held_longer.is_none_or(|span| longest.is_some_and(|held| held > span))
            && match self.state {
                Some("held") => !view.holders.is_empty(),
                Some("waiting") => !view.waiters.is_empty(),
                _ => true,
            }
    }
}

/// `GET /v1/names`.
pub(crate) async fn names(State(app): State<Arc<App>>, asked: Asked) -> Result<Response, Problem> {
    asked.caller.must(Role::Read)?;
    let query = &asked.query;
    query.only(&[
        "kind",
        "prefix",
        "owner",
        "host",
        "state",
        "held_longer",
        "sort",
        "limit",
        "after",
    ])?;
    let space = Kind::from_str(query.get("kind").unwrap_or("lock"))?.space();
    let filter = Filter {
        owner: query.get("owner"),
        host: query.get("host"),
        state: query.get("state"),
        held_longer: query.get("held_longer").map(Span::from_text).transpose()?.map(|span| span.0),
    };
    if filter.state.is_some_and(|state| !["held", "waiting"].contains(&state)) {
        return Err(Problem::invalid("state is held or waiting"));
    }
    let limit: usize = query
        .get("limit")
        .unwrap_or("100")
        .parse()
        .ok()
        .filter(|limit| (1..=1000).contains(limit))
        .ok_or_else(|| Problem::invalid("limit is 1 to 1000"))?;
    let prefix = query.get("prefix").unwrap_or_default();
    let after = query.get("after").filter(|after| !after.is_empty());
    let sort = query.get("sort").unwrap_or("name");
    let (views, next) = match sort {
        "name" => {
            let after = after.map(|after| Name::new(space, after)).transpose()?;
            by_name(&app, space, prefix, after, &filter, limit).await?
        }
        "held" | "waiting" => {
            let (all, _) = by_name(&app, space, prefix, None, &filter, MOST_LOOKED_AT).await?;
            sorted(all, sort, after, limit)?
        }
        _ => return Err(Problem::invalid("sort is name, held or waiting")),
    };
    let names: Vec<_> = views.iter().map(|view| Value::Object(wire::view(view))).collect();
    let mut body = json!({ "names": names });
    if let Some(next) = next {
        body["next"] = json!(next);
    }
    Ok(json(StatusCode::OK, &body))
}

/// One page of names, those held longest or with the most waiters first. Also returns after how many names the next
/// page begins.
fn sorted(
    mut all: Vec<View>,
    sort: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<(Vec<View>, Option<String>), Problem> {
    let skip: usize = after
        .map_or(Ok(0), str::parse)
        .map_err(|_| Problem::invalid("after is not from this list"))?;
    let held = |view: &View| view.holders.iter().map(|holder| holder.held_for).max();
    match sort {
        "held" => all.sort_by_key(|view| std::cmp::Reverse(held(view))),
        _ => all.sort_by_key(|view| std::cmp::Reverse(view.waiters.len())),
    }
    let more = all.len() > skip.saturating_add(limit);
    let page = all.into_iter().skip(skip).take(limit).collect();
    Ok((page, more.then(|| (skip + limit).to_string())))
}

/// The names that match, in order, and the name after which there are more.
async fn by_name(
    app: &App,
    space: Space,
    prefix: &str,
    mut after: Option<Name>,
    filter: &Filter<'_>,
    limit: usize,
) -> Result<(Vec<View>, Option<String>), Problem> {
    let (mut found, mut looked_at) = (Vec::new(), 0);
    loop {
        let scope =
            Scope::Prefix { space, prefix: prefix.to_owned(), after: after.clone(), limit: PAGE };
        let page = app.engine.inspect(&scope).await?;
        after = page.views.last().map(|view| view.name.clone()).or(after);
        for view in page.views {
            looked_at += 1;
            if filter.fits(&view) {
                if found.len() == limit {
                    let last = found.last().map(|view: &View| view.name.as_str().to_owned());
                    return Ok((found, last));
                }
                found.push(view);
            }
        }
        if !page.more {
            return Ok((found, None));
        }
        if looked_at >= MOST_LOOKED_AT {
            return Ok((found, after.map(|after| after.as_str().to_owned())));
        }
    }
}

/// `GET /v1/me`.
pub(crate) async fn me(State(app): State<Arc<App>>, asked: Asked) -> Result<Response, Problem> {
    asked.query.only(&[])?;
    let caller = &asked.caller;
    let roles = match app.is_read_only_page(&asked.headers) {
        true => vec!["read"],
        false => caller.roles(),
    };
    let is_open = !caller.has_token();
    let body =
        json!({ "name": *caller.name, "roles": roles, "prefix": caller.prefix(), "open": is_open });
    Ok(json(StatusCode::OK, &body))
}

async fn one(app: &App, name: &Name) -> Result<Option<View>, Problem> {
    Ok(app.engine.inspect(&Scope::Name(name.clone())).await?.views.into_iter().next())
}

/// `GET /v1/name`.
pub(crate) async fn name(State(app): State<Arc<App>>, asked: Asked) -> Result<Response, Problem> {
    asked.caller.must(Role::Read)?;
    asked.query.only(&["name", "kind"])?;
    let kind = Kind::from_str(asked.query.get("kind").unwrap_or("lock"))?;
    let name = Name::new(kind.space(), asked.query.must("name")?)?;
    let now = SystemWorld.now();
    let history: Vec<_> =
        app.events.of(&name, HISTORY).iter().map(|event| event.to_json(now)).collect();
    let Some(view) = one(&app, &name).await? else {
        return Err(Problem::not_found("nobody holds it or waits for it").with("history", history));
    };
    let mut body = wire::view(&view);
    body.insert("history".to_owned(), json!(history));
    Ok(json(StatusCode::OK, &Value::Object(body)))
}

/// `GET /v1/leader`.
pub(crate) async fn leader(State(app): State<Arc<App>>, asked: Asked) -> Result<Response, Problem> {
    asked.caller.must(Role::Read)?;
    asked.query.only(&["name"])?;
    let name = Name::new(Space::Election, asked.query.must("name")?)?;
    let view = one(&app, &name).await?;
    let Some(leader) = view.as_ref().and_then(|view| view.holders.first()) else {
        return Err(Problem::not_found("nobody leads"));
    };
    let body = json!({
        "name": name.as_str(),
        "term": leader.fence.get(),
        "owner": leader.details.owner,
        "value": leader.details.value,
        "led_ms": leader.held_for.as_millis() as u64,
        "left_ms": leader.remaining.as_millis() as u64,
    });
    Ok(json(StatusCode::OK, &body))
}

/// `GET /v1/events`.
pub(crate) async fn events(State(app): State<Arc<App>>, asked: Asked) -> Result<Response, Problem> {
    asked.caller.must(Role::Read)?;
    asked.query.only(&["prefix", "kind"])?;
    let space = asked.query.get("kind").map(Kind::from_str).transpose()?.map(Kind::space);
    let prefix = asked.query.get("prefix").unwrap_or_default().to_owned();
    let last_id = asked.headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let after: Option<u64> = match last_id {
        Some(text) => {
            Some(text.parse().map_err(|_| Problem::invalid("Last-Event-ID is a number"))?)
        }
        None => None,
    };
    let in_use = app.clients.enter(&asked.caller.name, app.config.max_waiting)?;
    let (sender, response) = sse::stream(MOST_UNREAD_CHUNKS);
    let (mut news, last) = (app.events.watch(), app.events.last());
    sender.send("hello", None, &json!({ "engine": app.engine_id, "last": last }).to_string());
    tokio::spawn(async move {
        let _in_use = in_use;
        let mut stopping = app.stopping.clone();
        let mut seen = after.unwrap_or(last);
        // A different time for each stream, so that they do not all write at the same moment.
        let gather = GATHER + Duration::from_millis(SystemWorld.now().as_nanos() % 50);
        loop {
            news.mark_unchanged();
            let (events, is_gap, last) =
                app.events.after(seen, |event| event.is_in(space, &prefix), TOGETHER);
            if is_gap && !sender.send("gap", None, "{}") {
                return;
            }
            let now = SystemWorld.now();
            let mut text = String::new();
            for event in &events {
                sse::write(&mut text, event.what(), Some(event.id), &event.to_text(now));
            }
            if !text.is_empty() && !sender.send_written(text) {
                return;
            }
            let caught_up = last == seen || events.len() < TOGETHER;
            seen = last;
            if !caught_up {
                tokio::task::yield_now().await;
                continue;
            }
            tokio::select! {
                _ = news.changed() => {}
                () = tokio::time::sleep(PING_EVERY) => if !sender.ping() { return },
                () = sender.closed() => return,
                _ = stopping.wait_for(|stopping| *stopping) => {
                    sender.send("moving", None, "{}");
                    return;
                }
            }
            // Events that follow each other closely travel together.
            tokio::time::sleep(gather).await;
        }
    });
    Ok(response)
}
