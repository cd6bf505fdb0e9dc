//! W5 and W5b: what happens after a SIGKILL.

use std::time::Duration;

use tenure::Tenure;
use tokio::runtime::Runtime;

use super::Bench;
use super::children::{Child, Given, Orders, say};
use super::clock;
use super::failure::Failure;
use super::options::Flavour;
use super::server::Server;
use super::table::Goal;
use super::waiting::in_line;

// The goals are earlier measurements, plus a tenth for noise.

/// The smallest number of runs for a median.
const RUNS: usize = 7;
const TTL: Duration = Duration::from_secs(1);

/// W5: a holder is killed while a claim in another process waits.
pub(crate) fn w5(bench: &mut Bench<'_>) {
    let over = bench.runs(|bench, scene, run| bench.killed_holder(scene, run));
    let what =
        "W5 a killed holder, ttl 1 s: until the next in another process has it; multi-thread";
    bench.report(what, "ms after the ttl", 2.2, over);
}

/// W5b: 100 waiters in 10 processes are killed, ahead of one that lives.
pub(crate) fn w5b(bench: &mut Bench<'_>) {
    let over = bench.runs(|bench, scene, run| bench.killed_waiters(scene, run));
    let what =
        "W5b 100 killed waiters ahead of a live one: from the release to its grant; multi-thread";
    bench.report(what, "ms after the release", 1.65, over);
}

/// What all runs share: a server, and an observer in this process.
struct Scene {
    server: Server,
    runtime: Runtime,
    onlooker: Tenure,
}

impl Bench<'_> {
    fn runs(
        &self,
        one: impl Fn(&Self, &Scene, usize) -> Result<f64, Failure>,
    ) -> Result<Vec<f64>, Failure> {
        let server = Server::start(self.options.cpu)?;
        let runtime = Flavour::build(Flavour::MultiThread.label())?;
        let url = server.url();
        let onlooker = runtime.block_on(Tenure::connect(&url))?;
        let scene = Scene { server, runtime, onlooker };
        (0..RUNS.max(self.options.rounds)).map(|run| one(self, &scene, run)).collect()
    }

    fn report(&mut self, what: &str, figure: &str, goal: f64, over: Result<Vec<f64>, Failure>) {
        self.table.heading(what);
        match over {
            Ok(over) => self.table.row("tenure", figure, Some(Goal::AtMost(goal)), &over),
            Err(reason) => self.table.failed("tenure", &reason),
        }
    }

    fn claimant(
        &self,
        scene: &Scene,
        task: &str,
        name: &str,
        many: usize,
    ) -> Result<Child, Failure> {
        let mut arguments = self.arguments(&scene.server.url(), Flavour::MultiThread);
        arguments.extend([format!("name={name}"), format!("many={many}")]);
        Child::start(task, &arguments)
    }

    /// Milliseconds from the end of the ttl to the next grant. The end of the ttl is read after the death, when
    /// no renewal can move it any more: the remaining time of `inspect`, counted from the middle of that call.
    /// The server's answer has a resolution of a millisecond at best.
    fn killed_holder(&self, scene: &Scene, run: usize) -> Result<f64, Failure> {
        let name = format!("killed-holder:{run}");
        let mut holder = self.claimant(scene, "hold", &name, 1)?;
        holder.hear("held")?;
        let mut next = self.claimant(scene, "wait", &name, 1)?;
        scene.runtime.block_on(in_line(&scene.onlooker, &name, 1))?;
        // A different point between two renewals each time, after at least one renewal.
        std::thread::sleep(TTL / 2 + TTL * run as u32 / 20);
        holder.kill();
        let before = clock::now();
        let view = scene.runtime.block_on(scene.onlooker.inspect(&name))?;
        let middle = before + (clock::now() - before) / 2;
        let held = view.as_ref().and_then(|view| view.holders.first()).ok_or("nobody holds it")?;
        let end = middle + held.remaining.as_nanos() as u64;
        let granted: u64 = next.hear("granted")?.parse()?;
        Ok((granted as f64 - end as f64) / 1e6)
    }

    /// Milliseconds from the release to the grant of the waiter that lives.
    fn killed_waiters(&self, scene: &Scene, run: usize) -> Result<f64, Failure> {
        let name = format!("killed-waiters:{run}");
        let Scene { runtime, onlooker, .. } = scene;
        let hold = runtime.block_on(onlooker.mutex(&name).acquire())?;
        let doomed: Result<Vec<Child>, Failure> =
            (0..10).map(|_| self.claimant(scene, "wait", &name, 10)).collect();
        let mut doomed = doomed?;
        runtime.block_on(in_line(onlooker, &name, 100))?;
        let mut live = self.claimant(scene, "wait", &name, 1)?;
        runtime.block_on(in_line(onlooker, &name, 101))?;
        doomed.iter_mut().for_each(Child::kill);
        let released = clock::now();
        runtime.block_on(hold.release())?;
        let granted: u64 = live.hear("granted")?.parse()?;
        Ok((granted as f64 - released as f64) / 1e6)
    }
}

/// A child that holds a name until it is killed; prints `held`.
pub(crate) async fn hold(given: &Given, orders: &mut Orders) -> Result<(), Failure> {
    let tenure = Tenure::connect(given.text("url")?).await?;
    let _hold = tenure.mutex(given.text("name")?).ttl(TTL).acquire().await?;
    say("held")?;
    orders.next().await?;
    Ok(())
}

/// A child with `many` waiters for a name; prints `granted` and the time, for the first that is granted.
pub(crate) async fn wait(given: &Given, orders: &mut Orders) -> Result<(), Failure> {
    let tenure = Tenure::connect(given.text("url")?).await?;
    let (name, many): (&str, usize) = (given.text("name")?, given.number("many")?);
    let mut waiters = tokio::task::JoinSet::new();
    for _ in 0..many {
        let turn = tenure.mutex(name).join();
        waiters.spawn(async move { turn.await.map(|hold| (clock::now(), hold)) });
    }
    let first = waiters.join_next().await.ok_or("nobody waits")?;
    let (moment, _hold) = first??;
    say(format_args!("granted {moment}"))?;
    orders.next().await?;
    Ok(())
}
