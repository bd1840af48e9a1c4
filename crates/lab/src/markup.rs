//! Escapes text for HTML and SVG.

/// `text` in a form that may stand between tags or inside a quoted attribute. Control characters that XML forbids
/// become the replacement character.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_answers() {
        assert_eq!(escape("<a href=\"x\">&'</a>"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;&lt;/a&gt;");
        assert_eq!(escape("Zürich → 1 µs\n"), "Zürich → 1 µs\n");
        assert_eq!(escape("\u{0}\u{1b}[1m"), "\u{fffd}\u{fffd}[1m");
    }

    proptest! {
        #[test]
        fn nothing_that_could_open_a_tag_is_left(text: String) {
            let out = escape(&text);
            let dangerous = ['<', '>', '"', '\'', '\0'];
            prop_assert!(!out.contains(dangerous));
            let rest = ["&amp;", "&lt;", "&gt;", "&quot;", "&#39;"].iter().fold(out, |o, e| o.replace(e, ""));
            prop_assert!(!rest.contains('&'));
        }
    }
}
