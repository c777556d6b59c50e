//! Writes the variables for login shells, for processes that sshd starts, and for PAM.

mod sshd;

use std::path::Path;

use super::amend::{InPlace, amend};
use crate::block;
use crate::libraries::may_write;
use crate::report::formats::{self, Unfit, Writer, written};
use crate::state::Propagate;

const PROFILE: &str = "/etc/profile.d/rdma-init.sh";
const PAM: &str = "/etc/environment";

/// Where to write, and for which user.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PropagationTarget<'a> {
    pub root: &'a Path,
    /// The user's home directory.
    pub home: Option<&'a Path>,
}

/// Puts the variables in one place and adds each failure to the list.
type Put = fn(PropagationTarget, &[(&str, &str)], &mut Vec<String>);

/// Puts the variables into each requested place, replacing those of an earlier start. Returns the failures,
/// each as a sentence without its full stop.
#[must_use]
pub(crate) fn write(target: PropagationTarget, wanted: Propagate, variables: &[(&str, &str)]) -> Vec<String> {
    let places: [(bool, &str, Put); 3] = [
        (wanted.profile, "login shells do not get all variables (propagate, profile)", for_shells),
        (wanted.environment, "PAM does not provide all variables (propagate, environment)", for_pam),
        (wanted.ssh, "processes that sshd starts do not get all variables (propagate, ssh)", sshd::write),
    ];
    let mut told = Vec::new();
    for (_, what, put) in places.into_iter().filter(|(is_wanted, ..)| *is_wanted) {
        let mut problems = Vec::new();
        put(target, variables, &mut problems);
        // If there are no variables, none is missing.
        told.extend(problems.iter().filter(|_| !variables.is_empty()).map(|why| format!("{what}: {why}")));
    }
    told
}

fn for_shells(target: PropagationTarget, variables: &[(&str, &str)], problems: &mut Vec<String>) {
    let lines = lines(variables, formats::profile, problems);
    problems.extend(put(target, PROFILE, &lines, |_| Vec::new()));
}

fn for_pam(target: PropagationTarget, variables: &[(&str, &str)], problems: &mut Vec<String>) {
    let lines = lines(variables, formats::pam, problems);
    problems.extend(put(target, PAM, &lines, keys));
}

/// Returns the variables that these lines set.
fn keys(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim_start).filter(|line| !line.starts_with('#'));
    let plain = lines.map(|line| line.strip_prefix("export ").unwrap_or(line).trim_start());
    plain.filter_map(|line| Some(line.split_once('=')?.0.trim_end().to_owned())).collect()
}

/// Returns a line for each variable that the format can represent.
fn lines(variables: &[(&str, &str)], writer: Writer, problems: &mut Vec<String>) -> String {
    let (lines, unfit) = written(variables, writer);
    problems.extend(unfit.iter().map(left_out));
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn left_out(unfit: &Unfit) -> String {
    format!("this format cannot hold {unfit}")
}

fn put(target: PropagationTarget, path: &str, lines: &str, keys: fn(&str) -> Vec<String>) -> Option<String> {
    let file = target.root.join(path.trim_start_matches('/'));
    amend(&file, 0o644, InPlace::Yes, |old| block::with(old, lines, keys, may_write))
        .err()
        .map(|kept| format!("{path}: {kept}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    pub(super) const VARIABLES: [(&str, &str); 2] =
        [("NCCL_IB_HCA", "=mlx5_1,mlx5_2"), ("NCCL_IB_TC", "106")];

    #[test]
    fn shells_and_pam_get_the_variables_unless_the_user_set_others() {
        let root = tempfile::tempdir().unwrap();
        let target = PropagationTarget { root: root.path(), home: None };
        let read = |path: &str| fs::read_to_string(root.path().join(path.trim_start_matches('/'))).unwrap();
        let wanted = Propagate { profile: true, environment: true, ssh: false };
        fs::create_dir(root.path().join("etc")).unwrap();
        let problems = write(target, wanted, &VARIABLES);
        assert!(
            matches!(&problems[..], [one] if one.contains("profile): /etc/profile.d/rdma-init.sh: ")),
            "{problems:?}"
        );
        fs::create_dir(root.path().join("etc/profile.d")).unwrap();
        fs::write(root.path().join("etc/environment"), "# x\nexport NCCL_IB_TC=7").unwrap();
        for _ in 0..2 {
            assert_eq!(write(target, wanted, &VARIABLES), Vec::<String>::new());
            let environment = read(PAM);
            assert!(environment.starts_with("# x\nexport NCCL_IB_TC=7\n# rdma-init: begin"), "{environment}");
            assert_eq!(environment.matches("NCCL_IB_HCA='=mlx5_1,mlx5_2'\n").count(), 1, "{environment}");
            assert_eq!(environment.matches("NCCL_IB_TC").count(), 1, "{environment}");
        }
        let script = format!(
            ". {}; echo \"$NCCL_IB_HCA $NCCL_IB_TC\"",
            root.path().join("etc/profile.d/rdma-init.sh").display()
        );
        let shell = std::process::Command::new("sh").args(["-c", &script]).env("NCCL_IB_TC", "").output();
        assert_eq!(String::from_utf8(shell.unwrap().stdout).unwrap(), "=mlx5_1,mlx5_2 \n");
        // A start without variables removes those that an earlier start wrote.
        assert_eq!(write(target, wanted, &[]), Vec::<String>::new());
        assert_eq!((read(PROFILE).as_str(), read(PAM).as_str()), ("", "# x\nexport NCCL_IB_TC=7\n"));
    }

    #[test]
    fn values_that_the_format_cannot_hold_are_reported() {
        let mut problems = Vec::new();
        let variables = [("A", "a\nb"), ("B", "a#b"), ("NCCL_A}$(id)", "1"), ("C", "it's")];
        assert_eq!(lines(&variables, formats::pam, &mut problems), "");
        let shown = "this format cannot hold A (its value has a line break)";
        assert!(problems.len() == 4 && problems[0] == shown, "{problems:?}");
    }
}
