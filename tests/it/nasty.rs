//! Text that is hard to cut: the same in every run.

/// A text file, and where each of its records starts.
#[derive(Default)]
pub(crate) struct Text {
    pub(crate) bytes: Vec<u8>,
    pub(crate) starts: Vec<i64>,
    /// Whether lines that begin with `#` are comments.
    pub(crate) has_comments: bool,
    /// How many records are no good.
    pub(crate) num_bad: usize,
}

impl Text {
    fn push(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
    }

    fn begin_record(&mut self) {
        self.starts.push(self.bytes.len() as i64);
    }

    /// The same records with others between, each a line that is no good.
    pub(crate) fn with_bad(&self, lines: &[&[u8]]) -> Self {
        let mut mixed = Self { has_comments: self.has_comments, ..Self::default() };
        let end = self.bytes.len() as i64;
        let ends = self.starts.iter().copied().skip(1).chain([end]);
        mixed.bytes.extend_from_slice(&self.bytes[..self.starts[0] as usize]);
        for (index, (start, end)) in self.starts.iter().zip(ends).enumerate() {
            if index % 3 != 1 {
                mixed.bytes.extend_from_slice(lines[index % lines.len()]);
                mixed.num_bad += 1;
            }
            mixed.begin_record();
            mixed.bytes.extend_from_slice(&self.bytes[*start as usize..end as usize]);
        }
        mixed
    }
}

/// Lines that are no good among those of [`csv`].
pub(crate) const BAD_CSV: [&[u8]; 5] =
    [b"\"a\"b,,1,2,,\n", b"1,2\r\n", b"a,,not a number,,,\n", b"\xff,,1,2,,\n", b"a,b,1,2,,\"\",7\n"];

/// Lines that are no good among those of [`ndjson`].
pub(crate) const BAD_NDJSON: [&[u8]; 5] =
    [b"{\"id\":}\n", b"[1]\r\n", b"{\"id\":\"x\"}\n", b"{\"id\":1,\"name\":\"\xff\"}\n", b"{\"id\":1\n"];

/// CSV with all that a record may hold: quotes, line ends of both kinds inside and behind, blank lines, a BOM, a header,
/// a column that nobody reads, values that are long, no line end at the end. With `comments`, lines that begin
/// with `#` between the records.
pub(crate) fn csv(num_records: usize, comments: bool) -> Text {
    let mut file = Text { has_comments: comments, ..Text::default() };
    file.push("\u{feff}\n\"name\",unread,id,price,\"at\",note\r\n");
    for i in 0..num_records {
        match i % 11 {
            3 => file.push("\n"),
            6 => file.push("\r\n\n"),
            _ => {}
        }
        if comments && i % 3 == 0 {
            file.push(["# plain\n", "#\n", "#,\"open, and é\r\n", "# 1,2,3,4,5,6\n"][i / 3 % 4]);
        }
        file.begin_record();
        let name = match i % 16 {
            0 => format!("plain {i}"),
            1 => format!("\"comma, {i}, \""),
            2 => format!("\"two\nlines of {i}\n\""),
            3 => format!("\"two\r\nlines\rof {i}\r\n\""),
            4 => format!("\"\"\"{i}\"\" quoted, \"\"\""),
            5 => "\"\"\"\"\"\"".to_owned(),
            6 => format!("{i}\" nail, ").replace(", ", ""),
            7 => String::new(),
            8 => "\"\"".to_owned(),
            9 => format!("naïve – 中文 😀 {i}"),
            10 => format!("\"{}\n\"\"\n\"", "中é😀,\n".repeat(240 * (i % 7))),
            11 => format!("a\rb {i} \r c"),
            12 => "\"x,1,2,3,4,5\nx,1,2,3,4,5\n\n\"\"\n#\n\"".to_owned(),
            13 => format!("  blanks {i}\t "),
            14 => "\"#no comment\"".to_owned(),
            _ => "é".repeat(i % 200 * 40),
        };
        let unread = ["junk", "\"\n\"", "", "\"\"\"\"", "1e", "\"é\r\n,\""][i / 2 % 6];
        let price = ["1.5", "", "\"-0.25\"", "1e3", "\"\""][i % 5];
        let at = ["2023-08-15 14:37:35.411", "\"2024-02-29T23:59:59.9999\"", "", "0001-01-01 00:00:00"][i % 4];
        let note = ["z", "\"\n\"", "", "\"\"", "\"a\"\"\n\r\n\"\"b\"", "ends with blank ", "\"é\""][i % 7];
        file.push(&format!("{name},{unread},{i},{price},{at},{note}"));
        if i + 1 < num_records {
            file.push(if i / 5 % 2 == 0 { "\n" } else { "\r\n" });
        }
    }
    file
}

/// Lines of JSON with all that a record may hold: escapes, nested values, keys that change their order, stand twice, are
/// missing or unknown; blanks, blank lines, line ends of both kinds, a BOM, values that are long.
pub(crate) fn ndjson(num_records: usize) -> Text {
    let mut file = Text::default();
    file.push("\u{feff}");
    for i in 0..num_records {
        match i % 13 {
            2 => file.push("\n"),
            7 => file.push(" \t\r\n\n"),
            _ => {}
        }
        file.begin_record();
        let name = match i % 8 {
            0 => format!("\"plain {i}\""),
            1 => r#""\"\\\/\b\f\n\r\t""#.to_owned(),
            2 => r#""\u00e9\ud83d\ude00\u0000""#.to_owned(),
            3 => "\"é中😀\"".to_owned(),
            4 => "null".to_owned(),
            5 => format!("\"{}\"", "long {}[],:\\\\\\\"中".repeat(i % 200 * 7)),
            6 => "\"\"".to_owned(),
            _ => "\"{\\\"id\\\":1}\\n\"".to_owned(),
        };
        let nested = ["{\"a\":1,\"l\":[\"x\",null,\"\\n\"]}", "null", "{}", "{ \"l\" : [ ] , \"a\" : -7 }"][i % 4];
        let unread = ["[[],{\"id\":[1e9]}]", "\"\\\\\"", "false", "{\"name\":{\"name\":0.5}}"][i / 3 % 4];
        let price = ["1.5", "null", "-0.0", "1E3", "12345678901234567890"][i % 5];
        let (id, name) = (format!("\"id\":{i}"), format!("\"name\":{name}"));
        let (nested, unread, price) =
            (format!("\"nested\":{nested}"), format!("\"unread\": {unread}"), format!("\"price\" :{price}"));
        let members: &[&str] = match i / 4 % 6 {
            0 | 1 => &[&id, &name, &nested, &price],
            2 => &[&price, &unread, &nested, &id, &name],
            3 => &["\"id\":\"not this one\"", &name, &id],
            4 => &[&unread, &id, "\"n\\u0061me\":\"by an escaped key\"", &price],
            _ => &["\"\":[]", &nested, &id],
        };
        match i % 9 {
            5 => file.push(&format!(" {{ {}\t}} ", members.join(" , "))),
            _ => file.push(&format!("{{{}}}", members.join(","))),
        }
        if i + 1 < num_records {
            file.push(if i / 7 % 2 == 0 { "\n" } else { "\r\n" });
        }
    }
    file
}

/// What [`csv`] holds.
pub(crate) const CSV_SCHEMA: &str = "id BIGINT NOT NULL, name STRING, price DOUBLE, at TIMESTAMP(3), note STRING";
/// What [`ndjson`] holds.
pub(crate) const JSON_SCHEMA: &str =
    "id BIGINT NOT NULL, name STRING, nested ROW<l ARRAY<STRING>, a INT>, price DOUBLE";
