//! Tests of the whole compiler: what it writes computes the same, and what it refuses.

mod auto;
mod cases;
mod command;
mod common;
mod generator;
mod golden;
mod paper;
mod public;
mod random;
mod random_shapes;
mod shapes;
mod suggest;
