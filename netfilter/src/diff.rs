//! The shortest way from one list of rules to another.
//!
//! The crate `similar` is not used. Its Myers algorithm with a bound on time needs rules that can be hashed, and version 3.2
//! made the static CNI plugin 90 kB larger (4.63 to 4.72 MB, before unwind tables are removed), more than its limit of 4 MiB
//! permits. Its Myers algorithm without hashing has no bound but a deadline, and a plan has to be the same each time.

/// One step; indexes refer to the old and the new list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Keep the old rule.
    Keep(usize),
    /// Delete the old rule.
    Delete(usize),
    /// Add the new rule.
    Add(usize),
}

/// Maximum number of compared pairs: their lengths take 16 MiB.
const PAIRS: usize = 4 << 20;

/// Keeps a longest common subsequence. Rules that are kept keep their counters. Two long lists that have little in
/// common would need memory and time proportional to the product of their lengths: of such lists only the common
/// prefix and suffix are kept, and the rest is replaced.
pub(crate) fn diff<T: PartialEq>(old: &[T], new: &[T]) -> Vec<Step> {
    let start = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let (old_rest, new_rest) = (
        old.get(start..).unwrap_or(&[]),
        new.get(start..).unwrap_or(&[]),
    );
    let end = old_rest
        .iter()
        .rev()
        .zip(new_rest.iter().rev())
        .take_while(|(a, b)| a == b)
        .count();
    let old_mid = old_rest.get(..old_rest.len() - end).unwrap_or(&[]);
    let new_mid = new_rest.get(..new_rest.len() - end).unwrap_or(&[]);
    let mut steps: Vec<Step> = (0..start).map(Step::Keep).collect();
    let is_small = (old_mid.len() + 1).saturating_mul(new_mid.len() + 1) <= PAIRS;
    let between = if is_small {
        middle(old_mid, new_mid)
    } else {
        let gone = (0..old_mid.len()).map(Step::Delete);
        gone.chain((0..new_mid.len()).map(Step::Add)).collect()
    };
    for s in between {
        steps.push(match s {
            Step::Keep(i) => Step::Keep(i + start),
            Step::Delete(i) => Step::Delete(i + start),
            Step::Add(i) => Step::Add(i + start),
        });
    }
    steps.extend((old.len() - end..old.len()).map(Step::Keep));
    steps
}

/// Dynamic programming over the middle part: `table[i][j]` is the length of the longest common subsequence of
/// `old[i..]` and `new[j..]`.
fn middle<T: PartialEq>(old: &[T], new: &[T]) -> Vec<Step> {
    let width = new.len() + 1;
    let mut table = vec![0u32; (old.len() + 1) * width];
    let at = |table: &[u32], i: usize, j: usize| table.get(i * width + j).copied().unwrap_or(0);
    for (i, a) in old.iter().enumerate().rev() {
        for (j, b) in new.iter().enumerate().rev() {
            let best = match a == b {
                true => at(&table, i + 1, j + 1) + 1,
                false => at(&table, i + 1, j).max(at(&table, i, j + 1)),
            };
            if let Some(slot) = table.get_mut(i * width + j) {
                *slot = best;
            }
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut steps = Vec::new();
    loop {
        match (old.get(i), new.get(j)) {
            (None, None) => return steps,
            (Some(a), Some(b)) if a == b => {
                steps.push(Step::Keep(i));
                (i, j) = (i + 1, j + 1);
            }
            (Some(_), None) => {
                steps.push(Step::Delete(i));
                i += 1;
            }
            (Some(_), Some(_)) if at(&table, i + 1, j) >= at(&table, i, j + 1) => {
                steps.push(Step::Delete(i));
                i += 1;
            }
            (_, Some(_)) => {
                steps.push(Step::Add(j));
                j += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn following_the_steps_gives_the_new_list(
            old in proptest::collection::vec(0u8..4, 0..12),
            new in proptest::collection::vec(0u8..4, 0..12),
        ) {
            let steps = diff(&old, &new);
            let made: Vec<u8> = steps.iter().filter_map(|s| match s {
                Step::Keep(i) => Some(old[*i]),
                Step::Add(j) => Some(new[*j]),
                Step::Delete(_) => None,
            }).collect();
            prop_assert_eq!(made, new);
            let used: Vec<usize> = steps.iter().filter_map(|s| match s {
                Step::Keep(i) | Step::Delete(i) => Some(*i),
                Step::Add(_) => None,
            }).collect();
            prop_assert_eq!(used, (0..old.len()).collect::<Vec<_>>());
        }

        #[test]
        fn equal_lists_need_no_step(list in proptest::collection::vec(0u8..4, 0..12)) {
            prop_assert!(diff(&list, &list).iter().all(|s| matches!(s, Step::Keep(_))));
        }
    }

    /// A table of all pairs would take 40 GB.
    #[test]
    fn long_lists_that_differ_are_replaced_in_little_memory() {
        let old: Vec<u32> = (0..100_000).collect();
        let new: Vec<u32> = (0..100_000)
            .map(|n| if n == 7 { n } else { n + 1 })
            .collect();
        let steps = diff(&old, &new);
        let made: Vec<u32> = steps
            .iter()
            .filter_map(|s| match s {
                Step::Keep(i) => Some(old[*i]),
                Step::Add(j) => Some(new[*j]),
                Step::Delete(_) => None,
            })
            .collect();
        assert_eq!(made, new);
        // A long list of rules to delete beside a few that are kept is below the limit.
        let few = [3_u32, 40_000, 99_999];
        let kept = diff(&old, &few);
        assert_eq!(
            kept.iter().filter(|s| matches!(s, Step::Keep(_))).count(),
            3
        );
    }

    #[test]
    fn one_missing_rule_is_one_step() {
        use Step::{Add, Keep};
        assert_eq!(diff(&[1, 3], &[1, 2, 3]), vec![Keep(0), Add(1), Keep(1)]);
    }
}
