//! `tenure setup`: creates what an engine needs before its first lock.

use std::io::Write;

use tenure::engines::postgres::{Postgres, PostgresConfig};

use crate::engine;
use crate::failure::{Exit, OK, Stop};
use crate::output::json::Object;
use crate::settings::Settings;

/// Creates the tables and functions in the database of the settings, or prints the SQL.
pub(crate) async fn run(
    print: bool,
    settings: &Settings,
    out: &mut dyn Write,
) -> Result<Exit, Stop> {
    if print {
        // Needs no server: the SQL is the same for all.
        write!(out, "{}", Postgres::setup_sql())?;
        return Ok(OK);
    }
    let scheme = settings.address.scheme();
    let needs_it = scheme.is_some_and(|scheme| PostgresConfig::SCHEMES.contains(&scheme));
    let address = settings.address.shown();
    if needs_it {
        let failed = |error: tenure::Error| engine::failure(&error, settings);
        let (config, _) = PostgresConfig::from_url(settings.address.url()?).map_err(failed)?;
        Postgres::set_up(config).await.map_err(failed)?;
    }
    if settings.json.value {
        writeln!(out, "{}", Object::versioned().flag("needed", needs_it).end())?;
    } else if needs_it {
        writeln!(out, "{address} is ready.")?;
    } else {
        writeln!(out, "{address} needs no setup.")?;
    }
    Ok(OK)
}
