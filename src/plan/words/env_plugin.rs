//! What a process gets from the env plugin, and why NCCL does not use one.

use crate::image::flavor::Flavor;
use crate::plan::EnvPlugin;
use crate::plan::env_plugin::{ForProcess, NotUsedReason};

impl NotUsedReason {
    fn words(&self, library: Flavor) -> String {
        match self {
            NotUsedReason::Off => "nccl-env-plugin is off".to_owned(),
            NotUsedReason::NothingFilled => format!("rdma-init fills in no variable of {library}'s"),
            NotUsedReason::UnknownRelease => {
                format!("no {library} was found, or the release of one is not known")
            }
            NotUsedReason::Release(version) => {
                format!("a process may load {library} {version}, which asks no plugin")
            }
            NotUsedReason::ReadBefore => format!("{library} reads this variable before it loads a plugin"),
            NotUsedReason::OfUser => "you set or keep NCCL_ENV_PLUGIN".to_owned(),
            NotUsedReason::Foreign(file) => format!("{library} loads {file} by itself"),
            NotUsedReason::Folder => {
                "the state directory is not on a file system of this container's own, or others may write to it"
                    .to_owned()
            }
        }
    }
}

impl ForProcess {
    /// Returns the sentences about a variable, in the order in which they apply.
    pub fn sentences(&self) -> Vec<String> {
        let ForProcess { env_plugin, value, is_of_user, names_devices, late, library } = self;
        if let EnvPlugin::NotUsed(why) = env_plugin {
            return vec![format!(
                "what its environment has, else what {library}'s conf file has: {library} does not ask rdma-init's env plugin, because {}",
                why.words(*library)
            )];
        }
        let own = match (value, is_of_user) {
            (Some(value), true) => format!("{value}, which you set on this node"),
            (Some(value), false) => format!("{value}, which rdma-init decided for this node"),
            (None, _) => format!("none, so {library} decides"),
        };
        let mut sentences = vec![
            format!("{library} asks rdma-init's env plugin"),
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
            ForProcess { env_plugin, value, is_of_user, names_devices, late, library: Flavor::Nccl }
                .sentences()
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
