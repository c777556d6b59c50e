//! Tests the program as PID 1 of a PID namespace, and the preparation's deadline.

mod support;

mod init {
    mod account;
    mod alone;
    mod conf_file;
    mod container;
    mod crash;
    mod decided;
    mod end;
    mod end_line;
    mod enter;
    mod exec_failure;
    mod faults;
    mod file_size;
    mod inherited;
    mod job;
    mod killed;
    mod least;
    mod odd_files;
    mod old_kernel;
    mod orphans;
    mod parent;
    mod planted;
    mod pod;
    mod preparation;
    mod refusal;
    mod signals;
    mod soak;
    mod stderr;
    mod stop;
    mod supervise;
    mod terminal;
    mod token;
    mod trust;
    mod watcher;
}
