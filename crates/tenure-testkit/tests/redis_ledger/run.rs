//! Scripts by the hundred, and one that went wrong.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tenure_testkit::servers::Flavour;
use tokio::task::JoinSet;

use super::comparison::Comparison;
use super::environment::Environment;
use super::plan::{self, BATCH, Event, LONGER_THAN_ANY_MEMORY, Plan};
use super::said::{Same, Tally};

/// Plays this many scripts, and returns how often each case occurred.
pub(crate) async fn scripts(flavour: Flavour, seeds: Range<u64>) -> Tally {
    let environment = Arc::new(Environment::new(flavour).await);
    let (mut seed, mut tally) = (seeds.start, Tally::new());
    while seed < seeds.end {
        let next = ((seed / BATCH + 1) * BATCH).min(seeds.end);
        if let Err((comparison, why)) = batch(&environment, seed..next, &mut tally).await {
            panic!("{}", explain(&environment, &comparison, &why).await);
        }
        seed = next;
    }
    tally
}

/// Plays the scripts of one batch. Adds up the cases, or returns the script that failed.
async fn batch(
    environment: &Arc<Environment>,
    seeds: Range<u64>,
    tally: &mut Tally,
) -> Result<(), Wrong> {
    let events = plan::events(seeds.start);
    let comparisons = seeds.map(|seed| comparison(environment, Plan::new(seed))).collect();
    let comparisons = play(environment, comparisons, &events).await?;
    for (kind, count) in comparisons.iter().flat_map(|comparison| &comparison.tally) {
        *tally.entry(kind).or_default() += count;
    }
    Ok(())
}

fn comparison(environment: &Arc<Environment>, plan: Plan) -> Comparison {
    // Even if a script is played again, its name is new.
    static PLAYED: AtomicU64 = AtomicU64::new(0);
    let name = format!("{}/{}", plan.seed, PLAYED.fetch_add(1, Ordering::Relaxed));
    Comparison::new(environment, plan, &name)
}

type Wrong = (Box<Comparison>, String);

#[derive(Clone, Copy)]
enum Part {
    Round(usize),
    /// Everything that was pushed has arrived.
    Quiet,
    End,
    /// Longer ago than anything is remembered.
    LongAfter,
}

async fn play(
    environment: &Arc<Environment>,
    comparisons: Vec<Comparison>,
    events: &[Event],
) -> Result<Vec<Comparison>, Wrong> {
    let played = play_all(environment, comparisons, events).await;
    environment.restore().await;
    played
}

async fn play_all(
    environment: &Arc<Environment>,
    mut comparisons: Vec<Comparison>,
    events: &[Event],
) -> Result<Vec<Comparison>, Wrong> {
    for round in 0..=events.len() {
        comparisons = all(comparisons, Part::Round(round)).await?;
        environment.settle().await;
        comparisons = all(comparisons, Part::Quiet).await?;
        if let Some(event) = events.get(round) {
            environment.happen(*event).await;
            comparisons
                .iter_mut()
                .for_each(|comparison| comparison.story.push(format!("-- {event:?}")));
        }
    }
    comparisons = all(comparisons, Part::End).await?;
    environment.settle().await;
    environment.happen(Event::Pass(LONGER_THAN_ANY_MEMORY)).await;
    all(comparisons, Part::LongAfter).await
}

/// Continues every comparison, concurrently.
async fn all(comparisons: Vec<Comparison>, part: Part) -> Result<Vec<Comparison>, Wrong> {
    let mut tasks = JoinSet::new();
    for mut comparison in comparisons {
        tasks.spawn(async move {
            let same = go_on(&mut comparison, part).await;
            (comparison, same)
        });
    }
    let (mut comparisons, mut wrong) = (Vec::new(), None);
    while let Some(done) = tasks.join_next().await {
        match done.unwrap() {
            (comparison, Ok(())) => comparisons.push(comparison),
            (comparison, Err(why)) => wrong = Some((Box::new(comparison), why)),
        }
    }
    match wrong {
        None => Ok(comparisons),
        Some(wrong) => Err(wrong),
    }
}

async fn go_on(comparison: &mut Comparison, part: Part) -> Same {
    match part {
        Part::Round(round) => comparison.round(round).await,
        Part::Quiet => comparison.has_heard_all(),
        Part::End => comparison.end().await,
        Part::LongAfter => comparison.has_heard_all().and_then(|()| comparison.has_no_keys()),
    }
}

/// Plays a failed script again, alone, and reports its shortest form that still fails. A script that fails only
/// beside others, whose steps travel in groups with its own, is reported as it went there.
async fn explain(environment: &Arc<Environment>, wrong: &Comparison, why: &str) -> String {
    let seed = wrong.plan.seed;
    let (mut plan, mut events) = (Plan::new(seed), plan::events(seed));
    let Some(mut story) = goes_wrong(environment, &plan, &events).await else {
        let story = told(wrong, why);
        return format!("seed {seed} goes wrong in its batch, and not alone\n{story}");
    };
    'shorter: loop {
        for shorter in plan.shorter() {
            if let Some(told) = goes_wrong(environment, &shorter, &events).await {
                (plan, story) = (shorter, told);
                continue 'shorter;
            }
        }
        for event in 0..events.len() {
            let (joined, mut fewer) = (plan.joined(event), events.clone());
            fewer.remove(event);
            if let Some(told) = goes_wrong(environment, &joined, &fewer).await {
                (plan, events, story) = (joined, fewer, told);
                continue 'shorter;
            }
        }
        return format!("seed {seed}\n{story}");
    }
}

/// What happened until it failed, if it does.
async fn goes_wrong(
    environment: &Arc<Environment>,
    plan: &Plan,
    events: &[Event],
) -> Option<String> {
    let wrong = play(environment, vec![comparison(environment, plan.clone())], events).await.err();
    wrong.map(|(comparison, why)| told(&comparison, &why))
}

fn told(comparison: &Comparison, why: &str) -> String {
    let mut story = vec![format!("{:?}", comparison.plan.shape)];
    let actors = comparison.plan.actors.iter().enumerate();
    story.extend(actors.map(|(at, actor)| format!("{at}: {actor:?}")));
    story.extend(comparison.story.iter().cloned());
    story.push(format!("WRONG: {why}"));
    story.join("\n")
}
