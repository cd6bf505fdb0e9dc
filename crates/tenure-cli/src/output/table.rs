//! Tables for people: columns as wide as their contents.

use std::io::{self, Write};

use super::Paint;

/// Prints the rows, two blanks between columns; the first row is the heading. The last cell of a row is not
/// padded.
pub(crate) fn print<const N: usize>(
    rows: &[[String; N]],
    paint: Paint,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    for (number, row) in rows.iter().enumerate() {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', width - cell.chars().count() + 2));
        }
        let line = line.trim_end();
        match number {
            0 => writeln!(out, "{}", paint.strong(line))?,
            _ => writeln!(out, "{line}")?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = |a: &str, b: &str| [a.to_owned(), b.to_owned()];
        let mut out = Vec::new();
        let rows = [row("NAME", "NOTE"), row("wallet:ü", ""), row("x", "y")];
        print(&rows, Paint::PLAIN, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "NAME      NOTE\nwallet:ü\nx         y\n");
    }
}
