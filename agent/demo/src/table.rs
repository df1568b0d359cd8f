//! A text table; columns are as wide as their longest cell.

use std::fmt;

/// Rows of cells under a heading.
#[derive(Debug, Clone)]
pub struct Table {
    heading: Vec<String>,
    rows: Vec<(Vec<String>, Tone)>,
    colours: bool,
}

/// The tone of a row: its colour, if colours are enabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// As expected.
    Good,
    /// Not as expected.
    Bad,
}

impl Table {
    /// Creates an empty table. The caller enables colours, because it knows what it prints to.
    #[must_use]
    pub fn new(heading: &[&str], colours: bool) -> Self {
        let heading = heading.iter().map(|&h| h.to_owned()).collect();
        Self {
            heading,
            rows: Vec::new(),
            colours,
        }
    }

    /// Adds a row; missing cells stay empty.
    pub fn row(&mut self, cells: Vec<String>, tone: Tone) {
        self.rows.push((cells, tone));
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.heading.iter().map(|h| h.chars().count()).collect();
        for (cells, _) in &self.rows {
            for (width, cell) in widths.iter_mut().zip(cells) {
                *width = (*width).max(cell.chars().count());
            }
        }
        widths
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = self.widths();
        let line = |cells: &[String]| {
            let padded: Vec<String> = widths
                .iter()
                .enumerate()
                .map(|(i, &width)| format!("{:width$}", cells.get(i).map_or("", |c| c.as_str())))
                .collect();
            padded.join("  ").trim_end().to_owned()
        };
        writeln!(f, "{}", line(&self.heading))?;
        let rules: Vec<String> = widths.iter().map(|&w| "-".repeat(w)).collect();
        writeln!(f, "{}", line(&rules))?;
        for (cells, tone) in &self.rows {
            match (self.colours, tone) {
                (false, _) => writeln!(f, "{}", line(cells))?,
                (true, Tone::Good) => writeln!(f, "\x1b[32m{}\x1b[0m", line(cells))?,
                (true, Tone::Bad) => writeln!(f, "\x1b[31m{}\x1b[0m", line(cells))?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(colours: bool) -> String {
        let mut table = Table::new(&["flow", "by"], colours);
        table.row(vec!["inbound".into(), "proxy".into()], Tone::Good);
        table.row(vec!["é".into()], Tone::Bad);
        table.to_string()
    }

    #[test]
    fn columns_line_up_and_lines_have_no_tail() {
        assert_eq!(
            table(false),
            "flow     by\n-------  -----\ninbound  proxy\né\n"
        );
    }

    #[test]
    fn colours_come_only_when_asked_for() {
        assert!(!table(false).contains('\x1b'));
        assert!(table(true).contains("\x1b[32minbound  proxy\x1b[0m\n\x1b[31mé\x1b[0m\n"));
    }
}
