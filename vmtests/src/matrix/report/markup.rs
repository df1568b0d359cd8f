//! Writes elements, attributes and text, and escapes everything. Its output is well-formed XML, and HTML too:
//! only elements that HTML knows as empty are closed at once.
use super::clean;

/// Markup that is being written.
#[derive(Default)]
pub(super) struct Markup {
    text: String,
}

/// An attribute: its name and its value.
pub(super) type Attribute<'a> = (&'a str, &'a str);

impl Markup {
    /// The text so far.
    pub(super) fn finish(self) -> String {
        self.text
    }

    /// What is written as it stands: a declaration, a style sheet. Nothing from outside.
    pub(super) fn verbatim(&mut self, text: &'static str) {
        self.text.push_str(text);
    }

    /// An element with content.
    pub(super) fn element(
        &mut self,
        name: &str,
        attributes: &[Attribute<'_>],
        content: impl FnOnce(&mut Self),
    ) {
        self.start(name, attributes);
        self.text.push('>');
        content(self);
        self.text.push_str("</");
        self.text.push_str(name);
        self.text.push('>');
    }

    /// An element with nothing but text.
    pub(super) fn leaf(&mut self, name: &str, attributes: &[Attribute<'_>], text: &str) {
        self.element(name, attributes, |m| m.text(text));
    }

    /// An element that never has content (`meta`, `property`).
    pub(super) fn void(&mut self, name: &str, attributes: &[Attribute<'_>]) {
        self.start(name, attributes);
        self.text.push_str("/>");
    }

    /// A line end between elements, so that a person can read the source.
    pub(super) fn newline(&mut self) {
        self.text.push('\n');
    }

    /// Text, which may have several lines.
    pub(super) fn text(&mut self, text: &str) {
        escape(&mut self.text, &clean::block(text));
    }

    fn start(&mut self, name: &str, attributes: &[Attribute<'_>]) {
        self.text.push('<');
        self.text.push_str(name);
        for (name, value) in attributes {
            self.text.push(' ');
            self.text.push_str(name);
            self.text.push_str("=\"");
            escape(&mut self.text, &clean::line(value));
            self.text.push('"');
        }
    }
}

fn escape(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nesting_and_escapes() {
        let mut m = Markup::default();
        m.element("a", &[("x", "\"<&>\n")], |m| {
            m.void("b", &[]);
            m.leaf("c", &[], "]]>&\0");
        });
        assert_eq!(
            m.finish(),
            "<a x=\"&quot;&lt;&amp;&gt;\"><b/><c>]]&gt;&amp;␀</c></a>"
        );
    }

    proptest! {
        #[test]
        fn any_text_is_well_formed_and_read_back(text: String) {
            let mut m = Markup::default();
            m.leaf("a", &[("x", &text)], &text);
            let written = m.finish();
            let document = roxmltree::Document::parse(&written).map_err(|e| {
                TestCaseError::fail(format!("{e}: {written}"))
            })?;
            let root = document.root_element();
            prop_assert_eq!(root.text().unwrap_or_default(), clean::block(&text));
            prop_assert_eq!(root.attribute("x"), Some(&*clean::line(&text)));
        }
    }
}
