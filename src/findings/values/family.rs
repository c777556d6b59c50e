//! `NCCL_SOCKET_FAMILY` and `NCCL_IB_ADDR_FAMILY`, which accept only two words.

use super::{Subject, conf_file, shown};
use crate::finding::{Finding, Id};
use crate::libraries::nccl::gid;

pub(super) fn findings(subject: &Subject) -> Vec<Finding> {
    let of_sockets = subject.user.get("NCCL_SOCKET_FAMILY").filter(|setting| !setting.value.is_empty());
    [of_sockets, subject.of_verbs(gid::FAMILY)]
        .into_iter()
        .flatten()
        .filter(|setting| !["AF_INET", "AF_INET6"].contains(&setting.value.as_str()))
        .filter(|setting| !conf_file::is_cause(setting))
        .map(|setting| {
            Finding::warning(
                Id::AddressFamily,
                format!(
                    "{} is ignored by {}, which knows only AF_INET and AF_INET6, in capitals.",
                    shown(setting),
                    subject.library()
                ),
            )
            .about_variables([&setting.variable])
            .with_fix(format!("Write {}=AF_INET6, or AF_INET, or remove it.", setting.variable))
        })
        .collect()
}
