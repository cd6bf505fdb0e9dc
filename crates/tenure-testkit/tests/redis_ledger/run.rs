//! Scripts by the hundred, and one that went wrong.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tenure_testkit::servers::Flavour;
use tokio::task::JoinSet;

use super::game::Game;
use super::plan::{self, BATCH, Event, LONGER_THAN_ANY_MEMORY, Plan};
use super::said::{Same, Tally};
use super::town::Town;

/// Plays so many scripts, and says how often what was seen.
pub(crate) async fn scripts(flavour: Flavour, seeds: Range<u64>) -> Tally {
    let town = Arc::new(Town::new(flavour).await);
    let (mut seed, mut tally) = (seeds.start, Tally::new());
    while seed < seeds.end {
        let next = ((seed / BATCH + 1) * BATCH).min(seeds.end);
        if let Err(wrong) = batch(&town, seed..next, &mut tally).await {
            panic!("{}", explain(&town, wrong).await);
        }
        seed = next;
    }
    tally
}

/// Plays scripts of one batch. Adds up what was seen, or returns the seed that went wrong.
async fn batch(town: &Arc<Town>, seeds: Range<u64>, tally: &mut Tally) -> Result<(), u64> {
    let events = plan::events(seeds.start);
    let games = seeds.map(|seed| game(town, Plan::new(seed))).collect();
    let games = play(town, games, &events).await.map_err(|(game, _)| game.plan.seed)?;
    for (kind, count) in games.iter().flat_map(|game| &game.tally) {
        *tally.entry(kind).or_default() += count;
    }
    Ok(())
}

fn game(town: &Arc<Town>, plan: Plan) -> Game {
    // Also when a script is played again its name is new.
    static PLAYED: AtomicU64 = AtomicU64::new(0);
    let name = format!("{}/{}", plan.seed, PLAYED.fetch_add(1, Ordering::Relaxed));
    Game::new(town, plan, &name)
}

type Wrong = (Box<Game>, String);

#[derive(Clone, Copy)]
enum Part {
    Round(usize),
    /// Everything that was pushed has arrived.
    Quiet,
    End,
    /// Longer ago than anything is remembered.
    LongAfter,
}

async fn play(town: &Arc<Town>, games: Vec<Game>, events: &[Event]) -> Result<Vec<Game>, Wrong> {
    let played = play_all(town, games, events).await;
    town.restore().await;
    played
}

async fn play_all(
    town: &Arc<Town>,
    mut games: Vec<Game>,
    events: &[Event],
) -> Result<Vec<Game>, Wrong> {
    for round in 0..=events.len() {
        games = all(games, Part::Round(round)).await?;
        town.settle().await;
        games = all(games, Part::Quiet).await?;
        if let Some(event) = events.get(round) {
            town.happen(*event).await;
            games.iter_mut().for_each(|game| game.story.push(format!("-- {event:?}")));
        }
    }
    games = all(games, Part::End).await?;
    town.settle().await;
    town.happen(Event::Pass(LONGER_THAN_ANY_MEMORY)).await;
    all(games, Part::LongAfter).await
}

/// Lets every game go on, side by side.
async fn all(games: Vec<Game>, part: Part) -> Result<Vec<Game>, Wrong> {
    let mut tasks = JoinSet::new();
    for mut game in games {
        tasks.spawn(async move {
            let same = go_on(&mut game, part).await;
            (game, same)
        });
    }
    let (mut games, mut wrong) = (Vec::new(), None);
    while let Some(done) = tasks.join_next().await {
        match done.unwrap() {
            (game, Ok(())) => games.push(game),
            (game, Err(why)) => wrong = Some((Box::new(game), why)),
        }
    }
    match wrong {
        None => Ok(games),
        Some(wrong) => Err(wrong),
    }
}

async fn go_on(game: &mut Game, part: Part) -> Same {
    match part {
        Part::Round(round) => game.round(round).await,
        Part::Quiet => game.has_heard_all(),
        Part::End => game.end().await,
        Part::LongAfter => game.has_heard_all().and_then(|()| game.has_no_keys()),
    }
}

/// Plays a script that went wrong again, alone, and tells the shortest form of it that still does.
async fn explain(town: &Arc<Town>, seed: u64) -> String {
    let (mut plan, mut events) = (Plan::new(seed), plan::events(seed));
    let Some(mut story) = goes_wrong(town, &plan, &events).await else {
        return format!("seed {seed} goes wrong in its batch, and not alone");
    };
    'shorter: loop {
        for shorter in plan.shorter() {
            if let Some(told) = goes_wrong(town, &shorter, &events).await {
                (plan, story) = (shorter, told);
                continue 'shorter;
            }
        }
        for event in 0..events.len() {
            let (joined, mut fewer) = (plan.joined(event), events.clone());
            fewer.remove(event);
            if let Some(told) = goes_wrong(town, &joined, &fewer).await {
                (plan, events, story) = (joined, fewer, told);
                continue 'shorter;
            }
        }
        return format!("seed {seed}\n{story}");
    }
}

/// What happened until it went wrong, if it does.
async fn goes_wrong(town: &Arc<Town>, plan: &Plan, events: &[Event]) -> Option<String> {
    let wrong = play(town, vec![game(town, plan.clone())], events).await.err();
    let (game, why) = wrong?;
    let mut story = vec![format!("{:?}", game.plan.shape)];
    let actors = game.plan.actors.iter().enumerate();
    story.extend(actors.map(|(at, actor)| format!("{at}: {actor:?}")));
    story.extend(game.story.iter().cloned());
    story.push(format!("WRONG: {why}"));
    Some(story.join("\n"))
}
