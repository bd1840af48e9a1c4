//! The execution models against a toy plan: that they all give the same answer, and how runs end.

mod ends;
mod same_answer;
mod toy;
