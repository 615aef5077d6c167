//! What the fuzzer calls (`fuzz/`), and tests replay: each takes any bytes, and panics if two ways of reading them that
//! have to agree don't.

/// Both kernels of the index of CSV, and single bytes.
#[cfg(feature = "csv")]
pub fn csv_index(input: &[u8]) {
    crate::format::csv::twins::check_index(input);
}

/// CSV column by column, and record by record.
#[cfg(feature = "csv")]
pub fn csv(input: &[u8]) {
    crate::format::csv::twins::check_records(input);
}

/// JSON by the shape of the records before, and byte by byte.
#[cfg(feature = "json")]
pub fn json(input: &[u8]) {
    crate::format::json::twins::check_records(input);
}

/// Times by fixed places, piece by piece, and character by character.
pub fn timestamps(input: &[u8]) {
    crate::schema::check_times(input);
}

/// Gives `check` every file of the corpus of `target`.
#[cfg(test)]
pub(crate) fn replay(target: &str, check: fn(&[u8])) {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    // A package of its own, so the package of this crate is without it.
    if !root.exists() {
        return;
    }
    let mut num_files = 0;
    for entry in std::fs::read_dir(root.join("corpus").join(target)).unwrap() {
        let path = entry.unwrap().path();
        let input = std::fs::read(&path).unwrap();
        if std::panic::catch_unwind(|| check(&input)).is_err() {
            panic!("{} is not read alike", path.display());
        }
        num_files += 1;
    }
    assert!(num_files > 0, "the corpus of {target} is empty");
}
