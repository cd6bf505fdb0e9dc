//! Deletes names that nobody uses any more, a part of the table at a time, while this process takes steps.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::oneshot;

use super::links::Links;
use super::statements::Statement;

const EVERY: Duration = Duration::from_secs(20);
/// The pause before the next part if this one had something to do: programs may use a new name for every job.
const BRIEFLY: Duration = Duration::from_millis(50);
/// How many pages of the table one sweep reads.
const PAGES: i64 = 256;

pub(super) fn start(links: &Arc<Links>) {
    links.shared.spawn(run(Arc::downgrade(links)));
}

async fn run(links: Weak<Links>) {
    let (mut page, mut swept, mut pause) = (0_i64, 0_u64, EVERY);
    loop {
        tokio::time::sleep(pause).await;
        let Some(links) = links.upgrade() else { return };
        let sent = links.sent.load(Ordering::Relaxed);
        if sent == swept && pause == EVERY {
            continue;
        }
        swept = sent;
        let (tell, told) = oneshot::channel();
        links.at(0).send(Statement::sweep(page, PAGES), move |reply| {
            let count = |at| reply.as_ref().ok()?.0.first()?.try_get::<_, i64>(at).ok();
            let _ = tell.send(count(0).zip(count(1)));
        });
        drop(links);
        let Ok(Some((found, pages))) = told.await else {
            pause = EVERY;
            continue;
        };
        pause = if found > 0 { BRIEFLY } else { EVERY };
        page = if page + PAGES < pages { page + PAGES } else { 0 };
    }
}
