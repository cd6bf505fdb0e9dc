//! Computes figures from time stamps.

use tenure_measure::figures::{Stamps, jain};

/// The acquisitions of one kind in one window.
pub(crate) struct Trial {
    stamps: Vec<Stamps>,
    tasks: usize,
    start: u64,
    end: u64,
    /// CPU of all clients and of the server in the window, microseconds.
    client_cpu: f64,
    server_cpu: f64,
    /// Commands sent in the window, if they were counted.
    pub(crate) commands: Option<usize>,
    /// Indexes of the acquisitions that ended in the window, in the order of grants.
    over: Vec<usize>,
}

impl Trial {
    pub(crate) fn new(
        stamps: Vec<Stamps>,
        tasks: usize,
        window: (u64, u64),
        cpu: (f64, f64),
    ) -> Trial {
        let (start, end) = window;
        let in_time = |index: &usize| stamps[*index].left > 0 && stamps[*index].leaving <= end;
        let mut over: Vec<usize> = (0..stamps.len()).filter(in_time).collect();
        over.sort_by_key(|index| stamps[*index].granted);
        let (client_cpu, server_cpu) = cpu;
        Trial { stamps, tasks, start, end, client_cpu, server_cpu, commands: None, over }
    }

    fn over(&self) -> impl ExactSizeIterator<Item = &Stamps> {
        self.over.iter().map(|index| &self.stamps[*index])
    }

    fn seconds(&self) -> f64 {
        (self.end - self.start) as f64 / 1e9
    }

    /// Acquisitions per second, each with its release.
    pub(crate) fn per_second(&self) -> f64 {
        self.over.len() as f64 / self.seconds()
    }

    /// Microseconds of CPU per acquisition: of the clients, of the server.
    pub(crate) fn cpu(&self) -> (f64, f64) {
        let count = self.over.len() as f64;
        (self.client_cpu / count, self.server_cpu / count)
    }

    /// Both together.
    pub(crate) fn cpu_each(&self) -> f64 {
        let (client, server) = self.cpu();
        client + server
    }

    /// The share of one CPU that clients and server used. On a CPU of their own they use all of it while there
    /// is work; the missing part went to other processes.
    pub(crate) fn busy(&self) -> f64 {
        (self.client_cpu + self.server_cpu) / 1e6 / self.seconds()
    }

    /// The share of acquisitions that went to a different task than the previous one.
    pub(crate) fn switched(&self) -> f64 {
        let others = self.pairs().filter(|(before, after)| before.task != after.task).count();
        others as f64 / (self.over.len() - 1) as f64
    }

    /// How many acquisitions began before the previous hold had ended.
    pub(crate) fn overlaps(&self) -> f64 {
        self.pairs().filter(|(before, after)| after.granted < before.leaving).count() as f64
    }

    fn pairs(&self) -> impl Iterator<Item = (&Stamps, &Stamps)> {
        self.over().zip(self.over().skip(1))
    }

    /// Jain's index over the tasks: 1 if all have the same number, 1/n if one has all.
    pub(crate) fn jain(&self) -> f64 {
        let mut counts = vec![0; self.tasks];
        self.over().for_each(|stamps| counts[stamps.task as usize] += 1);
        jain(&counts)
    }

    /// The longest wait, including waits that are not over at the end, in mean cycles: the time in which every
    /// task has one turn if all have the same number.
    pub(crate) fn longest_wait(&self) -> f64 {
        let granted = |stamps: &Stamps| match stamps.granted {
            0 => self.end,
            granted => granted.min(self.end),
        };
        let wait = |stamps: &Stamps| granted(stamps).saturating_sub(stamps.asked);
        let longest = self.stamps.iter().map(wait).max().unwrap_or(0) as f64 / 1e9;
        longest / (self.tasks as f64 / self.per_second())
    }

    /// The share of the window in which the lock was held.
    pub(crate) fn held(&self) -> f64 {
        let inside = |moment: u64| moment.clamp(self.start, self.end);
        let held = |stamps: &Stamps| inside(stamps.leaving) - inside(stamps.granted);
        let over = self.stamps.iter().filter(|stamps| stamps.left > 0);
        over.map(held).sum::<u64>() as f64 / (self.end - self.start) as f64
    }

    /// Commands per acquisition.
    pub(crate) fn commands_each(&self) -> Option<f64> {
        self.commands.map(|commands| commands as f64 / self.over.len() as f64)
    }

    /// Whether there are any figures.
    pub(crate) fn is_empty(&self) -> bool {
        self.over.len() < 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamps(task: u64, asked: u64, granted: u64, leaving: u64) -> Stamps {
        Stamps { task, asked, granted, leaving, left: if leaving == 0 { 0 } else { leaving + 1 } }
    }

    fn trial(stamps: Vec<Stamps>) -> Trial {
        Trial::new(stamps, 2, (0, 1_000), (0.0, 0.0))
    }

    #[test]
    fn turns_that_alternate_are_fair() {
        let fair =
            trial((0..10).map(|n| stamps(n % 2, n * 100, n * 100 + 10, n * 100 + 60)).collect());
        assert_eq!((fair.jain(), fair.switched(), fair.overlaps()), (1.0, 1.0, 0.0));
        assert_eq!(fair.held(), 0.5);
    }

    #[test]
    fn one_task_that_has_all_is_not_fair() {
        let unfair = trial((0..10).map(|n| stamps(0, n * 100, n * 100, n * 100 + 50)).collect());
        assert_eq!((unfair.jain(), unfair.switched()), (0.5, 0.0));
    }

    #[test]
    fn a_grant_inside_a_hold_is_an_overlap() {
        let wrong = trial(vec![stamps(0, 0, 10, 100), stamps(1, 0, 99, 200)]);
        assert_eq!(wrong.overlaps(), 1.0);
    }

    #[test]
    fn who_still_waits_at_the_end_counts() {
        let turns = vec![stamps(0, 0, 10, 20), stamps(0, 20, 30, 40), stamps(1, 100, 0, 0)];
        // The share is 2 in 1,000 ns: a cycle of two tasks takes 1,000 ns, and one of them waited for 900 ns.
        assert!((trial(turns).longest_wait() - 0.9).abs() < 1e-9);
    }
}
