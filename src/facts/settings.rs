//! The variables that the user has set, wherever NCCL would find them.

use std::fmt;
use std::ops::Not;
use std::path::PathBuf;

use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use super::environment::{Environment, is_of_name, is_variable_name};
use super::reader::Reader;
use super::secret::{is_secret, shown};
use super::start::Start;
use crate::block;
use crate::finding::Source;
use crate::text::shortened;

/// Variables in order of precedence: if two have the same name, the first one counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Settings(pub Vec<UserSetting>);

/// A variable that the user has set. It counts even with an empty value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserSetting {
    pub variable: String,
    pub value: String,
    pub origin: Source,
    /// Whether the value comes from a file that is not world-readable.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub private: bool,
    /// Whether rdma-init's block stands above the line and has the variable, too. NCCL takes the first line, until a
    /// start moves the block to the end.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub below_block: bool,
}

impl UserSetting {
    /// Makes a setting. Does not even store a value that may be a secret.
    pub fn new(variable: &str, value: &str, origin: Source) -> UserSetting {
        UserSetting {
            variable: variable.to_owned(),
            value: shown(variable, value).to_owned(),
            origin,
            private: false,
            below_block: false,
        }
    }
}

/// Writes the setting with its source, such as `GLOO_SOCKET_IFNAME=^lo (environment)`.
impl fmt::Display for UserSetting {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}={} ({})", self.variable, shortened(&self.value), self.origin)
    }
}

/// A line of a conf file that names a variable that rdma-init handles, but sets no variable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfLine {
    pub origin: Source,
    pub text: String,
    /// Whether the line comes from a file that is not world-readable.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub private: bool,
}

impl Settings {
    pub fn get(&self, variable: &str) -> Option<&UserSetting> {
        self.0.iter().find(|setting| {
            #[cfg(test)]
            super::steps::step();
            setting.variable == variable
        })
    }

    /// Returns the settings that rdma-init did not fill in itself.
    pub fn of_user(&self) -> Settings {
        Settings(self.0.iter().filter(|setting| setting.origin != Source::AtStart).cloned().collect())
    }

    /// Returns a text about these settings with the values from files that are not world-readable removed.
    pub fn without_private_values(&self, text: &str) -> String {
        let private = self.0.iter().filter(|setting| setting.private && !setting.value.is_empty());
        private.fold(text.to_owned(), |text, UserSetting { variable, value, .. }| {
            let text = text.replace(&format!("{variable}={value}"), variable);
            // A number stays in the text: it may also be the number of an entry or a line.
            if value.parse::<i64>().is_ok() { text } else { without_word(&text, value) }
        })
    }

    /// Returns these settings with `over` before them.
    pub fn under(mut self, over: Settings) -> Settings {
        let mut all = over.0;
        all.append(&mut self.0);
        Settings(all)
    }
}

/// Returns the text with `...` in place of each occurrence of this whole word.
fn without_word(text: &str, word: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(word) {
        let (before, found) = rest.split_at(at);
        let after = &found[word.len()..];
        let is_whole = !before.ends_with(is_of_name) && !after.starts_with(is_of_name);
        kept.push_str(before);
        kept.push_str(if is_whole { "..." } else { word });
        rest = after;
    }
    kept + rest
}

/// Returns whether the variable with this name always matters.
fn always_matters(name: &str) -> bool {
    const NAMES: &[&str] = &[
        "CUDA_LAUNCH_BLOCKING",
        "FI_PROVIDER",
        "GLOO_SOCKET_IFNAME",
        "NVSHMEM_HCA_LIST",
        "NVSHMEM_IB_GID_INDEX",
        "TORCH_DISTRIBUTED_DEBUG",
        "TORCH_FR_BUFFER_SIZE",
        "TORCH_NCCL_BLOCKING_WAIT",
        "TORCH_NCCL_TRACE_BUFFER_SIZE",
        "TP_SOCKET_IFNAME",
        "UCX_NET_DEVICES",
    ];
    const PREFIXES: &[&str] = &["NCCL_", "RCCL_", "FI_EFA_", "RDMAV_"];
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// The settings from the environment and the conf files.
pub struct ConfFiles {
    pub settings: Settings,
    /// Lines that name a variable that rdma-init handles, but set no variable.
    pub odd: Vec<ConfLine>,
    /// The conf files that could be read.
    pub there: Vec<String>,
}

/// What a line of a conf file sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// The number of the line, counted from 1.
    pub number: usize,
    pub name: String,
    pub value: String,
}

/// How to parse a conf file as NCCL does; the model of NCCL provides the function.
pub type Parse = fn(&str) -> Vec<Assignment>;

/// The most lines of a conf file that set variables that rdma-init handles; NCCL has about two hundred
/// variables.
const MOST_SETTINGS: usize = 1024;

/// The most lines of a conf file that name a variable that rdma-init handles, but set no variable.
const MOST_ODD: usize = 64;

/// Reads the environment, then the conf files in NCCL's order (`src/misc/param.cc`).
pub fn read(
    reader: &Reader,
    start: Start,
    // The home directory in the user database, if it is known.
    database: Option<&str>,
    parse: Parse,
    may_write: block::MayWrite,
    also: impl Fn(&str) -> bool,
) -> ConfFiles {
    let environment = start.environment;
    let matters = |name: &str| always_matters(name) || also(name);
    let mut settings: Vec<UserSetting> = environment
        .iter()
        // In an image, this variable is only the version of the image's NCCL.
        .filter(|(name, _)| *name != "NCCL_VERSION" && matters(name))
        .map(|(name, value)| UserSetting::new(name, value, origin(start, name, value)))
        .collect();
    let mut odd = Vec::new();
    let mut there = Vec::new();
    for file in conf_files(environment, database) {
        // `/dev/null` has the same effect as no file, and is the usual way to ask for none.
        if file == "/dev/null" {
            there.push(file);
            continue;
        }
        // NCCL cannot read a file that this user may not read.
        let path = start.path(&file);
        let read = |path: &PathBuf| reader.exact_text_unless(path, &[Errno::EACCES]);
        let Some((path, text)) = path.and_then(|path| read(&path).map(|text| (path, text))) else {
            continue;
        };
        let private = !reader.is_for_everybody(&path);
        // Lines from an earlier start of rdma-init are not the user's settings.
        let ours = block::numbered(&text, may_write);
        let below_block = |name: &str, number| {
            ours.iter().any(|(above, line)| *above < number && block::key_of(line) == name)
        };
        let text = block::hidden(&text, may_write);
        // Names that are not NCCL's may have any content in the file, even secrets.
        let lines = parse(&text).into_iter();
        let mut wanted = lines.filter(|line| is_variable_name(&line.name) && matters(&line.name));
        settings.extend(wanted.by_ref().take(MOST_SETTINGS).map(|line| UserSetting {
            private,
            below_block: below_block(&line.name, line.number),
            ..UserSetting::new(
                &line.name,
                &line.value,
                Source::ConfFile { path: file.clone(), line: line.number },
            )
        }));
        if wanted.next().is_some() {
            let why = format!("it sets more than {MOST_SETTINGS} variables; rdma-init ignores the rest");
            reader.remember(&reader.path(&path), why);
        }
        odd.extend(odd_lines(&file, &text).take(MOST_ODD).map(|line| ConfLine { private, ..line }));
        there.push(file);
    }
    ConfFiles { settings: Settings(settings), odd, there }
}

/// Returns where a variable in the environment comes from.
fn origin(start: Start, name: &str, value: &str) -> Source {
    let is_ours = start.filled.iter().any(|filled| filled.variable == name && filled.value == value);
    if is_ours { Source::AtStart } else { Source::Environment }
}

/// Returns the line up to the first value or word, because the rest may be a secret.
fn without_rest(line: &str) -> String {
    let key = line.find('=').map_or(0, |equals| equals + 1);
    let wanted = if key == 0 { 2 } else { 1 };
    let mut kept = line[..key].to_owned();
    let mut words = 0;
    for word in line[key..].split_inclusive(char::is_whitespace) {
        words += usize::from(!word.trim().is_empty());
        if words > wanted {
            return format!("{} ...", kept.trim_end());
        }
        kept.push_str(word);
    }
    kept
}

/// Returns the text up to the first name that may belong to a secret.
pub(crate) fn without_secret(text: String) -> String {
    let mut start = 0;
    for name in text.split(|c| !is_of_name(c)) {
        let end = start + name.len();
        if is_secret(name) && end < text.len() {
            return format!("{} ...", &text[..end]);
        }
        // Skips the one character after the name, which cannot be part of a name, whatever its length in
        // bytes.
        start = end + text[end..].chars().next().map_or(0, char::len_utf8);
    }
    text
}

/// Returns the lines that seem to set a variable that rdma-init handles. Ignores everything else in the file.
pub(crate) fn odd_lines(file: &str, text: &str) -> impl Iterator<Item = ConfLine> {
    let is_odd = move |line: &str| {
        let start = line.split('=').next().unwrap_or_default();
        let sets_it = is_variable_name(start) && line.contains('=');
        !line.trim_start().starts_with('#') && !sets_it && start.split(|c| !is_of_name(c)).any(always_matters)
    };
    text.lines().enumerate().filter(move |(_, line)| is_odd(line)).map(move |(index, line)| ConfLine {
        origin: Source::ConfFile { path: file.to_owned(), line: index + 1 },
        text: without_secret(without_rest(line)),
        private: false,
    })
}

/// Returns all conf files that some release of NCCL or RCCL reads; the plan decides which of them counts.
pub(crate) fn conf_files(environment: &Environment, database: Option<&str>) -> Vec<String> {
    let own = environment.get("NCCL_CONF_FILE").filter(|file| !file.is_empty()).map(str::to_owned);
    let homes = environment.get("HOME").into_iter().chain(database);
    let homes: Vec<&str> = homes.collect();
    let of = |name: &str| {
        let homes = homes.iter().map(|home| format!("{home}/.{name}"));
        homes.chain([format!("/etc/{name}")]).collect::<Vec<String>>()
    };
    let mut files: Vec<String> = Vec::new();
    for file in own.into_iter().chain(of("nccl.conf")).chain(of("rccl.conf")) {
        if !files.contains(&file) {
            files.push(file);
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::fake_root::FakeRoot;
    use crate::libraries::nccl::conf;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn read_below(root: &FakeRoot, environment: &Environment, also: fn(&str) -> bool) -> ConfFiles {
        read(&root.reader(), Start::from(environment), None, conf::assignments, always_matters, also)
    }

    #[test]
    fn only_the_malformed_part_of_a_line_is_kept() {
        for (line, kept) in [
            ("export NCCL_DEBUG=INFO WANDB_API_KEY=secret", "export NCCL_DEBUG=INFO ..."),
            ("NCCL_IB_TC = 106", "NCCL_IB_TC = 106"),
            ("NCCL_IB_TC = 106 secret", "NCCL_IB_TC = 106 ..."),
            ("NCCL_CROSS_NIC 1", "NCCL_CROSS_NIC 1"),
            ("NCCL_CROSS_NIC 1  secret", "NCCL_CROSS_NIC 1 ..."),
            ("NCCL_DEBUG=", "NCCL_DEBUG="),
            ("\u{a0}NCCL_DEBUG=é secret", "\u{a0}NCCL_DEBUG=é ..."),
            ("export NCCL_X_TOKEN=hunter2", "export NCCL_X_TOKEN ..."),
            ("NCCL_X_TOKEN hunter2", "NCCL_X_TOKEN ..."),
            ("é NCCL_X_TOKEN:hunter2", "é NCCL_X_TOKEN ..."),
            ("NCCL_X_TOKEN", "NCCL_X_TOKEN"),
        ] {
            assert_eq!(without_secret(without_rest(line)), kept);
        }
    }

    #[test]
    fn a_name_is_one_everywhere() {
        for name in ["NCCL_IB_HCA", "_", "a1"] {
            assert!(is_variable_name(name), "{name}");
        }
        for name in ["", "1A", "A}$(id)", "NCCL_foo.bar", "A=B", "A B", "A\nPermitRootLogin yes", "É", "A\0"]
        {
            assert!(!is_variable_name(name), "{name:?}");
        }
    }

    #[test]
    fn settings_that_not_all_users_may_read_are_private() {
        let root = FakeRoot::new();
        let mode = |path: &str, mode| {
            fs::set_permissions(root.path(path), PermissionsExt::from_mode(mode)).unwrap();
        };
        root.file("root/.nccl.conf", "NCCL_IB_TC=106\nNCCL_X_TOKEN=hunter2\n NCCL_IB_SL=1\n");
        let environment = Environment::from([("HOME", "/root"), ("NCCL_API_KEY", "hunter2")]);
        let read = || read_below(&root, &environment, |_| false);
        for (folder, file, private) in [(0o755, 0o600, true), (0o700, 0o644, true), (0o755, 0o644, false)] {
            mode("root", folder);
            mode("root/.nccl.conf", file);
            let ConfFiles { settings, odd, .. } = read();
            let of_file = settings.0.iter().filter(|setting| setting.origin != Source::Environment);
            assert!(
                of_file.clone().count() == 2 && of_file.clone().all(|setting| setting.private == private)
            );
            assert!(odd.len() == 1 && odd[0].private == private);
            assert!(!format!("{settings:?}").contains("hunter2"));
        }
    }

    #[test]
    fn the_number_of_settings_that_are_kept_is_limited() {
        let root = FakeRoot::new();
        let lines = |count: usize, end: &str| -> String {
            (0..count).map(|number| format!("NCCL_{number}{end}\n")).collect()
        };
        let read = |text: String| {
            root.file("etc/nccl.conf", text);
            let reader = root.reader();
            let ConfFiles { settings, odd, .. } = read(
                &reader,
                Start::from(&Environment::default()),
                None,
                conf::assignments,
                always_matters,
                |_| false,
            );
            let unreadable = reader.into_unreadable();
            (settings.0.len(), odd.len(), unreadable.first().map(|one| one.error.clone()))
        };
        assert_eq!(read(lines(MOST_SETTINGS, "=1")), (MOST_SETTINGS, 0, None));
        assert_eq!(read(lines(MOST_ODD + 1, " 1")), (0, MOST_ODD, None));
        let (kept, _, why) = read(lines(MOST_SETTINGS + 1, "=1"));
        assert_eq!(kept, MOST_SETTINGS);
        assert!(why.unwrap().starts_with("it sets more than 1024 variables"));
    }

    #[test]
    fn public_text_contains_no_private_value() {
        let setting = |variable: &str, value: &str, private| UserSetting {
            private,
            ..UserSetting::new(variable, value, Source::from("/root/.nccl.conf:1".to_owned()))
        };
        let settings = Settings(vec![
            setting("NCCL_IB_DISABLE", "1", true),
            setting("NCCL_NET", "IB", true),
            setting("NCCL_SOCKET_IFNAME", "eth0", false),
        ]);
        for (text, public) in [
            ("NCCL_IB_DISABLE=1 (/root/.nccl.conf:1) turns", "NCCL_IB_DISABLE (/root/.nccl.conf:1) turns"),
            ("network IB not found, mlx5_1 on eth0", "network ... not found, mlx5_1 on eth0"),
            ("NCCL_SOCKET_IFNAME=eth0, NCCL_IB_HCA", "NCCL_SOCKET_IFNAME=eth0, NCCL_IB_HCA"),
        ] {
            assert_eq!(settings.without_private_values(text), public);
        }
    }

    #[test]
    fn environment_then_own_file_then_etc_and_an_empty_value_counts() {
        let root = FakeRoot::new();
        root.file(
            "etc/nccl.conf",
            "NCCL_DEBUG=WARN\n# NCCL_NET=IB\nNCCL_IB_TC=106\nMY_PASSWORD=hunter2\nexport NCCL_IB_SL=1\nNCCL_ALGO Ring\n NCCL_IB_SL=1\n",
        );
        root.file("root/.nccl.conf", "NCCL_DEBUG=INFO\n");
        let environment = Environment::from([
            ("HOME", "/root"),
            ("AWS_SECRET_ACCESS_KEY", "hunter2"),
            ("NCCL_IB_HCA", ""),
            ("NCCL_VERSION", "2.21.5"),
            ("TZ", "UTC"),
        ]);
        let ConfFiles { settings, odd, .. } = read_below(&root, &environment, |name| name == "TZ");
        let shown: Vec<_> =
            settings.0.iter().map(|s| format!("{}={} {}", s.variable, s.value, s.origin)).collect();
        assert_eq!(
            shown,
            [
                "NCCL_IB_HCA= environment",
                "TZ=UTC environment",
                "NCCL_DEBUG=INFO /root/.nccl.conf:1",
                "NCCL_DEBUG=WARN /etc/nccl.conf:1",
                "NCCL_IB_TC=106 /etc/nccl.conf:3",
            ]
        );
        assert_eq!(settings.get("NCCL_DEBUG").unwrap().value, "INFO");
        let odd: Vec<_> = odd.iter().map(|line| format!("{} {}", line.origin, line.text)).collect();
        assert_eq!(
            odd,
            [
                "/etc/nccl.conf:5 export NCCL_IB_SL=1",
                "/etc/nccl.conf:6 NCCL_ALGO Ring",
                "/etc/nccl.conf:7  NCCL_IB_SL=1",
            ]
        );
    }

    #[test]
    fn a_line_below_our_block_is_told_from_one_above_it() {
        let root = FakeRoot::new();
        let lines = "NCCL_IB_HCA==mlx5_1\nNCCL_IB_TC=106\n";
        let text = block::with("NCCL_DEBUG=INFO\n", lines, conf::keys, always_matters);
        root.file("etc/nccl.conf", format!("{text}NCCL_IB_TC=41\nNCCL_ALGO=Ring\nNCCL_DEBUG=WARN\n"));
        let settings = read_below(&root, &Environment::default(), |_| false).settings;
        let below: Vec<_> = settings.0.iter().filter(|setting| setting.below_block).collect();
        assert!(below.len() == 1 && below[0].variable == "NCCL_IB_TC", "{below:?}");
    }

    #[test]
    fn white_space_and_carriage_returns_are_part_of_a_value() {
        let root = FakeRoot::new();
        root.file("etc/nccl.conf", "NCCL_IB_TC=106\r\nNCCL_IB_SL=5\r\nNCCL_NET=IB ");
        let settings = read_below(&root, &Environment::default(), |_| false).settings;
        let values: Vec<_> = settings.0.iter().map(|setting| setting.value.as_str()).collect();
        assert_eq!(values, ["106\r", "5\r", "IB "]);
    }

    #[test]
    fn every_file_that_some_release_reads_is_read() {
        let of_nccl = |environment, database| {
            let mut files = conf_files(&environment, database);
            files.retain(|file| !file.ends_with("rccl.conf"));
            files
        };
        let files = |pairs| of_nccl(Environment::from(pairs), None);
        let etc = "/etc/nccl.conf";
        assert_eq!(files([("HOME", "/h"), ("NCCL_CONF_FILE", "/c")]), ["/c", "/h/.nccl.conf", etc]);
        assert_eq!(files([("HOME", "/h"), ("NCCL_CONF_FILE", "/h/.nccl.conf")]), ["/h/.nccl.conf", etc]);
        assert_eq!(files([("HOME", "/h"), ("NCCL_CONF_FILE", "")]), ["/h/.nccl.conf", etc]);
        let both = of_nccl(Environment::from([("HOME", "/h")]), Some("/root"));
        assert_eq!(both, ["/h/.nccl.conf", "/root/.nccl.conf", etc]);
        let mut of_rccl = conf_files(&Environment::from([("HOME", "/h"), ("NCCL_CONF_FILE", "/c")]), None);
        of_rccl.retain(|file| !file.contains("nccl.conf"));
        assert_eq!(of_rccl, ["/c", "/h/.rccl.conf", "/etc/rccl.conf"]);
    }
}
