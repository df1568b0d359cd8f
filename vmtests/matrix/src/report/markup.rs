//! Escapers for the report's templates: they remove control characters and escape markup.
use super::clean;
use askama::filters::Escaper;
use std::fmt::{self, Write};

/// The escaper for HTML and XML.
#[derive(Clone, Copy)]
pub(super) struct Markup;

impl Escaper for Markup {
    fn write_escaped_str<W: Write>(&self, mut out: W, text: &str) -> fmt::Result {
        for c in clean::block(text).chars() {
            match c {
                '&' => out.write_str("&amp;"),
                '<' => out.write_str("&lt;"),
                '>' => out.write_str("&gt;"),
                '"' => out.write_str("&quot;"),
                c => out.write_char(c),
            }?;
        }
        Ok(())
    }
}

/// The escaper for cells of a Markdown table.
#[derive(Clone, Copy)]
pub(super) struct Markdown;

impl Escaper for Markdown {
    fn write_escaped_str<W: Write>(&self, mut out: W, text: &str) -> fmt::Result {
        for c in clean::line(text).chars() {
            match c {
                // A backslash would leave "<!--" intact, and readers search for the end marker in the raw text.
                '<' => out.write_str("&lt;"),
                '|' | '\\' | '`' | '*' | '[' | ']' | '&' => write!(out, "\\{c}"),
                c => out.write_char(c),
            }?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use askama::Template;
    use proptest::prelude::*;

    #[derive(Template)]
    #[template(source = "<a x=\"{{ text }}\"><b/>{{ text }}</a>", ext = "xml")]
    struct Element<'a> {
        text: &'a str,
    }

    #[test]
    fn what_could_be_markup_is_escaped() {
        let written = Element { text: "\"<&>\0" }.render().unwrap();
        let text = "&quot;&lt;&amp;&gt;␀";
        assert_eq!(written, format!("<a x=\"{text}\"><b/>{text}</a>"));
    }

    proptest! {
        #[test]
        fn any_text_is_well_formed_and_read_back(text: String) {
            let written = Element { text: &text }.render().unwrap();
            let document = roxmltree::Document::parse(&written).map_err(|e| {
                TestCaseError::fail(format!("{e}: {written}"))
            })?;
            let root = document.root_element();
            let cleaned = clean::block(&text);
            prop_assert_eq!(root.last_child().unwrap().text().unwrap_or_default(), &cleaned);
            // An XML parser normalizes line ends in attributes to spaces.
            prop_assert_eq!(root.attribute("x"), Some(&*cleaned.replace('\n', " ")));
        }
    }
}
