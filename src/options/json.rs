//! The options of JSON.

use super::SourceOptions;
use super::value::{parse_boolean, parse_count};
use crate::error::Result;
use crate::format::JsonOptions;

/// How JSON is read, by the options of a source.
///
/// # Errors
/// [`Error::InvalidOption`](crate::error::Error::InvalidOption) for a value that can't stand.
pub(super) fn json_options(source: &SourceOptions) -> Result<JsonOptions> {
    let mut json = JsonOptions::default();
    source.put("json.ignore-parse-errors", parse_boolean, &mut json.ignore_parse_errors)?;
    source.put("json.fail-on-missing-field", parse_boolean, &mut json.fail_on_missing_field)?;
    source.put("json.case-insensitive-names", parse_boolean, &mut json.case_insensitive_names)?;
    source.put("json.coerce", parse_boolean, &mut json.coerce)?;
    source.put("json.max-depth", |text| parse_count(text).map(|depth| depth as usize), &mut json.max_depth)?;
    Ok(json)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Connector;

    #[test]
    fn every_option_of_json_reaches_its_builder() {
        let options = [
            ("json.ignore-parse-errors", "true"),
            ("json.fail-on-missing-field", "true"),
            ("json.case-insensitive-names", "true"),
            ("json.coerce", "true"),
            ("json.max-depth", "7"),
        ];
        let expected = JsonOptions {
            ignore_parse_errors: true,
            fail_on_missing_field: true,
            case_insensitive_names: true,
            coerce: true,
            max_depth: 7,
        };
        let mut source = SourceOptions::new(Connector::Filesystem { path: "a.json".into() }, "0");
        for (key, value) in options {
            source.set(key, &value.into()).unwrap();
        }
        assert_eq!(json_options(&source).unwrap(), expected);
    }
}
