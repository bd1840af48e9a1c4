//! Known answers: what the attributes of a route become on the way to each kind of neighbour.
