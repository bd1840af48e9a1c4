//! Checks documentation: a public type, trait or function has some, and a comment of a field or variant does
//! not only repeat its name.
//!
//! rustc's `missing_docs` requires a comment on every field and variant too, which leads to comments such as
//! `Its address.`.

use std::path::Path;

use super::code::is_word;
use super::source::{line_of, words};
use super::{Finding, is_product, without_tests};

/// The items that need documentation if they are public.
const ITEMS: &[&str] = &["fn", "struct", "enum", "trait", "type", "union"];

/// The words that may come between `pub` and one of these.
const MODIFIERS: &[&str] = &["const", "async", "unsafe"];

/// Words that add nothing to a name.
const FILLERS: &[&str] = &[
    "its", "their", "our", "the", "a", "an", "of", "is", "it", "which", "who", "whom", "why", "what", "when",
    "where", "how", "many", "much", "one", "this",
];

/// Public items without documentation, and fields and variants whose comment repeats their name. `text` is a
/// product file, `code` the same without comments and literals.
pub(super) fn check(file: &Path, text: &str, code: &str) -> Vec<Finding> {
    // In the program, comments are help texts, and nothing is public.
    if !is_product(file) || file.starts_with("xtask") || file.starts_with("crates/thalweg") {
        return Vec::new();
    }
    let lines: Vec<&str> = text.lines().collect();
    let code = without_tests(code);
    let undocumented = words(code, "pub").filter_map(|(at, after)| {
        let name = item(after)?;
        let line = line_of(code, at);
        let message = format!("`{name}` is public: say what it is or does");
        (!has_docs(&lines[..line - 1])).then(|| Finding::failure(file, line, message))
    });
    // Variants of these are help texts too.
    let is_help = text.contains("ValueEnum");
    let empty = (1..).zip(lines.windows(3)).filter_map(|(number, around)| {
        let said = doc(around[1])?;
        let is_alone = doc(around[0]).is_none() && doc(around[2]).is_none();
        let name = member(&lines[number + 1..])?;
        let message = format!("`{said}` only repeats `{name}`: delete it, or say what the name does not");
        (is_alone && !is_help && repeats(said, name)).then(|| Finding::failure(file, number + 1, message))
    });
    undocumented.chain(empty).collect()
}

/// The name of the item `after` a `pub`, if it must be documented.
fn item(after: &str) -> Option<&str> {
    let mut words = after.split(|c: char| c.is_whitespace()).filter(|word| !word.is_empty());
    let mut last = "";
    for word in words.by_ref().take(4) {
        let name = word.split(|c| !is_word(c)).next().unwrap_or_default();
        let is_item = ITEMS.contains(&last) && !ITEMS.contains(&name) && !MODIFIERS.contains(&name);
        if is_item {
            return Some(name).filter(|name| !name.is_empty());
        }
        if !ITEMS.contains(&word) && !MODIFIERS.contains(&word) {
            return None;
        }
        last = word;
    }
    None
}

/// Whether the lines before an item end in documentation; attributes and other comments are skipped.
fn has_docs(before: &[&str]) -> bool {
    let mut depth = 0;
    for line in before.iter().rev().map(|line| line.trim()) {
        if depth == 0 && (line.starts_with("///") || line.starts_with("#[doc")) {
            return true;
        }
        if depth == 0 && !["#[", "//"].iter().any(|begin| line.starts_with(begin)) && !line.ends_with(")]") {
            return false;
        }
        let count = |brackets: [char; 2]| line.matches(brackets).count();
        depth = (depth + count([']', ')'])).saturating_sub(count(['[', '(']));
    }
    false
}

fn doc(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix("///").map(str::trim)
}

/// The name of the field or variant at the start of `lines`, after its attributes.
fn member<'a>(lines: &[&'a str]) -> Option<&'a str> {
    let line = lines.iter().map(|line| line.trim()).find(|line| !line.starts_with("#["))?;
    let line = line.strip_prefix("pub ").unwrap_or(line);
    let (name, rest) = line.split_at(line.find(|c| !is_word(c)).unwrap_or(line.len()));
    let is_variant = name.starts_with(|c: char| c.is_uppercase()) && matches!(rest, "," | " {");
    let is_field = rest.starts_with(": ") && rest.ends_with(',');
    (is_variant || is_field || rest.starts_with('(') && rest.ends_with("),")).then_some(name)
}

/// Whether each word of a comment is a filler or a part of the name.
fn repeats(said: &str, name: &str) -> bool {
    let singular = |word: &str| word.to_lowercase().trim_end_matches('s').to_owned();
    let mut snake = String::new();
    for c in name.chars() {
        if c.is_uppercase() {
            snake.push('_');
        }
        snake.push(c);
    }
    let parts: Vec<String> = snake.split('_').map(singular).collect();
    let mut said = said.split(|c| !is_word(c)).filter(|word| !word.is_empty()).peekable();
    said.peek().is_some()
        && said.all(|word| FILLERS.contains(&&*word.to_lowercase()) || parts.contains(&singular(word)))
}
