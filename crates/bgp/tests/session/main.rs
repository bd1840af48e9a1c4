//! Sessions against each other and against generated neighbors, on virtual time.

mod malformed;
mod net;
mod random;
mod routes;
mod states;
mod two;
