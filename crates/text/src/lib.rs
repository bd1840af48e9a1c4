//! Text for people: tables that fit the terminal, and numbers in one style. Pure: the width is an argument. Nothing
//! here knows what the numbers mean.

pub mod table;
pub mod units;
mod wrap;

pub use table::{Align, Table, TableStream};
pub use wrap::wrap;
