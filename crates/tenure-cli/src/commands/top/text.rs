//! Cuts and wraps text by its width on a terminal, which is not its length.

use ratatui::text::Span;

/// The number of columns.
pub(super) fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// At most this many columns of it. If something is cut off, that is visible.
pub(super) fn fit(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut fitting = String::new();
    let mut left = columns.saturating_sub(1);
    for c in text.chars() {
        let wide = width(c.encode_utf8(&mut [0; 4]));
        if wide > left {
            break;
        }
        left -= wide;
        fitting.push(c);
    }
    if columns > 0 {
        fitting.push('…');
    }
    fitting
}

/// As many lines as needed, broken between words where possible. Each line but the first begins with as many
/// blanks as the text does, and two more.
pub(super) fn wrap(text: &str, columns: usize) -> Vec<String> {
    let indent = text.len() - text.trim_start_matches(' ').len();
    let indent = (indent + 2).min(columns / 2);
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for word in text.split_inclusive(' ') {
        if width(&line) + width(word.trim_end()) > columns && !line.trim().is_empty() {
            lines.push(line.trim_end().to_owned());
            line = " ".repeat(indent);
        }
        // A word that is wider than a line continues in the next.
        for c in word.chars() {
            if c == ' ' && width(&line) >= columns {
                // It would only make the next line begin with a blank.
                continue;
            }
            if width(&line) + width(c.encode_utf8(&mut [0; 4])) > columns {
                lines.push(line.trim_end().to_owned());
                line = " ".repeat(indent);
            }
            line.push(c);
        }
    }
    lines.push(line.trim_end().to_owned());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_cut_by_its_width() {
        assert_eq!(fit("backup", 6), "backup");
        assert_eq!(fit("backups", 6), "backu…");
        // Two columns each.
        assert_eq!(fit("日本語", 6), "日本語");
        assert_eq!(fit("日本語", 5), "日本…");
        assert_eq!(fit("日本語", 4), "日…");
        assert_eq!((fit("x", 0), fit("xy", 1)), (String::new(), "…".into()));
    }

    #[test]
    fn lines_break_between_words_and_keep_their_indent() {
        assert_eq!(wrap("one two three", 20), ["one two three"]);
        assert_eq!(wrap("  one two three", 10), ["  one two", "    three"]);
        assert_eq!(wrap("abcdefghij", 6), ["abcdef", "  ghij"]);
        assert_eq!(wrap("12345 ab", 5), ["12345", "  ab"]);
        assert_eq!(wrap("", 6), [""]);
        assert!(wrap("日本語日本語", 5).iter().all(|line| width(line) <= 5));
        // It does not loop for ever if there is no room at all.
        assert_eq!(wrap("ab", 1), ["a", "b"]);
    }
}
