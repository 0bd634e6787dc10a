//! Arms that are measured interleaved: each has its turn in every round, in an order that changes from round
//! to round, so that disturbances affect all of them equally.

use std::thread;
use std::time::Duration;

use crate::error::Result;
use crate::statistics::Samples;

/// After something that leaves work to be done in the background, so that the next arm does not pay.
const SETTLE: Duration = Duration::from_millis(4);

/// One thing to measure.
pub(crate) struct Arm<'a> {
    pub(crate) name: String,
    measure: Box<dyn FnMut() -> Result<Duration> + 'a>,
    pace: Pace,
    samples: Samples,
}

/// How often an arm is measured and what it leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Takes about a millisecond and is over when it is over: several times a round.
    Brief,
    /// Once a round, and then the machine is left to settle.
    Whole,
    /// Takes so long that once in ten rounds is enough.
    Slow,
}

impl<'a> Arm<'a> {
    pub(crate) fn new(
        name: impl Into<String>,
        pace: Pace,
        measure: impl FnMut() -> Result<Duration> + 'a,
    ) -> Self {
        Self { name: name.into(), measure: Box::new(measure), pace, samples: Samples::default() }
    }

    fn turn(&mut self, round: usize) -> Result<()> {
        let times = match self.pace {
            Pace::Brief => 4,
            Pace::Whole => 1,
            Pace::Slow => usize::from(round.is_multiple_of(10)),
        };
        for _ in 0..times {
            let took = (self.measure)()?;
            self.samples.push(took.as_secs_f64() * 1e3);
        }
        if times > 0 && self.pace != Pace::Brief {
            thread::sleep(SETTLE);
        }
        Ok(())
    }
}

/// Measures all arms for so many rounds; gives milliseconds by name.
pub(crate) fn interleave(mut arms: Vec<Arm<'_>>, rounds: usize) -> Result<Vec<(String, Samples)>> {
    for arm in &mut arms {
        // The first call of everything pays for caches and lazy start-up.
        for _ in 0..2 {
            (arm.measure)()?;
        }
    }
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut order: Vec<usize> = (0..arms.len()).collect();
    for round in 0..rounds {
        dice.shuffle(&mut order);
        for &index in &order {
            arms[index].turn(round)?;
        }
    }
    Ok(arms.into_iter().map(|arm| (arm.name, arm.samples)).collect())
}

/// Xorshift: the same order in every run is as good as any.
struct Dice(u64);

impl Dice {
    fn shuffle(&mut self, order: &mut [usize]) {
        for last in (1..order.len()).rev() {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            let bound = u64::try_from(last).unwrap_or(u64::MAX).saturating_add(1);
            let other = usize::try_from(self.0 % bound).unwrap_or(0);
            order.swap(last, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_arm_has_its_turn_in_every_round() {
        let arms = vec![
            Arm::new("brief", Pace::Brief, || Ok(Duration::from_millis(1))),
            Arm::new("whole", Pace::Whole, || Ok(Duration::from_millis(2))),
            Arm::new("slow", Pace::Slow, || Ok(Duration::from_millis(3))),
        ];
        let measured = interleave(arms, 20).unwrap();
        let counts: Vec<usize> = measured.iter().map(|(_, samples)| samples.count()).collect();
        assert_eq!(counts, [80, 20, 2]);
    }
}
