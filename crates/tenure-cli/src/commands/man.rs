//! `tenure man`: the manual, as man(1) reads it.

use std::io::Write;

use clap::Command as Words;
use clap_mangen::Man;

use crate::args;
use crate::commands::explain;
use crate::failure::{Exit, Failure, OK, Stop, USAGE};
use crate::output::quoted;

/// Prints the page of everything, or of one command.
pub(crate) fn run(command: Option<&str>, out: &mut dyn Write) -> Result<Exit, Stop> {
    let mut words = args::define();
    words.build();
    let page = match command {
        None => words,
        Some(name) => match words.find_subcommand(name) {
            Some(found) => found.clone().name(format!("tenure-{name}")),
            None => {
                let known: Vec<_> = words.get_subcommands().map(Words::get_name).collect();
                let what = format!("no manual page for {}", quoted(name));
                let known = format!("commands: {}", known.join(", "));
                let help = "`tenure man` prints the main page";
                return Err(Failure::new(USAGE, what, known, help).into());
            }
        },
    };
    let mut text = Vec::new();
    Man::new(page).render(&mut text)?;
    out.write_all(&text)?;
    if command.is_none() {
        writeln!(out, ".SH \"EXIT STATUS\"\n.nf\n{}.fi", explain::exit_codes())?;
    }
    Ok(OK)
}
