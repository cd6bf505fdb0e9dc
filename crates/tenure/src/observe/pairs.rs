//! The pairs of a claim's details, in a format that log readers understand.

use std::fmt;

use tracing::field::{DisplayValue, display};

/// Pairs as a JSON object, which log readers understand; `None` if there are none.
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
