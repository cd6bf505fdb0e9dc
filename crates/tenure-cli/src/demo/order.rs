//! The transactions of one sender reach three instances in turn. Each is checked before it is forwarded, which
//! takes time, and the chain accepts them in order or not at all.
//!
//! The place in line is taken on arrival, before anything is awaited; so the order of arrival is the
//! order at the chain, no matter which instance is fast.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use tokio::task::JoinSet;

use super::environment::{Environment, random};
use super::participant::{LOOK_EVERY, Names, Participant};
use super::record::Record;
use super::{Act, Played, Seen, Trouble, no_such_part};

pub(super) const ACT: Act = Act {
    title: "one sender's transactions reach three instances (processes) in turn",
    lines: [
        r#"let turn = tenure.mutex("sender:0xab").owner(&tx).join(); // its place, on arrival"#,
        "let hold = turn.await?;",
        "check_and_send(nonce, &chain).await?;",
    ],
};

const INSTANCES: usize = 3;
const TRANSACTIONS: u64 = 60;
const CHAIN: &str = "chain";
/// How many are shown.
const SHOWN: usize = 12;

pub(super) fn without(environment: &mut Environment<'_>) -> Played {
    let sent = send_all(environment, "without")?;
    let more = match sent.wrong {
        0 => "in order, by luck".to_owned(),
        _ => format!("whoever is checked first is sent first: {}", sent.beginning()),
    };
    Ok(sent.seen(|brief| Seen::report(brief, more)))
}

pub(super) fn with(environment: &mut Environment<'_>) -> Played {
    let sent = send_all(environment, "with")?;
    let in_order = sent.order.iter().copied().eq(0..TRANSACTIONS);
    let more = match in_order {
        true => format!("in order of arrival: {}", sent.beginning()),
        false => format!("out of order: {}", sent.beginning()),
    };
    let held = in_order && sent.wrong == 0;
    Ok(sent.seen(|brief| Seen::check(held, brief, more)))
}

/// What the chain saw.
struct Sent {
    order: Vec<u64>,
    wrong: u64,
}

impl Sent {
    fn beginning(&self) -> String {
        let shown: Vec<_> = self.order.iter().take(SHOWN).map(ToString::to_string).collect();
        format!("{} …", shown.join(" "))
    }

    fn seen(&self, seen: impl FnOnce(String) -> Seen) -> Seen {
        let brief = format!("{} of {TRANSACTIONS} with a wrong nonce", self.wrong);
        seen(brief).fact("wrong", self.wrong).fact("transactions", TRANSACTIONS)
    }
}

/// Sends each transaction to the next instance as soon as the one before has arrived.
fn send_all(environment: &mut Environment<'_>, side: &str) -> Result<Sent, Trouble> {
    let chain = environment.record(CHAIN, "0")?;
    let mut processes = environment.processes();
    processes.start_all((0..INSTANCES).map(|_| format!("order {side}")))?;
    for nonce in 0..TRANSACTIONS {
        processes.progress(&format!("  {side:8} {nonce} of {TRANSACTIONS} have arrived"));
        let instance = nonce as usize % INSTANCES;
        processes.tell(instance, &nonce.to_string());
        processes.expect(instance, "arrived")?;
    }
    processes.tell_all("end");
    for instance in 0..INSTANCES {
        processes.expect(instance, "done")?;
    }
    let lines: Vec<_> = chain.journal()?;
    let order = lines.iter().filter_map(|line| line.split(' ').next()?.parse().ok()).collect();
    let wrong = lines.iter().filter(|line| line.ends_with("wrong")).count() as u64;
    Ok(Sent { order, wrong })
}

pub(super) async fn work(participant: &mut Participant, words: &[&str]) -> Result<(), Trouble> {
    let tenure = match *words {
        ["without"] => None,
        ["with"] => Some(participant.tenure().await?),
        _ => return Err(no_such_part(words)),
    };
    let mut tasks = JoinSet::new();
    participant.say("ready");
    loop {
        let cue = participant.cue().await;
        let Ok(nonce) = cue.parse::<u64>() else { break };
        let chain = participant.record(CHAIN);
        match &tenure {
            None => drop(tasks.spawn(async move { check_and_send(nonce, &chain).await })),
            Some(tenure) => arrive(tenure, nonce, chain, &mut tasks).await?,
        }
        participant.say("arrived");
    }
    while let Some(task) = tasks.join_next().await {
        task??;
    }
    participant.say("done");
    Ok(())
}

/// Takes a place in line for a transaction, and returns when it is certain to come before all that arrive later.
async fn arrive(
    tenure: &Names,
    nonce: u64,
    chain: Record,
    tasks: &mut JoinSet<Result<(), Trouble>>,
) -> Result<(), Trouble> {
    let tx = format!("transaction {nonce}");
    let turn = tenure.mutex("sender:0xab").owner(&tx).join(); // its place, on arrival
    let served = Arc::new(AtomicBool::new(false));
    let also_served = served.clone();
    tasks.spawn(async move {
        let hold = turn.await?;
        also_served.store(true, SeqCst);
        check_and_send(nonce, &chain).await?;
        drop(hold);
        Ok(())
    });
    while !served.load(SeqCst) && tenure.look("sender:0xab", &tx).await?.is_none() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

/// The checks, which take time, and then the chain.
async fn check_and_send(nonce: u64, chain: &Record) -> Result<(), Trouble> {
    tokio::time::sleep(Duration::from_millis(1 + random() % 8)).await;
    chain.change(|next, journal| {
        let taken = next.parse() == Ok(nonce);
        if taken {
            *next = (nonce + 1).to_string();
        }
        journal.push(format!("{nonce} {}", if taken { "taken" } else { "wrong" }));
    })
}
