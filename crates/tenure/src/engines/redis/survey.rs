//! Looking without changing anything: who holds, who waits, is the server there.

use std::sync::Arc;

use super::answer;
use super::link::Link;
use super::refusal::Refusal;
use super::resp::Value;
use super::steps::{Flight, MOST_TURNS, Manner, Steps};
use super::wire::Request;
use crate::engine::{Page, Scope, Step, View};
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::name::Name;

impl Steps {
    /// A plain command, or a script that only reads.
    async fn plain(&self, link: Arc<Link>, request: Request) -> Result<Value> {
        self.land_plain(self.launch_on(link, request, Manner::default())).await
    }

    async fn land_plain(&self, mut flight: Flight) -> Result<Value> {
        for _ in 0..MOST_TURNS {
            let lost = |_| Error::new(ErrorKind::Unavailable, "the connection was closed");
            match (&mut flight.heard).await.map_err(lost)??.value {
                Value::Error(text) => flight = self.follow(flight, Refusal::read(&text), &text)?,
                value => return Ok(value),
            }
        }
        let reason = "the servers send us from one to the other";
        Err(Error::new(ErrorKind::Unavailable, reason).not_now())
    }

    pub(super) async fn health(&self) -> Result<()> {
        self.shared.know_map().await?;
        for link in self.roads.all() {
            self.plain(link, Request::plain(&[b"PING"])).await?;
        }
        Ok(())
    }

    pub(super) fn is_healthy(self: Arc<Steps>) -> Step<()> {
        self.shared.listen();
        Step::pending(async move { self.health().await })
    }

    pub(super) fn inspect(self: Arc<Steps>, scope: Scope) -> Step<Page> {
        Step::pending(async move {
            self.shared.know_map().await?;
            match scope {
                Scope::Name(name) => {
                    let views = self.views(vec![name], 1, |_| true).await?;
                    Ok(Page { views, more: false })
                }
                Scope::Prefix { space, prefix, after, limit } => {
                    let pattern = self.shared.layout.pattern(space, &prefix);
                    let mut names = self.scan(&pattern).await?;
                    names.retain(|name| after.as_ref().is_none_or(|after| name > after));
                    let mut views = self.views(names, limit, View::is_used).await?;
                    views.iter_mut().for_each(|view| view.record = None);
                    let more = views.len() > limit;
                    views.truncate(limit);
                    Ok(Page { views, more })
                }
            }
        })
    }

    /// The names that are wanted, in order, at least until there are more than `limit`.
    async fn views(
        &self,
        names: Vec<Name>,
        limit: usize,
        wanted: fn(&View) -> bool,
    ) -> Result<Vec<View>> {
        let mut views = Vec::new();
        for some in names.chunks(256) {
            // All are asked before the first is waited for.
            let mut asked = Vec::new();
            for name in some {
                let request = self.shared.layout.view(name);
                let link = self.roads.to(request.partition())?;
                asked.push((name, self.launch_on(link, request, Manner::default())));
            }
            for (name, flight) in asked {
                let value = self.land_plain(flight).await?;
                views.extend(answer::read_view(name.clone(), value)?.filter(wanted));
            }
            if views.len() > limit {
                break;
            }
        }
        Ok(views)
    }

    /// The names whose keys match, in order.
    async fn scan(&self, pattern: &str) -> Result<Vec<Name>> {
        let mut names = Vec::new();
        for link in self.roads.all() {
            let mut cursor = "0".to_owned();
            loop {
                let parts: [&[u8]; 6] =
                    [b"SCAN", cursor.as_bytes(), b"MATCH", pattern.as_bytes(), b"COUNT", b"1000"];
                let page = self.plain(link.clone(), Request::plain(&parts)).await?;
                let Some([next, keys]) = page.as_list() else {
                    return Err(answer::strange("scan", &answer::shape(&page)));
                };
                let keys = keys.as_list().unwrap_or_default().iter();
                names.extend(keys.filter_map(|key| self.shared.layout.name_of(key.as_bytes()?)));
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
}
