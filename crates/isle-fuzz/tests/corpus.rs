//! Every target on its corpus, and on seeded mutations of it. The same seed does the same; another one
//! is given with ISLE_FUZZ_SEED. What an instrumented run found belongs into the corpus.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

use std::panic::AssertUnwindSafe;
use std::path::Path;

use isle_fuzz::Target;

/// Mutations of each target. A few seconds of a slow machine altogether.
const MUTATIONS: usize = 2_000;

/// A small generator, so that a seed means the same everywhere and for ever (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(end.max(1)).unwrap()).unwrap()
    }
}

fn mutated(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut bytes = corpus[random.below(corpus.len())].clone();
    for _ in 0..=random.below(6) {
        let at = random.below(bytes.len() + 1);
        match random.below(7) {
            0 => bytes.insert(at, random.next().to_le_bytes()[0]),
            1 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            2 if at < bytes.len() => drop(bytes.remove(at)),
            3 => bytes.truncate(at),
            4 => {
                let end = (at + random.below(16)).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            5 => {
                let other = &corpus[random.below(corpus.len())];
                let from = random.below(other.len() + 1);
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            _ => {
                let words: [&[u8]; 12] = [
                    b"..",
                    b"/",
                    b"\0",
                    b"\"",
                    b"{",
                    b"[",
                    b"\\u0000",
                    b"\xff",
                    b"18446744073709551616",
                    b"-1",
                    b"\xe2\x80\xae",
                    b"\n",
                ];
                bytes.splice(at..at, words[random.below(words.len())].iter().copied());
            }
        }
    }
    bytes
}

fn holds(target: &mut Target, bytes: &[u8], what: &str) {
    if std::panic::catch_unwind(AssertUnwindSafe(|| target.run(bytes))).is_err() {
        panic!("{} fails on {what}: {:?} = {:?}", target.name, bytes, String::from_utf8_lossy(bytes));
    }
}

#[test]
fn everything_that_reads_strangers_bytes_holds_its_promises() {
    let seed = std::env::var("ISLE_FUZZ_SEED").ok().map_or(1, |seed| seed.parse().unwrap());
    for mut target in isle_fuzz::all() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target.name);
        let mut files: Vec<_> =
            std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        let corpus: Vec<Vec<u8>> = files.iter().map(|file| std::fs::read(file).unwrap()).collect();
        assert!(!corpus.is_empty(), "{} has no corpus", target.name);
        for (file, bytes) in files.iter().zip(&corpus) {
            holds(&mut target, bytes, &file.display().to_string());
        }
        let mut random = Random(seed);
        for number in 0..MUTATIONS {
            let bytes = mutated(&corpus, &mut random);
            holds(&mut target, &bytes, &format!("mutation {number} of seed {seed}"));
        }
    }
}

#[test]
fn every_target_has_a_program_and_a_corpus() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let manifest = std::fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
    for target in isle_fuzz::all() {
        let program = format!("fuzz_targets/{}.rs", target.name);
        assert!(fuzz.join(&program).exists() && manifest.contains(&program), "{program}");
        assert!(fuzz.join("corpus").join(target.name).is_dir(), "{}", target.name);
    }
}
