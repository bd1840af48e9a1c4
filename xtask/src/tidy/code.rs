//! Blanks out everything in Rust source that is not code, so that a word in a comment, a string or a
//! character is not taken for code. This is not a parser: it knows just enough of the lexical grammar (nested
//! block comments, raw strings, characters and lifetimes).

/// `text` with comments and the insides of literals replaced by spaces. Newlines stay, so line numbers
/// hold, and so does the length in characters.
pub(super) fn blank(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = match chars[at] {
            '/' if chars.get(at + 1) == Some(&'/') => line_comment(&chars, at),
            '/' if chars.get(at + 1) == Some(&'*') => block_comment(&chars, at),
            '"' => quoted(&chars, at, '"'),
            '\'' => character(&chars, at),
            c if is_word(c) => {
                let end = word(&chars, at);
                match raw_string(&chars, at, end) {
                    Some(end) => end,
                    None => {
                        out.extend(&chars[at..end]);
                        at = end;
                        continue;
                    }
                }
            }
            c => {
                out.push(c);
                at += 1;
                continue;
            }
        };
        let end = end.min(chars.len());
        out.extend(chars[at..end].iter().map(|&c| if c == '\n' { '\n' } else { ' ' }));
        at = end;
    }
    out
}

/// Whether `c` may be part of an identifier.
pub(super) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn line_comment(chars: &[char], from: usize) -> usize {
    chars[from..].iter().position(|&c| c == '\n').map_or(chars.len(), |n| from + n)
}

fn block_comment(chars: &[char], from: usize) -> usize {
    let mut depth = 0usize;
    let mut at = from;
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => (depth, at) = (depth + 1, at + 2),
            ('*', Some('/')) => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// The end of a literal that begins at `from` with `quote` and may contain escapes.
fn quoted(chars: &[char], from: usize, quote: char) -> usize {
    let mut at = from + 1;
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            c if c == quote => return at + 1,
            _ => at += 1,
        }
    }
    at
}

/// The end of a character literal, or of the tick alone if it begins a lifetime.
fn character(chars: &[char], from: usize) -> usize {
    match (chars.get(from + 1), chars.get(from + 2)) {
        (Some('\\'), _) => quoted(chars, from, '\''),
        (Some(_), Some('\'')) => from + 3,
        _ => from + 1,
    }
}

fn word(chars: &[char], from: usize) -> usize {
    chars[from..].iter().position(|&c| !is_word(c)).map_or(chars.len(), |n| from + n)
}

/// The end of the raw string whose prefix is the word `from..end`; `None` if it is not one.
fn raw_string(chars: &[char], from: usize, end: usize) -> Option<usize> {
    let prefix: String = chars[from..end].iter().collect();
    if !matches!(prefix.as_str(), "r" | "br" | "cr") {
        return None;
    }
    let hashes = chars[end..].iter().take_while(|&&c| c == '#').count();
    if chars.get(end + hashes) != Some(&'"') {
        return None; // r#raw_identifier
    }
    let mut at = end + hashes + 1;
    while at < chars.len() {
        if chars[at] == '"' && chars[at + 1..].iter().take(hashes).filter(|&&c| c == '#').count() == hashes {
            return Some(at + 1 + hashes);
        }
        at += 1;
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn blanks(text: &str, code: &str) {
        let out = blank(text);
        assert_eq!(out.chars().count(), text.chars().count(), "the length stays");
        assert_eq!(out.lines().count(), text.lines().count(), "lines stay");
        assert_eq!(out.split_whitespace().collect::<Vec<_>>().join(" "), code);
    }

    #[test]
    fn comments_and_literals_go_and_code_stays() {
        blanks("a // unsafe\nb", "a b");
        blanks("a /* unsafe /* nested */ still */ b", "a b");
        blanks("a \"unsafe \\\" // not a comment\" b", "a b");
        blanks("a r#\"unsafe \" {\"# b br\"{\" c", "a b c");
        blanks("let c = '{'; let d = '\\''; let e = '\"'; f", "let c = ; let d = ; let e = ; f");
        blanks("fn f<'a>(x: &'a str, y: &'static u8) {}", "fn f< a>(x: & a str, y: & static u8) {}");
        blanks("r#type.for_word b\"bytes\"", "r#type.for_word b");
    }

    #[test]
    fn unfinished_text_ends_quietly() {
        for text in ["\"abc", "/* abc", "r##\"abc\"#", "'", "'\\", "//", "\"\\"] {
            blanks(text, "");
        }
    }
}
