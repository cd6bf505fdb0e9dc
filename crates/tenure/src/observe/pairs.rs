//! What a claim says of itself in pairs, as every reader of logs can read it.

use std::fmt;

use tracing::field::{DisplayValue, display};

/// Pairs as an object of JSON, which every reader of logs can read; none if there are none.
pub(super) fn pairs(pairs: &[(String, String)]) -> Option<DisplayValue<Pairs<'_>>> {
    (!pairs.is_empty()).then(|| display(Pairs(pairs)))
}

pub(super) struct Pairs<'a>(&'a [(String, String)]);

impl fmt::Display for Pairs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (key, value)) in self.0.iter().enumerate() {
            let begin = if number == 0 { "{" } else { "," };
            write!(f, "{begin}{}:{}", Quoted(key), Quoted(value))?;
        }
        f.write_str("}")
    }
}

struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                c if c.is_control() => write!(f, "\\u{:04x}", u32::from(c))?,
                c => write!(f, "{c}")?,
            }
        }
        f.write_str("\"")
    }
}
