//! `make setup` on machines of every kind, which are made of a directory: the PATH leads to stubs
//! of apt-get, sudo, cargo and rustup that write down what is asked of them, and the installer
//! comes from a server of the test.

mod support;

mod setup {
    mod cross;
    mod machine;
    mod makefile;
    mod rust;
}
