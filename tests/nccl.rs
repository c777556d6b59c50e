//! Tests what the NCCL library itself decides on hosts that a test describes, without a GPU and
//! without the described devices. See tests/nccl/driver.

mod support;

mod nccl {
    mod case;
    mod data_direct;
    mod decided;
    mod described;
    mod driver;
    mod forecast;
    mod harness;
    mod host;
    mod layout;
    mod model;
    mod namespace;
    mod namespaces;
    mod outcome;
    mod random;
    mod soft_roce;
    mod texts;
}
