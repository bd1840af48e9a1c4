//! The flow probe: packets from files or interfaces through the meter, and records to where they are wanted.
