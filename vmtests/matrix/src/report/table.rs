//! Text tables, at most [`WIDTH`] columns wide: columns that do not fit continue in another block below.
use super::clean;
use console::{Alignment, measure_text_width, pad_str};

/// The width of a page in columns.
pub(super) const WIDTH: usize = 100;

/// The maximum width of the first cell of a row.
pub(super) const FIRST: usize = 36;

/// The meaning of a text; on a terminal it determines the colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Heading,
    Quiet,
    Good,
    Bad,
    Lacking,
}

/// A cell with one line of text, truncated to `width`.
pub(super) fn cell(text: &str, width: usize, tone: Tone, colour: bool) -> String {
    paint(&clean::shorten(&clean::line(text), width), tone, colour)
}

/// Colours `text` by its tone (ECMA-48, SGR), if `colour` is set.
pub(super) fn paint(text: &str, tone: Tone, colour: bool) -> String {
    let code = match tone {
        Tone::Heading => "1",
        Tone::Quiet => "2",
        Tone::Good => "32",
        Tone::Bad => "1;31",
        Tone::Lacking => "33",
        Tone::Plain => return text.to_owned(),
    };
    match colour && !text.trim().is_empty() {
        true => format!("\x1b[{code}m{text}\x1b[0m"),
        false => text.to_owned(),
    }
}

/// Formats a table; every block of columns that fits the page repeats the first column.
///
/// Heads are broken after `-` into lines: `6.12-`, `no-`, `xtables`. A row with only its first cell is a heading.
pub(super) fn table(heads: &[&str], rows: &[Vec<String>], colour: bool) -> String {
    let level = |at: usize| {
        let part = |head: &&str| head.split_inclusive('-').nth(at).unwrap_or("").to_owned();
        let parts: Vec<String> = heads.iter().map(part).collect();
        let is_empty = parts.iter().all(String::is_empty);
        let heading = |part: &String| cell(part, FIRST, Tone::Heading, colour);
        (!is_empty).then(|| parts.iter().map(heading).collect::<Vec<_>>())
    };
    let above: Vec<_> = (0..).map_while(level).collect();
    let rows: Vec<&Vec<String>> = above.iter().chain(rows).collect();
    let width = |column: usize| {
        let rows = rows.iter().filter(|r| r.len() > 1);
        let cells = rows.filter_map(|r| r.get(column));
        cells.map(|c| measure_text_width(c)).max().unwrap_or(0)
    };
    let first = width(0);
    let mut blocks: Vec<Vec<(usize, usize)>> = vec![Vec::new()];
    let mut used = first;
    for (column, width) in (1..heads.len()).map(|column| (column, width(column))) {
        if used + 2 + width > WIDTH && blocks.last().is_some_and(|b| !b.is_empty()) {
            blocks.push(Vec::new());
            used = first;
        }
        used += 2 + width;
        if let Some(block) = blocks.last_mut() {
            block.push((column, width));
        }
    }
    let line = |row: &Vec<String>, block: &[(usize, usize)]| {
        let name = row.first().map_or("", |name| name);
        let mut line = pad_str(name, first, Alignment::Left, None).into_owned();
        for (column, width) in block {
            let cell = row.get(*column).map_or("", |cell| cell);
            line = line + "  " + &pad_str(cell, *width, Alignment::Right, None);
        }
        line.trim_end().to_owned()
    };
    let block = |block: &Vec<(usize, usize)>| {
        let lines = rows.iter().map(|row| line(row, block));
        // The heads of another block may have more parts.
        let lines = lines.filter(|line| !line.is_empty());
        lines.map(|line| line + "\n").collect::<String>()
    };
    let blocks: Vec<String> = blocks.iter().map(block).collect();
    blocks.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_that_do_not_fit_go_below_with_the_first_one_again() {
        let heads: Vec<String> = (0..30).map(|n| format!("kernel-{n}")).collect();
        let heads: Vec<&str> = std::iter::once("feature")
            .chain(heads.iter().map(|h| &**h))
            .collect();
        let row = |name: &str| {
            let cells = (0..30).map(|n| cell(&format!("<{n}>"), WIDTH, Tone::Plain, false));
            std::iter::once(cell(name, FIRST, Tone::Plain, false))
                .chain(cells)
                .collect()
        };
        let rows: Vec<Vec<String>> = vec![row("one"), row(&"long ".repeat(30))];
        let text = table(&heads, &rows, false);
        assert!(text.lines().all(|l| l.chars().count() <= WIDTH), "{text}");
        for n in 0..30 {
            assert_eq!(text.matches(&format!("<{n}>")).count(), 2, "{n} in\n{text}");
        }
        assert!(text.matches("one").count() > 1, "{text}");
    }

    #[test]
    fn colours_do_not_move_columns() {
        let table = |colour| {
            let word = |text, tone| cell(text, WIDTH, tone, colour);
            let rows = [vec![word("a", Tone::Plain), word("lack", Tone::Lacking)]];
            table(&["x", "kernel"], &rows, colour)
        };
        let (plain, colourful) = (table(false), table(true));
        assert_ne!(plain, colourful);
        assert_eq!(clean::block(&colourful), plain);
    }
}
