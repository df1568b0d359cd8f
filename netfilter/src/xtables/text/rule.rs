//! The options of one rule.

use super::loadable::{Loadable, known};
use super::options::{Complaint, Given, Opt, complain};
use super::words::Word;
use super::{MOST_RULES, names, shorten};
use crate::protocols;
use crate::xtables::ext::{ONE_OR_NONE, Part};
use crate::xtables::target::VERDICTS;
use crate::xtables::{Match, Network, Not, Protocol, Rule, Target, XtFamily};

/// The largest number of matches: a match has at least 32 bytes, and a rule at most 65,535.
const MOST: usize = 65_535 / 32;

/// A loaded match or target, whose options may follow.
struct Loaded {
    kind: Loadable,
    given: Given,
}

/// The state of the parser of one line.
struct Reader<'a> {
    family: XtFamily,
    /// The chain of the rule.
    chain: &'a str,
    words: std::iter::Peekable<std::slice::Iter<'a, Word>>,
    rule: Rule,
    /// `-s A,B` creates one rule per address. Parsed at the end of the line, because the family may follow.
    sources: Option<Opt>,
    destinations: Option<Opt>,
    loaded: Vec<Loaded>,
    /// The column of `-j` or `-g`.
    at_target: Option<usize>,
    /// The column of the end of the line, for errors about missing words.
    end: usize,
}

/// Parses these words: several rules if `-s` or `-d` lists several addresses; `None` if they are for the other family. Stores the column
/// of the target in `at_target`, if there is one.
pub(super) fn rules(
    words: &[Word],
    family: XtFamily,
    chain: &str,
    end: usize,
    at_target: &mut usize,
) -> Result<Option<Vec<Rule>>, Complaint> {
    let mut reader = Reader {
        family,
        chain,
        words: words.iter().peekable(),
        rule: Rule::default(),
        sources: None,
        destinations: None,
        loaded: Vec::new(),
        at_target: None,
        end,
    };
    while let Some(word) = reader.words.next() {
        match names::family(word) {
            // iptables does not parse the rest of the line either.
            Some(of) if of != family => return Ok(None),
            Some(_) => {}
            None => reader.option(word)?,
        }
    }
    *at_target = reader.at_target.unwrap_or(*at_target);
    reader.finish().map(Some)
}

impl<'a> Reader<'a> {
    fn option(&mut self, word: &'a Word) -> Result<(), Complaint> {
        let (not, word) = match word.text.as_str() {
            "!" => match self.words.next() {
                Some(next) => (Not(true), next),
                None => return Err(complain(word.column, "! stands before an option; add one")),
            },
            _ => (Not(false), word),
        };
        let column = word.column;
        if !word.text.starts_with('-') {
            let word = shorten(&word.text);
            let message = format!("`{word}` is no option; options begin with - or --");
            return Err(complain(column, message));
        }
        let (name, attached) = match word.text.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
            _ => (word.text.as_str(), None),
        };
        let name = self.whole_name(name, column)?;
        let mut o = Opt {
            not,
            name: name.to_owned(),
            words: attached.into_iter().collect(),
            column,
        };
        match names::short(name) {
            "-s" => {
                self.take(&mut o, 1)?;
                once(&o, self.sources.is_none())?;
                self.sources = Some(o);
            }
            "-d" => {
                self.take(&mut o, 1)?;
                once(&o, self.destinations.is_none())?;
                self.destinations = Some(o);
            }
            "-i" => {
                self.take(&mut o, 1)?;
                once(&o, self.rule.in_interface.is_none())?;
                self.has_interface(&o, ["OUTPUT", "POSTROUTING"])?;
                self.rule.in_interface = Some((not, o.interface(0)?));
            }
            "-o" => {
                self.take(&mut o, 1)?;
                once(&o, self.rule.out_interface.is_none())?;
                self.has_interface(&o, ["PREROUTING", "INPUT"])?;
                self.rule.out_interface = Some((not, o.interface(0)?));
            }
            "-p" => {
                self.take(&mut o, 1)?;
                once(&o, self.rule.protocol.is_none())?;
                self.protocol(&o)?;
            }
            "-f" if self.family == XtFamily::Ip => {
                self.take(&mut o, 0)?;
                once(&o, self.rule.fragment.is_none())?;
                self.rule.fragment = Some(not);
            }
            "-m" => {
                self.take(&mut o, 1)?;
                self.load_match(o.plain()?)?;
            }
            "-j" | "-g" => {
                self.take(&mut o, 1)?;
                once(&o, self.rule.target.is_none() && !self.has_target())?;
                self.target(o.plain()?)?;
            }
            // The counters of this rule, which weir does not set.
            "-c" => self.take(&mut o, 2)?,
            // A restore has no verbose output.
            "-v" => self.take(&mut o, 0)?,
            // The caller acquires the lock.
            "-w" => {
                if self
                    .words
                    .peek()
                    .is_some_and(|w| w.text.bytes().all(|b| b.is_ascii_digit()))
                {
                    self.words.next();
                }
            }
            _ => self.extension(o)?,
        }
        Ok(())
    }

    /// The full name of a long option, which may be abbreviated. Candidates are the options of iptables itself, those of loaded
    /// extensions, and, if none of them has the prefix, those of the match that the protocol implies.
    fn whole_name(&self, given: &'a str, column: usize) -> Result<&'a str, Complaint> {
        let options = |kind: Loadable| kind.options().into_iter().map(|(n, _)| n);
        let of = |l: &Loaded| {
            let name = l.kind.name();
            options(l.kind).filter(move |option| names::may_be(given, name, option))
        };
        let loaded = self.loaded.iter().flat_map(of);
        let found = names::find(given, names::own(self.family).chain(loaded));
        if let Some(name) = found.only(given, column)? {
            return Ok(name);
        }
        let implied = self.implied_kind().into_iter().flat_map(options);
        let found = names::find(given, implied);
        Ok(found.only(given, column)?.unwrap_or(given))
    }

    /// Refuses, as iptables does, an interface that the packets of the chain do not have.
    fn has_interface(&self, o: &Opt, without: [&str; 2]) -> Result<(), Complaint> {
        match without.contains(&self.chain) {
            false => Ok(()),
            true => Err(o.wrong(&format!(
                "packets of {} do not have this interface; leave it out",
                self.chain
            ))),
        }
    }

    /// Takes the arguments of an option.
    fn take(&mut self, o: &mut Opt, arity: usize) -> Result<(), Complaint> {
        if arity == ONE_OR_NONE {
            let is_argument = |w: &&Word| w.quoted || !w.text.starts_with(['-', '!']);
            if o.words.is_empty() && self.words.peek().is_some_and(is_argument) {
                o.words.extend(self.words.next().map(|w| w.text.clone()));
            }
            return Ok(());
        }
        if o.words.len() > arity {
            return Err(o.wrong("takes no argument; leave it out"));
        }
        while o.words.len() < arity {
            match self.words.next() {
                Some(word) => o.words.push(word.text.clone()),
                None => {
                    let message =
                        format!("{} needs {arity} more words; the line ends here", o.name);
                    return Err(complain(self.end, message));
                }
            }
        }
        Ok(())
    }

    /// Each network of the option; one `None` without the option.
    fn networks(&self, o: Option<&Opt>) -> Result<Vec<Option<(Not, Network)>>, Complaint> {
        let Some(o) = o else {
            return Ok(vec![None]);
        };
        let nets = o.word(0).split(',');
        let count = nets.clone().count();
        if count > MOST_RULES {
            return Err(o.wrong(&too_many(count)));
        }
        if o.not.0 && count > 1 {
            return Err(o.wrong("cannot be inverted as a list; write one rule for each address"));
        }
        nets.map(|net| Ok(Some((o.not, o.masked_network(net, self.family)?))))
            .collect()
    }

    fn protocol(&mut self, o: &Opt) -> Result<(), Complaint> {
        let protocol = o.protocol(0)?;
        match (protocol.0, o.not.0) {
            (0, true) => return Err(o.wrong("would match nothing; leave the ! out")),
            (0, false) => {}
            _ => self.rule.protocol = Some((o.not, protocol)),
        }
        Ok(())
    }

    fn has_target(&self) -> bool {
        self.loaded.iter().any(|l| l.kind.is_target())
    }

    fn given(&self, o: &Opt) -> Given {
        Given {
            column: o.column,
            ..Given::of(
                self.family,
                &format!("{} {}", o.name, o.word(0)),
                Vec::new(),
            )
        }
    }

    fn load_match(&mut self, o: &Opt) -> Result<(), Complaint> {
        let name = match o.word(0) {
            "icmpv6" | "ipv6-icmp" => "icmp6",
            other => other,
        };
        let kind = Loadable::find(Part::Match, name, self.family);
        let kind = kind.ok_or_else(|| {
            let known = known(Part::Match, self.family);
            o.wrong(&format!("is not a supported match; supported are {known}"))
        })?;
        if self.loaded.len() >= MOST {
            return Err(o.wrong("is one match more than fits into a rule; use several rules"));
        }
        let given = self.given(o);
        self.loaded.push(Loaded { kind, given });
        Ok(())
    }

    fn target(&mut self, o: &Opt) -> Result<(), Complaint> {
        let name = o.word(0);
        self.at_target = Some(o.column);
        if matches!(o.name.as_str(), "-g" | "--goto") {
            self.rule.target = Some(Target::Goto(name.to_owned()));
            return Ok(());
        }
        let verdict = VERDICTS.iter().find(|(verdict, _)| verdict.name() == name);
        let kind = Loadable::find(Part::Target, name, self.family);
        self.rule.target = match (verdict, kind) {
            (Some((verdict, _)), _) => Some(verdict.clone()),
            (None, Some(kind)) => {
                let given = self.given(o);
                self.loaded.push(Loaded { kind, given });
                None
            }
            (None, None) => Some(Target::Jump(name.to_owned())),
        };
        Ok(())
    }

    /// Adds an option to the extension that was loaded last and has it, else to the match that the protocol implies.
    fn extension(&mut self, mut o: Opt) -> Result<(), Complaint> {
        let mut found = self
            .loaded
            .iter()
            .rposition(|l| l.kind.arity(&o.name).is_some());
        if found.is_none() {
            found = self.implied(&o);
        }
        let arity = found
            .and_then(|at| self.loaded.get(at))
            .and_then(|l| l.kind.arity(&o.name));
        let (Some(at), Some(arity)) = (found, arity) else {
            let option = shorten(&o.name);
            let message = match &self.rule.target {
                Some(Target::Jump(name)) => format!(
                    "{option} is no option here: {} is a chain, or an unknown target; supported targets are {}",
                    shorten(name),
                    known(Part::Target, self.family)
                ),
                _ if !option.starts_with("--") && option.len() > 2 => {
                    format!("{option} is no option; write an option and its argument as two words")
                }
                _ => format!(
                    "{option} is no option of the matches and the target before it; name its match with -m first"
                ),
            };
            return Err(complain(o.column, message));
        };
        self.take(&mut o, arity)?;
        if let Some(loaded) = self.loaded.get_mut(at) {
            let given = &mut loaded.given;
            let first = given.options.iter().all(|other| other.name != o.name);
            once(&o, first || loaded.kind.may_repeat())?;
            given.options.push(o);
        }
        Ok(())
    }

    /// The match that the rule's protocol implies.
    fn implied_kind(&self) -> Option<Loadable> {
        let (Not(false), protocol) = self.rule.protocol? else {
            return None;
        };
        let name = match protocol {
            Protocol::TCP => "tcp",
            Protocol::UDP => "udp",
            Protocol::ICMP => "icmp",
            Protocol::ICMPV6 => "icmp6",
            Protocol(135) => "mh",
            Protocol(n) => protocols::name(n)?,
        };
        Loadable::find(Part::Match, name, self.family)
    }

    fn implied(&mut self, o: &Opt) -> Option<usize> {
        let kind = self.implied_kind()?;
        kind.arity(&o.name)?;
        let given = Given {
            column: o.column,
            ..Given::of(self.family, &format!("-m {}", kind.name()), Vec::new())
        };
        self.loaded.push(Loaded { kind, given });
        Some(self.loaded.len() - 1)
    }

    fn finish(mut self) -> Result<Vec<Rule>, Complaint> {
        for loaded in std::mem::take(&mut self.loaded) {
            let mut given = Given {
                protocol: Some(self.rule.protocol),
                ..loaded.given
            };
            match loaded.kind {
                Loadable::Match(kind) => {
                    self.rule.matches.push((kind.parse)(&mut given)?);
                }
                Loadable::Target(kind) => {
                    self.rule.target = Some((kind.parse)(&mut given)?);
                }
                Loadable::Row(row) => {
                    let value = row.parse(&mut given)?;
                    match row.part {
                        Part::Match => self.rule.matches.push(Match::Extension(value)),
                        Part::Target => self.rule.target = Some(Target::Extension(value)),
                    }
                }
            }
            if let Some(o) = given.options.first() {
                return Err(o.wrong(&format!("does not go with the rest of {}", given.name)));
            }
        }
        let sources = self.networks(self.sources.as_ref())?;
        let destinations = self.networks(self.destinations.as_ref())?;
        let count = sources.len().saturating_mul(destinations.len());
        if let Some(o) = self.destinations.as_ref().filter(|_| count > MOST_RULES) {
            return Err(o.wrong(&too_many(count)));
        }
        let mut rules = Vec::new();
        for source in &sources {
            for destination in &destinations {
                let mut rule = self.rule.clone();
                rule.source = source.filter(matters);
                rule.destination = destination.filter(matters);
                rules.push(rule);
            }
        }
        Ok(rules)
    }
}

fn too_many(count: usize) -> String {
    format!("makes {count} rules of the line, and a table has at most {MOST_RULES}; use a set")
}

/// Whether the network restricts the rule; a network of every address does not.
fn matters(net: &(Not, Network)) -> bool {
    net.0.0 || !net.1.is_any()
}

fn once(o: &Opt, first: bool) -> Result<(), Complaint> {
    if first {
        return Ok(());
    }
    Err(complain(
        o.column,
        format!("{} is given twice; leave one out", o.name),
    ))
}
