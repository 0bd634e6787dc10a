//! Prints the results of the attacks: one table, then the open attacks of each tier and their fixes.

use isle_core::backend::{BackendName, GuaranteeStatus, Offer, Tier};
use serde_json::{Value, json};

use super::deep::Examined;
use super::judge::{Judged, Judgement};
use crate::output::{Colour, Paint, Table, escaped};

pub(super) fn report(examined: &[Examined], paint: Paint) -> String {
    let tried: Vec<&Judged> = examined
        .iter()
        .filter_map(|one| match one {
            Examined::Tried(judged) => Some(judged),
            Examined::Absent(_) => None,
        })
        .collect();
    let mut text = String::new();
    if !tried.is_empty() {
        text.push_str(&table(&tried, paint));
    }
    for one in examined {
        text.push('\n');
        match one {
            Examined::Tried(judged) => text.push_str(&tier(judged, paint)),
            Examined::Absent(offer) => text.push_str(&absent(offer, paint)),
        }
    }
    text
}

fn table(tried: &[&Judged], paint: Paint) -> String {
    let columns: Vec<String> =
        tried.iter().map(|judged| judged.containment.tier.as_str().to_ascii_uppercase()).collect();
    let mut heading = vec!["ATTACK"];
    heading.extend(columns.iter().map(String::as_str));
    heading.push("TRIES TO");
    let mut table = Table::new(&heading);
    let Some(first) = tried.first() else { return String::new() };
    for (index, (name, tries, _, _)) in first.all().enumerate() {
        let words = tried.iter().map(|judged| {
            judged.all().nth(index).map_or("", |(_, _, judgement, _)| word(judgement)).to_owned()
        });
        table.row([name.to_owned()].into_iter().chain(words).chain([tries.to_owned()]));
    }
    table.render(paint)
}

fn word(judgement: Judgement<'_>) -> &'static str {
    match judgement {
        Judgement::Contained => "contained",
        Judgement::Told(_) => "open",
        Judgement::Untold => "ESCAPED",
        Judgement::NotTried => "not tried",
    }
}

fn tier(judged: &Judged, paint: Paint) -> String {
    let count =
        |wanted: fn(Judgement<'_>) -> bool| judged.all().filter(|(_, _, one, _)| wanted(*one)).count();
    let contained = count(|one| matches!(one, Judgement::Contained));
    let verdict = if judged.holds() {
        paint.plain(Colour::Green, "matches its report")
    } else {
        paint.plain(Colour::Red, "DOES NOT MATCH its report")
    };
    let name = heading(&judged.backend, judged.containment.tier, paint);
    let mut text = format!("{name} {contained} of {} attacks contained, {verdict}\n", judged.all().count());
    let arrow = paint.plain(Colour::Cyan, "→");
    for (name, tries, judgement, seen) in judged.all() {
        if let Judgement::Untold = judgement {
            let mark = paint.plain(Colour::Red, "✗");
            text.push_str(&format!("  {mark} {name}: succeeded: {tries} ({})\n", escaped(seen)));
            text.push_str(&format!(
                "      {arrow} do not run untrusted code on this host, and report this as a vulnerability\n"
            ));
        }
    }
    for line in &judged.containment.guarantees {
        let open: Vec<&str> = judged
            .all()
            .filter(|(_, _, judgement, _)| matches!(judgement, Judgement::Told(told) if told.key == line.key))
            .map(|(name, ..)| name)
            .collect();
        if open.is_empty() {
            continue;
        }
        let mark = paint.plain(Colour::Yellow, "~");
        text.push_str(&format!("  {mark} {}: {}\n", escaped(&line.key), escaped(&line.how)));
        text.push_str(&format!("      open: {}\n", open.join(", ")));
        if !line.fix.is_empty() {
            text.push_str(&format!("      {arrow} {}\n", escaped(&line.fix)));
        }
    }
    text
}

fn heading(backend: &BackendName, tier: Tier, paint: Paint) -> String {
    paint.bold(Colour::Cyan, &escaped(&format!("backend {backend}, tier {}:", tier.as_str())))
}

/// What of an offer is missing, one line each.
fn reasons(offer: &Offer) -> Vec<String> {
    let missing = offer.containment.guarantees.iter().filter(|line| line.status == GuaranteeStatus::Missing);
    missing.map(|line| format!("{}: {}", line.key, line.how)).collect()
}

fn absent(offer: &Offer, paint: Paint) -> String {
    let name = heading(&offer.backend, offer.tier, paint);
    let mut text = format!("{name} unavailable on this host\n");
    for reason in reasons(offer) {
        text.push_str(&format!("  {} {}\n", paint.plain(Colour::Red, "✗"), escaped(&reason)));
    }
    text.push_str(&format!("      {} run `isle doctor` for details\n", paint.plain(Colour::Cyan, "→")));
    text
}

pub(super) fn to_json(examined: &[Examined]) -> Value {
    let tiers: Vec<Value> = examined
        .iter()
        .map(|one| match one {
            Examined::Absent(offer) => json!({
                "backend": offer.backend, "tier": offer.tier, "available": false, "reasons": reasons(offer),
            }),
            Examined::Tried(judged) => json!({
                "backend": judged.backend,
                "tier": judged.containment.tier,
                "available": true,
                "holds": judged.holds(),
                "containment": judged.containment,
                "attacks": judged.all().map(|(name, tries, judgement, seen)| {
                    let line = match judgement {
                        Judgement::Told(line) => Value::from(line.key.as_str()),
                        Judgement::Contained | Judgement::Untold | Judgement::NotTried => Value::Null,
                    };
                    json!({ "name": name, "tries": tries, "result": result(judgement), "seen": seen, "guarantee": line })
                }).collect::<Vec<_>>(),
            }),
        })
        .collect();
    json!({ "version": env!("CARGO_PKG_VERSION"), "tiers": tiers })
}

fn result(judgement: Judgement<'_>) -> &'static str {
    match judgement {
        Judgement::Contained => "contained",
        Judgement::Told(_) => "open",
        Judgement::Untold => "escaped",
        Judgement::NotTried => "not_tried",
    }
}
