//! Where the program under test is.
//!
//! The test programs stay in `crates/isle/tests`, in the package that has the program: then plain
//! `cargo test` and `cargo nextest run` build the program before its tests, and no test meets a stale one.
//! Only the harness is a crate of its own. It cannot use `env!("CARGO_BIN_EXE_isle")`, which the compiler
//! sees in tests of that package alone, so it asks the environment that cargo and nextest give to tests,
//! and for a test program that was started by hand it looks where cargo puts both.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Set by cargo (1.94 and newer) and by nextest while they run tests.
const VARIABLE: &str = "CARGO_BIN_EXE_isle";

/// The `isle` that was built together with this test program.
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        if let Some(path) = std::env::var_os(VARIABLE) {
            return path.into();
        }
        // target/PROFILE/deps/TEST-HASH is beside target/PROFILE/isle.
        let test = std::env::current_exe().unwrap();
        let beside = test.parent().and_then(Path::parent).map(|profile| profile.join("isle"));
        let found = beside.filter(|path| path.is_file());
        found.unwrap_or_else(|| panic!("no isle beside {}: set {VARIABLE} to its path", test.display()))
    })
}
