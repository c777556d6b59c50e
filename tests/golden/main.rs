//! Golden hosts: for a host's facts and environment, each test checks the resulting settings, reasons,
//! findings and self-test checks. Each directory of tests/cases is a test with its name, and some more tests
//! check all hosts together. tests/cases/README.md says how to add a host.

#[path = "../support"]
mod support {
    #![allow(dead_code)]

    pub mod golden;
    mod paths;
    pub mod process;

    pub use paths::{binary, repository};
}

mod all;
mod one;
mod platforms;

use libtest2_mimic::{Harness, RunError, Trial};

fn main() {
    let of_all: [(&str, fn()); 11] = [
        ("what_is_not_read_decides_nothing", all::what_is_not_read_decides_nothing),
        ("the_self_test_and_require_rdma_agree", all::the_self_test_and_require_rdma_agree),
        ("whatever_is_wrong_has_a_fix", all::whatever_is_wrong_has_a_fix),
        ("no_fill_ends_the_bootstrap", all::no_fill_ends_the_bootstrap),
        ("what_nccl_ends_on_is_judged_without_a_profile", all::what_nccl_ends_on_is_judged_without_a_profile),
        ("every_finding_has_a_check", all::every_finding_has_a_check),
        ("a_finding_is_about_what_its_message_names", all::a_finding_is_about_what_its_message_names),
        ("findings_name_the_library_of_the_job", all::findings_name_the_library_of_the_job),
        ("every_finding_has_a_case", all::every_finding_has_a_case),
        (
            "each_platform_is_known_beside_the_evidence_of_others",
            platforms::each_is_known_beside_the_evidence_of_others,
        ),
        ("a_platforms_values_stand_if_the_user_sets_them", platforms::values_stand_if_the_user_sets_them),
    ];
    let of_all = of_all.map(|(name, test)| {
        Trial::test(name, move |_| {
            test();
            Ok(())
        })
    });
    let hosts = support::golden::hosts().into_iter().map(|host| {
        Trial::test(host.name.clone(), move |_| one::comes_out_as_written(&host).map_err(RunError::fail))
    });
    // This harness never captures output and does not support the option.
    let arguments = std::env::args_os().filter(|argument| argument != "--nocapture");
    Harness::with_args(arguments).discover(hosts.chain(of_all)).main()
}
