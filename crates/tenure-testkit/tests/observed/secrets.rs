//! Planted secrets, and all the ways in which they could be written.

use std::io;
use std::sync::{Mutex, PoisonError};

use tenure::engine::{ClaimId, Job, Moment, Result, SystemWorld, World};

pub(crate) const PASSWORD: &str = "hunter2-open-sesame/17";
/// As encoded in a URL.
pub(crate) const ENCODED: &str = "hunter2-open-sesame%2F17";

/// The real world, which remembers the ids that it minted.
#[derive(Default)]
pub(crate) struct Minted(Mutex<Vec<[u8; 16]>>);

impl Minted {
    pub(crate) fn ids(&self) -> Vec<[u8; 16]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The secret of a hold with one of the ids.
    pub(crate) fn planted(&self) -> String {
        let id = self.ids()[0].iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        format!("t1-{id}-7-30000")
    }
}

impl std::fmt::Debug for Minted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Minted")
    }
}

impl World for Minted {
    fn now(&self) -> Moment {
        SystemWorld.now()
    }

    fn mint(&self) -> Result<ClaimId> {
        let id = SystemWorld.mint()?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(id.to_bytes());
        Ok(id)
    }

    fn start(&self, job: Job) -> io::Result<()> {
        SystemWorld.start(job)
    }
}

/// An id as a log would spell it: in hex, in base64, in decimal, as a list, as raw bytes, whole or
/// the larger half of it.
pub(crate) fn spellings(id: &[u8; 16]) -> Vec<String> {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let list = |bytes: &[u8]| format!("{bytes:?}").trim_matches(['[', ']']).to_owned();
    let (big, little) = (u128::from_be_bytes(*id), u128::from_le_bytes(*id));
    let mut all = vec![
        hex(&id[..8]),
        hex(&id[8..]),
        list(&id[..6]),
        list(&id[10..]),
        big.to_string(),
        little.to_string(),
        format!("{little:032x}"),
        base64(&id[..9], b"+/"),
        base64(&id[..9], b"-_"),
    ];
    let raw = String::from_utf8_lossy(id).into_owned();
    all.extend([format!("{raw:?}").trim_matches('"').to_owned(), raw]);
    all.push(id.escape_ascii().to_string());
    all
}

pub(crate) fn of_password() -> Vec<String> {
    let bytes = format!("{:?}", PASSWORD.as_bytes());
    vec![
        PASSWORD.to_owned(),
        ENCODED.to_owned(),
        "hunter2".to_owned(),
        "sesame".to_owned(),
        bytes.trim_matches(['[', ']']).to_owned(),
        base64(&PASSWORD.as_bytes()[..18], b"+/"),
    ]
}

/// Whole groups of three bytes, so that what follows does not matter.
fn base64(bytes: &[u8], last: &[u8; 2]) -> String {
    let letter = |six: u32| match six {
        0..26 => b'A' + six as u8,
        26..52 => b'a' + (six - 26) as u8,
        52..62 => b'0' + (six - 52) as u8,
        62 => last[0],
        _ => last[1],
    };
    let four = |three: &[u8]| {
        let bits = three.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
        [18, 12, 6, 0].map(|shift| char::from(letter(bits >> shift & 63)))
    };
    bytes.chunks_exact(3).flat_map(four).collect()
}
