//! The verdict on a tier: which attacks succeeded, and whether its report lists them.

use std::collections::BTreeMap;

use isle_core::backend::{BackendName, Containment, Guarantee};
use isle_probe::Verdict;

/// One attack and its result.
#[derive(Debug)]
pub(super) struct Attack {
    pub(super) name: &'static str,
    pub(super) verdict: Verdict,
    pub(super) seen: String,
}

impl Attack {
    /// From a line of the attack program; `None` for an unknown attack.
    pub(super) fn new(name: &str, verdict: &str, seen: String) -> Option<Self> {
        let known = isle_probe::attacks().find(|attack| attack.name == name)?;
        Some(Self { name: known.name, verdict: Verdict::from_name(verdict)?, seen })
    }

    /// The attack that is judged from outside.
    pub(super) fn left_behind(count: usize) -> Self {
        let (name, _) = isle_probe::DAEMON;
        let verdict = if count == 0 { Verdict::Contained } else { Verdict::Escaped };
        Self { name, verdict, seen: format!("{count} processes left running") }
    }
}

/// What the result of an attack means for its tier.
#[derive(Debug, Clone, Copy)]
pub(super) enum Judgement<'a> {
    /// It failed.
    Contained,
    /// It succeeded, and this line of the report lists it.
    Told(&'a Guarantee),
    /// It succeeded, and the report does not list it.
    Untold,
    /// It was not, or could not be, run.
    NotTried,
}

/// A tier with the results of its attacks.
#[derive(Debug)]
pub(super) struct Judged {
    pub(super) backend: BackendName,
    pub(super) containment: Containment,
    /// Attacks that were skipped on purpose.
    skipped: Vec<String>,
    attacks: BTreeMap<&'static str, Attack>,
}

impl Judged {
    pub(super) fn new(
        backend: BackendName,
        containment: Containment,
        skipped: Vec<String>,
        attacks: Vec<Attack>,
    ) -> Self {
        Self {
            backend,
            containment,
            skipped,
            attacks: attacks.into_iter().map(|attack| (attack.name, attack)).collect(),
        }
    }

    /// All attacks in the order of the suite, with their results.
    pub(super) fn all(&self) -> impl Iterator<Item = (&'static str, &'static str, Judgement<'_>, &str)> {
        let inside = isle_probe::attacks().map(|attack| (attack.name, attack.tries));
        inside.chain([isle_probe::DAEMON]).map(|(name, tries)| match self.attacks.get(name) {
            Some(attack) => (name, tries, self.judge(attack), attack.seen.as_str()),
            None if self.skipped.iter().any(|skipped| skipped == name) => {
                (name, tries, Judgement::NotTried, "skipped")
            }
            // An attack that aborts the suite is a failure too.
            None => (name, tries, Judgement::Untold, "the attack program exited before this attack"),
        })
    }

    fn judge(&self, attack: &Attack) -> Judgement<'_> {
        match attack.verdict {
            Verdict::Contained => Judgement::Contained,
            Verdict::NotTestable => Judgement::NotTried,
            Verdict::Escaped => self
                .containment
                .guarantees
                .iter()
                .find(|line| line.open.iter().any(|open| open == attack.name))
                .map_or(Judgement::Untold, Judgement::Told),
        }
    }

    /// Whether the tier enforces what its report claims.
    pub(super) fn holds(&self) -> bool {
        !self.all().any(|(_, _, judgement, _)| matches!(judgement, Judgement::Untold))
    }
}

#[cfg(test)]
mod tests {
    use isle_core::backend::{GuaranteeStatus, Tier};

    use super::*;

    /// Every attack was contained but those given.
    fn judged(open: &[&str], given: &[(&str, &str)]) -> Judged {
        let line = Guarantee {
            key: "own_root".into(),
            status: GuaranteeStatus::Missing,
            how: "shared".into(),
            fix: String::new(),
            open: open.iter().map(|name| (*name).to_owned()).collect(),
        };
        let others = isle_probe::attacks().map(|attack| (attack.name, "contained"));
        let all = others.chain(given.iter().copied());
        let mut attacks: Vec<Attack> =
            all.filter_map(|(name, verdict)| Attack::new(name, verdict, String::new())).collect();
        attacks.push(Attack::left_behind(0));
        Judged::new(
            BackendName::of("native"),
            Containment { tier: Tier::Process, guarantees: vec![line] },
            Vec::new(),
            attacks,
        )
    }

    #[test]
    fn a_tier_holds_when_its_report_names_whatever_gets_through() {
        let tried = [("fs.canary_read", "contained"), ("fs.canary_stat", "escaped")];
        assert!(judged(&["fs.canary_stat"], &tried).holds());
    }

    #[test]
    fn an_attack_that_gets_through_unnamed_breaks_the_tier() {
        let tried = [("fs.canary_read", "escaped"), ("fs.canary_write", "contained")];
        assert!(!judged(&["fs.canary_stat"], &tried).holds());
    }

    #[test]
    fn a_tier_in_which_the_attacks_were_cut_short_does_not_hold() {
        let mut cut_short = judged(&[], &[]);
        assert!(cut_short.holds());
        cut_short.attacks.remove("res.memfd");
        assert!(!cut_short.holds());
        cut_short.skipped.push("res.memfd".into());
        assert!(cut_short.holds());
    }
}
