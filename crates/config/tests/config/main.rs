//! Configurations as text, and what reading them comes to.

mod any_text;
mod findings;
mod reference;
mod values;
