//! What a process gets from the env plugin, and why NCCL asks none.

use std::fmt;

use super::said_of_rccl;
use crate::plan::EnvPlugin;
use crate::plan::env_plugin::{ForProcess, NotUsedReason};

impl fmt::Display for NotUsedReason {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            NotUsedReason::Off => f.write_str("nccl-env-plugin is off"),
            NotUsedReason::NothingFilled => f.write_str("rdma-init fills in no variable of NCCL's"),
            NotUsedReason::UnknownRelease => {
                f.write_str("no NCCL was found, or the release of one is not known")
            }
            NotUsedReason::Release(version) => {
                write!(f, "a process may load NCCL {version}, which asks no plugin")
            }
            NotUsedReason::OfUser => f.write_str("you set or keep NCCL_ENV_PLUGIN"),
            NotUsedReason::Foreign(file) => write!(f, "NCCL loads {file} by itself"),
            NotUsedReason::Folder => f.write_str(
                "the state folder is not on a file system of this container's own, or others may write to it",
            ),
        }
    }
}

impl ForProcess {
    /// The sentences about a variable, in the order in which they apply.
    pub fn sentences(&self) -> Vec<String> {
        let sentences = self.of_nccl();
        match self.rccl {
            true => sentences.iter().map(|sentence| said_of_rccl(sentence)).collect(),
            false => sentences,
        }
    }

    fn of_nccl(&self) -> Vec<String> {
        let ForProcess { env_plugin, value, is_of_user, names_devices, late, rccl: _ } = self;
        if let EnvPlugin::NotUsed(why) = env_plugin {
            return vec![format!(
                "what its environment has, else what NCCL's conf file has: NCCL does not ask rdma-init's env plugin, because {why}"
            )];
        }
        let own = match (value, is_of_user) {
            (Some(value), true) => format!("{value}, which you set on this node"),
            (Some(value), false) => format!("{value}, which rdma-init decided for this node"),
            (None, _) => "none, so NCCL decides".to_owned(),
        };
        let mut sentences = vec![
            "NCCL asks rdma-init's env plugin".to_owned(),
            format!("a process without a value: {own}{}", also(late)),
            "a process with a value that another node filled in, and a tool copied: the same".to_owned(),
        ];
        if *names_devices && value.is_some() && !is_of_user {
            sentences
                .push("a process with a list of devices that this node does not have: the same".to_owned());
        }
        sentences.push("a process with any other value: its own".to_owned());
        sentences
    }
}

fn also(late: &[String]) -> String {
    match late {
        [] => String::new(),
        [one] => format!("; also {one} if its port is ACTIVE by then"),
        several => format!("; also {} if their ports are ACTIVE by then", several.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_foreign_devices_gives_way_only_to_what_rdma_init_has_decided() {
        let sentences = |value: Option<&str>, is_of_user, names_devices| {
            let value = value.map(str::to_owned);
            let env_plugin = EnvPlugin::Used;
            let late = Vec::new();
            ForProcess { env_plugin, value, is_of_user, names_devices, late, rccl: false }.sentences()
        };
        let decided = sentences(Some("=mlx5_1"), false, true);
        assert_eq!(decided[1], "a process without a value: =mlx5_1, which rdma-init decided for this node");
        let foreign = "a process with a list of devices that this node does not have: the same";
        assert!(decided.iter().any(|sentence| sentence == foreign), "{decided:?}");
        assert_eq!(decided.last().unwrap(), "a process with any other value: its own");
        for others in [
            sentences(Some("=mlx5_1"), true, true),
            sentences(None, false, true),
            sentences(Some("106"), false, false),
        ] {
            assert_eq!(others.len(), 4, "{others:?}");
        }
    }
}
