//! The program as the init of real launchers: torchrun and Open MPI's mpirun.
//!
//! PyTorch is too large for every run: `make test-torch` installs it and runs the
//! tests that are ignored otherwise.

mod support;

mod launchers {
    mod job;
    mod mpirun;
    mod torchrun;
}
