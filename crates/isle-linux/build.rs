//! Builds the agent and the attack program as static programs and hands them to the backend for
//! embedding, so that one `cargo build` gives one complete binary. Nothing happens without the
//! `backend` feature: the agent itself links this crate that way.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_BACKEND").is_none() {
        return;
    }
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("../..");
    for part in [
        "crates/isle-agent",
        "crates/isle-probe",
        "crates/isle-wire/src",
        "crates/isle-trees/src",
        "crates/isle-linux/src/setup",
        "crates/isle-linux/src/tree",
        "Cargo.lock",
    ] {
        println!("cargo::rerun-if-changed={}", root.join(part).display());
    }
    for file in ["request.rs", "sys.rs"] {
        println!("cargo::rerun-if-changed={}", root.join("crates/isle-linux/src").join(file).display());
    }
    match build_programs(&root) {
        Ok(place) => {
            println!("cargo::rustc-env=ISLE_AGENT={}", place.join("isle-agent").display());
            println!("cargo::rustc-env=ISLE_PROBE={}", place.join("isle-probe").display());
        }
        Err(problem) => println!("cargo::error=the agent could not be built: {problem}"),
    }
}

/// Builds both in one go and says where they are.
fn build_programs(root: &Path) -> Result<PathBuf, String> {
    let variable = |name: &str| env::var(name).map_err(|_| format!("{name} is not set"));
    let (cargo, target) = (variable("CARGO")?, variable("TARGET")?);
    let out = PathBuf::from(variable("OUT_DIR")?);
    let profile = if variable("PROFILE")? == "debug" { "agent-dev" } else { "agent" };
    // One place for all profiles of this target directory.
    let place = out.ancestors().nth(4).ok_or("OUT_DIR is not below a target directory")?.join("agent");
    let status = Command::new(cargo)
        .args(["build", "--package", "isle-agent", "--package", "isle-probe", "--bins", "--profile", profile])
        .args(["--target", &target])
        .arg("--target-dir")
        .arg(&place)
        .arg("--manifest-path")
        .arg(root.join("Cargo.toml"))
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        // The build script of the inner build would see it too, and build the agent for the agent.
        .env_remove("CARGO_FEATURE_BACKEND")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CARGO_BUILD_TARGET")
        .status()
        .map_err(|error| format!("cargo could not be started: {error}"))?;
    if !status.success() {
        return Err(format!("cargo ended with {status}"));
    }
    Ok(place.join(target).join(profile))
}
