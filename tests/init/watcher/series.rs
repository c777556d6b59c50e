//! Plays jobs of hours to the program and its watcher, by a clock of steps: what the ports of a sound job and of each
//! fault show. Beside a sound job, the watcher says nothing above a note. Each fault has its line, and the last line about
//! a port is its state.

mod days;
mod one_node;
mod play;
mod ports;
mod ras;
mod resent;
mod sound;
mod traffic;
