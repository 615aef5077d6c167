//! The options of CSV.

use super::SourceOptions;
use super::value::{parse_ascii, parse_boolean, parse_character, parse_size};
use crate::error::Result;
use crate::format::{CsvOptions, Header, OnFieldCount};
use crate::schema::BytesFormat;

/// How CSV is written, by the options of a source.
///
/// # Errors
/// [`Error::InvalidOption`](crate::error::Error::InvalidOption) for a value that can't stand.
pub(super) fn csv_options(source: &SourceOptions) -> Result<CsvOptions> {
    let mut csv = CsvOptions::default();
    match source.text("csv.header") {
        Some("true") => csv.header = Header::Yes,
        Some("false") => csv.header = Header::No,
        _ => {}
    }
    source.put("csv.ignore-first-line", parse_boolean, &mut csv.ignore_first_line)?;
    source.put("csv.field-delimiter", |text| parse_character(text).map(Some), &mut csv.delimiter)?;
    source.put("csv.quote-character", |text| parse_ascii(text).map(Some), &mut csv.quote)?;
    source.put("csv.escape-character", |text| parse_ascii(text).map(Some), &mut csv.escape)?;
    if source.parsed("csv.disable-quote-character", parse_boolean)? == Some(true) {
        csv.quote = None;
    }
    if source.parsed("csv.allow-comments", parse_boolean)? == Some(true) {
        csv.comment = Some(b'#');
    }
    csv.null_literal = source.text("csv.null-literal").map(ToOwned::to_owned);
    if source.text("csv.missing-fields") == Some("null") {
        csv.missing_fields = OnFieldCount::Lenient;
    }
    if source.text("csv.extra-fields") == Some("ignore") {
        csv.extra_fields = OnFieldCount::Lenient;
    }
    source.put("csv.ignore-parse-errors", parse_boolean, &mut csv.ignore_parse_errors)?;
    source.put("csv.decimal-rounding", parse_boolean, &mut csv.decimal_rounding)?;
    if source.text("csv.bytes-format") == Some("hex") {
        csv.bytes_format = BytesFormat::Hex;
    }
    source.put("csv.timestamp-format", |text| text.parse().map(Some), &mut csv.timestamp_format)?;
    source.put("csv.charset", str::parse, &mut csv.charset)?;
    source.put(
        "csv.max-record-bytes",
        |text| parse_size(text).map(|bytes| bytes as usize),
        &mut csv.max_record_bytes,
    )?;
    Ok(csv)
}

#[cfg(test)]
mod tests {
    use super::super::Connector;
    use super::*;

    fn source(path: &str, options: &[(&str, &str)]) -> SourceOptions {
        let mut source = SourceOptions::new(Connector::Filesystem { path: path.to_owned() }, "0");
        for (key, value) in options {
            source.set(key, &(*value).into()).unwrap();
        }
        source
    }

    #[test]
    fn every_option_of_csv_reaches_its_builder() {
        let options = [
            ("csv.header", "true"),
            ("csv.field-delimiter", "\\u0001"),
            ("csv.quote-character", "'"),
            ("csv.escape-character", "\\\\"),
            ("csv.allow-comments", "true"),
            ("csv.null-literal", "NULL"),
            ("csv.missing-fields", "null"),
            ("csv.extra-fields", "ignore"),
            ("csv.ignore-parse-errors", "true"),
            ("csv.decimal-rounding", "true"),
            ("csv.bytes-format", "hex"),
            ("csv.max-record-bytes", "2 kb"),
            ("csv.timestamp-format", "%d.%m.%Y %H:%M"),
            ("csv.charset", "latin1"),
        ];
        let expected = CsvOptions {
            header: Header::Yes,
            ignore_first_line: false,
            delimiter: Some('\u{1}'),
            quote: Some(b'\''),
            escape: Some(b'\\'),
            comment: Some(b'#'),
            null_literal: Some("NULL".into()),
            missing_fields: OnFieldCount::Lenient,
            extra_fields: OnFieldCount::Lenient,
            ignore_parse_errors: true,
            decimal_rounding: true,
            bytes_format: BytesFormat::Hex,
            max_record_bytes: 2048,
            timestamp_format: Some("%d.%m.%Y %H:%M".parse().unwrap()),
            charset: "windows-1252".parse().unwrap(),
        };
        assert_eq!(csv_options(&source("a.csv", &options)).unwrap(), expected);
        assert_eq!(csv_options(&source("a.csv", &[])).unwrap(), CsvOptions::default());

        let options = [("csv.ignore-first-line", "true"), ("csv.disable-quote-character", "true")];
        let csv = csv_options(&source("a.csv", &options)).unwrap();
        assert_eq!((csv.ignore_first_line, csv.quote), (true, None));
    }
}
