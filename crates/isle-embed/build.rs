//! Builds the agent and the attack program as static programs, so that one `cargo build` gives one complete
//! binary. This is the only build script that does so: backends embed the programs by depending on this
//! crate, and each build of a profile compiles them once.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the two programs are compiled from.
const SOURCES: &[&str] = &[
    "Cargo.lock",
    "crates/isle-agent",
    "crates/isle-probe",
    "crates/isle-setup",
    "crates/isle-trees/src",
    "crates/isle-wire/src",
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("../..");
    for source in SOURCES {
        println!("cargo::rerun-if-changed={}", root.join(source).display());
    }
    match build_programs(&root) {
        Ok(directory) => {
            println!("cargo::rustc-env=ISLE_AGENT={}", directory.join("isle-agent").display());
            println!("cargo::rustc-env=ISLE_PROBE={}", directory.join("isle-probe").display());
        }
        Err(problem) => println!("cargo::error=the agent could not be built: {problem}"),
    }
}

/// Builds both programs in one cargo command and returns their directory.
fn build_programs(root: &Path) -> Result<PathBuf, String> {
    let variable = |name: &str| env::var(name).map_err(|_| format!("{name} is not set"));
    let (cargo, target) = (variable("CARGO")?, variable("TARGET")?);
    let out = PathBuf::from(variable("OUT_DIR")?);
    let profile = if variable("PROFILE")? == "debug" { "agent-dev" } else { "agent" };
    // One directory for all profiles of this target directory.
    let directory = out.ancestors().nth(4).ok_or("OUT_DIR is not below a target directory")?.join("agent");
    let status = Command::new(cargo)
        .args(["build", "--package", "isle-agent", "--package", "isle-probe", "--bins", "--profile", profile])
        .args(["--target", &target])
        .arg("--target-dir")
        .arg(&directory)
        .arg("--manifest-path")
        .arg(root.join("Cargo.toml"))
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CARGO_BUILD_TARGET")
        .status()
        .map_err(|error| format!("cargo could not be started: {error}"))?;
    if !status.success() {
        return Err(format!("cargo failed: {status}"));
    }
    Ok(directory.join(target).join(profile))
}
