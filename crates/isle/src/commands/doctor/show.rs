//! How the result of the attacks looks: one table, then what is open in each tier and what to change.

use isle_engine::backend::Tier;
use serde_json::{Value, json};

use super::deep::Examined;
use super::judge::{Judged, Judgement};
use crate::output::{Colour, Paint, Table, escaped};

pub(super) fn report(examined: &[Examined], paint: Paint) -> String {
    let tried: Vec<&Judged> = examined
        .iter()
        .filter_map(|one| match one {
            Examined::Tried(judged) => Some(judged),
            Examined::Absent(..) => None,
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
            Examined::Absent(tier, reasons) => text.push_str(&absent(*tier, reasons, paint)),
        }
    }
    text
}

fn table(tried: &[&Judged], paint: Paint) -> String {
    let mut heading = vec!["ATTACK"];
    heading.extend(tried.iter().map(|judged| match judged.containment.tier {
        Tier::Container => "CONTAINER",
        Tier::Process => "PROCESS",
    }));
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
        paint.plain(Colour::Green, "holds what its report claims")
    } else {
        paint.plain(Colour::Red, "DOES NOT HOLD what its report claims")
    };
    let name = paint.bold(Colour::Cyan, &format!("tier {}:", judged.containment.tier.as_str()));
    let mut text = format!("{name} {contained} of {} attacks contained, {verdict}\n", judged.all().count());
    let arrow = paint.plain(Colour::Cyan, "→");
    for (name, tries, judgement, seen) in judged.all() {
        if let Judgement::Untold = judgement {
            let mark = paint.plain(Colour::Red, "✗");
            text.push_str(&format!("  {mark} {name}: could {tries} ({})\n", escaped(seen)));
            text.push_str(&format!(
                "      {arrow} do not run untrusted code here, and report it: this is a hole\n"
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

fn absent(tier: Tier, reasons: &[String], paint: Paint) -> String {
    let name = paint.bold(Colour::Cyan, &format!("tier {}:", tier.as_str()));
    let mut text = format!("{name} not available here\n");
    for reason in reasons {
        text.push_str(&format!("  {} {}\n", paint.plain(Colour::Red, "✗"), escaped(reason)));
    }
    text.push_str(&format!("      {} see `isle doctor`\n", paint.plain(Colour::Cyan, "→")));
    text
}

pub(super) fn to_json(examined: &[Examined]) -> Value {
    let tiers: Vec<Value> = examined
        .iter()
        .map(|one| match one {
            Examined::Absent(tier, reasons) => json!({ "tier": tier, "available": false, "reasons": reasons }),
            Examined::Tried(judged) => json!({
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
