//! What commands print: text that cannot harm a terminal, durations, colour, notes.

pub(crate) mod json;
pub(crate) mod table;

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

/// The longest text of others that is printed, in characters.
const LONGEST: usize = 160;
/// The same for a whole sentence, such as an error of the library.
const LONGEST_SENTENCE: usize = 600;

/// Makes text of others harmless (S117): characters that move the cursor, reorder the line or are invisible are
/// printed as numbers, and long texts are cut.
pub(crate) fn clean(text: &str) -> String {
    harmless(text, LONGEST)
}

/// The same for a whole sentence, which may be longer.
pub(crate) fn clean_sentence(text: &str) -> String {
    harmless(text, LONGEST_SENTENCE)
}

fn harmless(text: &str, longest: usize) -> String {
    let mut clean = String::new();
    for (count, c) in text.chars().enumerate() {
        if count == longest {
            clean.push('…');
            break;
        }
        match c {
            '\n' => clean.push_str("\\n"),
            '\t' => clean.push_str("\\t"),
            '\r' => clean.push_str("\\r"),
            c if is_hidden(c) => {
                let _ = write!(clean, "\\u{{{:x}}}", c as u32);
            }
            c => clean.push(c),
        }
    }
    clean
}

/// The same in quotes, for use in a sentence.
pub(crate) fn quoted(text: &str) -> String {
    format!("\"{}\"", clean(text).replace('"', "\\\""))
}

/// A word of the command line that is safe to repeat: hides what looks like a claim, or like a URL with a
/// password.
pub(crate) fn discreet(word: &str) -> String {
    match word.split_once("://") {
        _ if word.contains("t1-") => "…".to_owned(),
        Some((scheme, rest)) if rest.contains('@') => format!("{scheme}://…"),
        _ => word.to_owned(),
    }
}

/// A word as it must be typed into a shell, quoted if necessary.
pub(crate) fn typed(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => clean(word),
        false => format!("'{}'", clean(word).replace('\'', r"'\''")),
    }
}

/// Whether a character is not printed as it is: control characters, those that change the direction of text, and
/// those without width.
pub(crate) fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}')
}

/// A duration for people, in its two largest units: `3m12s`, `6d4h`, `41s`, `120ms`.
pub(crate) fn span(span: Duration) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    let seconds = span.as_secs();
    let Some(largest) = UNITS.iter().position(|(size, _)| seconds >= *size) else {
        return match span.as_millis() {
            0 => "0s".to_owned(),
            millis => format!("{millis}ms"),
        };
    };
    let (size, unit) = UNITS[largest];
    let first = format!("{}{unit}", seconds / size);
    match UNITS.get(largest + 1) {
        Some((size_below, unit)) if seconds % size / size_below > 0 => {
            format!("{first}{}{unit}", seconds % size / size_below)
        }
        _ => first,
    }
}

/// The same with a tenth where that is useful: `41.2s`.
pub(crate) fn precise(time: Duration) -> String {
    match time.as_secs() {
        1..60 => format!("{:.1}s", time.as_secs_f64()).replace(".0s", "s"),
        _ => span(time),
    }
}

/// Prints in colour, or without.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Paint {
    on: bool,
}

/// When to use colour.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Color {
    /// On a terminal, unless `NO_COLOR` is set or it is a dumb one.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Paint {
    /// Without colour.
    pub(crate) const PLAIN: Paint = Paint { on: false };

    /// For standard output.
    pub(crate) fn for_stdout(color: Color) -> Paint {
        Paint::new(color, io::stdout().is_terminal())
    }

    /// For standard error.
    pub(crate) fn for_stderr(color: Color) -> Paint {
        Paint::new(color, io::stderr().is_terminal())
    }

    fn new(color: Color, is_terminal: bool) -> Paint {
        let wanted = || {
            let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
            is_terminal && !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|t| t != "dumb")
        };
        let on = match color {
            Color::Auto => wanted(),
            Color::Always => true,
            Color::Never => false,
        };
        Paint { on }
    }

    /// Something bad.
    pub(crate) fn bad(self, text: &str) -> String {
        self.with("1;31", text)
    }

    /// Something that stands out.
    pub(crate) fn strong(self, text: &str) -> String {
        self.with("1", text)
    }

    fn with(self, style: &str, text: &str) -> String {
        if self.on { format!("\x1b[{style}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Prints notes, which are not results: to standard error, one line each, or not at all with `--quiet`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notes {
    quiet: bool,
}

impl Notes {
    /// Notes, unless quiet.
    pub(crate) fn new(quiet: bool) -> Notes {
        Notes { quiet }
    }

    /// Prints one line, in one write, so that lines of several processes do not mix.
    pub(crate) fn say(self, text: &str) {
        if !self.quiet {
            // If standard error is gone, there is nobody to tell.
            let _ = io::stderr().write_all(format!("tenure: {text}\n").as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_harm_a_terminal_is_shown_as_its_number() {
        assert_eq!(
            clean("a\x1b[31mb\r\nc\u{202e}d\u{9b}e"),
            "a\\u{1b}[31mb\\r\\nc\\u{202e}d\\u{9b}e"
        );
        assert_eq!(clean("wallet:0x9f/ü €"), "wallet:0x9f/ü €");
        assert_eq!(clean(&"x".repeat(1 << 20)).chars().count(), LONGEST + 1);
        assert_eq!(quoted("say \"x\""), "\"say \\\"x\\\"\"");
    }

    #[test]
    fn what_may_be_a_secret_is_not_repeated() {
        assert_eq!(discreet("redis://:hunter2@redis-1"), "redis://…");
        assert_eq!(discreet("--url=redis://u:hunter2@h/0"), "--url=redis://…");
        assert_eq!(discreet("t1-00ff-7-30000"), "…");
        assert_eq!(discreet("redis://redis-1"), "redis://redis-1");
        assert_eq!(discreet("./x.sh"), "./x.sh");
    }

    #[test]
    fn spans_have_their_two_largest_units() {
        for (millis, said) in [
            (0, "0s"),
            (7, "7ms"),
            (41_200, "41s"),
            (192_031, "3m12s"),
            (180_000, "3m"),
            (3_600_000, "1h"),
            (3_659_000, "1h"),
            (3_660_000, "1h1m"),
            (532_800_000, "6d4h"),
        ] {
            assert_eq!(span(Duration::from_millis(millis)), said);
        }
        assert_eq!(precise(Duration::from_millis(41_230)), "41.2s");
        assert_eq!(precise(Duration::from_secs(3)), "3s");
        assert_eq!(precise(Duration::from_millis(412)), "412ms");
        assert_eq!(precise(Duration::from_secs(75)), "1m15s");
    }
}
