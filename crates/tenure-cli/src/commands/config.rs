//! `tenure config`: each setting, its value, and where that comes from.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write;

use clap::Arg;

use crate::args::{self, Source, variable_of};
use crate::failure::{Exit, OK, Stop};
use crate::output::json::Object;
use crate::output::{clean, table};
use crate::settings::{COLORS, FORMATS, LEVELS, Settings};

/// Variables that are not settings: `run` sets them for its command, or other commands read them.
const OTHERS: [&str; 8] = [
    "TENURE_NAME",
    "TENURE_FENCE",
    "TENURE_KIND",
    "TENURE_TERM",
    "TENURE_WITHIN",
    "TENURE_RUN",
    "TENURE_CLAIM",
    "TENURE_TOKENS",
];

/// Printed if there is no value.
const NONE: &str = "-";

/// One setting.
struct Row {
    setting: String,
    value: String,
    from: &'static str,
    /// Its variable.
    variable: String,
}

/// Prints all settings. A value that a command would refuse is an error here, too, after all are printed.
pub(crate) fn run(settings: &Settings, out: &mut dyn Write) -> Result<Exit, Stop> {
    let mut rows = of_all_commands(settings);
    rows.extend(of_some_commands(settings));
    if cfg!(feature = "relay") && settings.log_level.source == Source::Default {
        // It serves others, and logs more.
        let (setting, value) = ("relay log-level".to_owned(), "info".to_owned());
        let variable = variable_of("log-level");
        rows.push(Row { setting, value, from: from(Source::Default), variable });
    }
    if settings.json.value {
        for Row { setting, value, from, variable } in &rows {
            let value = Some(&**value).filter(|value| *value != NONE);
            let object = Object::versioned().text("setting", setting).maybe_text("value", value);
            writeln!(out, "{}", object.text("from", from).text("variable", variable).end())?;
        }
        args::check(&|name| std::env::var_os(name))?;
        return Ok(OK);
    }
    let heading = ["SETTING", "VALUE", "FROM", "VARIABLE"].map(str::to_owned);
    let cells = rows.iter().map(|row| {
        [row.setting.clone(), clean(&row.value), row.from.to_owned(), row.variable.clone()]
    });
    let table: Vec<_> = std::iter::once(heading).chain(cells).collect();
    table::print(&table, settings.paint(), out)?;
    let names = std::env::vars_os().map(|(name, _)| name);
    for unknown in unknown(&rows, names) {
        settings.notes().say(&format!("{} is set, but there is no such setting", clean(&unknown)));
    }
    args::check(&|name| std::env::var_os(name))?;
    Ok(OK)
}

fn of_all_commands(settings: &Settings) -> Vec<Row> {
    let Settings { address, ns, json, quiet, color, log_level, log_format } = settings;
    let yes = |value: bool| if value { "yes" } else { "no" }.to_owned();
    let ns_source = ns.as_ref().map_or(Source::Default, |ns| ns.source);
    let ns = ns.as_ref().map_or_else(|| NONE.to_owned(), |ns| ns.value.clone());
    [
        ("url", address.shown(), address.source),
        ("ns", ns, ns_source),
        ("json", yes(json.value), json.source),
        ("quiet", yes(quiet.value), quiet.source),
        ("color", word(&COLORS, color.value), color.source),
        ("log-level", word(&LEVELS, log_level.value), log_level.source),
        ("log-format", word(&FORMATS, log_format.value), log_format.source),
    ]
    .map(|(setting, value, source)| Row {
        setting: setting.to_owned(),
        value,
        from: from(source),
        variable: variable_of(setting),
    })
    .into()
}

fn from(source: Source) -> &'static str {
    match source {
        Source::Flag => "flag",
        Source::Variable => "variable",
        Source::Default => "default",
    }
}

fn word<T: PartialEq>(words: &[(&str, T)], value: T) -> String {
    let known = words.iter().find(|(_, known)| *known == value);
    known.map(|(word, _)| (*word).to_owned()).unwrap_or_default()
}

/// Settings of only some commands: from variables, from the URL, and the defaults.
fn of_some_commands(settings: &Settings) -> Vec<Row> {
    let from_url: BTreeMap<_, _> = settings.address.fields().into_iter().collect();
    let mut rows: Vec<Row> = Vec::new();
    let mut defaults: BTreeMap<String, String> = BTreeMap::new();
    let words = args::define();
    let args = words
        .get_subcommands()
        .flat_map(|command| command.get_arguments().map(move |arg| (command.get_name(), arg)));
    for (command, arg) in args {
        let Some((setting, default)) = described(arg) else { continue };
        let (variable, in_url) =
            (variable_of(&setting), from_url.get(&setting.replace('-', "_")).cloned());
        let said = std::env::var_os(&variable).map(|value| value.to_string_lossy().into_owned());
        // A command with its own default, which the URL's default for all others does not change.
        let (setting, in_url) = match defaults.get(&setting) {
            Some(known) if *known == default || default == NONE => continue,
            Some(_) => (format!("{command} {setting}"), None),
            None => {
                defaults.insert(setting.clone(), default.clone());
                (setting, in_url)
            }
        };
        let (value, from) = match (said, in_url) {
            // The URL of a node often contains a key.
            (Some(_), _) if setting == "upstream" => ("set".to_owned(), "variable"),
            (Some(said), _) => (said, "variable"),
            (None, Some(in_url)) => (in_url, "url"),
            (None, None) => (default, "default"),
        };
        rows.push(Row { setting, value, from, variable });
    }
    rows
}

/// A flag that has a variable, with the default that its help names.
fn described(arg: &Arg) -> Option<(String, String)> {
    let (long, help) = (arg.get_long()?, arg.get_help()?.to_string());
    if !help.contains("[env: ") {
        return None;
    }
    let default = help.split_once("[default: ").and_then(|(_, rest)| rest.split_once(']'));
    Some((long.to_owned(), default.map_or(NONE, |(default, _)| default).to_owned()))
}

/// Variables that look like ours and are not: otherwise a typo would go unnoticed.
fn unknown(rows: &[Row], names: impl Iterator<Item = OsString>) -> Vec<String> {
    let names = names.filter_map(|name| name.into_string().ok());
    let ours = |name: &str| {
        name == variable_of("verbose")
            || OTHERS.contains(&name)
            || rows.iter().any(|row| row.variable == name)
    };
    names.filter(|name| name.starts_with("TENURE_") && !ours(name)).collect()
}
