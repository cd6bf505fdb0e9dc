//! The table of what was seen.

use std::io::{self, Write};

/// One proof in the table.
pub(super) struct Row {
    /// The proof.
    pub(super) name: String,
    /// What was seen without, in a few words.
    pub(super) without: String,
    /// What was seen with, in a few words.
    pub(super) with: String,
    /// Whether the proof held.
    pub(super) held: bool,
}

/// Prints the table, each column as wide as it needs to be.
pub(super) fn print(rows: &[Row], out: &mut dyn Write) -> io::Result<()> {
    let heading = ["PROOF", "WITHOUT", "WITH", "VERDICT"];
    let cells = rows.iter().map(|row| {
        [&*row.name, &*row.without, &*row.with, if row.held { "held" } else { "FAILED" }]
    });
    let lines: Vec<_> = std::iter::once(heading).chain(cells).collect();
    let width = |column: usize| {
        lines.iter().map(|line| line[column].chars().count()).max().unwrap_or_default()
    };
    let (first, second, third) = (width(0), width(1), width(2));
    for [name, without, with, verdict] in &lines {
        writeln!(out, "{name:first$}  {without:second$}  {with:third$}  {verdict}")?;
    }
    Ok(())
}
