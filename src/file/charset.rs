//! Text of another charset, read as UTF-8: a stage between decompressing and cutting.

use std::io::{self, Read};
use std::sync::Arc;

use super::fetch::fill;
use crate::error::Error;
use crate::format::csv::{Charset, CharsetDecoder, Undecodable};

/// Bytes that are decoded at once: enough that the costs of a round vanish, and little beside every budget.
const BLOCK_BYTES: usize = 16 << 10;

/// As many bytes as the longest byte order mark has.
const HEAD_BYTES: usize = 4;

/// Says whether text begins as UTF-16 or UTF-32 does.
pub(crate) fn has_wide_mark(head: &[u8]) -> bool {
    [b"\xff\xfe".as_slice(), b"\xfe\xff", b"\0\0\xfe\xff"].iter().any(|mark| head.starts_with(mark))
}

/// Reads UTF-8 out of what is written in `charset`, or in what a byte order mark says. What can't be decoded is an
/// error with its place: never another character.
pub(crate) struct CharsetRead<R> {
    url: Arc<str>,
    stored: R,
    charset: Charset,
    /// None before the first byte, and for text that is UTF-8 already.
    decoding: Option<Decoding>,
    has_begun: bool,
    /// Read, and not decoded or passed on.
    input: Block,
    /// Decoded, and not passed on.
    output: Block,
}

struct Decoding {
    decoder: CharsetDecoder,
    /// Bytes of the byte order mark.
    mark_len: u64,
    stored_ended: bool,
    ended: bool,
    /// What stands behind the output.
    fault: Option<Undecodable>,
}

/// A buffer, of which a part is filled.
#[derive(Default)]
struct Block {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Block {
    fn new() -> Self {
        Self { bytes: vec![0; BLOCK_BYTES].into(), start: 0, end: 0 }
    }

    fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Hands on what there is room for.
    fn take(&mut self, out: &mut [u8]) -> usize {
        let len = out.len().min(self.filled().len());
        out[..len].copy_from_slice(&self.filled()[..len]);
        self.start += len;
        len
    }

    /// Moves what is filled to the beginning, so that there is room behind it.
    fn make_room(&mut self) {
        self.bytes.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
    }
}

impl<R: Read> CharsetRead<R> {
    pub(crate) fn new(url: Arc<str>, charset: Charset, stored: R) -> Self {
        let (input, output) = (Block::new(), Block::default());
        Self { url, stored, charset, decoding: None, has_begun: false, input, output }
    }

    /// Looks at the first bytes.
    fn begin(&mut self) -> io::Result<()> {
        self.has_begun = true;
        self.input.end = fill(&mut self.stored, &mut self.input.bytes[..HEAD_BYTES])?;
        let head = self.input.filled();
        if head == b"\xff\xfe\0\0" || head == b"\0\0\xfe\xff" {
            let message = format!("{}: text in UTF-32 is not read: write it as UTF-8", self.url);
            return Err(io::Error::other(Error::Unsupported(message)));
        }
        let (charset, mark_len) = self.charset.of_text(head);
        self.charset = charset;
        self.input.start = mark_len;
        if !charset.is_utf8() {
            let (decoder, mark_len) = (charset.decoder(), mark_len as u64);
            self.decoding = Some(Decoding { decoder, mark_len, stored_ended: false, ended: false, fault: None });
            self.output = Block::new();
        }
        Ok(())
    }
}

fn undecodable(url: &str, charset: Charset, mark_len: u64, Undecodable { at, len }: Undecodable) -> io::Error {
    let (plural, verb) = if len == 1 { ("", "isn't") } else { ("s", "aren't") };
    let reason = format!("{len} byte{plural} at byte {} {verb} {charset} (csv.charset)", mark_len + at);
    io::Error::other(Error::BadFile { path: url.to_owned(), reason, source: None })
}

impl<R: Read> Read for CharsetRead<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if !self.has_begun {
            self.begin()?;
        }
        if out.is_empty() {
            return Ok(0);
        }
        let Some(decoding) = &mut self.decoding else {
            let len = self.input.take(out);
            return if len > 0 { Ok(len) } else { self.stored.read(out) };
        };
        while self.output.filled().is_empty() && !decoding.ended {
            if !decoding.stored_ended {
                self.input.make_room();
                let len = self.stored.read(&mut self.input.bytes[self.input.end..])?;
                self.input.end += len;
                decoding.stored_ended = len == 0;
            }
            let (bytes, is_last) = (self.input.filled(), decoding.stored_ended);
            let piece = decoding.decoder.decode(bytes, &mut self.output.bytes, is_last);
            self.input.start += piece.num_read;
            (self.output.start, self.output.end) = (0, piece.num_written);
            decoding.ended = piece.fault.is_some() || (is_last && piece.is_whole);
            decoding.fault = piece.fault;
        }
        match decoding.fault {
            Some(fault) if self.output.filled().is_empty() => {
                Err(undecodable(&self.url, self.charset, decoding.mark_len, fault))
            }
            _ => Ok(self.output.take(out)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Hands out a few bytes at a time.
    struct Trickle<'a> {
        bytes: &'a [u8],
        step: usize,
    }

    impl Read for Trickle<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let len = self.step.min(out.len()).min(self.bytes.len());
            out[..len].copy_from_slice(&self.bytes[..len]);
            self.bytes = &self.bytes[len..];
            Ok(len)
        }
    }

    fn read(label: &str, bytes: &[u8], step: usize, out_step: usize) -> Result<Vec<u8>, String> {
        let mut reader = CharsetRead::new("f.csv".into(), label.parse().unwrap(), Trickle { bytes, step });
        let (mut text, mut out) = (Vec::new(), vec![0; out_step]);
        loop {
            match reader.read(&mut out).map_err(|e| e.to_string())? {
                0 => return Ok(text),
                len => text.extend_from_slice(&out[..len]),
            }
        }
    }

    fn utf16(text: &str, to_bytes: impl Fn(u16) -> [u8; 2]) -> Vec<u8> {
        text.encode_utf16().flat_map(to_bytes).collect()
    }

    proptest! {
        #[test]
        fn text_is_the_same_however_it_trickles(text in "\\PC{0,40}", step in 1usize..9, out_step in 1usize..9) {
            let little = [b"\xff\xfe".as_slice(), &utf16(&text, u16::to_le_bytes)].concat();
            prop_assert_eq!(read("utf-8", &little, step, out_step), Ok(text.clone().into_bytes()));
            let big = [b"\xfe\xff".as_slice(), &utf16(&text, u16::to_be_bytes)].concat();
            prop_assert_eq!(read("windows-1252", &big, step, out_step), Ok(text.clone().into_bytes()));
            prop_assert_eq!(read("utf-8", text.as_bytes(), step, out_step), Ok(text.clone().into_bytes()));
        }
    }

    #[test]
    fn text_longer_than_a_block_is_decoded_whole() {
        let text = "é1,日本\n".repeat(20_000);
        assert_eq!(read("utf-16le", &utf16(&text, u16::to_le_bytes), 1 << 20, 1 << 20).unwrap(), text.as_bytes());
        let latin: Vec<u8> = std::iter::repeat_n(0xe9, 100_000).collect();
        assert_eq!(read("latin1", &latin, 1 << 20, 7).unwrap(), "é".repeat(100_000).as_bytes());
    }

    #[test]
    fn what_is_utf8_is_passed_on_as_it_is() {
        for bytes in [b"\xef\xbb\xbfa".as_slice(), b"\xff", b"a\xffb", b"", b"a"] {
            assert_eq!(read("utf-8", bytes, 3, 2).unwrap(), bytes);
        }
        // Its mark tells more than the option.
        assert_eq!(read("windows-1252", "\u{feff}é".as_bytes(), 3, 2).unwrap(), "\u{feff}é".as_bytes());
    }

    #[test]
    fn bad_bytes_are_an_error_with_their_place_and_never_another_character() {
        for (label, bytes, message) in [
            ("shift_jis", b"ab\x81\x20".as_slice(), "f.csv: 1 byte at byte 2 isn't Shift_JIS (csv.charset)"),
            ("shift_jis", b"ab\x93", "f.csv: 1 byte at byte 2 isn't Shift_JIS (csv.charset)"),
            ("utf-8", b"\xff\xfea\0b", "f.csv: 1 byte at byte 4 isn't UTF-16LE (csv.charset)"),
            ("utf-8", b"\xff\xfea\0\0\xdc", "f.csv: 2 bytes at byte 4 aren't UTF-16LE (csv.charset)"),
            ("windows-1253", b"\xd2", "f.csv: 1 byte at byte 0 isn't windows-1253 (csv.charset)"),
        ] {
            for step in [1, 100] {
                assert_eq!(read(label, bytes, step, 5).unwrap_err(), message);
            }
        }
        let error = read("utf-8", b"\xff\xfe\0\0a\0\0\0", 9, 9).unwrap_err();
        assert!(error.contains("UTF-32 is not read"), "{error}");
    }
}
