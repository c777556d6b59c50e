//! What examples/ and docker/ show, tried with the tools that read it: manifests against
//! Kubernetes' schemas, Dockerfiles built, scripts run, and everything that they start really
//! started, in containers of a Docker engine.
//!
//! What is needed is set up where it is not there. See tests/examples/setup.sh.

mod support;

mod examples {
    mod arena;
    mod built;
    mod covered;
    mod decided;
    mod images;
    mod manifests;
    mod mpi;
    mod pai;
    mod pods;
    mod probes;
    mod profile;
    mod scripts;
    mod setup;
    mod slurm;
    mod started;
    mod torchrun;
}
