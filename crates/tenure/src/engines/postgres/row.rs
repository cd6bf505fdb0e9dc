//! A row as one value: as text where it is sent, as bytes where it comes.

use std::error::Error as StdError;
use std::fmt::{self, Display, Write};

use tokio_postgres::Row;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{Format, FromSql, IsNull, ToSql, Type, to_sql_checked};

/// Something that has columns.
pub(super) trait Columns {
    /// A column; `None` if it is not there, or is something else.
    fn column<'a, T: FromSql<'a>>(&'a self, at: usize) -> Option<T>;
}

impl Columns for Row {
    fn column<'a, T: FromSql<'a>>(&'a self, at: usize) -> Option<T> {
        self.try_get(at).ok()
    }
}

/// The fields of a row that came as one value, in the server's binary form.
pub(super) struct Fields<'a>(Vec<(Type, Option<&'a [u8]>)>);

impl<'a> Fields<'a> {
    /// Reads them; `None` if it is not a row.
    pub(super) fn read(mut bytes: &'a [u8]) -> Option<Fields<'a>> {
        let word = |bytes: &mut &'a [u8]| -> Option<[u8; 4]> {
            let (word, rest) = bytes.split_first_chunk()?;
            *bytes = rest;
            Some(*word)
        };
        let count = i32::from_be_bytes(word(&mut bytes)?);
        let mut fields = Vec::new();
        for _ in 0..count {
            let oid = u32::from_be_bytes(word(&mut bytes)?);
            let length = i32::from_be_bytes(word(&mut bytes)?);
            let value = match usize::try_from(length) {
                Ok(length) => {
                    let (value, rest) = bytes.split_at_checked(length)?;
                    bytes = rest;
                    Some(value)
                }
                // Less than nothing is NULL.
                Err(_) => None,
            };
            fields.push((Type::from_oid(oid)?, value));
        }
        bytes.is_empty().then_some(Fields(fields))
    }
}

impl Columns for Fields<'_> {
    fn column<'a, T: FromSql<'a>>(&'a self, at: usize) -> Option<T> {
        let (ty, value) = self.0.get(at)?;
        if !T::accepts(ty) {
            return None;
        }
        T::from_sql_nullable(ty, *value).ok()
    }
}

/// A row that is sent as text. Its `Debug` output does not contain it.
#[derive(Default)]
pub(super) struct RowText(String);

impl RowText {
    pub(super) fn text(&mut self, text: &str) {
        self.field(Some(text));
    }

    pub(super) fn number(&mut self, number: impl Into<i64>) {
        self.field(Some(number.into()));
    }

    pub(super) fn flag(&mut self, flag: bool) {
        self.field(Some(if flag { 't' } else { 'f' }));
    }

    /// 128 bits.
    pub(super) fn id(&mut self, id: u128) {
        self.field(Some(format_args!("{id:032x}")));
    }

    pub(super) fn maybe(&mut self, value: Option<impl Display>) {
        self.field(value);
    }

    pub(super) fn list(&mut self, texts: impl Iterator<Item = String>) {
        let texts: Vec<_> = texts
            .map(|text| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")))
            .collect();
        self.field(Some(format_args!("{{{}}}", texts.join(","))));
    }

    /// Ends the row. The server finds out from the function which row it is.
    pub(super) fn end(mut self) -> (Box<dyn ToSql + Sync + Send>, Type) {
        self.0.push(')');
        (Box::new(self), Type::UNKNOWN)
    }

    fn field(&mut self, value: Option<impl Display>) {
        self.0.push(if self.0.is_empty() { '(' } else { ',' });
        let Some(value) = value else { return };
        self.0.push('"');
        // Writing to a string cannot fail.
        let _ = write!(Quoting(&mut self.0), "{value}");
        self.0.push('"');
    }
}

/// Doubles what has a meaning between quotation marks.
struct Quoting<'a>(&'a mut String);

impl Write for Quoting<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            match character {
                '"' | '\\' => self.0.extend([character, character]),
                // Postgres has none.
                '\0' => self.0.push('\u{FFFD}'),
                _ => self.0.push(character),
            }
        }
        Ok(())
    }
}

impl fmt::Debug for RowText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RowText(…)")
    }
}

impl ToSql for RowText {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        out.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::UNKNOWN
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Text
    }

    to_sql_checked!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_in_a_row_means_nothing() {
        let mut row = RowText::default();
        row.text("a\"b\\c,d)\0");
        row.maybe(None::<i64>);
        row.list(["x\"y".to_owned(), "\\{}".to_owned(), String::new()].into_iter());
        row.text("");
        row.number(-1);
        row.flag(true);
        row.id(0x1F);
        assert_eq!(format!("{row:?}"), "RowText(…)");
        let zeros = "0".repeat(30);
        let expected = format!(
            r#"("a""b\\c,d)�",,"{{""x\\""y"",""\\\\{{}}"",""""}}","","-1","t","{zeros}1f""#
        );
        assert_eq!(row.0, expected);
    }

    #[test]
    fn fields_are_read_and_nothing_else() {
        let mut bytes = vec![0, 0, 0, 2];
        for (oid, length, value) in [(20_u32, 8, &7_i64.to_be_bytes()[..]), (25, -1, &[])] {
            bytes.extend(oid.to_be_bytes());
            bytes.extend(i32::to_be_bytes(length));
            bytes.extend(value);
        }
        let fields = Fields::read(&bytes).unwrap();
        assert_eq!(fields.column::<i64>(0), Some(7));
        assert_eq!(fields.column::<&str>(0), None, "it is a number");
        assert_eq!(fields.column::<Option<String>>(1), Some(None));
        assert_eq!(fields.column::<i64>(1), None, "NULL is no number");
        assert_eq!(fields.column::<i64>(2), None);
        for end in 0..bytes.len() {
            assert!(Fields::read(&bytes[..end]).is_none(), "cut at {end}");
        }
        bytes.push(0);
        assert!(Fields::read(&bytes).is_none(), "too long");
    }
}
