//! A script as a change: the effect of `iptables-restore`, computed on the tables that were read.

use super::plan::{Change, canonical};
use super::{Snapshot, Transaction, XtOp};
use crate::xtables::raw::NF_INET_NUMHOOKS;
use crate::xtables::table::{ChainLayout, Layout, RuleLayout};
use crate::xtables::text::{Command, Position, Script, shorten};
use crate::xtables::{Policy, Rule, Target};
use std::collections::{HashMap, HashSet};
use weir_netlink::{Error, Result};

/// The change that a script makes. Without `keep`, the rules and user chains of each table that it names are deleted
/// first, as with `iptables-restore` without `--noflush`; policies are kept unless the script sets them.
///
/// # Errors
/// The first command that cannot be executed, with its line.
pub fn plan_restore(script: &Script, observed: &Snapshot, keep: bool) -> Result<Transaction> {
    let mut transaction = Transaction::default();
    for part in &script.tables {
        let id = (script.family, part.name.clone());
        let changed = |c: &Change| c.new.family == script.family && c.new.name == part.name;
        let mut change = match transaction.changes.iter().position(changed) {
            Some(n) => transaction.changes.remove(n),
            None => {
                let is_it = |t: &&Layout| t.family == script.family && t.name == part.name;
                let old = match observed.layouts.iter().find(is_it) {
                    Some(found) => found.clone(),
                    None => Layout::untouched(script.family, &part.name)?,
                };
                Change {
                    new: old.clone(),
                    old,
                }
            }
        };
        if !keep {
            transaction.ops.push(XtOp::FlushTable(id.clone()));
            change.new.chains.retain(|c| c.builtin.is_some());
            change.new.chains.iter_mut().for_each(|c| c.rules.clear());
        }
        let mut names = Names::of(&change.new);
        for (place, command) in &part.commands {
            run(&mut change.new, &mut names, command).map_err(|why| {
                let command = command.to_string();
                let command = shorten(&command);
                let column = match &why {
                    Why::Number => place.number,
                    _ => place.column,
                };
                let place = format!("line {}, column {column}", place.line);
                let object = format!("{place}: {} -t {} {command}", script.family, part.name);
                let number = "the chain has fewer rules; give a smaller place";
                match why {
                    Why::Number => Error::refused("restore", object, number),
                    Why::Reason(why) => Error::refused("restore", object, why),
                    Why::Error(e) => Error::refused("restore", object, e.to_string()),
                }
            })?;
            transaction
                .ops
                .push(XtOp::Command(id.clone(), command.clone()));
        }
        change.new.sort();
        change.new.check().map_err(|e| {
            // Only the target of a rule can be wrong, and the error of the table does not name the line. A loop is closed by the
            // last line that adds one of its jumps.
            let is_wrong = |(_, command): &&(Position, Command)| {
                let mut builtin = change.new.chains.iter().take(NF_INET_NUMHOOKS);
                let mut is_builtin = |to| builtin.any(|c| c.builtin.is_some() && c.name == to);
                jump(command)
                    .is_some_and(|(_, to)| !names.places.contains_key(to) || is_builtin(to))
            };
            let path = change.new.find_loop().unwrap_or_default();
            let jumps = path.iter().copied().zip(path.iter().skip(1).copied());
            let jumps: HashMap<&str, &str> = jumps.collect();
            let is_in_loop = |(_, command): &&(Position, Command)| {
                jump(command).is_some_and(|(from, to)| jumps.get(from) == Some(&to))
            };
            let found = part.commands.iter().find(is_wrong);
            let found = found.or_else(|| part.commands.iter().rfind(is_in_loop));
            let object = match found {
                Some((place, _)) => format!("line {}, column {}", place.line, place.target),
                None => format!("{} -t {}", script.family, part.name),
            };
            Error::refused("restore", object, e.to_string())
        })?;
        transaction.changes.push(change);
    }
    Ok(transaction)
}

/// The chain of a new rule, and the chain that it jumps to.
fn jump(command: &Command) -> Option<(&str, &str)> {
    let (Command::Append(from, rule)
    | Command::Insert(from, _, rule)
    | Command::Replace(from, _, rule)) = command
    else {
        return None;
    };
    Some((from, rule.target.as_ref()?.chain()?))
}

enum Why {
    Reason(String),
    /// The chain has no rule with this number.
    Number,
    Error(Error),
}

impl From<&str> for Why {
    fn from(why: &str) -> Self {
        Self::Reason(why.to_owned())
    }
}

/// The index of each chain of a table by its name: a script may declare and delete tens of thousands of chains.
struct Names {
    places: HashMap<String, usize>,
    /// The chains that rules jump to; known from the first deletion of a chain until the next command of another kind.
    targets: Option<HashSet<String>>,
    /// The number of chains and rules that commands on all of them have visited.
    visited: usize,
}

/// The most visits by commands on all chains and rules of a table: ten thousand such commands on the largest one, or some ten seconds.
const MOST_VISITED: usize = 1 << 30;

impl Names {
    fn of(table: &Layout) -> Self {
        let named = table.chains.iter().enumerate();
        // If two chains had the same name, which no kernel permits, the first one counts.
        let places = named.rev().map(|(n, c)| (c.name.clone(), n)).collect();
        Self {
            places,
            targets: None,
            visited: 0,
        }
    }

    /// Counts a command that visits all chains and rules.
    fn visit(&mut self, table: &Layout) -> Result<(), Why> {
        self.visited += table
            .chains
            .iter()
            .map(|c| 1 + c.rules.len())
            .sum::<usize>();
        match self.visited > MOST_VISITED {
            true => Err("the lines up to here visit all rules too often; divide the text".into()),
            false => Ok(()),
        }
    }

    fn chain<'a>(&self, table: &'a mut Layout, name: &str) -> Option<&'a mut ChainLayout> {
        table.chains.get_mut(*self.places.get(name)?)
    }

    fn find<'a>(&self, table: &'a mut Layout, name: &str) -> Result<&'a mut ChainLayout, Why> {
        let found = self.chain(table, name);
        found.ok_or_else(|| Why::from("there is no such chain; add it with :CHAIN - or -N"))
    }

    fn add(&mut self, table: &mut Layout, name: &str) {
        self.places.insert(name.to_owned(), table.chains.len());
        table.chains.push(ChainLayout::user(name));
    }

    fn declare(
        &mut self,
        table: &mut Layout,
        name: &str,
        policy: Option<Policy>,
    ) -> Result<(), Why> {
        match (self.chain(table, name), policy) {
            (Some(chain), policy) => match (&mut chain.builtin, policy) {
                (Some((_, has)), Some(policy)) => *has = policy,
                (Some(_), None) => {}
                (None, None) => chain.rules.clear(),
                (None, Some(_)) => return Err(NO_POLICY.into()),
            },
            (None, None) => self.add(table, name),
            (None, Some(_)) => return Err(NO_POLICY.into()),
        }
        Ok(())
    }

    fn rename(&mut self, table: &mut Layout, name: &str, new: &str) -> Result<(), Why> {
        if self.chain(table, new).is_some() {
            return Err("a chain with the new name is there already; choose another".into());
        }
        let chain = self.chain(table, name).filter(|c| c.builtin.is_none());
        let chain = chain.ok_or("there is no such user chain; leave the line out")?;
        new.clone_into(&mut chain.name);
        for rule in table.chains.iter_mut().flat_map(|c| &mut c.rules) {
            if let Some(Target::Jump(to) | Target::Goto(to)) = &mut rule.rule.target
                && to == name
            {
                new.clone_into(to);
            }
        }
        let place = self.places.remove(name);
        self.places.extend(place.map(|at| (new.to_owned(), at)));
        Ok(())
    }

    fn delete_all(&mut self, table: &mut Layout) -> Result<(), Why> {
        let is_user = |c: &ChainLayout| c.builtin.is_none();
        let mut users = table.chains.iter().filter(|c| is_user(c));
        if users.any(|c| !c.rules.is_empty()) {
            return Err(HAS_RULES.into());
        }
        if !targets(table).is_empty() {
            return Err(IS_TARGET.into());
        }
        table.chains.retain(|c| !is_user(c));
        self.places = Self::of(table).places;
        Ok(())
    }

    fn delete(&mut self, table: &mut Layout, name: &str) -> Result<(), Why> {
        let chain = self.chain(table, name).filter(|c| c.builtin.is_none());
        let chain = chain.ok_or("there is no such user chain; leave the line out")?;
        if !chain.rules.is_empty() {
            return Err(HAS_RULES.into());
        }
        let targets = self.targets.get_or_insert_with(|| targets(table));
        if targets.contains(name) {
            return Err(IS_TARGET.into());
        }
        if let Some(place) = self.places.remove(name) {
            table.chains.swap_remove(place);
            let moved = table.chains.get(place);
            self.places.extend(moved.map(|c| (c.name.clone(), place)));
        }
        Ok(())
    }
}

const NO_POLICY: &str = "only built-in chains have a policy; give -";
const HAS_RULES: &str = "the chain has rules; empty it with -F first";
const IS_TARGET: &str = "a rule jumps to the chain; delete that rule first";

/// The chains that rules jump to.
fn targets(table: &Layout) -> HashSet<String> {
    let rules = table.chains.iter().flat_map(|c| &c.rules);
    let targets = rules.filter_map(|r| r.rule.target.as_ref()?.chain());
    targets.map(str::to_owned).collect()
}

fn fresh(rule: &Rule, table: &Layout) -> Result<RuleLayout, Why> {
    Ok(RuleLayout {
        rule: canonical(rule, table.family).map_err(Why::Error)?,
        old: None,
        tag: 0,
    })
}

/// `iptables` counts rules from 1.
fn index(place: usize) -> Result<usize, Why> {
    place
        .checked_sub(1)
        .ok_or_else(|| Why::from("the first rule of a chain has place 1; give 1 or more"))
}

fn run(table: &mut Layout, names: &mut Names, command: &Command) -> Result<(), Why> {
    if !matches!(command, Command::DeleteChain(_)) {
        names.targets = None;
    }
    match command {
        Command::DeleteChain(Some(_)) if names.targets.is_some() => {}
        Command::Zero(None, _) | Command::RenameChain(..) | Command::DeleteChain(_) => {
            names.visit(table)?;
        }
        _ => {}
    }
    match command {
        Command::Declare(name, policy) => names.declare(table, name, *policy)?,
        Command::NewChain(name) => {
            if names.chain(table, name).is_some() {
                return Err(
                    "the chain is there already; leave the line out, or use :CHAIN -".into(),
                );
            }
            names.add(table, name);
        }
        Command::Policy(name, policy) => match &mut names.find(table, name)?.builtin {
            Some((_, has)) => *has = *policy,
            None => return Err("only built-in chains have a policy".into()),
        },
        Command::Zero(None, _) => table.chains.iter_mut().for_each(ChainLayout::zero),
        Command::Zero(Some(name), None) => names.find(table, name)?.zero(),
        Command::Zero(Some(name), Some(place)) => {
            let rules = &mut names.find(table, name)?.rules;
            let rule = rules.get_mut(index(*place)?).ok_or(Why::Number)?;
            rule.zero();
        }
        Command::Flush(None) => table.chains.iter_mut().for_each(|c| c.rules.clear()),
        Command::Flush(Some(name)) => names.find(table, name)?.rules.clear(),
        Command::DeleteChain(Some(name)) => names.delete(table, name)?,
        Command::DeleteChain(None) => names.delete_all(table)?,
        Command::RenameChain(name, new) => names.rename(table, name, new)?,
        Command::Append(name, rule) => {
            let rule = fresh(rule, table)?;
            names.find(table, name)?.rules.push(rule);
        }
        Command::Insert(name, place, rule) => {
            let rule = fresh(rule, table)?;
            let (rules, index) = (&mut names.find(table, name)?.rules, index(*place)?);
            if index > rules.len() {
                return Err(Why::Number);
            }
            rules.insert(index, rule);
        }
        Command::Replace(name, place, rule) => {
            let rule = fresh(rule, table)?;
            match names.find(table, name)?.rules.get_mut(index(*place)?) {
                Some(slot) => *slot = rule,
                None => return Err(Why::Number),
            }
        }
        Command::Delete(name, rule) => {
            let rule = fresh(rule, table)?.rule;
            let rules = &mut names.find(table, name)?.rules;
            let found = rules.iter().position(|r| r.rule == rule);
            rules.remove(found.ok_or("the chain has no such rule; leave the line out")?);
        }
        Command::DeleteAt(name, place) => {
            let (rules, index) = (&mut names.find(table, name)?.rules, index(*place)?);
            if index >= rules.len() {
                return Err(Why::Number);
            }
            rules.remove(index);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xtables::XtFamily;
    use weir_netlink::InForce;

    /// A short text could visit every rule of a large table for each of its lines.
    #[test]
    fn commands_on_all_rules_have_a_limit() {
        let mut table = Layout::untouched(XtFamily::Ip, "filter").expect("a table");
        let mut names = Names::of(&table);
        names.add(&mut table, "A");
        for (command, visits) in [
            (Command::Zero(None, None), 4),
            (Command::RenameChain("A".into(), "B".into()), 4),
            (Command::NewChain("A".into()), 0),
            (Command::DeleteChain(Some("A".into())), 5),
            // The targets of all rules are known.
            (Command::DeleteChain(Some("B".into())), 0),
            (Command::DeleteChain(None), 3),
        ] {
            names.visited = MOST_VISITED - visits;
            assert!(run(&mut table, &mut names, &command).is_ok(), "{command}");
            assert_eq!(names.visited, MOST_VISITED, "{command}");
        }
        let again = run(&mut table, &mut names, &Command::Zero(None, None));
        assert!(matches!(again, Err(Why::Reason(why)) if why.contains("too often")));
    }

    /// The text of a script cannot contain place 0, but a `Command` is public.
    #[test]
    fn place_0_is_refused() {
        let text = "*filter\n-A INPUT -j DROP\n-I INPUT 1 -j ACCEPT\n-R INPUT 1 -j DROP\n-D INPUT 1\nCOMMIT\n";
        let script = Script::parse(XtFamily::Ip, text).expect("a script");
        let plan = |script: &Script| plan_restore(script, &Snapshot::default(), false).map(drop);
        plan(&script).expect("places from 1");
        for n in 1..=3 {
            let mut script = script.clone();
            let commands = &mut script.tables.first_mut().expect("a table").commands;
            match &mut commands.get_mut(n).expect("a command").1 {
                Command::Insert(_, place, _)
                | Command::Replace(_, place, _)
                | Command::DeleteAt(_, place) => *place = 0,
                other => panic!("{other}"),
            }
            let error = plan(&script).expect_err("no such place");
            assert!(error.to_string().contains("has place 1"), "{error}");
            assert_eq!(error.in_force, InForce::No);
        }
    }
}
