//! The tables and commands in the input of `iptables-restore`.

use super::options::{Complaint, complain};
use super::words::{Word, words};
use super::{MOST_COMMANDS, ParseError, loadable, names, rule, shorten};
use crate::text;
use crate::xtables::raw::XT_EXTENSION_MAXNAMELEN;
use crate::xtables::table::table_names;
use crate::xtables::{Policy, Rule, XtFamily};
use std::fmt;
use weir_netlink::attr::bytes_of;

/// A whole script for one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// Whether the script is for `iptables-restore` or `ip6tables-restore`.
    pub family: XtFamily,
    /// The tables in the order of the text; a table may occur several times.
    pub tables: Vec<ScriptTable>,
}

/// The lines from `*NAME` to `COMMIT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptTable {
    /// `filter`, `nat`, `mangle`, `raw` or `security`.
    pub name: String,
    /// The commands and their positions.
    pub commands: Vec<(Position, Command)>,
}

/// The position of a command in the text, for messages; counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column of the chain's name, in characters; of the command if it names no chain.
    pub column: usize,
    /// The column of the rule number; equal to `column` if there is none.
    pub number: usize,
    /// The column of `-j` or `-g`; equal to `column` if there is none.
    pub target: usize,
}

/// One line. `Display` prints it as arguments of `iptables`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// `:NAME POLICY`: sets the policy of a built-in chain; creates a user chain, or flushes an existing one.
    Declare(String, Option<Policy>),
    /// `-A`
    Append(String, Rule),
    /// `-I`: at this position, counted from 1.
    Insert(String, usize, Rule),
    /// `-D CHAIN RULE`: the first equal rule.
    Delete(String, Rule),
    /// `-D CHAIN N`, counted from 1.
    DeleteAt(String, usize),
    /// `-R`: the rule at this position, counted from 1.
    Replace(String, usize, Rule),
    /// `-F`: deletes the rules of a chain, or of all chains.
    Flush(Option<String>),
    /// `-N`
    NewChain(String),
    /// `-X`: deletes an unused empty user chain, or all of them.
    DeleteChain(Option<String>),
    /// `-P`
    Policy(String, Policy),
    /// `-E`: renames a user chain; jumps to it refer to the new name.
    RenameChain(String, String),
    /// `-Z`: resets the counters of all chains, of a chain, or of the rule at this position of a chain, counted from 1.
    Zero(Option<String>, Option<usize>),
}

impl Script {
    /// Parses a script. Counters (`[P:B]` and `-c`) are ignored.
    ///
    /// # Errors
    /// The first line with a syntax error.
    pub fn parse(family: XtFamily, text: &str) -> Result<Self, ParseError> {
        let mut script = Self {
            family,
            tables: Vec::new(),
        };
        let mut open: Option<ScriptTable> = None;
        let (mut last, mut made) = (0, 0);
        for (n, line) in text.lines().enumerate() {
            last = n + 1;
            let at = |c: Complaint| ParseError {
                line: n + 1,
                column: c.column,
                reason: c.message,
            };
            script.line(line, n + 1, &mut open, &mut made).map_err(at)?;
        }
        match open {
            None => Ok(script),
            Some(table) => Err(ParseError {
                line: last + 1,
                column: 1,
                reason: format!("table {} is not ended; add a line with COMMIT", table.name),
            }),
        }
    }

    fn line(
        &mut self,
        line: &str,
        number: usize,
        open: &mut Option<ScriptTable>,
        made: &mut usize,
    ) -> Result<(), Complaint> {
        if line.starts_with('#') || line.trim().is_empty() {
            return Ok(());
        }
        if let Some(column) = text::zero(line) {
            return Err(complain(column, text::ZERO));
        }
        let Some(table) = open else {
            // Spaces may follow the asterisk: files of the iptables project contain them.
            let name = line.trim_end().strip_prefix('*').map(str::trim_start);
            let name =
                name.ok_or_else(|| complain(1, "commands come after a line with *TABLE; add one"))?;
            if !table_names().any(|known| known == name) {
                let tables: Vec<&str> = table_names().collect();
                let message = format!(
                    "`{}` is no table; the tables are {}",
                    shorten(name),
                    tables.join(", ")
                );
                return Err(complain(2, message));
            }
            *open = Some(ScriptTable {
                name: name.to_owned(),
                commands: Vec::new(),
            });
            return Ok(());
        };
        if line.trim_end() == "COMMIT" {
            self.tables.extend(open.take());
            return Ok(());
        }
        if line.starts_with('*') {
            return Err(complain(
                1,
                "the table before is not ended; add a line with COMMIT before this one",
            ));
        }
        let mut place = Position {
            line: number,
            column: 1,
            number: 1,
            target: 1,
        };
        let commands = match line.strip_prefix(':') {
            Some(rest) => vec![declare(rest, self.family)?],
            None => command(line, self.family, &mut place)?,
        };
        *made += commands.len();
        if *made > MOST_COMMANDS {
            let why = format!(
                "the text has more than {MOST_COMMANDS} commands up to here, one for each address of a list; divide it, or use a set"
            );
            return Err(complain(1, why));
        }
        table
            .commands
            .extend(commands.into_iter().map(|c| (place, c)));
        Ok(())
    }
}

/// `NAME POLICY [P:B]`
fn declare(rest: &str, family: XtFamily) -> Result<Command, Complaint> {
    // The colon occupies a column.
    let shifted = |c: Complaint| Complaint {
        column: c.column + 1,
        ..c
    };
    let words = words(rest).map_err(shifted)?;
    let (Some(name), Some(policy)) = (words.first(), words.get(1)) else {
        return Err(complain(
            2,
            "give :CHAIN POLICY, with - for the policy of a user chain",
        ));
    };
    let policy = match policy.text.as_str() {
        "-" => None,
        _ => Some(parse_policy(policy).map_err(shifted)?),
    };
    if let Some(more) = words.get(2).filter(|w| !is_counters(&w.text)) {
        return Err(complain(
            more.column + 1,
            "only counters, [PACKETS:BYTES], come after the policy",
        ));
    }
    let name = new_chain(name, family).map_err(shifted)?;
    Ok(Command::Declare(name, policy))
}

fn is_counters(text: &str) -> bool {
    let inside = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
    inside
        .and_then(|t| t.split_once(':'))
        .is_some_and(|(packets, bytes)| {
            packets.parse::<u64>().is_ok() && bytes.parse::<u64>().is_ok()
        })
}

fn parse_policy(word: &Word) -> Result<Policy, Complaint> {
    match word.text.as_str() {
        "ACCEPT" => Ok(Policy::Accept),
        "DROP" => Ok(Policy::Drop),
        _ => Err(complain(word.column, "is no policy; give ACCEPT or DROP")),
    }
}

/// Checks the name of a new chain. No rule could jump to a chain with the name of a target, because `-j` selects the target.
fn new_chain(word: &Word, family: XtFamily) -> Result<String, Complaint> {
    let name = chain_name(word)?;
    if loadable::is_target(&name, family) {
        let message = format!("`{name}` is the name of a target; give the chain another name");
        return Err(complain(word.column, message));
    }
    Ok(name)
}

fn chain_name(word: &Word) -> Result<String, Complaint> {
    let name = &word.text;
    let fits = !name.is_empty() && bytes_of(name).len() < XT_EXTENSION_MAXNAMELEN;
    if !fits || name.starts_with(['-', '!']) || name.contains(char::is_whitespace) {
        let name = shorten(name);
        let message = format!("`{name}` is no name of a chain; give 1 to 28 bytes without blanks");
        return Err(complain(word.column, message));
    }
    Ok(name.clone())
}

/// Parses the commands of a line, none if it is for the other family, and stores their position in `place`.
fn command(line: &str, family: XtFamily, place: &mut Position) -> Result<Vec<Command>, Complaint> {
    let mut words = words(line)?;
    if words.first().is_some_and(|w| is_counters(&w.text)) {
        words.remove(0);
    }
    let end = line.chars().count() + 1;
    let (at, name) = find_command(&words, family).ok_or_else(|| {
        let column = words.first().map_or(1, |w| w.column);
        complain(
            column,
            "the line has no command; begin it with -A CHAIN or another one",
        )
    })?;
    let command = words.remove(at);
    let mut argument = || -> Option<Word> {
        let is_word = words
            .get(at)
            .is_some_and(|w| w.quoted || !w.text.starts_with(['-', '!']));
        is_word.then(|| words.remove(at))
    };
    let word = argument();
    place.column = word.as_ref().unwrap_or(&command).column;
    place.number = place.column;
    place.target = place.column;
    let checked = |word: &Word| match name {
        "-N" => new_chain(word, family),
        _ => chain_name(word),
    };
    let chain = word.as_ref().map(checked).transpose()?;
    let mut index = || -> Option<Result<usize, Complaint>> {
        let word = argument()?;
        place.number = word.column;
        let number = text::number(&word.text).and_then(|n| usize::try_from(n).ok());
        let number = number.filter(|n| *n > 0);
        Some(number.ok_or_else(|| complain(word.column, "is no place in a chain; count from 1")))
    };
    let needs = || complain(end, format!("{name} needs a chain; add its name"));
    let made = match name {
        "-F" => vec![Command::Flush(chain)],
        "-X" => vec![Command::DeleteChain(chain)],
        "-Z" => vec![Command::Zero(chain, index().transpose()?)],
        "-E" => {
            let word = argument()
                .ok_or_else(|| complain(end, "-E needs a chain and its new name; add both"))?;
            vec![Command::RenameChain(
                chain.ok_or_else(needs)?,
                new_chain(&word, family)?,
            )]
        }
        "-N" => vec![Command::NewChain(chain.ok_or_else(needs)?)],
        "-P" => {
            let word =
                argument().ok_or_else(|| complain(end, "-P needs a policy; add ACCEPT or DROP"))?;
            vec![Command::Policy(
                chain.ok_or_else(needs)?,
                parse_policy(&word)?,
            )]
        }
        _ => {
            let chain = chain.ok_or_else(needs)?;
            let index = if name == "-A" {
                None
            } else {
                index().transpose()?
            };
            let Some(rules) = rule::rules(&words, family, &chain, end, &mut place.target)? else {
                return Ok(Vec::new());
            };
            // Only options for the family may follow the number.
            let has_rule = words.iter().any(|w| names::family(w).is_none());
            return rule_command((name, end), (chain, index), rules, has_rule);
        }
    };
    if words
        .iter()
        .filter_map(names::family)
        .any(|of| of != family)
    {
        return Ok(Vec::new());
    }
    match words.iter().find(|w| names::family(w).is_none()) {
        Some(more) => Err(complain(
            more.column,
            format!("{name} takes nothing more; leave it out"),
        )),
        None => Ok(made),
    }
}

/// Returns the command `-A`, `-D`, `-I` or `-R` for each rule. `end`: the column of the end of the line.
fn rule_command(
    (name, end): (&str, usize),
    (chain, index): (String, Option<usize>),
    rules: Vec<Rule>,
    has_rule: bool,
) -> Result<Vec<Command>, Complaint> {
    let each = |rules: Vec<Rule>, one: fn(String, usize, Rule) -> Command| {
        let place = index.unwrap_or(1);
        let all = rules.into_iter().map(|r| one(chain.clone(), place, r));
        Ok(all.collect())
    };
    match (name, index) {
        ("-D", Some(n)) => match has_rule {
            false => Ok(vec![Command::DeleteAt(chain, n)]),
            true => Err(complain(end, "-D takes a place or a rule; leave one out")),
        },
        ("-A", _) => each(rules, |chain, _, r| Command::Append(chain, r)),
        ("-D", _) => each(rules, |chain, _, r| Command::Delete(chain, r)),
        // Each further rule is inserted before the previous one, as in iptables.
        ("-I", _) => each(rules, Command::Insert),
        (_, Some(n)) => match <[Rule; 1]>::try_from(rules) {
            Ok([rule]) => Ok(vec![Command::Replace(chain, n, rule)]),
            Err(_) => Err(complain(
                end,
                "-R replaces one rule by one; give one address",
            )),
        },
        _ => Err(complain(end, "-R needs a place in the chain; add it")),
    }
}

/// The index of the command, and its short name. Options of the rule may precede it, as in `-m tcp -p tcp -A INPUT`. An exact name has
/// precedence over an abbreviation, which may be an option of a match.
fn find_command(words: &[Word], family: XtFamily) -> Option<(usize, &'static str)> {
    let find = |name: &dyn Fn(&str) -> Option<&'static str>| {
        let mut found = words.iter().enumerate().filter(|(_, w)| !w.quoted);
        found.find_map(|(at, w)| name(&w.text).map(|name| (at, name)))
    };
    find(&|word| canonical(names::short(word))).or_else(|| {
        find(&|word| match names::find(word, names::own(family)) {
            names::Found::One(name) => canonical(names::short(name)),
            _ => None,
        })
    })
}

fn canonical(short: &str) -> Option<&'static str> {
    let commands = ["-A", "-I", "-D", "-R", "-F", "-N", "-X", "-P", "-E", "-Z"];
    commands.into_iter().find(|command| *command == short)
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Declare(chain, Some(policy)) => write!(f, "-P {chain} {policy}"),
            Self::Declare(chain, None) | Self::NewChain(chain) => write!(f, "-N {chain}"),
            Self::Append(chain, rule) => write!(f, "-A {chain}{rule}"),
            Self::Insert(chain, n, rule) => write!(f, "-I {chain} {n}{rule}"),
            Self::Delete(chain, rule) => write!(f, "-D {chain}{rule}"),
            Self::DeleteAt(chain, n) => write!(f, "-D {chain} {n}"),
            Self::Replace(chain, n, rule) => write!(f, "-R {chain} {n}{rule}"),
            Self::Flush(None) => f.write_str("-F"),
            Self::Flush(Some(chain)) => write!(f, "-F {chain}"),
            Self::DeleteChain(None) => f.write_str("-X"),
            Self::DeleteChain(Some(chain)) => write!(f, "-X {chain}"),
            Self::Policy(chain, policy) => write!(f, "-P {chain} {policy}"),
            Self::RenameChain(chain, name) => write!(f, "-E {chain} {name}"),
            Self::Zero(chain, place) => {
                f.write_str("-Z")?;
                chain.iter().try_for_each(|c| write!(f, " {c}"))?;
                place.iter().try_for_each(|n| write!(f, " {n}"))
            }
        }
    }
}
