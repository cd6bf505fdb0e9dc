//! The output: lines, or one object per proof; and on a terminal the progress, in a line that is overwritten.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use rustix::termios::tcgetwinsize;

use crate::output::json::Object;

/// How often the progress is printed if lines stay.
const SAY_EVERY: Duration = Duration::from_secs(20);

/// Where the demo prints.
pub(super) struct Screen<'w> {
    out: &'w mut dyn Write,
    mode: Mode,
    /// Whether there is a line that will be overwritten.
    dirty: bool,
    last: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    /// One line is overwritten.
    Live,
    /// Lines stay.
    Lines,
    /// One object per line, and nothing else.
    Json,
}

impl Mode {
    /// The mode for standard output.
    pub(super) fn of_stdout(json: bool, quiet: bool) -> Mode {
        let moves = || {
            io::stdout().is_terminal()
                && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
        };
        match json {
            true => Mode::Json,
            false if !quiet && moves() => Mode::Live,
            false => Mode::Lines,
        }
    }
}

impl<'w> Screen<'w> {
    pub(super) fn new(out: &'w mut dyn Write, mode: Mode) -> Screen<'w> {
        Screen { out, mode, dirty: false, last: Instant::now() }
    }

    pub(super) fn is_json(&self) -> bool {
        self.mode == Mode::Json
    }

    /// Prints a line for people, at once.
    pub(super) fn line(&mut self, text: &str) -> io::Result<()> {
        if self.is_json() {
            return Ok(());
        }
        self.clear()?;
        writeln!(self.out, "{text}")?;
        self.out.flush()
    }

    /// Prints an object for programs, at once.
    pub(super) fn object(&mut self, object: Object) -> io::Result<()> {
        if !self.is_json() {
            return Ok(());
        }
        writeln!(self.out, "{}", object.end())?;
        self.out.flush()
    }

    /// Shows the progress.
    pub(super) fn progress(&mut self, text: &str) {
        // If it cannot be written, the next line cannot be either, and that is noticed.
        let _ = match self.mode {
            Mode::Live => {
                self.dirty = true;
                let text = cut(text, width());
                write!(self.out, "\r\x1b[K{text}").and_then(|()| self.out.flush())
            }
            Mode::Lines if self.last.elapsed() >= SAY_EVERY => {
                self.last = Instant::now();
                self.line(text)
            }
            Mode::Lines | Mode::Json => Ok(()),
        };
    }

    /// Removes the progress line.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        self.last = Instant::now();
        if std::mem::take(&mut self.dirty) {
            write!(self.out, "\r\x1b[K")?;
            self.out.flush()?;
        }
        Ok(())
    }
}

/// The width of the terminal.
fn width() -> usize {
    match tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 1 => usize::from(size.ws_col) - 1,
        _ => 79,
    }
}

/// A line longer than the terminal's width could not be overwritten.
fn cut(text: &str, width: usize) -> String {
    text.chars().take(width).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(mode: Mode, say: impl Fn(&mut Screen<'_>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        say(&mut Screen::new(&mut out, mode)).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn both(screen: &mut Screen<'_>) -> io::Result<()> {
        screen.progress("half");
        screen.line("done")?;
        screen.object(Object::new().flag("held", true))
    }

    #[test]
    fn the_line_that_is_written_again_leaves_no_trace() {
        assert_eq!(shown(Mode::Live, both), "\r\x1b[Khalf\r\x1b[Kdone\n");
        assert_eq!(shown(Mode::Lines, both), "done\n");
        assert_eq!(shown(Mode::Json, both), "{\"held\":true}\n");
        assert_eq!(cut("äöü", 2), "äö");
    }
}
