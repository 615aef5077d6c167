//! Finds the column of a key.

use std::collections::HashMap;
use std::sync::Arc;

use super::scan::{Kind, Scanner, Slot, Syntax, unescape};
use super::shape::Seen;

/// Keys beyond this place in an object are looked up without the memory of the last object: an object
/// with more is rare, and the memory must be bounded.
const MAX_REMEMBERED: usize = 1024;

/// Reads objects with certain keys. The keys are expected where the last object had them.
#[derive(Debug, Clone)]
pub(super) struct Members {
    names: Arc<Names>,
    /// By place in the last object: which key stood there, if it is one of the wanted.
    last: Vec<Option<usize>>,
    /// The values of the current object, by key.
    slots: Vec<Slot>,
    scratch: String,
}

#[derive(Debug)]
struct Names {
    wanted: Vec<String>,
    exact: HashMap<String, usize>,
    /// In lower case, if the case doesn't count.
    folded: Option<HashMap<String, usize>>,
}

impl Members {
    pub(super) fn new(wanted: Vec<String>, ignore_case: bool) -> Self {
        let by = |fold: &dyn Fn(&str) -> String| {
            let mut map = HashMap::new();
            for (index, name) in wanted.iter().enumerate() {
                map.entry(fold(name)).or_insert(index);
            }
            map
        };
        let exact = by(&str::to_owned);
        let folded = ignore_case.then(|| by(&str::to_lowercase));
        let slots = vec![Slot::default(); wanted.len()];
        Self { names: Arc::new(Names { wanted, exact, folded }), last: Vec::new(), slots, scratch: String::new() }
    }

    pub(super) fn num_keys(&self) -> usize {
        self.slots.len()
    }

    /// Reads the object before which the scanner stands; `depth` arrays and objects are open around it.
    /// Of a key that stands there twice the last value counts.
    pub(super) fn read(&mut self, scanner: &mut Scanner<'_>, text: &str, depth: usize) -> Result<&[Slot], Syntax> {
        self.read_seen(scanner, text, depth, |_| ())
    }

    /// As [`Self::read`]; `seen` is shown each member.
    pub(super) fn read_seen(
        &mut self,
        scanner: &mut Scanner<'_>,
        text: &str,
        depth: usize,
        mut seen: impl FnMut(Seen),
    ) -> Result<&[Slot], Syntax> {
        self.slots.fill(Slot::default());
        let mut place = 0;
        let mut start = scanner.at();
        scanner.object(|scanner, key| {
            let end = scanner.at();
            let value = scanner.value(depth + 1)?;
            let index = self.find(place, key, text);
            if let Some(index) = index {
                self.slots[index] = value;
            }
            seen(Seen { start, end, key: index });
            start = scanner.at();
            place += 1;
            Ok::<(), Syntax>(())
        })?;
        Ok(&self.slots)
    }

    fn find(&mut self, place: usize, key: Slot, text: &str) -> Option<usize> {
        let raw = key.text(text);
        let name = if key.kind == Kind::Escaped {
            self.scratch.clear();
            unescape(raw, &mut self.scratch);
            self.scratch.as_str()
        } else {
            raw
        };
        let expected = self.last.get(place).copied().flatten();
        if let Some(index) = expected.filter(|&index| self.names.wanted[index] == name) {
            return Some(index);
        }
        let found = self.names.find(name);
        if place < MAX_REMEMBERED {
            if self.last.len() <= place {
                self.last.resize(place + 1, None);
            }
            self.last[place] = found;
        }
        found
    }
}

impl Names {
    fn find(&self, name: &str) -> Option<usize> {
        let exact = self.exact.get(name).copied();
        exact.or_else(|| self.folded.as_ref().and_then(|folded| folded.get(&name.to_lowercase()).copied()))
    }
}
