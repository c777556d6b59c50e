//! `make setup` on simulated machines of every kind, each in a directory: the PATH contains stubs of apt-get, sudo,
//! cargo and rustup that record their arguments, and the installer comes from the test's own server. And the parts of
//! `make dist` and `make follow` that need no build and no network.

mod cross;
mod dist;
mod machine;
mod makefile;
mod rust;
