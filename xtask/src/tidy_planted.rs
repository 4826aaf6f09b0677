//! The planted faults. Each stands in one place, and the simulation or a model of shuttle must find it.

use std::collections::BTreeMap;

/// The code in which faults are planted.
const PLANTED_IN: [&str; 3] = ["dlock-runtime/src/", "dlock-store/src/", "backends/redis/src/"];

/// The faults that `cargo xtask sim --hunt` looks for.
const MUTANTS: &str = "dlock-sim/src/mutants.rs";

/// The models that find the others.
const MODELS: [&str; 2] = ["dlock-runtime/tests/interleavings/", "backends/redis/tests/interleavings/"];

/// The planted faults and those who look for them, from the files so far.
#[derive(Default)]
pub(super) struct Planted {
    /// By name, the files.
    places: BTreeMap<String, Vec<String>>,
    mutants: Vec<String>,
    in_models: Vec<String>,
}

impl Planted {
    /// Notes the faults of one file.
    pub(super) fn note(&mut self, path: &str, text: &str) {
        if PLANTED_IN.iter().any(|folder| path.starts_with(folder)) {
            for name in text.split("planted(\"").skip(1).filter_map(|rest| rest.split('"').next()) {
                self.places.entry(name.to_owned()).or_default().push(path.to_owned());
            }
        } else if path == MUTANTS {
            self.mutants.extend(quoted(text));
        } else if MODELS.iter().any(|folder| path.starts_with(folder)) {
            self.in_models.extend(quoted(text));
        }
    }

    /// The faults that stand in no place or in several, and those that nobody looks for.
    pub(super) fn broken(&self) -> Vec<String> {
        let places = |name: &String| self.places.get(name).map_or(0, Vec::len);
        let missing = self.mutants.iter().filter(|name| places(name) != 1);
        let missing =
            missing.map(|name| format!("  {MUTANTS}: {name:?} is planted in {} places, not in one", places(name)));
        let unused =
            self.places.iter().filter(|(name, _)| !self.mutants.contains(name) && !self.in_models.contains(name));
        let unused = unused.map(|(name, files)| {
            format!("  {}: nobody looks for {name:?}: add it to {MUTANTS} or to a model in one of {MODELS:?}", files[0])
        });
        missing.chain(unused).collect()
    }
}

/// The texts in quotes, where a line has one.
fn quoted(text: &str) -> impl Iterator<Item = String> {
    text.lines().filter_map(|line| Some(line.split_once('"')?.1.split_once('"')?.0.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(code: &str, mutants: &str, model: &str) -> usize {
        let mut planted = Planted::default();
        planted.note("dlock-runtime/src/hold/release.rs", code);
        planted.note(MUTANTS, mutants);
        planted.note("dlock-runtime/tests/interleavings/hold.rs", model);
        planted.broken().len()
    }

    #[test]
    fn each_planted_fault_stands_in_one_place_and_is_looked_for() {
        let (code, mutants, model) =
            ("if planted(\"a\") || planted(\"b\") {", "    \"a\",\n", "holds_and_finds(\"b\", || {");
        assert_eq!(broken(code, mutants, model), 0);
        assert_eq!(broken(code, "", model), 1);
        assert_eq!(broken(code, mutants, ""), 1);
        assert_eq!(broken("planted(\"b\")", mutants, model), 1);
        assert_eq!(broken("planted(\"a\") planted(\"a\") planted(\"b\")", mutants, model), 1);
    }
}
