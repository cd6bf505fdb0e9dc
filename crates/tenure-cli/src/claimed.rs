//! A claim that another process acquired: where `renew`, `release` and `check` take it from.
//!
//! It is a secret, so it comes from the environment or from standard input, and never from the command
//! line, which everyone on this host can see.

use std::io::{self, Read};

use tenure::{Detached, Error, ErrorKind};

use crate::engine;
use crate::failure::{CONFIGURATION, Failure, NO, USAGE};
use crate::output::{quoted, typed};
use crate::settings::Settings;

/// More than any claim has, in bytes.
const MOST: u64 = 4096;

/// Which hold is meant, and where its claim is.
#[derive(Debug)]
pub(crate) struct Claimed {
    /// What is held, as it was typed.
    pub(crate) name: String,
    /// Whether the claim comes from standard input instead of `TENURE_CLAIM`.
    pub(crate) from_stdin: bool,
}

impl Claimed {
    /// Reads the claim.
    pub(crate) fn read(&self, settings: &Settings) -> Result<Detached, Failure> {
        let name = typed(&self.name);
        let help = format!(
            "`TENURE_CLAIM=$(tenure acquire {name})`, exported; or pipe it in, with `-` for it"
        );
        let (said, exit, secret) = match self.from_stdin {
            true => ("standard input", USAGE, from_stdin()?),
            false => {
                let Some(secret) = std::env::var_os("TENURE_CLAIM") else {
                    let why = "TENURE_CLAIM is not set";
                    return Err(Failure::new(USAGE, "there is no claim", why, help));
                };
                ("TENURE_CLAIM", CONFIGURATION, secret.into_string().unwrap_or_default())
            }
        };
        Detached::from_secret(&settings.full_name(&self.name), &secret).map_err(|error| {
            if error.kind() != ErrorKind::Conflict {
                let what = format!("{said} has no claim");
                return Failure::new(exit, what, engine::reason(&error), help);
            }
            Failure::new(
                USAGE,
                format!("the claim in {said} is not one of {}", quoted(&self.name)),
                "it was acquired with another name, or in another namespace",
                "say the name that it was acquired with",
            )
        })
    }

    /// What to say when the hold has ended, or whatever else the error is about.
    pub(crate) fn ended(&self, error: &Error, settings: &Settings) -> Failure {
        if error.kind() != ErrorKind::Lost {
            return engine::failure(error, settings);
        }
        Failure::new(
            NO,
            format!("the hold of {} has ended", quoted(&self.name)),
            engine::reason(error),
            "a longer --ttl, or renew in time; what was done after its end was not protected",
        )
        .code("T013")
    }
}

fn from_stdin() -> Result<String, Failure> {
    let mut text = Vec::new();
    let read = io::stdin().lock().take(MOST).read_to_end(&mut text);
    read.map_err(|error| {
        let help = "look where standard input comes from";
        Failure::new(USAGE, "standard input cannot be read", error.to_string(), help)
    })?;
    Ok(String::from_utf8(text).unwrap_or_default())
}
