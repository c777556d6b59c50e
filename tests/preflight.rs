//! Jobs of several nodes that prove the fabric between them, as processes of this machine. Each
//! node has a host name of its own.

mod support;

mod preflight {
    mod failing;
    mod files;
    mod interfaces;
    mod job;
    mod progress;
    mod sound;
    mod start;
    mod stranger;
    mod tasks;
    mod uninvited;
}
