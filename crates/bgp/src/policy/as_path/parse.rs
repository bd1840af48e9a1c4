//! Parses the text of a pattern into a tree.

use std::ops::Range;

use super::{AsPathError, AsPathProblem, GROUPS_MAX, PATTERN_MAX_BYTES, POSITIONS_MAX};
use crate::policy::NumberSet;

/// A parsed pattern. Alternatives that consume exactly one number are merged into one [`Tree::Number`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tree {
    /// Consumes nothing.
    Nothing,
    /// Consumes one of these numbers.
    Number(NumberSet),
    /// Matches only at the beginning of the path.
    Start,
    /// Matches only at the end of the path.
    End,
    /// One after the other.
    Row(Vec<Tree>),
    /// Any of them.
    Choice(Vec<Tree>),
    /// `optional` allows no repetition, `many` allows more than one.
    Repeat { what: Box<Tree>, optional: bool, many: bool },
}

/// Parses a pattern; returns the tree and its number of positions.
pub(super) fn parse(text: &str) -> Result<(Tree, usize), AsPathError> {
    let whole = 0..text.len();
    if text.is_empty() {
        return Err(AsPathError { at: whole, problem: AsPathProblem::Empty });
    }
    if text.len() > PATTERN_MAX_BYTES {
        return Err(AsPathError { at: whole, problem: AsPathProblem::TooLong });
    }
    let mut parser = Parser { text, at: 0, depth: 0 };
    let tree = parser.choice()?;
    if parser.at < text.len() {
        return Err(parser.wrong(parser.at..parser.at + 1, AsPathProblem::GroupNotOpen));
    }
    let positions = count_positions(&tree);
    if positions > POSITIONS_MAX {
        return Err(AsPathError { at: whole, problem: AsPathProblem::TooManyPositions });
    }
    Ok((tree, positions))
}

fn count_positions(tree: &Tree) -> usize {
    match tree {
        Tree::Nothing | Tree::Start | Tree::End => 0,
        Tree::Number(_) => 1,
        Tree::Row(parts) | Tree::Choice(parts) => parts.iter().map(count_positions).sum(),
        Tree::Repeat { what, .. } => count_positions(what),
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn wrong(&self, at: Range<usize>, problem: AsPathProblem) -> AsPathError {
        AsPathError { at, problem }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn choice(&mut self) -> Result<Tree, AsPathError> {
        let mut branches = vec![self.row()?];
        while self.peek() == Some(b'|') {
            self.at += 1;
            branches.push(self.row()?);
        }
        Ok(choose(branches))
    }

    fn row(&mut self) -> Result<Tree, AsPathError> {
        let mut parts = Vec::new();
        while let Some(next) = self.peek() {
            if next == b'|' || next == b')' {
                break;
            }
            let piece = self.piece()?;
            let piece = self.repeats(piece);
            if piece != Tree::Nothing {
                parts.push(piece);
            }
        }
        Ok(match parts.len() {
            0 => Tree::Nothing,
            1 => parts.remove(0),
            _ => Tree::Row(parts),
        })
    }

    fn repeats(&mut self, mut piece: Tree) -> Tree {
        while let Some(sign @ (b'*' | b'+' | b'?')) = self.peek() {
            self.at += 1;
            let (mut optional, mut many) = (sign != b'+', sign != b'?');
            piece = match piece {
                Tree::Nothing => Tree::Nothing,
                Tree::Repeat { what, optional: before, many: often } => {
                    (optional, many) = (optional || before, many || often);
                    Tree::Repeat { what, optional, many }
                }
                other => Tree::Repeat { what: Box::new(other), optional, many },
            };
        }
        piece
    }

    fn piece(&mut self) -> Result<Tree, AsPathError> {
        let start = self.at;
        let next = self.text[start..].chars().next().unwrap_or('\0');
        match next {
            '0'..='9' => {
                let number = self.number()?;
                if self.peek() == Some(b'[') {
                    return Err(self.wrong(start..self.at + 1, AsPathProblem::DigitByDigit));
                }
                Ok(Tree::Number(NumberSet::new([number..=number])))
            }
            '[' => self.class(),
            '(' => self.group(),
            '*' | '+' | '?' => Err(self.wrong(start..start + 1, AsPathProblem::NothingToRepeat)),
            _ => {
                self.at += next.len_utf8();
                match next {
                    '.' => Ok(Tree::Number(NumberSet::all())),
                    '^' => Ok(Tree::Start),
                    '$' => Ok(Tree::End),
                    '_' | ' ' => Ok(Tree::Nothing),
                    other => Err(self.wrong(start..self.at, AsPathProblem::Unexpected(other))),
                }
            }
        }
    }

    fn number(&mut self) -> Result<u32, AsPathError> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        self.text[start..self.at]
            .parse()
            .map_err(|_| self.wrong(start..self.at, AsPathProblem::NumberTooLarge))
    }

    fn group(&mut self) -> Result<Tree, AsPathError> {
        let start = self.at;
        if self.depth >= GROUPS_MAX {
            return Err(self.wrong(start..start + 1, AsPathProblem::TooDeep));
        }
        self.at += 1;
        self.depth += 1;
        let tree = self.choice()?;
        self.depth -= 1;
        if self.peek() != Some(b')') {
            return Err(self.wrong(start..start + 1, AsPathProblem::GroupOpen));
        }
        self.at += 1;
        Ok(tree)
    }

    fn class(&mut self) -> Result<Tree, AsPathError> {
        let start = self.at;
        let Some(length) = self.text[start..].find(']') else {
            return Err(self.wrong(start..start + 1, AsPathProblem::ClassOpen));
        };
        let end = start + length + 1;
        if &self.text[start..end] == "[0-9]" {
            return self.any_digits(start, end);
        }
        self.at = start + 1;
        let negated = self.peek() == Some(b'^');
        self.at += usize::from(negated);
        let mut ranges = Vec::new();
        while self.at < end - 1 {
            let from = self.at;
            let next = self.text[from..].chars().next().unwrap_or(']');
            match next {
                '0'..='9' => {
                    let first = self.number()?;
                    let mut last = first;
                    if self.peek() == Some(b'-') {
                        self.at += 1;
                        if !self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
                            let found = self.text[self.at..].chars().next().unwrap_or(']');
                            let at = self.at..self.at + found.len_utf8();
                            return Err(self.wrong(at, AsPathProblem::Unexpected(found)));
                        }
                        last = self.number()?;
                    }
                    if last < first {
                        return Err(self.wrong(from..self.at, AsPathProblem::RangeReversed));
                    }
                    ranges.push(first..=last);
                }
                ' ' | ',' | '_' => self.at += 1,
                other => {
                    let at = from..from + other.len_utf8();
                    return Err(self.wrong(at, AsPathProblem::Unexpected(other)));
                }
            }
        }
        self.at = end;
        if ranges.is_empty() {
            return Err(self.wrong(start..end, AsPathProblem::ClassEmpty));
        }
        if self.peek().is_some_and(|byte| byte.is_ascii_digit() || byte == b'[') {
            return Err(self.wrong(start..end, AsPathProblem::DigitByDigit));
        }
        let numbers = NumberSet::new(ranges);
        Ok(Tree::Number(if negated { numbers.complement() } else { numbers }))
    }

    /// Handles `[0-9]+` and `[0-9]*`, which mean any number, or one or none, in text patterns.
    fn any_digits(&mut self, start: usize, end: usize) -> Result<Tree, AsPathError> {
        self.at = end;
        let optional = match self.peek() {
            Some(b'+') => false,
            Some(b'*') => true,
            _ => return Err(self.wrong(start..end, AsPathProblem::DigitByDigit)),
        };
        self.at += 1;
        if self.peek().is_some_and(|byte| byte.is_ascii_digit() || byte == b'[') {
            return Err(self.wrong(start..end, AsPathProblem::DigitByDigit));
        }
        let any = Tree::Number(NumberSet::all());
        Ok(if optional { Tree::Repeat { what: Box::new(any), optional, many: false } } else { any })
    }
}

/// Combines alternatives; those that consume one number become one.
fn choose(mut branches: Vec<Tree>) -> Tree {
    if branches.len() == 1 {
        return branches.remove(0);
    }
    let mut ranges = Vec::new();
    let mut others = Vec::new();
    for branch in branches {
        match branch {
            Tree::Number(numbers) => ranges.extend(numbers.ranges().iter().map(|(a, b)| *a..=*b)),
            other => others.push(other),
        }
    }
    if !ranges.is_empty() {
        others.push(Tree::Number(NumberSet::new(ranges)));
    }
    if others.len() == 1 { others.remove(0) } else { Tree::Choice(others) }
}
