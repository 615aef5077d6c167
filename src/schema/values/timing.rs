//! What a value costs, in memory and alone: a column at a time through [`ColumnBuilder::extend`].
//!
//! ```sh
//! cargo test --release --all-features --lib values::timing -- --ignored --nocapture
//! ```
//!
//! The best of many rounds, so that what else the machine does counts little. The same texts again and again stay in
//! a near cache and hide no work of the parsers; that text comes from further away is `benches/read.rs`'s matter.

use std::hint::black_box;
use std::time::Instant;

use super::oracle::field;
use super::{ColumnBuilder, ValueOptions};

const ROWS: usize = 50_000;
const ROUNDS: usize = 100;

/// Numbers that look random, and are the same in each run.
struct Noise(u64);

impl Noise {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) % end
    }

    fn fraction(&mut self) -> f64 {
        self.below(1 << 53) as f64 / (1u64 << 53) as f64
    }

    fn day(&mut self) -> String {
        format!("{}-{:02}-{:02}", 1992 + self.below(7), 1 + self.below(12), 1 + self.below(28))
    }

    fn time(&mut self) -> String {
        format!("{:02}:{:02}:{:02}.{:03}", self.below(24), self.below(60), self.below(60), self.below(1000))
    }

    fn word(&mut self, min_len: u64, max_len: u64) -> String {
        let len = min_len + self.below(max_len - min_len + 1);
        (0..len).map(|_| char::from(b'a' + self.below(26) as u8)).collect()
    }
}

type Text = fn(&mut Noise) -> String;

const COLUMNS: [(&str, &str, Text); 19] = [
    ("INT", "1 to 50", |noise| (1 + noise.below(50)).to_string()),
    ("INT", "1 to 200000", |noise| (1 + noise.below(200_000)).to_string()),
    ("INT", "8 digits", |noise| (10_000_000 + noise.below(80_000_000)).to_string()),
    ("BIGINT", "13 digits", |noise| (1_600_000_000_000 + noise.below(1 << 36)).to_string()),
    ("BIGINT", "any", |noise| ((noise.below(u64::MAX) << 11 | noise.below(2048)) as i64).to_string()),
    ("DOUBLE", "2 digits behind the point", |noise| format!("{:.2}", noise.fraction() * 1000.0)),
    ("DOUBLE", "17 digits", |noise| (noise.fraction() * 1000.0).to_string()),
    ("FLOAT", "2 digits behind the point", |noise| format!("{:.2}", noise.fraction() * 1000.0)),
    ("DECIMAL(15,2)", "to 1000", |noise| format!("{:.2}", noise.fraction() * 1000.0)),
    ("DECIMAL(15,2)", "to 100000", |noise| format!("{:.2}", 900.0 + noise.fraction() * 104_000.0)),
    ("DECIMAL(38,18)", "18 digits behind the point", |noise| {
        format!("{}.{:018}", noise.below(1000), noise.below(1 << 50))
    }),
    ("DATE", "any day", Noise::day),
    ("TIMESTAMP(3)", "any day", |noise| format!("{} {}", noise.day(), noise.time())),
    ("TIMESTAMP(3)", "one day", |noise| format!("2023-08-15 {}", noise.time())),
    ("TIMESTAMP(3)", "any day, T and zone", |noise| format!("{}T{}+02:00", noise.day(), noise.time())),
    ("BOOLEAN", "true and false", |noise| (noise.below(2) == 0).to_string()),
    ("STRING", "1 character", |noise| noise.word(1, 1)),
    ("STRING", "10 to 43 characters", |noise| noise.word(10, 43)),
    ("STRING", "75 characters", |noise| noise.word(75, 75)),
];

#[test]
#[ignore = "it prints times and checks nothing"]
fn nanoseconds_a_value() {
    let mut noise = Noise(42);
    for (sql, what, text) in COLUMNS {
        let texts: Vec<String> = (0..ROWS).map(|_| text(&mut noise)).collect();
        let field = field(sql);
        let mut column = ColumnBuilder::try_new(&field, ValueOptions::default(), ROWS).unwrap();
        let mut best = f64::INFINITY;
        for _ in 0..ROUNDS {
            let begin = Instant::now();
            column.extend(black_box(&texts).iter().map(|text| Some(text.as_str()))).unwrap();
            let nanos = begin.elapsed().as_nanos() as f64;
            black_box(column.finish());
            best = best.min(nanos / ROWS as f64);
        }
        println!("{sql:<16} {what:<28} {best:6.1} ns");
    }
}
