//! PID 1 of a PID namespace, and the deadline of the preparation.

mod support;

mod init {
    mod container;
    mod end;
    mod hang;
    mod inherited;
    mod orphans;
    mod preparation;
    mod refusal;
    mod signals;
    mod states;
    mod terminal;
}
