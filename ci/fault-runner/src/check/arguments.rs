//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::check::calls;
use crate::check::fault::CaseId;
use crate::check::run::Cases;

const USAGE: &str = "usage: weir-faults PROGRAMS [--all | --random N] [--seed N] [--only PREFIX] [--kind KIND] [--call NAME] [--jobs N] | --case ID";

/// Kinds of cases, and the share that each has of those by chance.
const SHARES: [(&str, usize); 4] = [
    ("single", 65),
    ("lasting", 5),
    ("double", 15),
    ("others", 15),
];

/// Which cases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    All,
    Random(usize),
    Case(CaseId),
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arguments {
    /// The directory of `weir` and `weir-cni`.
    pub(crate) programs: PathBuf,
    pub(crate) what: What,
    pub(crate) seed: u64,
    /// Only scenarios whose names begin with it.
    only: String,
    /// Only cases of this kind.
    kind: Option<String>,
    /// Only cases whose first call has this number.
    call: Option<u64>,
    pub(crate) jobs: usize,
}

impl Arguments {
    /// # Errors
    /// What is wrong, with the usage.
    pub(crate) fn parse(words: &[OsString]) -> Result<Self, String> {
        let mut words = words.iter().map(|w| w.to_string_lossy().into_owned());
        let programs = words.next().filter(|w| !w.starts_with("--")).ok_or(USAGE)?;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let mut arguments = Self {
            programs: programs.into(),
            what: What::Random(500),
            seed: rand_seed(),
            only: String::new(),
            kind: None,
            call: None,
            jobs: processors * 2,
        };
        while let Some(word) = words.next() {
            match word.as_str() {
                "--all" => {
                    arguments.what = What::All;
                    continue;
                }
                "--help" | "-h" => return Err(USAGE.to_owned()),
                _ => {}
            }
            let value = words
                .next()
                .ok_or_else(|| format!("{word} needs a value; {USAGE}"))?;
            let number = || {
                value
                    .parse()
                    .map_err(|_| format!("{word} {value}: not a number; {USAGE}"))
            };
            match word.as_str() {
                "--random" => arguments.what = What::Random(number()?),
                "--seed" => {
                    arguments.seed = value
                        .parse()
                        .map_err(|_| format!("{word} {value}: not a number"))?;
                }
                "--kind" if SHARES.iter().any(|(kind, _)| *kind == value) => {
                    arguments.kind = Some(value);
                }
                "--call" => {
                    let number = calls::number(&value);
                    let unknown = || format!("{word} {value}: no call that is known here");
                    arguments.call = Some(number.ok_or_else(unknown)?);
                }
                "--only" => arguments.only.clone_from(&value),
                "--jobs" => arguments.jobs = number()?.max(1),
                "--case" => arguments.what = What::Case(value.parse()?),
                _ => return Err(format!("{word}: no such option; {USAGE}")),
            }
        }
        Ok(arguments)
    }

    /// Whether a scenario is needed.
    pub(crate) fn concerns(&self, scenario: &str) -> bool {
        match &self.what {
            What::Case(case) => case.scenario == scenario,
            _ => scenario.starts_with(&self.only),
        }
    }

    /// Whether a case is not left out by `--call`.
    fn takes(&self, case: &CaseId) -> bool {
        self.call
            .is_none_or(|call| call == case.first.target.number)
    }

    /// The cases to run: those that failed once, then the others in an order that spreads the scenarios. Of those by
    /// chance each kind has a share.
    pub(crate) fn choose(&self, mut all: Cases, mut random: Random) -> Vec<CaseId> {
        let kinds = [
            &mut all.single,
            &mut all.lasting,
            &mut all.double,
            &mut all.others,
        ];
        let mut chosen = Vec::new();
        for (cases, (kind, share)) in kinds.into_iter().zip(SHARES) {
            let share = match &self.kind {
                None => share,
                Some(only) if *only == kind => 100,
                Some(_) => continue,
            };
            cases.retain(|case| self.takes(case));
            random.shuffle(cases);
            if let What::Random(count) = self.what {
                cases.truncate((count * share).div_ceil(100));
            }
            chosen.append(cases);
        }
        random.shuffle(&mut chosen);
        let mut saved = regressions();
        saved.retain(|case| {
            self.kind.is_none() && self.concerns(&case.scenario) && self.takes(case)
        });
        saved.append(&mut chosen);
        saved
    }
}

/// The cases of `regressions.txt`.
fn regressions() -> Vec<CaseId> {
    let lines = include_str!("../../regressions.txt").lines();
    let cases = lines.filter(|line| !line.starts_with('#'));
    cases
        .map(|case| case.parse().expect("a saved case"))
        .collect()
}

/// Another one for each run; it is printed.
fn rand_seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(1, |n| u64::from(n.subsec_nanos()))
}

/// SplitMix64 of Steele, Lea and Flood: the same numbers for the same seed, on every machine.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Of a range that is small beside 2^64.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap_or(0)
    }

    /// Fisher and Yates.
    fn shuffle(&mut self, cases: &mut [CaseId]) {
        for n in (1..cases.len()).rev() {
            cases.swap(n, self.below(n + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Arguments, String> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        Arguments::parse(&words)
    }

    #[test]
    fn a_seed_gives_the_same_cases_again() {
        let all: Vec<CaseId> = (1..200)
            .map(|n| {
                format!("apply-nft-redirect/recvfrom.{n}/EINTR")
                    .parse()
                    .unwrap()
            })
            .collect();
        let with = |seed: &str| {
            let arguments = parse(&["bin", "--random", "20", "--seed", seed]).unwrap();
            let cases = Cases {
                single: all.clone(),
                ..Cases::default()
            };
            let random = Random(arguments.seed);
            arguments.choose(cases, random)
        };
        let saved = regressions().len();
        assert_eq!(with("7").len() - saved, 13, "the share of single faults");
        assert_eq!(with("7"), with("7"));
        assert_ne!(with("7"), with("8"));
    }

    #[test]
    fn a_call_leaves_the_cases_of_others_out() {
        let case = |text: &str| text.parse::<CaseId>().unwrap();
        let cases = || Cases {
            single: vec![
                case("apply-nft-redirect/recvfrom.1/EIO"),
                case("apply-nft-redirect/openat.1/EIO"),
            ],
            lasting: vec![case("apply-nft-redirect/openat.2+/EPERM")],
            // What counts is the first call.
            double: vec![
                case("apply-nft-redirect/openat.1/EIO/recvfrom.1/EIO"),
                case("apply-nft-redirect/recvfrom.1/EIO/openat.1/EIO"),
            ],
            ..Cases::default()
        };
        let chosen = |more: &[&str]| {
            let arguments = parse(&[&["bin", "--seed", "7"], more].concat()).unwrap();
            arguments.choose(cases(), Random(arguments.seed))
        };
        let saved = regressions();
        let is_open = |case: &&CaseId| case.first.target.number == calls::number("openat").unwrap();
        let saved_opens = saved.iter().filter(is_open).count();
        let all = chosen(&["--all", "--call", "openat"]);
        assert!(all.iter().all(|case| is_open(&case)), "{all:?}");
        assert_eq!(all.len() - saved_opens, 3);
        let lasting = chosen(&["--all", "--call", "openat", "--kind", "lasting"]);
        assert_eq!(lasting, [case("apply-nft-redirect/openat.2+/EPERM")]);
        assert!(
            chosen(&[
                "--all", "--call", "openat", "--only", "none", "--kind", "others"
            ])
            .is_empty()
        );
        // The share of the cases by chance is one of those that are left.
        let some = chosen(&["--random", "2", "--call", "openat", "--kind", "double"]);
        assert_eq!(some.len(), 1);
        assert_eq!(chosen(&["--all"]).len() - saved.len(), 5);
    }

    #[test]
    fn what_cannot_be_understood_is_named() {
        for words in [
            &["--all"][..],
            &["bin", "--random"],
            &["bin", "--random", "many"],
            &["bin", "--case", "x"],
            &["bin", "--some"],
            &["bin", "--kind", "other"],
            &["bin", "--call", "nonsense"],
            &["bin", "--call"],
            &["bin", "--help"],
        ] {
            assert!(parse(words).is_err(), "{words:?}");
        }
    }
}
