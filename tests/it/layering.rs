//! Imports point one way: the table of what each module may know.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Each module, and what it may import. A module that isn't here may not be.
const MAY_IMPORT: [(&str, &str); 17] = [
    ("error", ""),
    ("budget", "error"),
    ("progress", "error checkpoint"),
    ("checkpoint", "error"),
    ("ordered", "error budget"),
    ("schema", "error checkpoint"),
    ("format", "error schema"),
    ("fuzzing", "schema format"),
    ("source", "error budget progress checkpoint ordered schema"),
    ("file", "error budget progress checkpoint ordered schema format source"),
    ("kafka", "error budget progress checkpoint ordered schema format source"),
    ("hybrid", "error budget progress checkpoint ordered schema source"),
    ("sink", "error budget progress checkpoint ordered schema format source kafka"),
    ("pipeline", "error budget progress checkpoint ordered schema format source kafka file hybrid sink"),
    ("options", "error budget progress checkpoint ordered schema format source kafka file hybrid sink"),
    ("testing", "error budget progress checkpoint ordered schema format source kafka file hybrid sink"),
    ("cli", "error budget progress checkpoint ordered schema format source kafka file hybrid sink pipeline options"),
];

#[test]
fn imports_point_one_way() {
    let allowed: BTreeMap<&str, BTreeSet<&str>> =
        MAY_IMPORT.iter().map(|(module, others)| (*module, others.split_whitespace().collect())).collect();
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut faults = Vec::new();
    for entry in fs::read_dir(&src).unwrap() {
        let path = entry.unwrap().path();
        let module = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if module == "lib" || module == "main" {
            continue;
        }
        let Some(allowed) = allowed.get(module.as_str()) else {
            faults.push(format!("module {module} isn't in the table"));
            continue;
        };
        for file in files(&path) {
            for (line, import) in imports(&fs::read_to_string(&file).unwrap()) {
                if import != module && !allowed.contains(import.as_str()) {
                    let file = file.strip_prefix(&src).unwrap().display();
                    faults.push(format!("src/{file}:{line}: {module} may not know {import}"));
                }
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

fn files(path: &Path) -> Vec<std::path::PathBuf> {
    if path.is_dir() {
        return fs::read_dir(path).unwrap().flat_map(|entry| files(&entry.unwrap().path())).collect();
    }
    if path.extension().is_some_and(|suffix| suffix == "rs") { vec![path.to_owned()] } else { Vec::new() }
}

/// The modules of this crate that `source` names, with the line; tests may know everything.
fn imports(source: &str) -> Vec<(usize, String)> {
    let code = source.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let mut found = Vec::new();
    for (index, line) in code.lines().enumerate() {
        let line = line.split("//").next().unwrap();
        for (at, _) in line.match_indices("crate::") {
            let rest = &line[at + "crate::".len()..];
            let names: Vec<&str> = match rest.strip_prefix('{') {
                Some(group) => group.split(',').collect(),
                None => vec![rest],
            };
            for name in names {
                let ident: String = name.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                found.push((index + 1, ident));
            }
        }
    }
    found
}

#[test]
fn the_search_finds_every_way_to_name_a_module() {
    let source = "use crate::error::{Error, Result};\nuse crate::{budget::Budget, source};\n// crate::sink\nfn f(x: &crate::hybrid::X) {}\n#[cfg(test)]\nmod tests {\nuse crate::cli;\n}";
    let names: Vec<String> = imports(source).into_iter().map(|(_, name)| name).collect();
    assert_eq!(names, ["error", "budget", "source", "hybrid"]);
}
