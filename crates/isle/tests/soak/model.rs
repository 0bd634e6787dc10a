//! What a client knows of one of its sandboxes: only what was acknowledged is certain.

use std::collections::{BTreeMap, BTreeSet};

/// How sure something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sure {
    Yes,
    /// The answer did not come, or said that it failed half way.
    Maybe,
}

/// One sandbox and its workspace.
#[derive(Debug)]
pub(crate) struct Model {
    /// Whether it exists, when that is known.
    pub(crate) exists: Option<bool>,
    /// Numbers that were appended.
    lines: BTreeMap<u64, Sure>,
    /// What the pair of files may hold; `None`: they are not there.
    pair: BTreeSet<Option<u64>>,
    /// Whether the first of them may have been removed alone.
    first_removed: Option<bool>,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            exists: Some(false),
            lines: BTreeMap::new(),
            pair: BTreeSet::from([None]),
            first_removed: Some(false),
        }
    }
}

impl Model {
    pub(crate) fn appended(&mut self, number: u64, sure: Sure) {
        self.lines.insert(number, sure);
    }

    /// It was refused before anything was begun.
    pub(crate) fn not_appended(&mut self, number: u64) {
        self.lines.remove(&number);
    }

    pub(crate) fn written(&mut self, number: u64, sure: Sure) {
        match sure {
            Sure::Yes => {
                self.pair = BTreeSet::from([Some(number)]);
                self.first_removed = Some(false);
            }
            Sure::Maybe => {
                self.pair.insert(Some(number));
                if self.first_removed == Some(true) {
                    self.first_removed = None;
                }
            }
        }
    }

    pub(crate) fn removed(&mut self, sure: Sure) {
        self.first_removed = match (sure, self.first_removed) {
            (Sure::Yes, _) | (_, Some(true)) => Some(true),
            (Sure::Maybe, _) => None,
        };
    }

    pub(crate) fn wiped(&mut self, sure: Sure) {
        match sure {
            Sure::Yes => *self = Self::default(),
            Sure::Maybe => {
                self.exists = None;
                self.pair.insert(None);
                if self.first_removed == Some(true) {
                    self.first_removed = None;
                }
                for sure in self.lines.values_mut() {
                    *sure = Sure::Maybe;
                }
            }
        }
    }

    /// Compares with what is there: appended numbers, and the two files.
    pub(crate) fn compare(
        &mut self,
        said: &str,
        first: Option<&str>,
        second: Option<&str>,
    ) -> Result<(), String> {
        let found: Vec<u64> = said.lines().map(|line| line.parse().unwrap_or(u64::MAX)).collect();
        let once: BTreeSet<u64> = found.iter().copied().collect();
        if once.len() != found.len() {
            return Err(format!("something was run twice: {found:?}"));
        }
        if let Some(strange) = once.iter().find(|number| !self.lines.contains_key(number)) {
            return Err(format!("{strange} was never asked for, or refused"));
        }
        let lost = self.lines.iter().find(|(number, sure)| **sure == Sure::Yes && !once.contains(number));
        if let Some((lost, _)) = lost {
            return Err(format!("{lost} was acknowledged and is lost"));
        }
        let number = |text: Option<&str>| text.map(|text| text.trim().parse().unwrap_or(u64::MAX));
        let (first, second) = (number(first), number(second));
        if !self.pair.contains(&second) {
            return Err(format!("the second file holds {second:?}, not one of {:?}", self.pair));
        }
        let fits = match self.first_removed {
            Some(true) => first.is_none(),
            Some(false) => first == second,
            None => first.is_none() || first == second,
        };
        if !fits {
            return Err(format!("the first file holds {first:?}, the second {second:?}"));
        }
        // What was seen is certain from now on.
        self.pair = BTreeSet::from([second]);
        self.first_removed = Some(first != second);
        self.lines = once.into_iter().map(|number| (number, Sure::Yes)).collect();
        self.exists = Some(true);
        Ok(())
    }
}
