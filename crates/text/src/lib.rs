//! What people read: tables that fit the terminal, and numbers in one style. Pure: the width is an argument.

pub mod table;
pub mod units;
mod wrap;

pub use table::{Align, Table, TableStream};
pub use wrap::wrap;
