//! Jobs of several nodes that test the fabric between them, as processes of this machine. Each node has its
//! own host name.

mod attacks;
mod beside;
mod bisection;
mod calls;
mod directions;
mod domains;
mod failing;
mod faults;
mod figures;
mod files;
mod gate;
mod interfaces;
mod job;
mod late;
mod listens;
mod lossy;
mod moments;
mod no_token;
mod parts;
mod places;
mod ports;
mod progress;
mod rates;
mod sound;
mod start;
mod stranger;
mod tasks;
mod twice;
mod uninvited;
