//! Character sets: how text that isn't UTF-8 becomes it.
//!
//! Names are the labels of the [Encoding Standard](https://encoding.spec.whatwg.org/#names-and-labels), where `latin1`
//! is another word for windows-1252. A byte order mark tells more than an option, as there.

use std::fmt;
use std::str::FromStr;

use encoding_rs::{Decoder, DecoderResult, Encoding, UTF_8, UTF_16BE, UTF_16LE};

use crate::format::message_range;

/// How the characters of text are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charset(&'static Encoding);

impl Default for Charset {
    fn default() -> Self {
        Self(UTF_8)
    }
}

impl fmt::Display for Charset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

impl FromStr for Charset {
    type Err = String;

    /// Finds a charset by its label, in any case.
    fn from_str(label: &str) -> Result<Self, String> {
        Encoding::for_label_no_replacement(label.as_bytes()).map(Self).ok_or_else(|| {
            format!("'{label}' is no charset that is known, such as UTF-8, latin1, windows-1252, utf-16le, shift_jis")
        })
    }
}

/// Bytes that stand for nothing in their charset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Undecodable {
    /// Where they start.
    pub(crate) at: u64,
    /// How many they are.
    pub(crate) len: u8,
}

impl Charset {
    /// Whether text is what it is to become.
    pub(crate) fn is_utf8(self) -> bool {
        self.0 == UTF_8
    }

    /// The charset of text that begins with `head`, and how many bytes of its byte order mark are no text. `self` is
    /// that of text without such a mark. The mark of UTF-8 is left in its place.
    pub(crate) fn of_text(self, head: &[u8]) -> (Self, usize) {
        match Encoding::for_bom(head) {
            Some((encoding, _)) if encoding == UTF_8 => (Self(UTF_8), 0),
            Some((encoding, len)) => (Self(encoding), len),
            None => (self, 0),
        }
    }

    /// Decodes text that comes in pieces, without a byte order mark.
    pub(crate) fn decoder(self) -> CharsetDecoder {
        CharsetDecoder { decoder: self.0.new_decoder_without_bom_handling(), num_read: 0 }
    }

    /// Decodes messages from `first` on, each by itself: what they say, a line feed behind each, and where each ends in
    /// it. `None` if one of them can't be decoded.
    pub(crate) fn decode_messages(self, values: &[u8], ends: &[usize], first: usize) -> Option<(Vec<u8>, Vec<usize>)> {
        let (mut texts, mut text) = (Vec::with_capacity(values.len()), String::new());
        // Those before are passed over, and are one line feed altogether.
        let mut text_ends = vec![0; first];
        texts.resize(first.min(1), b'\n');
        for index in first..ends.len() {
            self.decode(&values[message_range(ends, index)], &mut text).ok()?;
            texts.extend_from_slice(text.as_bytes());
            text_ends.push(texts.len());
            texts.push(b'\n');
        }
        Some((texts, text_ends))
    }

    /// Puts into `text`, in place of what is there, what a whole text says. A byte order mark of the charset is no
    /// part of it.
    pub(crate) fn decode(self, bytes: &[u8], text: &mut String) -> Result<(), Undecodable> {
        let mark: &[u8] = match self.0 {
            encoding if encoding == UTF_16LE => b"\xff\xfe",
            encoding if encoding == UTF_16BE => b"\xfe\xff",
            _ => b"",
        };
        let mark_len = if bytes.starts_with(mark) { mark.len() } else { 0 };
        let bytes = &bytes[mark_len..];
        let mut decoder = self.0.new_decoder_without_bom_handling();
        text.clear();
        text.reserve(decoder.max_utf8_buffer_length_without_replacement(bytes.len()).unwrap_or_default());
        let (result, num_read) = decoder.decode_to_string_without_replacement(bytes, text, true);
        match result {
            DecoderResult::Malformed(len, behind) => Err(undecodable((mark_len + num_read) as u64, len, behind)),
            // The room is always enough.
            DecoderResult::InputEmpty | DecoderResult::OutputFull => Ok(()),
        }
    }
}

/// What became of a piece of text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) num_read: usize,
    pub(crate) num_written: usize,
    /// Whether all of it was read.
    pub(crate) is_whole: bool,
    /// What stands behind what was written, if that can't be decoded.
    pub(crate) fault: Option<Undecodable>,
}

/// Decodes piece after piece.
pub(crate) struct CharsetDecoder {
    decoder: Decoder,
    num_read: u64,
}

impl CharsetDecoder {
    /// Decodes what there is of `bytes` and is room for in `text`, up to the first bad bytes; `is_last` says that
    /// nothing follows `bytes`.
    pub(crate) fn decode(&mut self, bytes: &[u8], text: &mut [u8], is_last: bool) -> Piece {
        let (result, num_read, num_written) = self.decoder.decode_to_utf8_without_replacement(bytes, text, is_last);
        self.num_read += num_read as u64;
        let fault = match result {
            DecoderResult::Malformed(len, behind) => Some(undecodable(self.num_read, len, behind)),
            DecoderResult::InputEmpty | DecoderResult::OutputFull => None,
        };
        Piece { num_read, num_written, is_whole: result == DecoderResult::InputEmpty, fault }
    }
}

/// What was read ends with `len` bad bytes, and `behind` more that were looked at.
fn undecodable(num_read: u64, len: u8, behind: u8) -> Undecodable {
    Undecodable { at: num_read.saturating_sub(u64::from(len) + u64::from(behind)), len }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charsets_are_found_by_the_labels_of_the_standard() {
        for (label, name) in [
            ("UTF-8", "UTF-8"),
            ("utf8", "UTF-8"),
            ("latin1", "windows-1252"),
            ("ISO-8859-1", "windows-1252"),
            ("Windows-1252", "windows-1252"),
            ("iso-8859-15", "ISO-8859-15"),
            ("utf-16", "UTF-16LE"),
            ("UTF-16LE", "UTF-16LE"),
            ("utf-16be", "UTF-16BE"),
            ("shift_jis", "Shift_JIS"),
            ("gb18030", "gb18030"),
            ("koi8-r", "KOI8-R"),
        ] {
            assert_eq!(label.parse::<Charset>().unwrap().to_string(), name);
        }
        // What the standard only knows to refuse it is refused here, too.
        for label in ["", "utf-32", "latin-nonsense", "iso-2022-kr", "replacement"] {
            assert!(label.parse::<Charset>().unwrap_err().contains("is no charset that is known"), "{label}");
        }
    }

    #[test]
    fn a_byte_order_mark_tells_more_than_an_option() {
        let of = |label: &str, head: &[u8]| {
            let (charset, mark) = label.parse::<Charset>().unwrap().of_text(head);
            (charset.to_string(), mark)
        };
        assert_eq!(of("utf-8", b"\xff\xfea\0"), ("UTF-16LE".into(), 2));
        assert_eq!(of("utf-8", b"\xfe\xff\0a"), ("UTF-16BE".into(), 2));
        assert_eq!(of("utf-16le", b"\xfe\xff\0a"), ("UTF-16BE".into(), 2));
        assert_eq!(of("windows-1252", b"\xef\xbb\xbfa"), ("UTF-8".into(), 0));
        assert_eq!(of("windows-1252", b"\xffa"), ("windows-1252".into(), 0));
        assert_eq!(of("utf-8", b""), ("UTF-8".into(), 0));
    }

    #[test]
    fn a_whole_text_is_decoded_or_its_bad_bytes_are_told() {
        let decode = |label: &str, bytes: &[u8]| {
            let mut text = "before".to_owned();
            label.parse::<Charset>().unwrap().decode(bytes, &mut text).map(|()| text)
        };
        let bad = |at, len| Err(Undecodable { at, len });
        for (label, bytes, text) in [
            ("windows-1252", b"caf\xe9 \x80".as_slice(), Ok("café €".to_owned())),
            ("latin1", b"", Ok(String::new())),
            ("utf-16le", b"\xff\xfea\0\x3d\xd8\0\xde", Ok("a😀".to_owned())),
            ("utf-16be", b"\0a\0\n", Ok("a\n".to_owned())),
            ("shift_jis", b"\x93\xfa\x96\x7b", Ok("日本".to_owned())),
            ("shift_jis", b"a\x93", bad(1, 1)),
            ("shift_jis", b"ab\x81\x20c", bad(2, 1)),
            ("utf-16le", b"a\0b", bad(2, 1)),
            ("utf-16le", b"a\0\0\xdcb\0", bad(2, 2)),
            ("utf-16le", b"\xff\xfea\0\x3d\xd8", bad(4, 2)),
            // A byte without a character: not every charset of single bytes has all 256.
            ("windows-1253", b"ab\xd2", bad(2, 1)),
        ] {
            assert_eq!(decode(label, bytes), text, "{label} {bytes:?}");
        }
    }
}
