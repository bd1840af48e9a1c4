//! Tables on this program's terminal; `thalweg_text` defines their appearance.

use thalweg_text::{Align, Table, TableStream, wrap};

/// The width of text: `COLUMNS`, otherwise the terminal's width, otherwise (a pipe, a file) unlimited.
pub(crate) fn width() -> Option<usize> {
    let said = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    said.filter(|columns| *columns > 0)
        .or_else(|| terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| usize::from(width.0)))
}

/// A remark in lines that fit.
pub(crate) fn remark(text: &str) -> String {
    let lines = wrap(text, width().unwrap_or(usize::MAX));
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// A table with a header; columns named in `numbers` are right-aligned.
pub(crate) fn table(
    header: &[&str],
    numbers: &[usize],
    rows: impl IntoIterator<Item = Vec<String>>,
) -> String {
    table_of(columns(header, numbers), rows)
}

/// [`table`] for a prepared table, which may have optional columns.
pub(crate) fn table_of(mut table: Table, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    rows.into_iter().for_each(|row| table.push(row));
    table.render(width())
}

/// Prints rows as they arrive.
pub(crate) fn stream(table: Table) -> TableStream {
    TableStream::new(table, width())
}

/// A table without rows.
pub(crate) fn columns(header: &[&str], numbers: &[usize]) -> Table {
    let align = |column| if numbers.contains(&column) { Align::Right } else { Align::Left };
    Table::new("", header.iter().enumerate().map(|(column, name)| (*name, align(column))))
}
