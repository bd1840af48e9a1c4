//! Tables on the terminal this program writes to; what they look like is `thalweg_text`'s.

use thalweg_text::{Align, Table, TableStream};

/// How wide text may be: what `COLUMNS` says, else the terminal's width, else (a pipe, a file) nothing.
pub(crate) fn width() -> Option<usize> {
    let said = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    said.filter(|columns| *columns > 0)
        .or_else(|| terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| usize::from(width.0)))
}

/// A table with a header; columns named in `numbers` are aligned to the right.
pub(crate) fn table(
    header: &[&str],
    numbers: &[usize],
    rows: impl IntoIterator<Item = Vec<String>>,
) -> String {
    table_of(columns(header, numbers), rows)
}

/// The same of a table that says what may be left out.
pub(crate) fn table_of(mut table: Table, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    rows.into_iter().for_each(|row| table.push(row));
    table.render(width())
}

/// Rows that are printed as they come.
pub(crate) fn stream(table: Table) -> TableStream {
    TableStream::new(table, width())
}

/// A table without rows.
pub(crate) fn columns(header: &[&str], numbers: &[usize]) -> Table {
    let align = |column| if numbers.contains(&column) { Align::Right } else { Align::Left };
    Table::new("", header.iter().enumerate().map(|(column, name)| (*name, align(column))))
}
