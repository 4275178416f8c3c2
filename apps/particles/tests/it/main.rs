//! Particles: physics, the command, restarts, ranks, and the deaths of some.

mod command;
mod conservation;
mod deaths;
mod ewald;
mod forces;
mod ranks;
mod repeat;
mod restart;
