//! Reads without changing anything: who holds, who waits, and whether the server answers.

use std::sync::Arc;

use super::connection::Connection;
use super::protocol::answer::unexpected;
use super::protocol::request::Request;
use super::protocol::resp::Value;
use super::protocol::view::read_view;
use super::steps::{SendOptions, Steps};
use crate::engine::{Page, Scope, View};
use crate::model::error::Result;
use crate::model::name::Name;

/// Whether every server answers.
pub(super) async fn health(steps: &Steps) -> Result<()> {
    steps.shared.know_map().await?;
    for connection in steps.router.all() {
        ask(steps, connection, Request::plain(&[b"PING"])).await?;
    }
    Ok(())
}

/// Sends a plain command and waits for the answer.
async fn ask(steps: &Steps, connection: Arc<Connection>, request: Request) -> Result<Value> {
    steps.receive_value(steps.send_on(connection, request, SendOptions::default())).await
}

pub(super) async fn page(steps: &Steps, scope: Scope) -> Result<Page> {
    steps.shared.know_map().await?;
    match scope {
        Scope::Name(name) => {
            let views = views(steps, vec![name], 1, |_| true).await?;
            Ok(Page { views, more: false })
        }
        Scope::Prefix { space, prefix, after, limit } => {
            let pattern = steps.shared.setup.layout.pattern(space, &prefix);
            let mut names = scan(steps, &pattern).await?;
            names.retain(|name| after.as_ref().is_none_or(|after| name > after));
            let mut views = views(steps, names, limit, View::is_used).await?;
            views.iter_mut().for_each(|view| view.record = None);
            let more = views.len() > limit;
            views.truncate(limit);
            Ok(Page { views, more })
        }
    }
}

/// The names in scope, in order, stopping once there are more than `limit`.
async fn views(
    steps: &Steps,
    names: Vec<Name>,
    limit: usize,
    wanted: fn(&View) -> bool,
) -> Result<Vec<View>> {
    let mut views = Vec::new();
    for some in names.chunks(256) {
        // Ask for all of them before waiting for the first.
        let mut asked = Vec::new();
        for name in some {
            let request = steps.shared.setup.layout.view(name);
            asked.push((name, steps.send(request, SendOptions::default())?));
        }
        for (name, pending) in asked {
            let value = steps.receive_value(pending).await?;
            views.extend(read_view(name.clone(), value)?.filter(wanted));
        }
        if views.len() > limit {
            break;
        }
    }
    Ok(views)
}

/// The names whose keys match, in order.
async fn scan(steps: &Steps, pattern: &str) -> Result<Vec<Name>> {
    let mut names = Vec::new();
    for connection in steps.router.all() {
        let mut cursor = "0".to_owned();
        loop {
            let parts: [&[u8]; 6] =
                [b"SCAN", cursor.as_bytes(), b"MATCH", pattern.as_bytes(), b"COUNT", b"1000"];
            let page = ask(steps, connection.clone(), Request::plain(&parts)).await?;
            let Some([next, keys]) = page.as_list() else {
                return Err(unexpected("scan", &page));
            };
            let keys = keys.as_list().unwrap_or_default().iter();
            names.extend(keys.filter_map(|key| steps.shared.setup.layout.name_of(key.as_bytes()?)));
            cursor = next.as_str().unwrap_or("0").to_owned();
            if cursor == "0" {
                break;
            }
        }
    }
    names.sort();
    names.dedup();
    Ok(names)
}
