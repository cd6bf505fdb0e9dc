//! A claim that another process acquired, for `renew`, `release` and `check`.
//!
//! It is a secret, so it comes from the environment or from standard input, and never from the command
//! line, which everyone on this host can see.

use std::io::{self, Read};

use tenure::{Detached, Error, ErrorKind};

use crate::engine;
use crate::failure::{CONFIGURATION, Failure, NO, USAGE};
use crate::output::{quoted, typed};
use crate::settings::Settings;

/// More bytes than any claim has.
const MOST: u64 = 4096;

/// The name of the hold, and where to read its claim from.
#[derive(Debug)]
pub(crate) struct DetachedClaim {
    /// The name as the user typed it.
    pub(crate) name: String,
    /// Whether the claim comes from standard input instead of `TENURE_CLAIM`.
    pub(crate) from_stdin: bool,
}

impl DetachedClaim {
    /// Reads the claim.
    pub(crate) fn read(&self, settings: &Settings) -> Result<Detached, Failure> {
        let name = typed(&self.name);
        let help = format!(
            "`TENURE_CLAIM=$(tenure acquire {name})` and export it, or pipe the claim in and pass `-`"
        );
        let (said, exit, secret) = match self.from_stdin {
            true => ("standard input", USAGE, from_stdin()?),
            false => {
                let Some(secret) = std::env::var_os("TENURE_CLAIM") else {
                    let why = "TENURE_CLAIM is not set";
                    return Err(Failure::new(USAGE, "no claim given", why, help));
                };
                ("TENURE_CLAIM", CONFIGURATION, secret.into_string().unwrap_or_default())
            }
        };
        Detached::from_secret(&settings.full_name(&self.name), &secret).map_err(|error| {
            if error.kind() != ErrorKind::Conflict {
                let what = format!("{said} is not a claim");
                return Failure::new(exit, what, engine::reason(&error), help);
            }
            Failure::new(
                USAGE,
                format!("the claim in {said} does not belong to {}", quoted(&self.name)),
                "it was acquired under another name, or in another namespace",
                "use the name that it was acquired with",
            )
        })
    }

    /// The failure for a hold that has ended, or for any other error.
    pub(crate) fn ended(&self, error: &Error, settings: &Settings) -> Failure {
        if error.kind() != ErrorKind::Lost {
            return engine::failure(error, settings);
        }
        Failure::new(
            NO,
            format!("{} is no longer held", quoted(&self.name)),
            engine::reason(error),
            "use a longer --ttl, or renew in time; what was done after it expired was not protected",
        )
        .code("T013")
    }
}

fn from_stdin() -> Result<String, Failure> {
    let mut text = Vec::new();
    let read = io::stdin().lock().take(MOST).read_to_end(&mut text);
    read.map_err(|error| {
        let help = "check where standard input comes from";
        Failure::new(USAGE, "cannot read standard input", error.to_string(), help)
    })?;
    Ok(String::from_utf8(text).unwrap_or_default())
}
