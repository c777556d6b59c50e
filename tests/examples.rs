//! Tries what examples/ and docker/ show with the tools that read it: manifests are checked
//! against Kubernetes' schemas, Dockerfiles are built, scripts are run, and everything that
//! they start is started in containers of a Docker engine.
//!
//! tests/examples/setup.sh installs what is missing for this.

mod support;

mod examples {
    mod admission;
    mod arena;
    mod built;
    mod covered;
    mod daemon;
    mod decided;
    mod host_side;
    mod images;
    mod index;
    mod kustomize;
    mod manifests;
    mod metrics;
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
