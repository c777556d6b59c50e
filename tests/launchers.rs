//! Runs the program as the init of real launchers: torchrun, Ray and Open MPI's mpirun.
//!
//! PyTorch is too large to install for every run, so the tests of torchrun are ignored by
//! default. `make test-torch` installs PyTorch and runs them. `make test-ray` does the same for Ray.

mod gloo;
mod job;
mod mpirun;
mod nodes;
mod ray;
mod torchrun;
