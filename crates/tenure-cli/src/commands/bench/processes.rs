//! The processes of a run: this program again, each with a task, which is its first order.

use std::ops::{Index, IndexMut};
use std::process::Command;
use std::time::Duration;

use tenure_measure::process::{Child, ChildError};

use super::lock::Which;
use crate::args::WORKER;
use crate::failure::{Failure, INTERNAL, UNREACHABLE};
use crate::settings::Settings;

/// How long a worker may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a worker may take to exit.
const FAREWELL: Duration = Duration::from_secs(3);

/// The task of a worker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Task {
    pub(super) role: Role,
    pub(super) lock: Which,
    /// How long its hold lasts without renewal.
    pub(super) ttl: Duration,
    /// Number of waiters to start.
    pub(super) many: usize,
    /// The name of the lock.
    pub(super) name: String,
}

/// The role of a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// Acquires and releases from `go END` on, then prints `stamps N` and N stamps.
    Contend,
    /// Prints `joined` when it is in line, `granted WHEN` when it is served, and `cpu TIME` when asked for that.
    Wait,
    /// Prints `held` when it holds.
    Hold,
}

const ROLES: [(&str, Role); 3] =
    [("contend", Role::Contend), ("wait", Role::Wait), ("hold", Role::Hold)];

impl Task {
    /// The first order of a worker. The name may contain anything but a newline.
    fn order(&self) -> String {
        let Task { lock, ttl, many, name, .. } = self;
        let role = ROLES.iter().find(|(_, role)| *role == self.role).map_or("", |(word, _)| word);
        let lock = if *lock == Which::Naive { "naive" } else { "tenure" };
        format!("{role}\t{lock}\t{}\t{many}\t{name}", ttl.as_millis())
    }

    /// Parses an order.
    pub(super) fn read(order: &str) -> Option<Task> {
        let parts: Vec<_> = order.splitn(5, '\t').collect();
        let [role, lock, ttl, many, name] = parts[..] else { return None };
        Some(Task {
            role: ROLES.iter().find(|(word, _)| *word == role)?.1,
            lock: if lock == "naive" { Which::Naive } else { Which::Tenure },
            ttl: Duration::from_millis(ttl.parse().ok()?),
            many: many.parse().ok()?,
            name: name.to_owned(),
        })
    }
}

/// All workers at a time.
#[derive(Default)]
pub(super) struct Processes(Vec<Worker>);

impl Processes {
    /// Starts one more, and returns its number.
    pub(super) async fn start(
        &mut self,
        task: &Task,
        settings: &Settings,
    ) -> Result<usize, Failure> {
        self.0.push(Worker::start(settings.address.url()?)?);
        let number = self.0.len() - 1;
        self[number].tell(&task.order()).await?;
        Ok(number)
    }

    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut Worker> {
        self.0.iter_mut()
    }

    /// Makes all of them exit, and waits for that.
    pub(super) async fn end(&mut self) {
        self.0.iter_mut().for_each(|worker| worker.0.dismiss());
        for mut worker in self.0.drain(..) {
            worker.0.end(FAREWELL).await;
        }
    }
}

impl Index<usize> for Processes {
    type Output = Worker;

    fn index(&self, number: usize) -> &Worker {
        &self.0[number]
    }
}

impl IndexMut<usize> for Processes {
    fn index_mut(&mut self, number: usize) -> &mut Worker {
        &mut self.0[number]
    }
}

/// A worker, as the process that started it sees it.
pub(super) struct Worker(Child);

impl Worker {
    fn start(url: &str) -> Result<Worker, Failure> {
        // Not by its path, which may lead to another version by now.
        let mut command = Command::new("/proc/self/exe");
        command.args(["bench".to_owned(), format!("--{WORKER}")]);
        // A URL may contain a password, and everyone can see arguments.
        command.env("TENURE_URL", url);
        Child::start(command, PATIENCE).map(Worker).map_err(failure)
    }

    pub(super) async fn tell(&mut self, order: &str) -> Result<(), Failure> {
        self.0.tell(order).await.map_err(failure)
    }

    /// The rest of the next line, which must begin with `word`.
    pub(super) async fn hear(&mut self, word: &str) -> Result<String, Failure> {
        self.0.hear(word).await.map_err(failure)
    }

    /// The same for a number.
    pub(super) async fn hear_number(&mut self, word: &str) -> Result<u64, Failure> {
        self.0.hear_number(word).await.map_err(failure)
    }

    /// The next `count` bytes.
    pub(super) async fn bytes(&mut self, count: usize) -> Result<Vec<u8>, Failure> {
        self.0.bytes(count).await.map_err(failure)
    }

    /// Sends SIGKILL, and waits until it has exited.
    pub(super) async fn kill(&mut self) {
        self.0.kill().await;
    }
}

/// The failure for a worker that does not work.
fn failure(error: ChildError) -> Failure {
    match error {
        ChildError::NotStarted(error) => {
            let help = "check the limits of this process (`ulimit -a`)";
            Failure::new(INTERNAL, "cannot start a process", error.to_string(), help)
        }
        ChildError::Said(line) => match line.strip_prefix("failed\t") {
            Some(said) => failed(said),
            None => gone("it said something unexpected"),
        },
        ChildError::Gone(why) => gone(&why),
    }
}

/// Reports a failure to the process that started this worker, which prints it in the same words.
pub(super) fn failed_line(failure: &Failure) -> String {
    let Failure { exit, what, why, help, .. } = failure;
    let texts = [what, why, help].map(|text| text.replace(['\t', '\n'], " "));
    format!("failed\t{exit}\t{}", texts.join("\t"))
}

fn failed(said: &str) -> Failure {
    let parts: Vec<_> = said.splitn(4, '\t').collect();
    let [exit, what, why, help] = parts[..] else { return gone(said) };
    let failure = Failure::new(exit.parse().unwrap_or(INTERNAL), what, why, help);
    if failure.exit == UNREACHABLE { failure.code("T003") } else { failure }
}

fn gone(why: &str) -> Failure {
    let help = "check the engine with `tenure doctor`, and try again";
    Failure::new(INTERNAL, "a process of the benchmark failed", why, help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_arrives_as_it_was_given() {
        let task = Task {
            role: Role::Wait,
            lock: Which::Naive,
            ttl: Duration::from_millis(1500),
            many: 50,
            name: "a b/tenure-bench/x\ty".into(),
        };
        assert_eq!(Task::read(&task.order()), Some(task));
        assert_eq!(Task::read("wait\ttenure"), None);
    }

    #[test]
    fn a_failure_is_reported_in_the_words_of_the_worker() {
        let failure = Failure::new(69, "engine\nunreachable", "refused", "is it running?");
        let line = failed_line(&failure);
        assert_eq!(line, "failed\t69\tengine unreachable\trefused\tis it running?");
        let failure = failed(line.strip_prefix("failed\t").unwrap());
        assert_eq!((failure.exit, &*failure.why, failure.code), (69, "refused", Some("T003")));
    }
}
