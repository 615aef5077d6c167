//! Truth values, and bytes that are written as text.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{BytesFormat, Outcome, ValueFault};

pub(super) fn boolean(text: &str) -> Outcome<bool> {
    match text.as_bytes() {
        b"1" | b"t" | b"T" => Ok(true),
        b"0" | b"f" | b"F" => Ok(false),
        _ if text.eq_ignore_ascii_case("true") => Ok(true),
        _ if text.eq_ignore_ascii_case("false") => Ok(false),
        _ => Err(ValueFault::NotA),
    }
}

/// Puts the bytes that `text` stands for into `bytes`, in place of what is there.
pub(super) fn decode_bytes(text: &[u8], format: BytesFormat, bytes: &mut Vec<u8>) -> Outcome<()> {
    bytes.clear();
    match format {
        BytesFormat::Base64 => STANDARD.decode_vec(text, bytes).map_err(|_| ValueFault::NotA),
        BytesFormat::Hex => {
            let (pairs, []) = text.as_chunks() else { return Err(ValueFault::NotA) };
            let digit = |c: u8| char::from(c).to_digit(16).map(|digit| digit as u8);
            for [high, low] in pairs {
                let (Some(high), Some(low)) = (digit(*high), digit(*low)) else { return Err(ValueFault::NotA) };
                bytes.push(high << 4 | low);
            }
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ValueOptions;
    use super::super::oracle::{check, check_against_arrow, check_beside_arrow, read_with};
    use super::ValueFault::*;
    use super::*;

    #[test]
    fn booleans() {
        for text in ["true", "TRUE", "tRuE", "t", "T", "1"] {
            check("BOOLEAN", &[(text, Ok("true"))]);
        }
        for text in ["false", "FALSE", "False", "f", "F", "0"] {
            check("BOOLEAN", &[(text, Ok("false"))]);
        }
        for text in ["", "yes", "no", "2", "01", "tr", "true ", " 1", "tt", "-1"] {
            check("BOOLEAN", &[(text, Err(NotA))]);
        }
    }

    #[test]
    fn arrow_csv_reads_the_same_booleans_but_no_short_ones() {
        check_beside_arrow("BOOLEAN", &["true", "FALSE", "yes", "2"]);
        // One letter or digit is how databases write them.
        check_against_arrow("BOOLEAN", &[("t", Ok("true"), None), ("0", Ok("false"), None)]);
    }

    #[test]
    fn bytes_are_base64_or_hex() {
        check(
            "BYTES",
            &[
                ("AQL/", Ok("0102ff")),
                ("AQI=", Ok("0102")),
                ("", Ok("")),
                ("AQI", Err(NotA)),
                ("AQL", Err(NotA)),
                ("AQ-_", Err(NotA)),
                ("AQ L", Err(NotA)),
                ("***", Err(NotA)),
            ],
        );
        let hex = |text| {
            let options = ValueOptions { bytes_format: BytesFormat::Hex, ..ValueOptions::default() };
            read_with("BYTES", text, options)
        };
        assert_eq!(hex("0102fF"), Ok("0102ff".into()));
        assert_eq!(hex(""), Ok("".into()));
        for text in ["010", "0x01", "0g", "g0", "é"] {
            assert_eq!(hex(text), Err(NotA), "{text}");
        }
    }
}
