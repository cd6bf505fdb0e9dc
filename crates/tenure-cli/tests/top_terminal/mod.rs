//! `tenure top` in a pseudo-terminal that `script` makes: types keys, and reads the screen.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};

use super::sandbox::{Sandbox, eventually};

/// The sequences with which a program takes over a terminal and gives it back.
const GIVEN_BACK: &str = "\x1b[?1049l";
const CURSOR: &str = "\x1b[?25h";

/// `tenure top` in a terminal of 80 columns and 24 lines.
pub(crate) struct TopTerminal {
    script: Child,
    keys: ChildStdin,
    said: Arc<Mutex<(String, Screen)>>,
}

impl TopTerminal {
    /// Starts `tenure top` in a shell that prints how it ended and whether the terminal was restored.
    pub(crate) fn new(sandbox: &Sandbox, url: &str, args: &str) -> TopTerminal {
        let line = format!(
            "stty cols 80 rows 24; before=$(stty -g); tty; \
             sh -c 'echo pid-$$; exec \"$TENURE\" top {args}'; echo rc-$?; \
             test \"$before\" = \"$(stty -g)\" && echo as before"
        );
        let mut script = Command::new("script");
        script.args(["-qfc", &line, "/dev/null"]).env_clear().current_dir(sandbox.folder());
        script.env("PATH", "/usr/bin:/bin").env("TERM", "xterm").env("USER", "tester");
        script.env("TENURE", env!("CARGO_BIN_EXE_tenure")).env("TENURE_URL", url);
        script.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut script = script.spawn().expect("`script` of util-linux is there");
        let keys = script.stdin.take().unwrap();
        let mut output = script.stdout.take().unwrap();
        let said = Arc::new(Mutex::new((String::new(), Screen::default())));
        let writes = said.clone();
        std::thread::spawn(move || {
            let (mut some, mut bytes) = ([0; 4096], Vec::new());
            while let Ok(length @ 1..) = output.read(&mut some) {
                bytes.extend_from_slice(&some[..length]);
                let mut said = writes.lock().unwrap();
                said.0 = String::from_utf8_lossy(&bytes).into_owned();
                said.1 = Screen::of(&said.0);
            }
        });
        TopTerminal { script, keys, said }
    }

    pub(crate) fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the screen shows it.
    #[track_caller]
    pub(crate) fn sees(&self, text: &str) {
        self.waits_for(text, |said| said.1.text().contains(text));
    }

    /// Waits until no line of the screen is longer.
    #[track_caller]
    pub(crate) fn sees_lines_up_to(&self, columns: usize) {
        self.waits_for("short lines", |said| {
            said.1.text().lines().all(|line| line.chars().count() <= columns)
        });
    }

    /// The word after a prefix, in the output before the screen was taken over.
    pub(crate) fn word(&self, prefix: &str) -> String {
        self.waits_for(prefix, |said| said.0.contains(prefix));
        let said = self.said.lock().unwrap();
        let (_, rest) = said.0.split_once(prefix).unwrap();
        rest.split_whitespace().next().unwrap().to_owned()
    }

    /// Waits until it ends; the terminal must be restored.
    #[track_caller]
    pub(crate) fn ends_with(&self, code: &str) {
        let end = format!("rc-{code}\r\nas before");
        self.waits_for(&end, |said| said.0.contains(&end));
        let said = self.said.lock().unwrap();
        assert!(said.0.contains(GIVEN_BACK) && said.0.contains(CURSOR), "{:?}", said.0);
    }

    #[track_caller]
    fn waits_for(&self, what: &str, is_so: impl Fn(&(String, Screen)) -> bool) {
        let waited = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            eventually(what, || is_so(&self.said.lock().unwrap()));
        }));
        let said = self.said.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        assert!(waited.is_ok(), "{what:?} is not seen; the screen is\n{}", said.1.text());
    }
}

impl Drop for TopTerminal {
    fn drop(&mut self) {
        // Closing the terminal ends the processes in it.
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

/// A terminal, as far as `tenure top` uses one: it moves the cursor, writes and clears.
#[derive(Default)]
struct Screen {
    lines: Vec<Vec<char>>,
    at: (usize, usize),
}

impl Screen {
    fn of(said: &str) -> Screen {
        let mut screen = Screen::default();
        let mut rest = said;
        while let Some(c) = rest.chars().next() {
            rest = &rest[c.len_utf8()..];
            match c {
                '\x1b' => {
                    let Some(end) = rest.find(|c: char| c.is_ascii_alphabetic()) else { break };
                    screen.obey(&rest[..=end]);
                    rest = &rest[end + 1..];
                }
                '\r' => screen.at.1 = 0,
                '\n' => screen.at.0 += 1,
                c => screen.put(c),
            }
        }
        screen
    }

    fn obey(&mut self, order: &str) {
        let numbers = order.trim_start_matches('[');
        match order.chars().last() {
            Some('H') => {
                let place = numbers.trim_end_matches('H').split_once(';').unwrap_or(("1", "1"));
                let number = |text: &str| text.parse::<usize>().unwrap_or(1) - 1;
                self.at = (number(place.0), number(place.1));
            }
            Some('J') => self.lines.clear(),
            _ => {}
        }
    }

    fn put(&mut self, c: char) {
        let (line, column) = self.at;
        if self.lines.len() <= line {
            self.lines.resize(line + 1, Vec::new());
        }
        let line = &mut self.lines[line];
        if line.len() <= column {
            line.resize(column + 1, ' ');
        }
        line[column] = c;
        self.at.1 += 1;
    }

    fn text(&self) -> String {
        let line = |line: &Vec<char>| line.iter().collect::<String>().trim_end().to_owned();
        self.lines.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}
