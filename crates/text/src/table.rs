//! Tables for terminals, reports and pipes.
//!
//! A table fits a given width. Without one (a pipe, a file) each row is one line, however long, so that
//! `grep` and `awk` find whole rows. On a terminal it is made to fit in these steps, each only if the
//! previous ones are not enough:
//!
//! 1. headings take several lines, broken between words;
//! 2. cells of words take several lines, broken between words, but no such column becomes narrower than
//!    `COMFORTABLE` in this step;
//! 3. optional columns are left out, and a line below names them;
//! 4. rows are stacked: a line for each column, an empty line between rows.
//!
//! No number, address, name or word of a heading is ever broken.

use std::fmt;

use unicode_width::UnicodeWidthStr;

use crate::wrap::{longest_line, longest_word, wrap};

/// Character columns between two cells.
const GAP: usize = 2;

/// A column of words is not made narrower than this while an optional column can be left out.
const COMFORTABLE: usize = 24;

/// Rows that a stream lays out together.
const STREAM_ROWS: usize = 256;

/// The alignment of a column's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// For words.
    Left,
    /// For numbers.
    Right,
}

/// A table of text. Every row has a cell per column: missing ones are empty, surplus ones are cut.
#[derive(Clone, Debug)]
pub struct Table {
    /// What the table shows, in one line; may be empty.
    pub caption: String,
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
    /// Columns that are left out if there is no room for all, in this order.
    optional: Vec<usize>,
}

impl Table {
    /// A table without rows.
    pub fn new<'a>(caption: impl Into<String>, columns: impl IntoIterator<Item = (&'a str, Align)>) -> Self {
        let columns = columns.into_iter().map(|(name, align)| (name.to_owned(), align)).collect();
        Table { caption: caption.into(), columns, rows: Vec::new(), optional: Vec::new() }
    }

    /// A table with a row for each item; the columns that follow have functions from an item to its cell.
    pub fn of<T: Copy>(caption: impl Into<String>, items: impl IntoIterator<Item = T>) -> Rows<T> {
        let items: Vec<T> = items.into_iter().collect();
        Rows { table: Table { rows: vec![Vec::new(); items.len()], ..Self::new(caption, []) }, items }
    }

    /// Columns that may be left out if there is no room for all, by heading, the least important first.
    #[must_use]
    pub fn optional(mut self, headings: &[&str]) -> Self {
        let place = |heading: &&str| self.columns.iter().position(|(name, _)| name == heading);
        self.optional = headings.iter().filter_map(place).collect();
        self
    }

    /// Appends a row; missing cells are empty, cells beyond the last column are dropped.
    pub fn push(&mut self, row: impl IntoIterator<Item = String>) {
        let mut row: Vec<String> = row.into_iter().collect();
        row.resize(self.columns.len(), String::new());
        self.rows.push(row);
    }

    /// Headings and alignments.
    pub fn columns(&self) -> &[(String, Align)] {
        &self.columns
    }

    /// The rows, each with a cell per column.
    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    /// The table in lines of at most `width` columns, unless a word or number is longer; without a width,
    /// each row is one line.
    pub fn render(&self, width: Option<usize>) -> String {
        let mut text = String::new();
        if !self.caption.is_empty() {
            for line in wrap(&self.caption, width.unwrap_or(usize::MAX)) {
                text += &line;
                text.push('\n');
            }
        }
        let layout = self.layout(width, &[]);
        self.head(&layout, &mut text);
        self.body(&layout, &mut text);
        self.foot(&layout, width, &mut text);
        text
    }

    /// The columns to show and their widths, none narrower than in `before`.
    fn layout(&self, width: Option<usize>, before: &[usize]) -> Layout {
        let cell = |of: fn(&str) -> usize, column: usize| {
            self.rows.iter().map(|row| of(&row[column])).max().unwrap_or(0)
        };
        let columns = 0..self.columns.len();
        let body: Vec<usize> = columns.clone().map(|column| cell(longest_line, column)).collect();
        let natural: Vec<usize> =
            columns.clone().map(|c| body[c].max(self.columns[c].0.width()).max(floor(before, c))).collect();
        let mut shown: Vec<usize> = columns.clone().collect();
        let Some(width) = width else { return Layout::Columns { shown, widths: natural } };
        let least: Vec<usize> = columns
            .map(|column| {
                let (heading, align) = &self.columns[column];
                let cells = match align {
                    Align::Right => body[column],
                    Align::Left => cell(longest_word, column).max(body[column].min(COMFORTABLE)),
                };
                cells.max(longest_word(heading)).max(floor(before, column))
            })
            .collect();
        let needed = |shown: &[usize]| {
            shown.iter().map(|c| least[*c]).sum::<usize>() + GAP * shown.len().saturating_sub(1)
        };
        let mut optional = self.optional.iter();
        while needed(&shown) > width {
            let Some(column) = optional.next() else { return Layout::Stacked { width } };
            shown.retain(|each| each != column);
        }
        let mut room = width - needed(&shown);
        let mut widths = least;
        for wanted in [&body, &natural] {
            widen(&mut widths, wanted, &shown, &mut room);
        }
        Layout::Columns { shown, widths }
    }

    fn head(&self, layout: &Layout, text: &mut String) {
        let Layout::Columns { shown, widths } = layout else { return };
        let headings: Vec<Vec<String>> =
            shown.iter().map(|column| wrap(&self.columns[*column].0, widths[*column])).collect();
        let height = headings.iter().map(Vec::len).max().unwrap_or(0);
        // The last word of each heading is directly above the rule.
        let line = |n: usize| {
            headings.iter().map(move |lines| {
                let above = height - lines.len();
                n.checked_sub(above).map_or("", |n| lines[n].as_str())
            })
        };
        (0..height).for_each(|n| self.line(line(n), shown, widths, text));
        let length = shown.iter().map(|c| widths[*c]).sum::<usize>() + GAP * shown.len().saturating_sub(1);
        *text += &"─".repeat(length);
        text.push('\n');
    }

    fn body(&self, layout: &Layout, text: &mut String) {
        match layout {
            Layout::Columns { shown, widths } => {
                for row in &self.rows {
                    let cells: Vec<Vec<String>> =
                        shown.iter().map(|column| wrap(&row[*column], widths[*column])).collect();
                    let height = cells.iter().map(Vec::len).max().unwrap_or(0);
                    for n in 0..height {
                        let line = cells.iter().map(|lines| lines.get(n).map_or("", String::as_str));
                        self.line(line, shown, widths, text);
                    }
                }
            }
            Layout::Stacked { width } => {
                self.rows.iter().for_each(|row| self.stacked(row, *width, text));
            }
        }
    }

    /// A row as a line for each column.
    fn stacked(&self, row: &[String], width: usize, text: &mut String) {
        let label = self.columns.iter().map(|(heading, _)| heading.width()).max().unwrap_or(0);
        for ((heading, _), cell) in self.columns.iter().zip(row) {
            for (n, line) in wrap(cell, width.saturating_sub(label + GAP)).iter().enumerate() {
                let heading = if n == 0 { heading.as_str() } else { "" };
                push_line(text, &format!("{}{line}", padded(heading, label + GAP, Align::Left)));
            }
        }
        text.push('\n');
    }

    fn foot(&self, layout: &Layout, width: Option<usize>, text: &mut String) {
        let Layout::Columns { shown, .. } = layout else { return };
        let hidden = (0..self.columns.len()).filter(|column| !shown.contains(column));
        let hidden: Vec<&str> = hidden.map(|column| self.columns[column].0.as_str()).collect();
        if !hidden.is_empty() {
            let told = format!("no room for: {}", hidden.join(", "));
            wrap(&told, width.unwrap_or(usize::MAX)).iter().for_each(|line| push_line(text, line));
        }
    }

    fn line<'c>(
        &self,
        cells: impl Iterator<Item = &'c str>,
        shown: &[usize],
        widths: &[usize],
        text: &mut String,
    ) {
        let cells =
            cells.zip(shown).map(|(cell, column)| padded(cell, widths[*column], self.columns[*column].1));
        push_line(text, &cells.collect::<Vec<_>>().join(&" ".repeat(GAP)));
    }
}

/// A table of items under construction: each column is added with its heading and its cells.
#[derive(Clone, Debug)]
pub struct Rows<T> {
    table: Table,
    items: Vec<T>,
}

impl<T: Copy> Rows<T> {
    /// Adds a column of words.
    #[must_use]
    pub fn words(self, heading: &str, cell: impl Fn(T) -> String) -> Self {
        self.column(heading, Align::Left, cell)
    }

    /// Adds a column of numbers.
    #[must_use]
    pub fn number(self, heading: &str, cell: impl Fn(T) -> String) -> Self {
        self.column(heading, Align::Right, cell)
    }

    /// Adds a column.
    #[must_use]
    pub fn column(mut self, heading: &str, align: Align, cell: impl Fn(T) -> String) -> Self {
        self.table.columns.push((heading.to_owned(), align));
        self.table.rows.iter_mut().zip(&self.items).for_each(|(row, item)| row.push(cell(*item)));
        self
    }

    /// See [`Table::optional`].
    #[must_use]
    pub fn optional(self, headings: &[&str]) -> Self {
        Self { table: self.table.optional(headings), ..self }
    }

    /// The finished table.
    pub fn table(self) -> Table {
        self.table
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(None))
    }
}

/// A table that is printed in pieces while its rows arrive: there may be millions. Columns become wider if a
/// later piece needs it, never narrower.
#[derive(Debug)]
pub struct TableStream {
    table: Table,
    width: Option<usize>,
    /// The layout of the last piece.
    layout: Option<Layout>,
}

impl TableStream {
    /// Makes a stream with the columns of this table.
    pub fn new(table: Table, width: Option<usize>) -> Self {
        Self { table, width, layout: None }
    }

    /// Prints the header now, for columns at least this wide: rows may come much later.
    pub fn begin(&mut self, widths: &[usize]) -> String {
        let mut text = String::new();
        let layout = self.table.layout(self.width, widths);
        self.table.head(&layout, &mut text);
        self.layout = Some(layout);
        text
    }

    /// Adds a row; returns text to print, which is usually empty.
    pub fn push(&mut self, row: impl IntoIterator<Item = String>) -> String {
        self.table.push(row);
        if self.table.rows.len() < STREAM_ROWS { String::new() } else { self.piece() }
    }

    /// Returns the remaining text to print.
    pub fn finish(mut self) -> String {
        let mut text = self.piece();
        if let Some(layout) = &self.layout {
            self.table.foot(layout, self.width, &mut text);
        }
        text
    }

    /// Returns the text of the rows so far.
    pub fn piece(&mut self) -> String {
        let mut text = String::new();
        let layout = match &self.layout {
            None => {
                let layout = self.table.layout(self.width, &[]);
                self.table.head(&layout, &mut text);
                layout
            }
            Some(Layout::Stacked { width }) => Layout::Stacked { width: *width },
            Some(Layout::Columns { shown, widths }) => match self.table.layout(self.width, widths) {
                // The columns below a heading must stay the same; an overlong line is better than a number in
                // another column.
                Layout::Columns { shown: now, widths } if now == *shown => {
                    Layout::Columns { shown: now, widths }
                }
                _ => Layout::Columns { shown: shown.clone(), widths: widths.clone() },
            },
        };
        self.table.body(&layout, &mut text);
        self.table.rows.clear();
        self.layout = Some(layout);
        text
    }
}

/// The placement of cells.
#[derive(Debug)]
enum Layout {
    /// The columns to show, and the width of each column of the table.
    Columns { shown: Vec<usize>, widths: Vec<usize> },
    /// A line for each column.
    Stacked { width: usize },
}

fn floor(before: &[usize], column: usize) -> usize {
    before.get(column).copied().unwrap_or(0)
}

/// Widens columns up to what they need, the narrowest first.
fn widen(widths: &mut [usize], wanted: &[usize], shown: &[usize], room: &mut usize) {
    while *room > 0 {
        let short = shown.iter().copied().filter(|column| widths[*column] < wanted[*column]);
        let Some(column) = short.min_by_key(|column| widths[*column]) else { return };
        widths[column] += 1;
        *room -= 1;
    }
}

fn padded(text: &str, width: usize, align: Align) -> String {
    let padding = " ".repeat(width.saturating_sub(text.width()));
    match align {
        Align::Left => format!("{text}{padding}"),
        Align::Right => format!("{padding}{text}"),
    }
}

fn push_line(text: &mut String, line: &str) {
    text.push_str(line.trim_end());
    text.push('\n');
}

#[cfg(test)]
mod tests;
