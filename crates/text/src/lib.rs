//! Text for people: tables that fit the terminal, and numbers and times in one style. Pure: the width is an
//! argument, and nothing here knows what the numbers mean.

pub mod calendar;
pub mod table;
pub mod units;
mod wrap;

pub use table::{Align, Rows, Table, TableStream};
pub use wrap::wrap;
