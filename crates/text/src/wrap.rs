//! Wraps lines. Words are never broken: half an address or number is useless.

use unicode_width::UnicodeWidthStr;

/// Text in lines of at most `width` columns, broken at spaces only: a longer word has its own line. A line
/// that fits is unchanged; continuation lines have the indentation of their line.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    text.split('\n').flat_map(|line| wrap_line(line, width)).collect()
}

fn wrap_line(line: &str, width: usize) -> Vec<String> {
    if line.width() <= width {
        return vec![line.to_owned()];
    }
    let indent = &line[..line.len() - line.trim_start().len()];
    let mut lines = Vec::new();
    let mut current = indent.to_owned();
    for word in line.split_whitespace() {
        let is_empty = current.len() == indent.len();
        if !is_empty && current.width() + 1 + word.width() > width {
            lines.push(std::mem::replace(&mut current, indent.to_owned()));
        } else if !is_empty {
            current.push(' ');
        }
        current.push_str(word);
    }
    lines.push(current);
    lines
}

/// The widest word.
pub(crate) fn longest_word(text: &str) -> usize {
    text.split_whitespace().map(UnicodeWidthStr::width).max().unwrap_or(0)
}

/// The widest line.
pub(crate) fn longest_line(text: &str) -> usize {
    text.split('\n').map(UnicodeWidthStr::width).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_at_spaces_and_keep_their_indent() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("  one two", 6), ["  one", "  two"]);
        assert_eq!(wrap("a 2001:db8::1 b", 4), ["a", "2001:db8::1", "b"]);
        assert_eq!(wrap("a  b\nc", 9), ["a  b", "c"]);
        assert_eq!(wrap("", 5), [""]);
    }
}
