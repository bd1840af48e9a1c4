//! Finds the paths in blanked code, in `use` trees and elsewhere.

use super::super::code::is_word;
use super::super::source::words;

/// A path that names an item.
pub(super) struct Reference {
    pub(super) path: Vec<String>,
    /// The local name that a `use` gives it.
    pub(super) name: Option<String>,
}

/// All paths in the code, including those of other crates.
pub(super) fn references(code: &str) -> Vec<Reference> {
    let mut found = Vec::new();
    let mut rest = String::with_capacity(code.len());
    let mut end = 0;
    for (at, after) in words(code, "use") {
        // `use<..>` in a type is no import, and a `use` inside another one is not counted again.
        let Some(length) = after.find(';').filter(|_| at >= end && after.starts_with(char::is_whitespace))
        else {
            continue;
        };
        tree(&[], after[..length].trim(), &mut found);
        rest.push_str(&code[end..at]);
        end = at + "use".len() + length;
    }
    rest.push_str(&code[end..]);
    found.extend(inline(&rest).map(|path| Reference { path, name: None }));
    found
}

/// The leaves of a `use` tree.
fn tree(prefix: &[String], text: &str, found: &mut Vec<Reference>) {
    if let Some((head, inside)) = text.strip_suffix('}').and_then(|text| text.split_once('{')) {
        let prefix = [prefix, &segments(head)].concat();
        branches(inside).into_iter().for_each(|branch| tree(&prefix, branch.trim(), found));
        return;
    }
    let (path, alias) = match text.split_once(" as ") {
        Some((path, alias)) => (path, Some(alias.trim().to_owned())),
        None => (text, None),
    };
    let mut path = [prefix, &segments(path)].concat();
    if path.len() > 1 && path.last().is_some_and(|last| last == "self" || last == "*") {
        let is_glob = path.pop().is_some_and(|last| last == "*");
        let name = alias.or_else(|| path.last().cloned()).filter(|_| !is_glob);
        return found.push(Reference { path, name });
    }
    let name = alias.or_else(|| path.last().cloned());
    found.push(Reference { path, name });
}

/// The parts between commas outside of braces.
fn branches(text: &str) -> Vec<&str> {
    let mut depth = 0;
    let parts = text.split(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    parts.filter(|part| !part.trim().is_empty()).collect()
}

fn segments(path: &str) -> Vec<String> {
    path.split("::").map(str::trim).filter(|step| !step.is_empty()).map(str::to_owned).collect()
}

/// Paths of at least two steps, except those in visibilities.
fn inline(code: &str) -> impl Iterator<Item = Vec<String>> + '_ {
    let mut last = "";
    code.split(|c: char| !(is_word(c) || c == ':')).filter_map(move |chain| {
        let before = std::mem::replace(&mut last, chain);
        let path = segments(chain.trim_end_matches(':'));
        (path.len() > 1 && before != "in" && !chain.starts_with(':')).then_some(path)
    })
}

/// The code with everything that is only for tests blanked out.
pub(super) fn without_tests(code: &str) -> String {
    let mut out = String::with_capacity(code.len());
    let mut end = 0;
    for (at, length) in test_items(code) {
        if at >= end {
            out.push_str(&code[end..at]);
            end = at + length;
        }
    }
    out.push_str(&code[end..]);
    out
}

/// Modules that are declared only for tests.
pub(super) fn declared_in_tests(code: &str) -> impl Iterator<Item = String> + '_ {
    test_items(code).filter_map(|(at, length)| {
        let item = code[at..at + length].strip_suffix(';')?;
        let (before, name) = item.trim_end().rsplit_once(char::is_whitespace)?;
        before.trim_end().ends_with("mod").then(|| name.to_owned())
    })
}

/// Items that are compiled only for tests: the start of each, including its attribute, and its length.
fn test_items(code: &str) -> impl Iterator<Item = (usize, usize)> + '_ {
    let attributes = code.match_indices("#[cfg(").filter(|(at, _)| {
        let condition = code[*at..].split(']').next().unwrap_or_default();
        words(condition, "test").next().is_some() && !condition.contains("not(")
    });
    attributes.map(|(at, _)| (at, item_length(&code[at..])))
}

/// Up to the item's closing brace, or its semicolon.
fn item_length(code: &str) -> usize {
    let mut depth = 0;
    for (at, c) in code.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 1 => return at + 1,
            '}' => depth -= 1,
            ';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}
