//! Names of nodes. If several nodes run on one host, or on hosts with the same name, their index
//! distinguishes them: `gpu-07 (node 8)`.

const BEFORE_INDEX: &str = " (node ";

/// Returns the name of a node whose host has the same name as another node's host.
pub(in crate::preflight) fn numbered(host: &str, node: usize) -> String {
    format!("{host}{BEFORE_INDEX}{node})").trim_start().to_owned()
}

/// Returns the host's name in a node's name.
pub(in crate::preflight) fn host(name: &str) -> &str {
    name.split_once(BEFORE_INDEX).map_or(name, |(host, _)| host)
}

/// Returns whether a name ends with the index.
pub(in crate::preflight) fn is_numbered(name: &str) -> bool {
    host(name).len() < name.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_numbered_name_has_its_host() {
        let name = numbered("gpu-07", 8);
        assert_eq!((name.as_str(), host(&name)), ("gpu-07 (node 8)", "gpu-07"));
        assert!(is_numbered(&name) && !is_numbered("gpu-07"));
        assert_eq!(numbered("", 8), "(node 8)", "a node that tells no name");
    }
}
