//! The schema language: `id INT, bid_price DOUBLE, order_time TIMESTAMP(3) NOT NULL`.
//!
//! Flink SQL's words for types, read with sqlparser's tokenizer: its grammar knows no `ROW<…>`. What is
//! written here reads back as the same schema.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, Schema, TimeUnit};
use sqlparser::dialect::MySqlDialect;
use sqlparser::tokenizer::{Token, Tokenizer};

use crate::error::{Error, Result};

/// The field metadata that keeps a precision other than the one of the column's unit.
pub const PRECISION_KEY: &str = "segue.precision";

const UTC: &str = "UTC";

/// What a column can be, for an error message.
const TYPES: &str = "TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL(p,s), BOOLEAN, STRING, BYTES, DATE, TIME(p), \
                     TIMESTAMP(p), TIMESTAMP_LTZ(p), ARRAY<t>, MAP<k, v>, ROW<name t>";

/// Reads a schema.
///
/// # Errors
/// [`Error::Schema`] that names what was expected, and where.
pub fn parse_schema(text: &str) -> Result<Schema> {
    // MySQL's tokenizer takes backticks for identifiers; double quotes are identifiers here too.
    let dialect = MySqlDialect {};
    let tokens = Tokenizer::new(&dialect, text)
        .tokenize()
        .map_err(|e| Error::Schema(format!("schema: {e}")))?
        .into_iter()
        .filter(|token| !matches!(token, Token::Whitespace(_)))
        .collect();
    let mut parser = Parser { tokens, next: 0 };
    if parser.tokens.is_empty() {
        return Err(Error::Schema("schema: it has no columns".into()));
    }
    let mut fields: Vec<Field> = Vec::new();
    loop {
        let field = parser.column()?;
        if fields.iter().any(|other| other.name() == field.name()) {
            return Err(Error::Schema(format!("schema: column {} stands there twice", field.name())));
        }
        fields.push(field);
        if !parser.take(&Token::Comma) {
            break;
        }
        if parser.peek().is_none() {
            break; // a comma at the end
        }
    }
    match parser.peek() {
        None => Ok(Schema::new(fields)),
        Some(_) => Err(parser.expected("',' or the end")),
    }
}

struct Parser {
    tokens: Vec<Token>,
    next: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next)
    }

    fn take(&mut self, token: &Token) -> bool {
        let found = self.peek() == Some(token);
        if found {
            self.next += 1;
        }
        found
    }

    fn expect(&mut self, token: &Token) -> Result<()> {
        if self.take(token) { Ok(()) } else { Err(self.expected(&format!("'{token}'"))) }
    }

    fn take_word(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Word(w)) if w.quote_style.is_none() && w.value.eq_ignore_ascii_case(word));
        if found {
            self.next += 1;
        }
        found
    }

    fn expected(&self, what: &str) -> Error {
        let found = self.peek().map_or_else(|| "the end".into(), |token| format!("'{token}'"));
        let before: Vec<String> =
            self.tokens[..self.next].iter().rev().take(3).rev().map(ToString::to_string).collect();
        let place = if before.is_empty() { String::new() } else { format!(" after '{}'", before.join(" ")) };
        Error::Schema(format!("schema: expected {what}{place}, found {found}"))
    }

    fn name(&mut self) -> Result<String> {
        let name = match self.peek() {
            Some(Token::Word(word)) => word.value.clone(),
            Some(Token::DoubleQuotedString(text)) => text.clone(),
            _ => return Err(self.expected("a column name")),
        };
        self.next += 1;
        Ok(name)
    }

    fn column(&mut self) -> Result<Field> {
        let name = self.name()?;
        self.typed(&name)
    }

    /// A type with what may stand behind it, as a field called `name`.
    fn typed(&mut self, name: &str) -> Result<Field> {
        let (data_type, precision) = self.data_type(name)?;
        let mut nullable = true;
        if self.take_word("NOT") {
            if !self.take_word("NULL") {
                return Err(self.expected("NULL"));
            }
            nullable = false;
        } else {
            self.take_word("NULL");
        }
        let mut field = Field::new(name, data_type, nullable);
        if let Some(precision) = precision.filter(|p| Some(*p) != unit_precision(field.data_type())) {
            field = field.with_metadata(HashMap::from([(PRECISION_KEY.into(), precision.to_string())]));
        }
        Ok(field)
    }

    fn data_type(&mut self, column: &str) -> Result<(DataType, Option<u8>)> {
        let word = match self.peek() {
            Some(Token::Word(word)) if word.quote_style.is_none() => word.value.to_ascii_uppercase(),
            _ => return Err(self.expected(&format!("a type for column {column}"))),
        };
        self.next += 1;
        let data_type = match word.as_str() {
            "TINYINT" => DataType::Int8,
            "SMALLINT" => DataType::Int16,
            "INT" | "INTEGER" => DataType::Int32,
            "BIGINT" => DataType::Int64,
            "FLOAT" | "REAL" => DataType::Float32,
            "DOUBLE" => {
                self.take_word("PRECISION");
                DataType::Float64
            }
            "DECIMAL" | "NUMERIC" | "DEC" => self.decimal()?,
            "BOOLEAN" | "BOOL" => DataType::Boolean,
            "STRING" | "TEXT" => DataType::Utf8,
            "VARCHAR" | "CHAR" => {
                self.length()?;
                DataType::Utf8
            }
            "BYTES" => DataType::Binary,
            "VARBINARY" | "BINARY" => {
                self.length()?;
                DataType::Binary
            }
            "DATE" => DataType::Date32,
            "TIME" => {
                let precision = self.precision()?.unwrap_or(0);
                let data_type = match unit(precision) {
                    TimeUnit::Second | TimeUnit::Millisecond => DataType::Time32(TimeUnit::Millisecond),
                    finer => DataType::Time64(finer),
                };
                return Ok((data_type, Some(precision)));
            }
            "TIMESTAMP" | "TIMESTAMP_LTZ" | "TIMESTAMPTZ" => {
                let precision = self.precision()?.unwrap_or(6);
                let mut zoned = word != "TIMESTAMP";
                if !zoned && self.take_word("WITHOUT") {
                    self.words(&["TIME", "ZONE"])?;
                } else if !zoned && self.take_word("WITH") {
                    self.take_word("LOCAL");
                    self.words(&["TIME", "ZONE"])?;
                    zoned = true;
                }
                return Ok((DataType::Timestamp(unit(precision), zoned.then(|| UTC.into())), Some(precision)));
            }
            "ARRAY" => {
                self.expect(&Token::Lt)?;
                let item = self.typed(Field::LIST_FIELD_DEFAULT_NAME)?;
                self.close_angle()?;
                DataType::List(Arc::new(item))
            }
            "MAP" => {
                self.expect(&Token::Lt)?;
                let key = self.typed("key")?.with_nullable(false);
                self.expect(&Token::Comma)?;
                let value = self.typed("value")?;
                self.close_angle()?;
                map_type(key, value)
            }
            "ROW" | "STRUCT" => {
                self.expect(&Token::Lt)?;
                let mut fields = vec![self.column()?];
                while self.take(&Token::Comma) {
                    fields.push(self.column()?);
                }
                self.close_angle()?;
                DataType::Struct(fields.into())
            }
            "ARROW" => self.arrow_type()?,
            _ => {
                self.next -= 1;
                return Err(Error::Schema(format!("schema: column {column}: '{word}' is no type; there are {TYPES}")));
            }
        };
        Ok((data_type, None))
    }

    /// `>`; two of them are one token.
    fn close_angle(&mut self) -> Result<()> {
        if self.peek() == Some(&Token::ShiftRight) {
            self.tokens[self.next] = Token::Gt;
            return Ok(());
        }
        self.expect(&Token::Gt)
    }

    fn words(&mut self, words: &[&str]) -> Result<()> {
        for word in words {
            if !self.take_word(word) {
                return Err(self.expected(word));
            }
        }
        Ok(())
    }

    fn number(&mut self) -> Result<u32> {
        let number = match self.peek() {
            Some(Token::Number(digits, _)) => digits.parse().ok(),
            _ => None,
        };
        let number = number.ok_or_else(|| self.expected("a whole number"))?;
        self.next += 1;
        Ok(number)
    }

    /// `(n)`, which isn't enforced.
    fn length(&mut self) -> Result<()> {
        if self.take(&Token::LParen) {
            self.number()?;
            self.expect(&Token::RParen)?;
        }
        Ok(())
    }

    fn precision(&mut self) -> Result<Option<u8>> {
        if !self.take(&Token::LParen) {
            return Ok(None);
        }
        let precision = self.number()?;
        self.expect(&Token::RParen)?;
        match u8::try_from(precision) {
            Ok(precision @ 0..=9) => Ok(Some(precision)),
            _ => Err(Error::Schema(format!("schema: a precision of {precision}: it goes from 0 to 9"))),
        }
    }

    fn decimal(&mut self) -> Result<DataType> {
        let (mut precision, mut scale) = (10, 0);
        if self.take(&Token::LParen) {
            precision = self.number()?;
            if self.take(&Token::Comma) {
                scale = self.number()?;
            }
            self.expect(&Token::RParen)?;
        }
        if precision == 0 || precision > 76 || scale > precision {
            let wanted = "precision goes from 1 to 76, and scale from 0 to the precision";
            return Err(Error::Schema(format!("schema: DECIMAL({precision},{scale}): {wanted}")));
        }
        let (precision, scale) = (precision as u8, scale as i8);
        Ok(if precision <= 38 {
            DataType::Decimal128(precision, scale)
        } else {
            DataType::Decimal256(precision, scale)
        })
    }

    /// `ARROW('UInt32')`: Arrow's own spelling, for types that SQL has no word for.
    fn arrow_type(&mut self) -> Result<DataType> {
        self.expect(&Token::LParen)?;
        let text = match self.peek() {
            Some(Token::SingleQuotedString(text)) => text.clone(),
            _ => return Err(self.expected("an Arrow type in single quotes")),
        };
        self.next += 1;
        self.expect(&Token::RParen)?;
        text.parse().map_err(|e| Error::Schema(format!("schema: ARROW('{text}'): {e}")))
    }
}

fn unit(precision: u8) -> TimeUnit {
    match precision {
        0..=3 => TimeUnit::Millisecond,
        4..=6 => TimeUnit::Microsecond,
        _ => TimeUnit::Nanosecond,
    }
}

/// The digits behind the second that a unit holds.
pub(crate) fn unit_digits(unit: TimeUnit) -> u8 {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    }
}

/// How many of a unit make a second.
pub(crate) fn ticks_per_second(unit: TimeUnit) -> i64 {
    10i64.pow(unit_digits(unit).into())
}

/// The digits behind the second that a type's unit holds.
fn unit_precision(data_type: &DataType) -> Option<u8> {
    let (DataType::Timestamp(unit, _) | DataType::Time32(unit) | DataType::Time64(unit)) = data_type else {
        return None;
    };
    Some(unit_digits(*unit))
}

/// The digits behind the second that a column keeps: its declared precision, or its unit's.
pub fn precision(field: &Field) -> Option<u8> {
    let of_unit = unit_precision(field.data_type())?;
    let declared = field.metadata().get(PRECISION_KEY).and_then(|text| text.parse().ok());
    Some(declared.map_or(of_unit, |declared: u8| declared.min(of_unit)))
}

pub(crate) fn map_type(key: Field, value: Field) -> DataType {
    let entries = DataType::Struct(Fields::from(vec![key, value]));
    DataType::Map(Arc::new(Field::new("entries", entries, false)), false)
}

/// Writes a schema so that [`parse_schema`] reads it back.
pub fn format_schema(schema: &Schema) -> String {
    let columns: Vec<String> = schema.fields().iter().map(|field| format_column(field)).collect();
    columns.join(", ")
}

fn format_column(field: &Field) -> String {
    let mut text = format!("{} {}", format_name(field.name()), type_name(field));
    if !field.is_nullable() {
        text.push_str(" NOT NULL");
    }
    text
}

fn format_name(name: &str) -> String {
    let plain =
        name.chars().enumerate().all(|(i, c)| c == '_' || c.is_ascii_alphabetic() || (i > 0 && c.is_ascii_digit()));
    if plain && !name.is_empty() { name.into() } else { format!("`{}`", name.replace('`', "``")) }
}

/// The SQL name of a column's type; Arrow's own where SQL has none.
pub fn type_name(field: &Field) -> String {
    match field.data_type() {
        DataType::Int8 => "TINYINT".into(),
        DataType::Int16 => "SMALLINT".into(),
        DataType::Int32 => "INT".into(),
        DataType::Int64 => "BIGINT".into(),
        DataType::Float32 => "FLOAT".into(),
        DataType::Float64 => "DOUBLE".into(),
        DataType::Decimal128(precision @ 1..=38, scale @ 0..) | DataType::Decimal256(precision @ 39.., scale @ 0..) => {
            format!("DECIMAL({precision},{scale})")
        }
        DataType::Boolean => "BOOLEAN".into(),
        DataType::Utf8 => "STRING".into(),
        DataType::Binary => "BYTES".into(),
        DataType::Date32 => "DATE".into(),
        DataType::Time32(TimeUnit::Millisecond) | DataType::Time64(_) => {
            format!("TIME({})", precision(field).unwrap_or(0))
        }
        DataType::Timestamp(TimeUnit::Second, _) => arrow_name(field),
        DataType::Timestamp(_, None) => format!("TIMESTAMP({})", precision(field).unwrap_or(6)),
        DataType::Timestamp(_, Some(zone)) if &**zone == UTC => {
            format!("TIMESTAMP_LTZ({})", precision(field).unwrap_or(6))
        }
        DataType::List(item) if item.name() == Field::LIST_FIELD_DEFAULT_NAME => format!("ARRAY<{}>", element(item)),
        DataType::Map(entries, false) => match entries.data_type() {
            DataType::Struct(pair)
                if pair.len() == 2
                    && map_type(pair[0].as_ref().clone(), pair[1].as_ref().clone()) == *field.data_type() =>
            {
                format!("MAP<{}, {}>", type_name(&pair[0]), element(&pair[1]))
            }
            _ => arrow_name(field),
        },
        DataType::Struct(fields) if !fields.is_empty() => {
            let mut text = String::from("ROW<");
            for (i, child) in fields.iter().enumerate() {
                // Writing into a string can't fail.
                let _ = write!(text, "{}{}", if i > 0 { ", " } else { "" }, format_column(child));
            }
            text + ">"
        }
        _ => arrow_name(field),
    }
}

fn element(field: &Field) -> String {
    let mut text = type_name(field);
    if !field.is_nullable() {
        text.push_str(" NOT NULL");
    }
    text
}

fn arrow_name(field: &Field) -> String {
    format!("ARROW('{}')", field.data_type().to_string().replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn type_of(text: &str) -> DataType {
        parse_schema(&format!("c {text}")).unwrap().field(0).data_type().clone()
    }

    #[test]
    fn every_type_has_its_arrow_type_and_reads_back() {
        let utc = || Some(Arc::from("UTC"));
        for (sql, arrow) in [
            ("TINYINT", DataType::Int8),
            ("SMALLINT", DataType::Int16),
            ("INT", DataType::Int32),
            ("BIGINT", DataType::Int64),
            ("FLOAT", DataType::Float32),
            ("REAL", DataType::Float32),
            ("DOUBLE", DataType::Float64),
            ("DOUBLE PRECISION", DataType::Float64),
            ("DECIMAL(12,2)", DataType::Decimal128(12, 2)),
            ("DECIMAL", DataType::Decimal128(10, 0)),
            ("DECIMAL(76, 10)", DataType::Decimal256(76, 10)),
            ("boolean", DataType::Boolean),
            ("STRING", DataType::Utf8),
            ("VARCHAR(20)", DataType::Utf8),
            ("CHAR(1)", DataType::Utf8),
            ("TEXT", DataType::Utf8),
            ("BYTES", DataType::Binary),
            ("VARBINARY(9)", DataType::Binary),
            ("DATE", DataType::Date32),
            ("TIME", DataType::Time32(TimeUnit::Millisecond)),
            ("TIME(6)", DataType::Time64(TimeUnit::Microsecond)),
            ("TIME(9)", DataType::Time64(TimeUnit::Nanosecond)),
            ("TIMESTAMP", DataType::Timestamp(TimeUnit::Microsecond, None)),
            ("TIMESTAMP(0)", DataType::Timestamp(TimeUnit::Millisecond, None)),
            ("TIMESTAMP(3)", DataType::Timestamp(TimeUnit::Millisecond, None)),
            ("TIMESTAMP(9)", DataType::Timestamp(TimeUnit::Nanosecond, None)),
            ("TIMESTAMP(3) WITHOUT TIME ZONE", DataType::Timestamp(TimeUnit::Millisecond, None)),
            ("TIMESTAMP(3) WITH TIME ZONE", DataType::Timestamp(TimeUnit::Millisecond, utc())),
            ("TIMESTAMP(3) WITH LOCAL TIME ZONE", DataType::Timestamp(TimeUnit::Millisecond, utc())),
            ("TIMESTAMP_LTZ(6)", DataType::Timestamp(TimeUnit::Microsecond, utc())),
            ("ARROW('UInt32')", DataType::UInt32),
            ("ARROW('Utf8View')", DataType::Utf8View),
        ] {
            assert_eq!(type_of(sql), arrow, "{sql}");
            let schema = parse_schema(&format!("c {sql} NOT NULL")).unwrap();
            assert_eq!(parse_schema(&format_schema(&schema)).unwrap(), schema, "{}", format_schema(&schema));
        }
    }

    #[test]
    fn nested_types_read_back() {
        let text =
            "a ARRAY<ROW<k STRING NOT NULL, v ARRAY<INT>>>, m MAP<STRING, MAP<INT, DECIMAL(4,2)>>, r ROW<`x y` DATE>";
        let schema = parse_schema(text).unwrap();
        assert_eq!(format_schema(&schema), text);
        assert_eq!(parse_schema(&format_schema(&schema)).unwrap(), schema);
    }

    #[test]
    fn a_precision_is_kept_in_the_metadata() {
        let schema = parse_schema("a TIMESTAMP(2), b TIMESTAMP(3), c TIME").unwrap();
        assert_eq!(schema.field(0).metadata()[PRECISION_KEY], "2");
        assert!(schema.field(1).metadata().is_empty());
        assert_eq!(format_schema(&schema), "a TIMESTAMP(2), b TIMESTAMP(3), c TIME(0)");
    }

    #[test]
    fn names_are_case_sensitive_and_odd_ones_are_quoted() {
        let schema = parse_schema("Id INT, id INT, \"a b\" INT, `c``d` INT, `int` INT").unwrap();
        let names: Vec<_> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        assert_eq!(names, ["Id", "id", "a b", "c`d", "int"]);
        assert_eq!(parse_schema(&format_schema(&schema)).unwrap(), schema);
    }

    #[test]
    fn faults_say_what_was_expected() {
        for (text, message) in [
            ("", "it has no columns"),
            ("id", "expected a type for column id after 'id', found the end"),
            ("id NUMBER", "column id: 'NUMBER' is no type; there are TINYINT"),
            ("id INT v INT", "expected ',' or the end after 'id INT', found 'v'"),
            ("id INT, id INT", "column id stands there twice"),
            ("id DECIMAL(4,5)", "DECIMAL(4,5)"),
            ("id TIMESTAMP(10)", "goes from 0 to 9"),
            ("id ARRAY<INT", "expected '>'"),
        ] {
            let error = parse_schema(text).unwrap_err();
            assert!(error.to_string().contains(message), "{text}: {error}");
            assert!(error.is_usage());
        }
    }
}
