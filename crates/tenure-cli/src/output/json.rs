//! JSON as commands print it: one object per line, keys in the order in which they were added.
//!
//! Text is escaped more than JSON requires: characters that a terminal would obey or not show are written as
//! `\u…`, so that a line is safe to print and loses nothing.

use std::fmt::Write as _;

use super::is_hidden;

/// An object that is being written.
#[derive(Clone, Debug)]
pub(crate) struct Object(String);

impl Object {
    /// An object without fields.
    pub(crate) fn new() -> Object {
        Object("{".to_owned())
    }

    /// An object that begins with the version of its format.
    pub(crate) fn versioned() -> Object {
        Object::new().number("v", 1)
    }

    /// A field of text.
    pub(crate) fn text(self, key: &str, value: &str) -> Object {
        self.raw(key, &quote(value))
    }

    /// A field of text, if there is some.
    pub(crate) fn maybe_text(self, key: &str, value: Option<&str>) -> Object {
        match value {
            Some(value) => self.text(key, value),
            None => self,
        }
    }

    /// A field with a whole number.
    pub(crate) fn number(self, key: &str, value: u64) -> Object {
        self.raw(key, &value.to_string())
    }

    /// A field with a number of milliseconds.
    pub(crate) fn millis(self, key: &str, value: std::time::Duration) -> Object {
        self.number(key, u64::try_from(value.as_millis()).unwrap_or(u64::MAX))
    }

    /// A field with a number with this many decimals.
    pub(crate) fn decimal(self, key: &str, value: f64, decimals: usize) -> Object {
        // JSON has no other numbers than these.
        let value = if value.is_finite() { value } else { 0.0 };
        self.raw(key, &format!("{value:.decimals$}"))
    }

    /// A field with a boolean.
    pub(crate) fn flag(self, key: &str, value: bool) -> Object {
        self.raw(key, if value { "true" } else { "false" })
    }

    /// A field that is null.
    pub(crate) fn null(self, key: &str) -> Object {
        self.raw(key, "null")
    }

    /// A field with a nested object.
    pub(crate) fn object(self, key: &str, value: Object) -> Object {
        self.raw(key, &value.end())
    }

    /// A field with a list of objects.
    pub(crate) fn list(self, key: &str, values: impl IntoIterator<Item = Object>) -> Object {
        let values: Vec<_> = values.into_iter().map(Object::end).collect();
        self.raw(key, &format!("[{}]", values.join(",")))
    }

    /// A field whose value is already JSON.
    pub(crate) fn json(self, key: &str, value: &str) -> Object {
        let mut safe = String::with_capacity(value.len());
        value.chars().for_each(|c| if is_hidden(c) { escape(c, &mut safe) } else { safe.push(c) });
        self.raw(key, &safe)
    }

    fn raw(mut self, key: &str, value: &str) -> Object {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push_str(&quote(key));
        self.0.push(':');
        self.0.push_str(value);
        self
    }

    /// The finished text, without a line break.
    pub(crate) fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            c if is_hidden(c) => escape(c, &mut quoted),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// JSON escapes have 16 bits each.
fn escape(c: char, text: &mut String) {
    for unit in c.encode_utf16(&mut [0; 2]) {
        let _ = write!(text, "\\u{unit:04x}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_one_line_whatever_is_in_it() {
        let inner = Object::new().flag("yes", true).maybe_text("none", None);
        let object = Object::versioned()
            .text("name", "a\n\"b\"\\\x1b\u{202e}\u{e0041}ü")
            .number("fence", 1842)
            .list("holders", [inner.clone(), Object::new()])
            .object("more", inner);
        assert_eq!(
            object.end(),
            "{\"v\":1,\"name\":\"a\\n\\\"b\\\"\\\\\\u001b\\u202e\\udb40\\udc41ü\",\"fence\":1842,\
             \"holders\":[{\"yes\":true},{}],\"more\":{\"yes\":true}}"
        );
    }
}
