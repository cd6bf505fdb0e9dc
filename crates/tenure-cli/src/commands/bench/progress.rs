//! A progress bar on standard error, if that is a terminal.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often it is drawn.
const PERIOD: Duration = Duration::from_millis(100);
/// How many characters the bar has.
const WIDTH: usize = 24;

/// A progress bar. Dropping it removes it from the screen.
pub(super) struct Progress {
    thread: Option<(Sender<String>, JoinHandle<()>)>,
}

impl Progress {
    /// A bar for this many steps, each of about this length; none if nobody would see it.
    pub(super) fn start(steps: usize, length: Duration, quiet: bool) -> Progress {
        if quiet || !io::stderr().is_terminal() {
            return Progress { thread: None };
        }
        let (next, steps_to_come) = channel::<String>();
        // A thread, so that the measured code does not draw.
        let thread = std::thread::spawn(move || {
            let (mut step, mut began, mut done) = (String::new(), Instant::now(), 0);
            loop {
                match steps_to_come.recv_timeout(PERIOD) {
                    Ok(named) => {
                        done += usize::from(!step.is_empty());
                        (step, began) = (named, Instant::now());
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break draw(""),
                }
                let part = (began.elapsed().as_secs_f64() / length.as_secs_f64()).min(1.0);
                draw(&bar(done as f64 + part, steps, &step));
            }
        });
        Progress { thread: Some((next, thread)) }
    }

    /// Starts the next step.
    pub(super) fn step(&self, what: &str) {
        if let Some((next, _)) = &self.thread {
            // Without the thread there is no bar, and nothing depends on it.
            let _ = next.send(what.to_owned());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((next, thread)) = self.thread.take() {
            drop(next);
            let _ = thread.join();
        }
    }
}

fn bar(done: f64, steps: usize, what: &str) -> String {
    let share = (done / steps.max(1) as f64).clamp(0.0, 1.0);
    let full = (share * WIDTH as f64) as usize;
    let percent = share * 100.0;
    format!("[{}{}] {percent:3.0} %  {what}", "#".repeat(full), ".".repeat(WIDTH - full))
}

fn draw(line: &str) {
    // From the start of the line, erasing what was there.
    let _ = io::stderr().write_all(format!("\r\x1b[K{line}").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_is_as_full_as_what_is_done() {
        assert_eq!(bar(0.0, 4, "x"), "[........................]   0 %  x");
        assert_eq!(bar(2.0, 4, "x"), "[############............]  50 %  x");
        assert_eq!(bar(9.0, 4, "x"), "[########################] 100 %  x");
    }
}
