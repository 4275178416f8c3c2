//! The command as a whole: one binary, so that it is linked once.

mod book;
mod commands;
mod compare;
mod files;
mod kill;
mod loss;
mod watch;
