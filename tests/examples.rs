//! Tests the contents of examples/ and docker/ with the tools that read them: checks manifests against
//! Kubernetes' schemas, builds Dockerfiles, runs scripts, and starts everything that they start in containers
//! of a Docker engine.
//!
//! tests/examples/setup.sh installs the tools that are missing.

mod admission;
mod arena;
mod built;
mod covered;
mod custom;
mod daemon;
mod dashboard;
mod decided;
mod host_side;
mod images;
mod index;
mod kustomize;
mod manifests;
mod metrics;
mod mpi;
mod pai;
mod podman;
mod pods;
mod probes;
mod profile;
mod prometheus;
mod scripts;
mod setup;
mod slurm;
mod started;
mod tasks;
mod torchrun;
