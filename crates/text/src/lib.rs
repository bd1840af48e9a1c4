//! Text for people: tables that fit the terminal, numbers and times in one style. Pure: the width is an argument. Nothing
//! here knows what the numbers mean.

pub mod calendar;
pub mod table;
pub mod units;
mod wrap;

pub use table::{Align, Rows, Table, TableStream};
pub use wrap::wrap;
