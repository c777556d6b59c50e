//! Writes variables for sshd(8), which passes its sessions neither its own environment nor, unless configured
//! to, that of a file. They go into `SetEnv` in a file of its configuration, or into `~/.ssh/environment`.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use super::{InPlace, PropagationTarget, amend, block, formats, keys, left_out, lines, written};
use crate::facts::Reader;
use crate::libraries::may_write;

const MAIN: &str = "/etc/ssh/sshd_config";
const FOLDER: &str = "/etc/ssh/sshd_config.d";
const OWN: &str = "rdma-init.conf";

/// In bytes: the longest configuration; sshd starts no session if its configuration has more than 256 KiB
/// (`msg.c`).
const LONGEST: usize = 128 * 1024;

/// The most files to read from the directory.
const MOST: usize = 256;

pub(super) fn write(target: PropagationTarget, variables: &[(&str, &str)], problems: &mut Vec<String>) {
    let why_not = match drop_in(target, variables, problems) {
        Ok(()) => return,
        Err(why) => why,
    };
    // Removes an earlier start's line, even if the new one cannot be written.
    let _ = put(target, "");
    // Only this user may read it, as sshd requires of files in this directory.
    let of_user = target.home.map(|home| home.join(".ssh"));
    let lines = lines(variables, formats::ssh_environment, problems);
    let written = of_user.ok_or_else(|| "this user has no home directory".to_owned()).and_then(|folder| {
        let path = target.root.join(folder.strip_prefix("/").unwrap_or(&folder));
        // If the directory already exists, it keeps the mode that its owner chose.
        let _ = DirBuilder::new().mode(0o700).create(&path);
        amend(&path.join("environment"), 0o600, InPlace::Yes, |old| block::with(old, &lines, keys, may_write))
            .map_err(|kept| format!("{}/environment: {kept}", folder.display()))
    });
    match written {
        Err(why) => problems.extend([why_not, why]),
        Ok(()) if permits_user_environment(target.root) => {}
        Ok(()) => problems.push(format!(
            "{why_not}. The variables are in ~/.ssh/environment of this user instead, which sshd reads only if its configuration says PermitUserEnvironment yes"
        )),
    }
}

/// Writes a file of sshd's configuration, if the configuration includes such files and no other line loses
/// its effect: if there are several `SetEnv` lines, only the first counts.
fn drop_in(
    target: PropagationTarget,
    variables: &[(&str, &str)],
    problems: &mut Vec<String>,
) -> Result<(), String> {
    let root = target.root;
    let main = main_file(root)?;
    let includes: Vec<(String, Vec<String>)> = lines_of(&main)
        .into_iter()
        .filter(|(word, _)| matches!(word.as_str(), "include" | "match"))
        .collect();
    match includes.first() {
        Some((word, files)) if word == "include" && files.iter().any(|file| takes_in(file)) => {}
        _ => return Err(format!("{MAIN} does not begin with Include {FOLDER}/*.conf")),
    }
    if includes.iter().filter(|(word, _)| word == "include").count() > 1 {
        return Err(format!("{MAIN} includes other files, too, which may have a SetEnv"));
    }
    for (path, text) in texts(root, own_files(root)?).chain([(MAIN.to_owned(), main)]) {
        let words = lines_of(&text);
        if words.iter().any(|(word, _)| word == "setenv") {
            return Err(format!("{path} has its own SetEnv, which rdma-init's would replace"));
        }
    }
    let (pairs, unfit) = written(variables, formats::sshd);
    let line = if pairs.is_empty() { String::new() } else { format!("SetEnv{}\n", pairs.concat()) };
    if line.len() > LONGEST {
        return Err(format!("{} bytes of variables are too many for sshd's configuration", line.len()));
    }
    put(target, &line)?;
    problems.extend(unfit.iter().map(left_out));
    Ok(())
}

/// # Errors
/// Returns why the file cannot be read.
fn main_file(root: &Path) -> Result<String, String> {
    let reader = Reader::new(root);
    if let Some(text) = reader.text(MAIN) {
        return Ok(text);
    }
    Err(match reader.into_unreadable().first() {
        None => format!("there is no {MAIN} (no sshd in the image?)"),
        Some(failed) => format!("cannot read {MAIN}: {}", failed.error),
    })
}

/// Writes the line into rdma-init's own file; an empty line removes it.
fn put(target: PropagationTarget, line: &str) -> Result<(), String> {
    let path = target.root.join(FOLDER.trim_start_matches('/')).join(OWN);
    amend(&path, 0o644, InPlace::Yes, |old| block::with(old, line, |_| Vec::new(), may_write))
        .map_err(|kept| format!("{FOLDER}/{OWN}: {kept}"))
}

/// Returns the paths of the other files in the directory.
///
/// # Errors
/// Returns why some of the files cannot be read.
fn own_files(root: &Path) -> Result<Vec<String>, String> {
    let entries = fs::read_dir(root.join(FOLDER.trim_start_matches('/'))).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let names = names.filter(|name| name.ends_with(".conf") && name != OWN);
    let paths: Vec<String> = names.take(MOST + 1).map(|name| format!("{FOLDER}/{name}")).collect();
    match paths.len() > MOST {
        true => Err(format!("{FOLDER} has more than {MOST} files, and rdma-init does not read all of them")),
        false => Ok(paths),
    }
}

/// Returns the files of sshd's configuration in order, skipping unreadable ones.
fn texts(root: &Path, paths: Vec<String>) -> impl Iterator<Item = (String, String)> {
    paths.into_iter().filter_map(move |path| configuration(root, &path).map(|text| (path, text)))
}

/// Returns whether sshd passes on the variables in `~/.ssh/environment`.
fn permits_user_environment(root: &Path) -> bool {
    let own = texts(root, own_files(root).unwrap_or_default()).map(|(_, text)| text);
    let mut said = own.chain(configuration(root, MAIN)).flat_map(|text| {
        // Below a `Match`, the keyword does not apply.
        let lines = lines_of(&text).into_iter().take_while(|(word, _)| word != "match");
        lines.filter(|(word, _)| word == "permituserenvironment").collect::<Vec<_>>()
    });
    // The first line counts: yes, no, or a list of patterns.
    let Some((_, values)) = said.next() else { return false };
    let patterns = values.first().map(String::as_str).unwrap_or_default().split(',');
    patterns.into_iter().any(|pattern| ["yes", "*", "NCCL_*"].contains(&pattern))
}

/// Returns whether an `Include` with this pattern includes the directory's files. A pattern without a
/// directory is relative to `/etc/ssh`.
fn takes_in(pattern: &str) -> bool {
    let below = pattern.strip_prefix("/etc/ssh/").unwrap_or(pattern);
    matches!(below, "sshd_config.d/*.conf" | "sshd_config.d/*")
}

/// Returns each line's keyword in lower case, because case does not matter, and its arguments.
fn lines_of(text: &str) -> Vec<(String, Vec<String>)> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let words = lines.map(|line| {
        let end = line.find(|c: char| c.is_whitespace() || c == '=').unwrap_or(line.len());
        let plain = |word: &str| word.trim_matches('"').to_owned();
        let rest = line[end..].trim_start_matches(|c: char| c.is_whitespace() || c == '=');
        // A comment may follow.
        let rest = rest.split_whitespace().take_while(|word| !word.starts_with('#'));
        (plain(&line[..end]).to_ascii_lowercase(), rest.map(plain).collect())
    });
    words.collect()
}

fn configuration(root: &Path, path: &str) -> Option<String> {
    Reader::new(root).text_if_readable(path)
}

#[cfg(test)]
mod tests {
    use super::super::tests::VARIABLES;
    use super::*;

    struct Machine(tempfile::TempDir);

    impl Machine {
        fn new(main: &str) -> Machine {
            let machine = Machine(tempfile::tempdir().unwrap());
            fs::create_dir_all(machine.0.path().join("etc/ssh/sshd_config.d")).unwrap();
            fs::create_dir(machine.0.path().join("root")).unwrap();
            fs::write(machine.0.path().join("etc/ssh/sshd_config"), main).unwrap();
            machine
        }

        fn written(&self) -> Vec<String> {
            let mut problems = Vec::new();
            let target = PropagationTarget { root: self.0.path(), home: Some(Path::new("/root")) };
            write(target, &VARIABLES, &mut problems);
            problems
        }

        fn read(&self, path: &str) -> Option<String> {
            fs::read_to_string(self.0.path().join(path)).ok()
        }
    }

    const INCLUDES: &str = "# x\nInclude /etc/ssh/sshd_config.d/*.conf\nUsePAM yes\n";

    #[test]
    fn it_is_a_file_of_the_configuration() {
        let machine = Machine::new(INCLUDES);
        for _ in 0..2 {
            assert_eq!(machine.written(), Vec::<String>::new());
            let own = machine.read("etc/ssh/sshd_config.d/rdma-init.conf").unwrap();
            let line = "\nSetEnv \"NCCL_IB_HCA==mlx5_1,mlx5_2\" \"NCCL_IB_TC=106\"\n";
            assert_eq!(own.matches(line).count(), 1, "{own}");
            assert_eq!(machine.read("root/.ssh/environment"), None);
        }
    }

    #[test]
    fn the_message_says_why_sshd_config_cannot_be_read() {
        let machine = Machine::new("");
        let main = machine.0.path().join("etc/ssh/sshd_config");
        fs::remove_file(&main).unwrap();
        let said = machine.written().remove(0);
        assert!(said.starts_with("there is no /etc/ssh/sshd_config (no sshd in the image?). "), "{said}");
        nix::unistd::mkfifo(&main, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let said = machine.written().remove(0);
        assert!(
            said.starts_with(
                "cannot read /etc/ssh/sshd_config: it is not a regular file. The variables are in"
            ),
            "{said}"
        );
    }

    #[test]
    fn a_configuration_that_would_not_take_it_in_is_seen() {
        for main in [
            "Match User bob\nInclude /etc/ssh/sshd_config.d/*.conf\n",
            "Include /etc/ssh/sshd_config.d/50-*.conf\n",
            "Include /opt/sshd_config.d/*.conf\n",
            "Include /etc/ssh/other.conf\nInclude /etc/ssh/sshd_config.d/*.conf\n",
            "Include /etc/ssh/sshd_config.d/*.conf\n\"SetEnv\" Z=1\n",
        ] {
            let machine = Machine::new(main);
            assert_eq!(machine.written().len(), 1, "{main}");
            assert_eq!(machine.read("etc/ssh/sshd_config.d/rdma-init.conf"), None, "{main}");
        }
        let machine = Machine::new("include \"sshd_config.d/*\" # x\n");
        assert_eq!(machine.written(), Vec::<String>::new());
    }

    #[test]
    fn the_users_own_sshd_settings_are_kept() {
        let other = Machine::new("UsePAM yes\n#Include /etc/ssh/sshd_config.d/*.conf\n");
        let second = Machine::new(INCLUDES);
        fs::write(second.0.path().join("etc/ssh/sshd_config.d/a.conf"), "\tsetenv=LANG=C\n").unwrap();
        for (machine, why) in
            [(&other, "does not begin with Include"), (&second, "a.conf has its own SetEnv")]
        {
            let problems = machine.written();
            assert!(
                problems[0].contains(why) && problems[0].contains("PermitUserEnvironment yes"),
                "{problems:?}"
            );
            let environment = machine.read("root/.ssh/environment").unwrap();
            assert!(environment.contains("\nNCCL_IB_HCA==mlx5_1,mlx5_2\nNCCL_IB_TC=106\n"), "{environment}");
            assert_eq!(machine.read("etc/ssh/sshd_config.d/rdma-init.conf"), None);
        }
        // A file from an earlier start is removed if there is a reason not to write one.
        let many = Machine::new(INCLUDES);
        for number in 0..=MOST {
            fs::write(many.0.path().join(format!("etc/ssh/sshd_config.d/{number}.conf")), "").unwrap();
        }
        assert!(many.written()[0].contains("more than 256 files"));
        let later = Machine::new(INCLUDES);
        assert_eq!(later.written(), Vec::<String>::new());
        fs::write(later.0.path().join("etc/ssh/sshd_config.d/a.conf"), "SetEnv LANG=C\n").unwrap();
        assert_eq!(later.written().len(), 1);
        assert_eq!(later.read("etc/ssh/sshd_config.d/rdma-init.conf").as_deref(), Some(""));
        let main = "PermitUserEnvironment NCCL_*\nPermitUserEnvironment no\n";
        assert_eq!(Machine::new(main).written(), Vec::<String>::new());
        for wrong in ["no # x", "\"no\"", "NO", "LANG,LC_*"] {
            assert_eq!(
                Machine::new(&format!("PermitUserEnvironment {wrong}\n")).written().len(),
                1,
                "{wrong}"
            );
        }
        assert_eq!(Machine::new("Match User a\nPermitUserEnvironment yes\n").written().len(), 1);
    }
}
