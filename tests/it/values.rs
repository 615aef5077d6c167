//! Values and how they are written: charsets, timestamps, delimiters, and what each option of CSV and JSON does.

use std::fs;

use segue::error::Result;
use segue::file::FileSource;
use segue::format::CsvOptions;
use segue::hybrid::HybridSource;
use segue::testing::Suite;

use crate::cli::{dir, fails, rows, segue};
use crate::common::{chain_of, folder, gzip, read_all, zstd};

/// `id,name` and rows with quotes and line feeds in them, all in windows-1252.
fn text() -> String {
    let name = |id: usize| match id % 3 {
        0 => format!("Größe {id} €"),
        1 => format!("\"é, {id}\""),
        _ => format!("\"ü\nö {id}\""),
    };
    let rows: String = (0..25).map(|id| format!("{id},{}\n", name(id))).collect();
    format!("id,name\n{rows}")
}

fn windows_1252(text: &str) -> Vec<u8> {
    text.chars().map(|c| if c == '€' { 0x80 } else { u8::try_from(c).unwrap() }).collect()
}

fn utf16_with_mark(text: &str, to_bytes: impl Fn(u16) -> [u8; 2]) -> Vec<u8> {
    "\u{feff}".encode_utf16().chain(text.encode_utf16()).flat_map(to_bytes).collect()
}

async fn chain(path: &std::path::Path, charset: &str) -> Result<HybridSource> {
    let csv = CsvOptions { charset: charset.parse().unwrap(), ..CsvOptions::default() };
    Ok(chain_of(FileSource::builder(path.display().to_string()).csv(csv).build().await?))
}

/// Positions count bytes as UTF-8, and a resume decodes the file from its start again: cut after any row, the rest is
/// what is missing.
#[tokio::test]
async fn files_of_any_charset_are_read_like_the_same_text_in_utf_8_and_conform() {
    let text = text();
    let (little, big) = (utf16_with_mark(&text, u16::to_le_bytes), utf16_with_mark(&text, u16::to_be_bytes));
    let plain_folder = folder(&[("a.csv", text.as_bytes())]);
    let plain = read_all(&chain(plain_folder.path(), "utf-8").await.unwrap()).await;
    for (name, charset, content) in [
        ("a.csv", "windows-1252", windows_1252(&text)),
        ("a.csv", "utf-8", little.clone()),
        ("a.csv", "utf-8", big),
        ("a.csv", "utf-16le", little[2..].to_vec()),
        ("a.csv.gz", "latin1", gzip(&windows_1252(&text))),
        ("a.csv.gz", "utf-8", gzip(&little)),
        ("a.csv.zst", "utf-8", zstd(&little)),
        // A byte order mark tells more than the option: one of the folder's files may be UTF-8 after all.
        ("a.csv", "windows-1252", [b"\xef\xbb\xbf", text.as_bytes()].concat()),
    ] {
        let folder = folder(&[(name, &content)]);
        let chain = chain(folder.path(), charset).await.unwrap();
        assert_eq!(read_all(&chain).await.lines(), plain.lines(), "{name} in {charset}");
        Suite::new(chain).run().await.unwrap_or_else(|e| panic!("{name} in {charset}: {e}"));
    }
}

#[tokio::test]
async fn text_of_many_chunks_in_utf_16_conforms() {
    let rows: String = (0..40_000).map(|id| format!("{id},日本 {id}\n")).collect();
    let folder = folder(&[("a.csv", &utf16_with_mark(&format!("id,name\n{rows}"), u16::to_le_bytes))]);
    let chain = chain(folder.path(), "utf-8").await.unwrap();
    assert_eq!(read_all(&chain).await.num_rows(), 40_000);
    Suite::new(chain).with_max_cuts(5).run().await.unwrap();
}

#[tokio::test]
async fn fields_separated_by_several_bytes_conform() {
    let folder = folder(&[("a.csv", text().replace(',', "｜").as_bytes())]);
    let csv = CsvOptions { delimiter: Some('｜'), ..CsvOptions::default() };
    let source = FileSource::builder(folder.path().display().to_string()).csv(csv).build().await.unwrap();
    Suite::new(chain_of(source)).run().await.unwrap();
}

#[test]
fn a_job_over_a_file_of_another_charset_goes_on_exactly_where_it_stopped() {
    let text = text();
    for (options, content) in [
        (&["-o", "csv.charset=windows-1252"][..], windows_1252(&text)),
        (&[], utf16_with_mark(&text, u16::to_le_bytes)),
    ] {
        let dir = dir(&[]);
        fs::write(dir.path().join("a.csv"), content).unwrap();
        let whole = rows(&dir, &[&["read", "a.csv"], options].concat());
        let mut pieces = String::new();
        for _ in 0..9 {
            let part = ["read", "a.csv", "--checkpoint", "job.json", "--limit", "3", "--no-header"];
            pieces.push_str(&rows(&dir, &[&part[..], options].concat()));
        }
        assert_eq!(format!("id,name\n{pieces}"), whole);
        assert_eq!(whole.matches("Größe").count(), 9);
    }
}

#[test]
fn a_charset_is_kept_between_runs() {
    let dir = dir(&[("a.csv", "id\n1\n2\n")]);
    let args = ["read", "a.csv", "--checkpoint", "job.json", "--limit", "1"];
    rows(&dir, &[&args[..], &["-o", "csv.charset=latin1"]].concat());
    let ran = segue(&dir, &args);
    assert_eq!(ran.status, 2);
    assert!(ran.stderr.contains("csv.charset") && ran.stderr.contains("windows-1252"), "{}", ran.stderr);
    // Another word for it is the same.
    assert!(rows(&dir, &[&args[..], &["-o", "csv.charset=windows-1252"]].concat()).contains('2'));
}

#[test]
fn what_can_not_be_decoded_is_an_error_with_its_place() {
    let dir = dir(&[]);
    fs::write(dir.path().join("a.csv"), b"id,name\n1,\x93\xfa\n2,\x81\x20\n").unwrap();
    let args = ["read", "a.csv", "--schema", "id INT, name STRING", "-o", "csv.charset=shift_jis"];
    // Found while it is looked for a header.
    fails(&dir, &args, 1, "error: a.csv: 1 byte at byte 15 isn't Shift_JIS (csv.charset)\n");
    let ran = segue(&dir, &[&args[..], &["-o", "csv.header=true"]].concat());
    assert_eq!(
        (ran.status, ran.stdout.as_str(), ran.stderr.as_str()),
        // What stands before it is read.
        (1, "id,name\n1,日\n", "error: a.csv: 1 byte at byte 15 isn't Shift_JIS (csv.charset)\n")
    );
    fs::write(dir.path().join("b.csv"), b"id,name\n1,caf\xe9\n").unwrap();
    let ran = segue(&dir, &["read", "b.csv", "--schema", "id INT, name STRING"]);
    assert_eq!(
        (ran.status, ran.stderr.as_str()),
        (
            1,
            "error: b.csv line 2 (byte 8): invalid UTF-8: byte 0xe9 at byte 5 of the record\n\
             hint: csv.charset says how a file is written, such as windows-1252\n"
        )
    );
    assert_eq!(rows(&dir, &["read", "b.csv", "-o", "csv.charset=latin1"]), "id,name\n1,café\n");
}

#[test]
fn other_text_than_csv_is_utf_8() {
    let dir = dir(&[]);
    fs::write(dir.path().join("a.json"), utf16_with_mark("{\"a\":1}\n", u16::to_le_bytes)).unwrap();
    fails(&dir, &["read", "a.json"], 2, "error: a.json: only CSV is read from UTF-16; write it as UTF-8\n");
    let ran = segue(&dir, &["read", "raw:a.json", "--no-header", "--quiet"]);
    assert_eq!(
        (ran.stderr.as_str(), ran.status, ran.stdout.as_str()),
        ("error: a.json: only CSV is read from UTF-16; write it as UTF-8\n", 2, "")
    );
    let what = "option 'csv.charset': 'utf-32' is no charset that is known, such as UTF-8, latin1, windows-1252, \
                utf-16le, shift_jis";
    fails(&dir, &["read", "a.csv", "-o", "csv.charset=utf-32"], 2, &format!("error: {what}\n"));
}

#[test]
fn the_line_of_a_bad_value_is_found_in_other_charsets_too() {
    let dir = dir(&[]);
    fs::write(dir.path().join("a.csv"), utf16_with_mark("v,w\n1,\"é\n\"\nx7,é\n", u16::to_le_bytes)).unwrap();
    let ran = segue(&dir, &["read", "a.csv", "--schema", "v DOUBLE, w STRING"]);
    // The byte counts the text as UTF-8, in which é has two bytes.
    assert_eq!(ran.stderr, "error: a.csv line 4 (byte 12), column v: 'x7' is not a DOUBLE\n");
}

#[test]
fn timestamps_are_read_as_the_option_has_them() {
    let dir = dir(&[("a.csv", "id,at,day\n1,15/08/2023 14:37:35.4119,2023-08-15\n2,,\n")]);
    let format = "csv.timestamp-format=%d/%m/%Y %H:%M:%S%.f";
    assert_eq!(
        rows(&dir, &["read", "a.csv", "-o", format, "--schema", "id INT, at TIMESTAMP(3), day DATE"]),
        "id,at,day\n1,2023-08-15 14:37:35.411,2023-08-15\n2,,\n"
    );
    // It is inferred as well.
    assert_eq!(
        segue(&dir, &["schema", "a.csv", "-o", format]).stdout.trim_end(),
        "id BIGINT, at TIMESTAMP(6), day DATE"
    );
    let ran = segue(&dir, &["read", "a.csv", "-o", format, "--schema", "id TIMESTAMP(3)"]);
    assert_eq!(ran.stderr, "error: a.csv line 2 (byte 10), column id: '1' is not a TIMESTAMP(3)\n");
}

#[test]
fn offsets_in_timestamps_are_applied() {
    let dir = dir(&[("a.csv", "at\n15.08.23 14:37 +0200\n")]);
    let format = "csv.timestamp-format=%d.%m.%y %H:%M %z";
    for (sql, text) in [("TIMESTAMP(0)", "2023-08-15 12:37:00"), ("TIMESTAMP_LTZ(0)", "2023-08-15 12:37:00Z")] {
        let schema = format!("at {sql}");
        assert_eq!(rows(&dir, &["read", "a.csv", "-o", format, "--schema", &schema]), format!("at\n{text}\n"));
    }
}

#[test]
fn a_timestamp_format_of_java_is_refused_with_its_translation() {
    let dir = dir(&[("a.csv", "at\n1\n")]);
    fails(
        &dir,
        &["read", "a.csv", "-o", "csv.timestamp-format=yyyy-MM-dd HH:mm:ss"],
        2,
        "error: option 'csv.timestamp-format': 'yyyy-MM-dd HH:mm:ss' has no directive such as %Y; \
         as a pattern of strftime it is '%Y-%m-%d %H:%M:%S'\n",
    );
    fails(
        &dir,
        &["read", "a.csv", "-o", "csv.timestamp-format=%H:%M"],
        2,
        "error: option 'csv.timestamp-format': '%H:%M' doesn't tell a day, or tells a time of day without its hour or \
         minute\n",
    );
}

#[test]
fn any_character_separates_fields() {
    for (option, delimiter) in [
        ("§", "§"),
        ("｜", "｜"),
        ("\\u00a7", "§"),
        ("😀", "😀"),
        ("\\u0001", "\u{1}"),
        ("\\u0000", "\0"),
        ("\\t", "\t"),
        (" ", " "),
        ("\u{7f}", "\u{7f}"),
    ] {
        let dir = dir(&[("a.csv", &"id,name,x\n1,\"a,b\"\"\n\",5\n2,c,\n".replace(',', delimiter))]);
        let option = format!("csv.field-delimiter={option}");
        let expected = "id,name,x\n1,\"aDb\"\"\n\",5\n2,c,\n".replace('D', delimiter);
        let args = ["read", "a.csv", "-o", &option];
        assert_eq!(rows(&dir, &args), expected, "{option}");
        // Also in pieces, and its like is kept between runs.
        let piece = [&args[..], &["--checkpoint", "job.json", "--limit", "1"]].concat();
        assert_eq!(rows(&dir, &piece) + &rows(&dir, &[&piece[..], &["--no-header"]].concat()), expected, "{option}");
        let ran = segue(&dir, &["read", "a.csv", "--checkpoint", "job.json", "-o", "csv.field-delimiter=;"]);
        assert_eq!(ran.status, 2, "{}", ran.stderr);
    }
    for wrong in ["||", "", "\n", "\"", "§§"] {
        let ran = segue(&dir(&[("a.csv", "id\n")]), &["read", "a.csv", "-o", &format!("csv.field-delimiter={wrong}")]);
        assert!(ran.status == 2 && ran.stderr.starts_with("error: option 'csv."), "{wrong:?}: {}", ran.stderr);
    }
}

/// Each value is decoded by itself, and one that can't be is bad alone.
#[cfg(feature = "kafka")]
#[test]
fn messages_are_of_the_charset_too() {
    let cluster = rdkafka::mocking::MockCluster::new(1).unwrap();
    let topic = crate::topic::Topic::mock(&cluster, "cafes", 1);
    for value in [b"1,caf\x82\xa0".as_slice(), b"2,\x93\xfa\n", b"3,\"\x93,\xfa\""] {
        topic.produce_bytes(0, value);
    }
    let dir = dir(&[("a.csv", "0,x\n")]);
    let address = topic.address();
    let args = ["read", "a.csv", &address, "--schema", "id INT, name STRING", "--bounded", "--quiet"];
    let ran = segue(&dir, &[&args[..], &["-o", "1.csv.charset=shift_jis", "--limit", "3"]].concat());
    assert_eq!((ran.status, ran.stdout.as_str(), ran.stderr.as_str()), (0, "id,name\n0,x\n1,cafあ\n2,日\n", ""));
    let ran = segue(&dir, &[&args[..], &["-o", "csv.charset=shift_jis"]].concat());
    assert_eq!((ran.status, ran.stdout.as_str()), (1, "id,name\n0,x\n1,cafあ\n2,日\n"));
    let place = format!("error: {}/0 offset 2: not Shift_JIS: byte 0x93 at byte 3 of the message", topic.name());
    assert!(ran.stderr.starts_with(&place), "{}", ran.stderr);
    topic.produce_bytes(0, b"4,\x83\x89");
    let ran = segue(&dir, &[&args[..], &["-o", "csv.charset=shift_jis", "--on-error", "skip"]].concat());
    assert_eq!((ran.status, ran.stdout.as_str()), (0, "id,name\n0,x\n1,cafあ\n2,日\n4,ラ\n"), "{}", ran.stderr);
}

/// The options of CSV, each with a file that needs it and what comes out.
#[test]
fn options_of_csv_do_what_they_say() {
    for (options, schema, file, expected) in [
        (&["csv.disable-quote-character=true"][..], "a STRING, b STRING", "\"x,y\"\n", "a,b\n\"\"\"x\",\"y\"\"\"\n"),
        (&["csv.quote-character='"], "a STRING, b INT", "'x,y',1\n", "a,b\n\"x,y\",1\n"),
        (&["csv.escape-character=\\"], "a STRING, b INT", "x\\,y,1\n\"q\\\"\",2\n", "a,b\n\"x,y\",1\n\"q\"\"\",2\n"),
        (&["csv.allow-comments=true"], "a STRING, b INT", "# \"\nx,1\n#y,2\n", "a,b\nx,1\n"),
        (&["csv.null-literal=NULL"], "a STRING, b INT", "NULL,NULL\n\"NULL\",1\n", "a,b\n,\nNULL,1\n"),
        (&["csv.ignore-first-line=true"], "a STRING, b INT", "b,a\nx,1\n", "a,b\nx,1\n"),
        (&["csv.header=true"], "a STRING, b INT", "b,x,a\n1,z,x\n", "a,b\nx,1\n"),
        (&["csv.missing-fields=null"], "a STRING, b INT", "x\ny,2\n", "a,b\nx,\ny,2\n"),
        (&["csv.extra-fields=ignore"], "a STRING, b INT", "x,1,9,9\n", "a,b\nx,1\n"),
        (&["csv.bytes-format=hex"], "a BYTES, b INT", "0aff,1\n", "a,b\nCv8=,1\n"),
        (&["csv.decimal-rounding=true"], "a DECIMAL(4,1), b INT", "1.25,1\n-1.25,2\n", "a,b\n1.3,1\n-1.3,2\n"),
        // Blank lines, line ends, a CR that is data, no line end at the end, and a byte order mark.
        (&[], "a STRING, b INT", "\u{feff}\r\nx,1\r\n\n\r\nz,3", "a,b\nx,1\nz,3\n"),
        (&[], "a STRING, b STRING", "x\ry,\"1\r\n2\"\n", "a,b\n\"x\ry\",\"1\r\n2\"\n"),
        (&[], "a STRING, b INT", "\"\",\"\"\n,\n", "a,b\n\"\",\n\"\",\n"),
    ] {
        let dir = dir(&[("a.csv", file)]);
        let mut args = vec!["read", "a.csv", "--schema", schema];
        options.iter().for_each(|option| args.extend(["-o", option]));
        assert_eq!(rows(&dir, &args), expected, "{options:?} {file:?}");
    }
}

/// The options of JSON likewise.
#[test]
fn options_of_json_do_what_they_say() {
    for (options, schema, file, expected) in [
        (&[][..], "a INT, b STRING", "{\"a\":1}\n{\"b\":\"x\",\"a\":null}\n", "a,b\n1,\n,x\n"),
        // Of a key that stands twice the last value counts, also inside.
        (&[], "a INT", "{\"a\":1,\"a\":2}\n", "a\n2\n"),
        (&[], "a ROW<x INT>", "{\"a\":{\"x\":1,\"x\":2}}\n", "a\n\"{\"\"x\"\":2}\"\n"),
        (&[], "a STRING", "{\"a\":\"\\u00e9\\ud83d\\ude00\\n\"}\n", "a\n\"é😀\n\"\n"),
        (&["json.case-insensitive-names=true"], "a INT", "{\"A\":1}\n", "a\n1\n"),
        (&["json.coerce=true"], "a INT, b STRING", "{\"a\":\"1\",\"b\":2.50}\n", "a,b\n1,2.50\n"),
        (&["json.max-depth=3"], "a INT", "{\"a\":1,\"x\":[[]]}\n", "a\n1\n"),
    ] {
        let dir = dir(&[("a.json", file)]);
        let mut args = vec!["read", "a.json", "--schema", schema];
        options.iter().for_each(|option| args.extend(["-o", option]));
        assert_eq!(rows(&dir, &args), expected, "{options:?} {file:?}");
    }
    for (options, file, message) in [
        (
            &["json.fail-on-missing-field=true"][..],
            "{}\n",
            "column a: the key is missing\nhint: json.fail-on-missing-field=false reads a missing key as null",
        ),
        (
            &[],
            "[{\"a\":1}]\n",
            "an array where an object is expected\nhint: JSON is read as one object a line; `jq -c '.[]'` makes lines of an array",
        ),
        (
            &[],
            "{\"a\":\"1\"}\n",
            "column a: the string '1' is not an INT\nhint: json.coerce=true reads numbers and booleans from strings",
        ),
        (&[], "{\"x\":\"\\ud83d\"}\n", "half of a surrogate pair alone in a string (byte 6 of the record)"),
        (
            &["json.max-depth=2"],
            "{\"x\":[[]]}\n",
            "nested deeper than 2 levels (byte 6 of the record)\nhint: json.max-depth allows more",
        ),
    ] {
        let dir = dir(&[("a.json", file)]);
        let mut args = vec!["read", "a.json", "--schema", "a INT"];
        options.iter().for_each(|option| args.extend(["-o", option]));
        let ran = segue(&dir, &args);
        let (_, told) = ran.stderr.split_once("a.json line 1 (byte 0)").unwrap_or_default();
        let told = told.trim_start_matches([',', ':', ' ']).trim_end();
        assert_eq!((ran.status, told), (1, message), "{options:?} {file:?}: {}", ran.stderr);
    }
}

/// Text of every Arrow type that has one, out of CSV and JSON.
#[test]
fn text_becomes_every_kind_of_arrow_text() {
    let schema = "a STRING, b ARROW('LargeUtf8'), c ARROW('Utf8View')";
    let long = "longer than what a view holds by itself: ä";
    let csv = format!("{long},{long},{long}\n,,\nx,y,z\n");
    let record = |a: &str, b: &str, c: &str| format!("{{\"a\":\"{a}\",\"b\":\"{b}\",\"c\":\"{c}\"}}\n");
    let json = record(long, long, long) + &record("", "", "") + &record("x", "y", "z");
    let dir = dir(&[("a.csv", &csv), ("a.json", &json)]);
    let expected = format!("a,b,c\n{long},{long},{long}\n\"\",\"\",\"\"\nx,y,z\n");
    assert_eq!(rows(&dir, &["read", "a.csv", "--schema", schema]), expected);
    assert_eq!(rows(&dir, &["read", "a.json", "--schema", schema]), expected);
}
