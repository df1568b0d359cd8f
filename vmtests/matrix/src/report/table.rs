//! Tables in text, at most [`WIDTH`] columns wide: what does not fit beside each other goes below.
use super::clean;

/// Columns of a page.
pub(super) const WIDTH: usize = 100;

/// Columns of the first cell of a row, at most.
const FIRST: usize = 36;

/// What a piece of text means; on a terminal, its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Heading,
    Quiet,
    Good,
    Bad,
    Lacking,
}

/// A text and its tone.
pub(super) struct Cell {
    text: String,
    tone: Tone,
}

/// A cell with one line of text.
pub(super) fn cell(text: &str, tone: Tone) -> Cell {
    Cell {
        text: clean::line(text),
        tone,
    }
}

/// `text` in the colour of its tone (ECMA-48, SGR), if colours are wanted.
pub(super) fn paint(text: &str, tone: Tone, colour: bool) -> String {
    let code = match tone {
        Tone::Heading => "1",
        Tone::Quiet => "2",
        Tone::Good => "32",
        Tone::Bad => "1;31",
        Tone::Lacking => "33",
        Tone::Plain => return text.to_owned(),
    };
    if colour && !text.trim().is_empty() {
        format!("\x1b[{code}m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}

/// A table: the first column is repeated in every block of columns that fits the page.
///
/// The parts of a head are put below each other, broken after `-`. A row with only its first cell is a
/// heading.
pub(super) fn table(heads: &[&str], rows: &[Vec<Cell>], colour: bool) -> String {
    let heads: Vec<Vec<String>> = heads.iter().map(|h| parts(h)).collect();
    let level = |at: usize| {
        let part = |head: &Vec<String>| cell(head.get(at).map_or("", |p| p), Tone::Heading);
        heads.iter().map(part).collect::<Vec<_>>()
    };
    let depth = heads.iter().map(Vec::len).max().unwrap_or(0);
    let above: Vec<Vec<Cell>> = (0..depth).map(level).collect();
    let width = |column: usize| {
        let cells = above.iter().chain(rows).filter(|r| r.len() > 1);
        let cells = cells.filter_map(|r| r.get(column)).map(|c| length(&c.text));
        cells.max().unwrap_or(0)
    };
    let first = width(0).min(FIRST);
    let mut blocks: Vec<Vec<(usize, usize)>> = vec![Vec::new()];
    let mut used = first;
    for column in 1..heads.len() {
        let width = width(column);
        if used + 2 + width > WIDTH && blocks.last().is_some_and(|b| !b.is_empty()) {
            blocks.push(Vec::new());
            used = first;
        }
        used += 2 + width;
        if let Some(block) = blocks.last_mut() {
            block.push((column, width));
        }
    }
    let mut text = String::new();
    for (number, block) in blocks.iter().enumerate() {
        if number > 0 {
            text.push('\n');
        }
        for row in above.iter().chain(rows) {
            let line = line(row, first, block, colour);
            // A head of this block may have fewer parts than one of another.
            if !line.trim_end().is_empty() {
                text.push_str(line.trim_end());
                text.push('\n');
            }
        }
    }
    text
}

/// `6.12-no-xtables` as `6.12-`, `no-`, `xtables`.
fn parts(head: &str) -> Vec<String> {
    clean::line(head)
        .split_inclusive('-')
        .map(str::to_owned)
        .collect()
}

fn length(text: &str) -> usize {
    text.chars().count()
}

fn line(row: &[Cell], first: usize, block: &[(usize, usize)], colour: bool) -> String {
    let mut line = String::new();
    let Some(name) = row.first() else { return line };
    let room = if row.len() == 1 { WIDTH } else { first };
    let text = clean::shorten(&name.text, room);
    put(
        &mut line,
        0,
        if row.len() == 1 { 0 } else { first },
        &text,
        name.tone,
        colour,
    );
    for (column, width) in block {
        if let Some(cell) = row.get(*column) {
            put(&mut line, *column, *width, &cell.text, cell.tone, colour);
        }
    }
    line
}

/// The first column is on the left; the others end where their heads end.
fn put(line: &mut String, column: usize, width: usize, text: &str, tone: Tone, colour: bool) {
    let padding = " ".repeat(width.saturating_sub(length(text)));
    let painted = paint(text, tone, colour);
    if column == 0 {
        line.push_str(&painted);
        line.push_str(&padding);
    } else {
        line.push_str("  ");
        line.push_str(&padding);
        line.push_str(&painted);
    }
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
            let cells = (0..30).map(|n| cell(&format!("<{n}>"), Tone::Plain));
            std::iter::once(cell(name, Tone::Plain))
                .chain(cells)
                .collect()
        };
        let rows: Vec<Vec<Cell>> = vec![row("one"), row(&"long ".repeat(30))];
        let text = table(&heads, &rows, false);
        assert!(text.lines().all(|l| l.chars().count() <= WIDTH), "{text}");
        for n in 0..30 {
            assert_eq!(text.matches(&format!("<{n}>")).count(), 2, "{n} in\n{text}");
        }
        assert!(text.matches("one").count() > 1, "{text}");
    }

    #[test]
    fn colours_do_not_move_columns() {
        let rows = [vec![cell("a", Tone::Plain), cell("lack", Tone::Lacking)]];
        let plain = table(&["x", "kernel"], &rows, false);
        let colourful = table(&["x", "kernel"], &rows, true);
        assert_ne!(plain, colourful);
        assert_eq!(clean::block(&colourful), plain);
    }
}
