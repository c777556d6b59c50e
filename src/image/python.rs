//! Finds the directories where Python looks for packages, without running Python (its `site` module;
//! `Modules/getpath.py`).

use std::path::{Path, PathBuf};

use super::programs;
use super::tree::Tree;
use crate::facts::start::Start;

/// The most package directories to use, and the most entries of a directory list.
const MOST: usize = 64;

struct Sites<'a> {
    tree: &'a Tree<'a>,
    /// `~/.local`, unless the user disabled it.
    user: Option<PathBuf>,
    found: Vec<PathBuf>,
}

/// Returns the directories that exist, with links resolved, in the order in which Python searches them:
/// `PYTHONPATH`; the directories of the Python that runs the command, if known; those of the Pythons in the
/// `PATH`; then the other usual places.
pub(super) fn site_packages(tree: &Tree, start: Start) -> Vec<PathBuf> {
    let environment = start.environment;
    let folder = |name| environment.get(name).filter(|path| path.starts_with('/')).map(PathBuf::from);
    let list = |name| environment.get(name).unwrap_or_default().split(':');
    let no_user = environment.get("PYTHONNOUSERSITE").is_some_and(|value| !value.is_empty());
    let user = folder("HOME").filter(|_| !no_user).map(|home| home.join(".local"));
    let mut sites = Sites { tree, user, found: Vec::new() };
    for entry in list("PYTHONPATH").filter(|entry| entry.starts_with('/')).take(MOST) {
        sites.add(Path::new(entry));
    }
    if let Some(program) = start.command.and_then(|command| python_of(tree, start, command))
        && let (Some(folder), Some(name)) = (program.parent(), program.file_name().and_then(|n| n.to_str()))
    {
        sites.interpreter(folder, name);
    }
    for entry in list("PATH").filter(|entry| entry.starts_with('/')).take(MOST) {
        for name in ["python3", "python"] {
            sites.interpreter(Path::new(entry), name);
        }
    }
    for prefix in ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(folder) {
        sites.prefix(&prefix, "");
    }
    for prefix in ["/opt/conda", "/usr"] {
        sites.prefix(Path::new(prefix), "");
    }
    sites.user("");
    sites.found
}

/// Returns the conda environments whose Python the command finds: the one of the first Python in the `PATH`,
/// and the activated one. Conda records its packages in `conda-meta`.
pub(super) fn conda(tree: &Tree, start: Start) -> Vec<PathBuf> {
    let environment = start.environment;
    let path = environment.get("PATH").unwrap_or_default().split(':');
    let folders = path.filter(|entry| entry.starts_with('/')).take(MOST).map(Path::new);
    let pythons = folders.flat_map(|folder| ["python3", "python"].map(|name| folder.join(name)));
    let first = pythons.filter_map(|python| tree.real(&python)).next();
    let of_first = first.as_deref().and_then(Path::parent).and_then(Path::parent).map(Path::to_owned);
    let active = environment.get("CONDA_PREFIX").filter(|path| path.starts_with('/')).map(PathBuf::from);
    let mut found = Vec::new();
    for prefix in of_first.into_iter().chain(active) {
        if tree.is_there(&prefix.join("conda-meta")) && !found.contains(&prefix) {
            found.push(prefix);
        }
    }
    found
}

/// Returns the Python that runs a command. The command may be a Python itself or a Python script
/// (`torchrun`).
fn python_of(tree: &Tree, start: Start, command: &str) -> Option<PathBuf> {
    let is_python = |path: &Path| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("python"))
    };
    let program = programs::in_path(tree, start, command)?;
    if is_python(&program) {
        return Some(program);
    }
    programs::interpreter(tree, start, &program).filter(|path| is_python(path))
}

impl Sites<'_> {
    fn add(&mut self, folder: &Path) {
        if self.found.len() < MOST
            && let Some(real) = self.tree.real(folder)
            && !self.found.contains(&real)
        {
            self.found.push(real);
        }
    }

    /// Adds the package directories of a Python, given the directory of its program.
    fn interpreter(&mut self, folder: &Path, name: &str) {
        let Some(real) = self.tree.real(&folder.join(name)) else { return };
        // A virtual environment is recognized by the path before links are resolved.
        let noted = [folder.parent(), Some(folder)].into_iter().flatten();
        for environment in noted {
            if let Some(text) = self.tree.text(&environment.join("pyvenv.cfg")) {
                return self.virtual_environment(environment, &text);
            }
        }
        self.installation(&real);
    }

    fn virtual_environment(&mut self, prefix: &Path, text: &str) {
        self.prefix(prefix, "");
        let value = |name| {
            let mut lines = text.lines().filter_map(|line| line.split_once('='));
            lines.find(|(known, _)| known.trim() == name).map(|(_, value)| value.trim())
        };
        if value("include-system-site-packages").is_some_and(|value| value.eq_ignore_ascii_case("true"))
            && let Some(home) = value("home").filter(|home| home.starts_with('/'))
            && let Some(real) = self.tree.real(&Path::new(home).join("python3"))
        {
            self.installation(&real);
        }
    }

    /// Adds the installation of a program `PREFIX/bin/python3.11`, given with links resolved.
    fn installation(&mut self, program: &Path) {
        let name = program.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(prefix) = program.parent().and_then(Path::parent) else { return };
        self.user(name);
        self.prefix(prefix, name);
    }

    fn user(&mut self, version: &str) {
        if let Some(user) = self.user.clone() {
            self.prefix(&user, version);
        }
    }

    /// Adds the directories of an installation, with those of the version (`python3.11`) first.
    fn prefix(&mut self, prefix: &Path, version: &str) {
        // Debian's `/usr/bin/python3` prefers packages that pip installed below `/usr/local`.
        if prefix == Path::new("/usr") {
            self.prefix(Path::new("/usr/local"), version);
        }
        for library in ["lib", "lib64"].map(|name| prefix.join(name)) {
            let names = self.tree.names(&library);
            let pythons = || names.iter().filter(|name| name.starts_with("python3"));
            let first = pythons().filter(|name| *name == version);
            let debian = pythons().filter(|name| *name == "python3");
            let newest_first = pythons().rev();
            for python in first.chain(debian).chain(newest_first) {
                for packages in ["site-packages", "dist-packages"] {
                    self.add(&library.join(python).join(packages));
                }
            }
        }
    }
}
