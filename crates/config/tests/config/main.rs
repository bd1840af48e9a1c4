//! Configurations as text, and the results of reading them.

mod any_text;
mod findings;
mod reference;
mod values;
