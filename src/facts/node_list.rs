//! vLLM's list of the variables that the driver does not copy to Ray's workers (`vllm/ray/ray_env.py`,
//! earlier `vllm/executor/ray_distributed_executor.py`; since 0.8.0). vLLM copies all other variables to
//! them, including values for another node.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::environment::Environment;
use super::home::Homes;
use super::reader::Reader;
use crate::block::list;
use crate::image::Image;

/// The file in vLLM's config directory.
const FILE: &str = "ray_non_carry_over_env_vars.json";

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeList {
    /// The path of the list. If vLLM's directory is relative to the working directory, this path is relative,
    /// and the file was not read, because it is a different file for each process.
    pub path: String,
    pub holds: Holds,
    /// The names in the list, including those from an earlier start of rdma-init; no more than [`MOST`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
}

/// The most names to keep.
const MOST: usize = 256;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Holds {
    /// The file does not exist.
    #[default]
    Nothing,
    List,
    /// The content is not a JSON list.
    NoList,
    /// A value that only a later version of rdma-init knows.
    #[serde(other)]
    Other,
}

/// Reads the list if the image has both Ray and vLLM.
pub(crate) fn read(
    reader: &Reader,
    environment: &Environment,
    homes: Option<&Homes>,
    image: &Image,
) -> Option<NodeList> {
    let has = |name| image.packages(name).next().is_some();
    if !(has("ray") && has("vllm")) {
        return None;
    }
    let path = Path::new(&folder(environment, homes)?).join(FILE).to_str()?.to_owned();
    if !path.starts_with('/') {
        return Some(NodeList { path, ..NodeList::default() });
    }
    let (holds, names) = match reader.exact_text_unless(&path, &[]) {
        None => (Holds::Nothing, Vec::new()),
        Some(text) => match list::names(&text) {
            Err(_) => (Holds::NoList, Vec::new()),
            Ok(mut names) => {
                names.truncate(MOST);
                (Holds::List, names)
            }
        },
    };
    Some(NodeList { path, holds, names })
}

/// Returns vLLM's config directory (`vllm/envs.py`, `VLLM_CONFIG_ROOT`).
fn folder(environment: &Environment, homes: Option<&Homes>) -> Option<String> {
    let home = homes.and_then(|homes| homes.variable.as_deref().or(homes.database.as_deref()));
    let folder = match environment.get("VLLM_CONFIG_ROOT") {
        Some(folder) => folder.to_owned(),
        None => match environment.get("XDG_CONFIG_HOME") {
            Some(folder) => format!("{folder}/vllm"),
            None => "~/.config/vllm".to_owned(),
        },
    };
    Some(match folder.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => {
            format!("{}{rest}", home?.trim_end_matches('/'))
        }
        _ => folder,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_the_one_that_vllm_takes() {
        let homes = Homes { variable: Some("/root".to_owned()), database: Some("/other".to_owned()) };
        let other = ("XDG_CONFIG_HOME", "/c");
        for (environment, wanted) in [
            (Environment::default(), Some("/root/.config/vllm")),
            (Environment::from([other]), Some("/c/vllm")),
            (Environment::from([other, ("VLLM_CONFIG_ROOT", "/v/")]), Some("/v/")),
            (Environment::from([("VLLM_CONFIG_ROOT", "~/v")]), Some("/root/v")),
            (Environment::from([("VLLM_CONFIG_ROOT", "v")]), Some("v")),
            (Environment::from([("VLLM_CONFIG_ROOT", "")]), Some("")),
        ] {
            assert_eq!(folder(&environment, Some(&homes)).as_deref(), wanted, "{environment:?}");
        }
        assert_eq!(folder(&Environment::default(), None), None);
        let homes = Homes { variable: Some("/".to_owned()), database: None };
        assert_eq!(folder(&Environment::default(), Some(&homes)).as_deref(), Some("/.config/vllm"));
    }
}
