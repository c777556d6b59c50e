//! A machine that is made of a folder.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use crate::support::repository;

/// What is on any machine.
const PROGRAMS: [&str; 17] = [
    "sh",
    "sed",
    "sort",
    "grep",
    "tr",
    "head",
    "cat",
    "env",
    "mkdir",
    "mktemp",
    "rm",
    "chmod",
    "dirname",
    "uname",
    "sha256sum",
    "ls",
    "stat",
];

/// What the build needs, and curl.
pub const PACKAGES: &str = "gcc libc6-dev pkg-config file libclang-dev ca-certificates \
    libibverbs-dev librdmacm-dev libnl-3-dev libnl-route-3-dev curl";

/// The tools of a distribution. `$W` is the folder of the machine.
const STUBS: [(&str, &str); 6] = [
    ("id", r#"cat "$W/uid""#),
    (
        "dpkg-query",
        r#"for package; do :; done
           case $package in
               libc6) cat "$W/libc" ;;
               *) grep -qx "$package" "$W/installed" && echo 'install ok installed' ;;
           esac"#,
    ),
    (
        "dpkg",
        r#"[ "$1 $3" = '--compare-versions ge' ] || exit 9
           printf '%s\n' "$4" "$2" | sort -VC"#,
    ),
    (
        "apt-get",
        r#"echo "apt-get $*${SUDO:+ (sudo)}" >>"$W/log"
           case " $* " in
               *' update '*) : >"$W/lists"; exit ;;
           esac
           [ -e "$W/lists" ] || { echo 'E: Unable to locate package' >&2; exit 100; }
           case " $* " in
               *' rustup '*)
                   [ -e "$W/offers-rustup" ] || { echo 'E: Unable to locate package rustup' >&2; exit 100; }
                   [ ! -e "$W/conflicts" ] || echo 'Remv cargo [1.85.0]' ;;
           esac
           case " $* " in *' -s '*) exit ;; esac
           [ "$(cat "$W/uid")" = 0 ] || [ -n "${SUDO:-}" ] || { echo 'E: are you root?' >&2; exit 100; }
           for word; do
               case $word in -* | *=* | install) continue ;; esac
               echo "$word" >>"$W/installed"
               [ ! -e "$W/offered/$word" ] || cp "$W/offered/$word" "$W/bin/$word"
           done"#,
    ),
    ("sudo", r#"SUDO=1 exec "$@""#),
    ("cp", r#"/bin/cp "$@""#),
];

/// A rustup that has a toolchain once it is told to fetch one. What is the default says
/// `$W/default`; the directory's own counts more.
const RUSTUP: &str = r#"
    echo "rustup $*" >>"$W/log"
    case "$1 ${2:-}" in
        'toolchain install')
            : >"$W/has-stable"
            # As a distribution's does once it is done.
            case $* in *--no-self-update*) ;; *) echo 'rustup is not installed' >&2; exit 1 ;; esac
            ;;
        'default ') cat "$W/default" ;;
        'default stable') echo stable >"$W/default" ;;
        'override set') echo stable >"$W/override" ;;
    esac"#;

/// What rustup puts in the PATH: the version of the toolchain that it would choose.
const PROXY: &str = r#"
    chosen=$(cat "$W/override" 2>/dev/null || cat "$W/default") || exit 1
    case $chosen in
        stable) [ -e "$W/has-stable" ] && echo "${0##*/} 1.95.0 (f2d3ce0bd 2026-03-21)" ;;
        *) echo "${0##*/} $chosen (f2d3ce0bd 2020-01-01)" ;;
    esac"#;

/// The official installer.
const INSTALLER: &str = r#"#!/bin/sh
    echo "rustup-init $*" >>"$W/log"
    mkdir -p "$CARGO_HOME/bin"
    for program in cargo rustc; do
        printf '#!/bin/sh\necho "%s 1.95.0 (f2d3ce0bd 2026-03-21)"\n' $program >"$CARGO_HOME/bin/$program"
        chmod +x "$CARGO_HOME/bin/$program"
    done
"#;

pub struct Machine {
    folder: tempfile::TempDir,
    variables: Vec<(String, String)>,
}

/// How a set-up ended.
#[derive(Debug)]
pub struct Done {
    pub code: Option<i32>,
    pub said: String,
    /// What was asked of the tools, a line for each.
    pub log: Vec<String>,
}

impl Machine {
    /// A fresh one: root, no package lists, nothing installed.
    pub fn new() -> Machine {
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine { folder, variables: Vec::new() };
        for name in ["bin", "home", "offered"] {
            fs::create_dir(machine.path(name)).unwrap();
        }
        for program in PROGRAMS {
            let found = ["/usr/bin", "/bin"].map(|folder| Path::new(folder).join(program));
            let found = found.iter().find(|path| path.exists()).unwrap_or_else(|| panic!("no {program}"));
            symlink(found, machine.path("bin").join(program)).unwrap();
        }
        for (name, script) in STUBS {
            machine.program(name, script);
        }
        let rustup = machine.script(RUSTUP);
        machine.executable(&machine.path("offered/rustup"), &rustup);
        symlink("/usr/bin/curl", machine.path("offered/curl")).unwrap();
        machine.write("uid", "0\n").write("libc", "2.36-9+deb12u10\n").write("installed", "").write("log", "")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(self, name: &str, text: &str) -> Machine {
        fs::write(self.path(name), text).unwrap();
        self
    }

    /// A variable of whoever calls.
    pub fn variable(mut self, name: &str, value: &str) -> Machine {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With everything installed, curl included, and its lists.
    pub fn complete(self) -> Machine {
        let all: Vec<&str> = PACKAGES.split_whitespace().collect();
        symlink("/usr/bin/curl", self.path("bin/curl")).unwrap();
        self.write("installed", &format!("{}\n", all.join("\n"))).write("lists", "")
    }

    /// The distribution's package of this name is there for the asking.
    pub fn offering_rustup(self) -> Machine {
        for name in ["cargo", "rustc"] {
            self.executable(&self.path("offered").join(name), &self.script(PROXY));
        }
        // One package has all three.
        let rustup = self.script(&format!(
            "for name in cargo rustc; do cp \"$W/offered/$name\" \"$W/bin/$name\"; done\n{RUSTUP}"
        ));
        self.executable(&self.path("offered/rustup"), &rustup);
        self.write("offers-rustup", "")
    }

    /// A cargo and a rustc in the PATH that have these versions.
    pub fn with_rust(self, cargo: &str, rustc: &str) -> Machine {
        self.program("cargo", &format!("echo 'cargo {cargo}'"));
        self.program("rustc", &format!("echo 'rustc {rustc}'"));
        self
    }

    /// A rustup in the PATH with this default, and `cargo` and `rustc` of its own.
    pub fn with_rustup(self, default: &str) -> Machine {
        self.program("rustup", RUSTUP);
        for name in ["cargo", "rustc"] {
            self.program(name, PROXY);
        }
        self.write("default", default)
    }

    pub fn without(self, program: &str) -> Machine {
        fs::remove_file(self.path("bin").join(program)).unwrap();
        self
    }

    /// A user who is not root.
    pub fn of_user(self) -> Machine {
        self.write("uid", "1000\n")
    }

    /// Downloads come from a server of the test, which has this for an installer.
    pub fn with_server(self, installer: &str) -> Machine {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let from = format!("http://{}/rustup", listener.local_addr().unwrap());
        let (body, log) = (installer.to_owned(), self.path("log"));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut request = String::new();
                let mut lines = BufReader::new(stream.try_clone().unwrap());
                lines.read_line(&mut request).unwrap();
                let mut line = String::new();
                while lines.read_line(&mut line).unwrap() > 2 {
                    line.clear();
                }
                let mut log = fs::File::options().append(true).open(&log).unwrap();
                writeln!(log, "{}", request.trim_end()).unwrap();
                let length = body.len();
                write!(stream, "HTTP/1.0 200 OK\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
            }
        });
        self.variable("RUSTUP_UPDATE_ROOT", &from)
    }

    /// The same with a sound installer.
    pub fn with_installer(self) -> Machine {
        let path = self.path("installer");
        fs::write(&path, INSTALLER).unwrap();
        let sum = Command::new("sha256sum").arg(&path).output().unwrap().stdout;
        let sum = String::from_utf8(sum).unwrap();
        let sum = sum.split_whitespace().next().unwrap();
        self.variable("RDMA_INIT_TEST_RUSTUP_SHA256", sum).with_server(INSTALLER)
    }

    fn script(&self, body: &str) -> String {
        format!("#!/bin/sh\nW={}\n{body}\n", self.folder.path().display())
    }

    /// A program in the PATH.
    pub fn program(&self, name: &str, body: &str) {
        self.executable(&self.path("bin").join(name), &self.script(body));
    }

    fn executable(&self, path: &Path, text: &str) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    }

    /// Runs a program there, with nothing of the machine that runs the test.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("PATH", self.path("bin")).env("W", self.folder.path());
        command.env("HOME", self.path("home")).env("CARGO_HOME", self.path("home/cargo"));
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// `tests/setup.sh build`.
    pub fn set_up(&self) -> Done {
        let mut command = self.command("/bin/sh");
        self.done(command.arg(repository("tests/setup.sh")).arg("build"))
    }

    pub fn done(&self, command: &mut Command) -> Done {
        let output = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Done {
            code: output.status.code(),
            said: text(output.stdout) + &text(output.stderr),
            log: fs::read_to_string(self.path("log")).unwrap().lines().map(str::to_owned).collect(),
        }
    }
}

impl Done {
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Done {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    #[track_caller]
    pub fn expect_said(self, part: &str) -> Done {
        assert!(self.said.contains(part), "no {part:?} in {self:#?}");
        self
    }

    /// Asked in this order, with others between them.
    #[track_caller]
    pub fn expect_asked(self, parts: &[&str]) -> Done {
        let mut lines = self.log.iter();
        for part in parts {
            assert!(lines.any(|line| line.contains(part)), "no {part:?} after those before it in {self:#?}");
        }
        self
    }

    #[track_caller]
    pub fn expect_not_asked(self, part: &str) -> Done {
        assert!(!self.log.iter().any(|line| line.contains(part)), "{part:?} in {self:#?}");
        self
    }
}
