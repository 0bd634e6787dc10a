//! `isle doctor`: what this host supports, what each tier enforces on it, and the command that fixes what is
//! missing. Does not need a daemon, so that it works where none can start. `--deep` runs real attacks.

mod deep;
mod judge;
mod show;

use std::collections::BTreeMap;
use std::process::{ExitCode, Stdio};

use isle_client::Result;
use isle_core::backend::{Fact, Offer};
use serde::Deserialize;
use serde_json::json;

use super::status::guarantee_line;
use super::{Context, block_on};
use crate::arguments::DoctorArguments;
use crate::backends;
use crate::daemon;
use crate::output::{Colour, Paint, escaped, show};

pub(super) fn doctor(context: &Context, arguments: DoctorArguments) -> Result<ExitCode> {
    if arguments.deep {
        return block_on(deep::deep(context, arguments.tier.as_deref()));
    }
    let found = if arguments.here { None } else { as_the_daemon_would() };
    let Findings { facts, tiers: offers } = found.unwrap_or_else(Findings::here);
    let any = offers.iter().any(|offer| offer.available || offer.available_with_downgrade);
    let value = json!({ "version": env!("CARGO_PKG_VERSION"), "facts": facts, "tiers": offers });
    show(context.form, &value, |_| report(&facts, &offers, Paint::for_stdout()))?;
    // Exit with 1 when no tier is available.
    Ok(if any { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Results of the probe.
#[derive(Debug, Deserialize)]
struct Findings {
    facts: BTreeMap<String, Vec<Fact>>,
    tiers: Vec<Offer>,
}

impl Findings {
    /// In this process.
    fn here() -> Self {
        let (facts, tiers) = backends::probe();
        Self { facts, tiers }
    }
}

/// Probes in the systemd scope in which a daemon would be started, since an unprivileged user's cgroups depend
/// on it. `None` when there is no such scope.
fn as_the_daemon_would() -> Option<Findings> {
    let mut command = daemon::in_systemd_scope()?;
    command.args(["doctor", "--here", "--json"]).stdin(Stdio::null()).stderr(Stdio::null());
    serde_json::from_slice(&command.output().ok()?.stdout).ok()
}

fn report(facts: &BTreeMap<String, Vec<Fact>>, offers: &[Offer], paint: Paint) -> String {
    let mut text = String::new();
    for (section, lines) in facts {
        text.push_str(&format!("{}\n", paint.bold(Colour::Cyan, &escaped(section))));
        for fact in lines {
            let mark =
                if fact.good { paint.plain(Colour::Green, "✓") } else { paint.plain(Colour::Red, "✗") };
            text.push_str(&format!("  {mark} {}: {}\n", escaped(&fact.name), escaped(&fact.found)));
            if !fact.fix.is_empty() {
                text.push_str(&format!("      {} {}\n", paint.plain(Colour::Cyan, "→"), escaped(&fact.fix)));
            }
        }
        text.push('\n');
    }
    for offer in offers {
        text.push_str(&tier(offer, paint));
        text.push('\n');
    }
    text
}

/// One tier of a backend: whether it is available, its capabilities, and every guarantee with how it is kept.
fn tier(offer: &Offer, paint: Paint) -> String {
    let word = match (offer.available, offer.available_with_downgrade) {
        (true, _) => paint.plain(Colour::Green, "available, all guarantees are enforced"),
        (false, true) => {
            paint.plain(Colour::Yellow, "not fully enforced on this host, needs --allow-downgrade")
        }
        (false, false) => paint.plain(Colour::Red, "unavailable on this host"),
    };
    let name = format!("backend {}, tier {}:", offer.backend, offer.tier.as_str());
    let mut text = format!("{} {word}\n", paint.bold(Colour::Cyan, &escaped(&name)));
    let can = offer.capabilities.lines().into_iter().map(|(name, value)| format!("{name} {value}"));
    text.push_str(&format!("  capabilities: {}\n", escaped(&can.collect::<Vec<_>>().join(", "))));
    for guarantee in &offer.containment.guarantees {
        text.push_str(&guarantee_line(guarantee, paint));
    }
    text
}
