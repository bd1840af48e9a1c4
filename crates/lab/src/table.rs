//! One table, two outputs: the terminal and the report.

use comfy_table::{CellAlignment, LineStyle, TableStyle};
use std::fmt;

/// How a column's cells stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// A table of text. Every row has a cell per column: missing ones are empty, surplus ones are cut.
#[derive(Clone, Debug)]
pub struct Table {
    /// What the table shows, in one line.
    pub caption: String,
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub fn new<'a>(caption: impl Into<String>, columns: impl IntoIterator<Item = (&'a str, Align)>) -> Self {
        let columns = columns.into_iter().map(|(name, align)| (name.to_owned(), align)).collect();
        Table { caption: caption.into(), columns, rows: Vec::new() }
    }

    /// Adds a row.
    pub fn push(&mut self, row: impl IntoIterator<Item = String>) {
        let mut row: Vec<String> = row.into_iter().collect();
        row.resize(self.columns.len(), String::new());
        self.rows.push(row);
    }

    /// Names and alignment.
    pub fn columns(&self) -> &[(String, Align)] {
        &self.columns
    }

    /// The rows, each as long as there are columns.
    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }
}

/// As it goes to a terminal: lines under the head only, numbers to the right.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = comfy_table::Table::new();
        table.load_style(TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─')));
        table.set_header(self.columns.iter().map(|(name, _)| name));
        for row in &self.rows {
            table.add_row(row);
        }
        for (column, (_, align)) in table.column_iter_mut().zip(&self.columns) {
            column.set_padding((0, 0)); // eleven columns in a hundred characters
            column.set_cell_alignment(match align {
                Align::Left => CellAlignment::Left,
                Align::Right => CellAlignment::Right,
            });
        }
        writeln!(f, "{}", self.caption)?;
        for line in table.to_string().lines() {
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_get_as_many_cells_as_there_are_columns() {
        let mut table = Table::new("Speeds", [("model", Align::Left), ("Mpps", Align::Right)]);
        table.push(["serial".to_owned()]);
        table.push(["farm".to_owned(), "20.1".to_owned(), "surplus".to_owned()]);
        assert_eq!(table.rows(), [["serial", ""], ["farm", "20.1"]]);
        let text = table.to_string();
        assert!(text.starts_with("Speeds\n") && text.contains("20.1") && !text.contains("surplus"), "{text}");
    }
}
