//! The program as the init of real launchers: torchrun and Open MPI's mpirun.
//!
//! PyTorch is too large for every run: `make test-torch` installs it and runs the
//! tests that are ignored otherwise.

mod support;

mod launchers {
    #[path = "../init/container.rs"]
    mod container;
    #[allow(dead_code)]
    #[path = "../init/hang.rs"]
    mod hang;
    mod job;
    mod mpirun;
    mod torchrun;
}
