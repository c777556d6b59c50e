//! A machine for the tests of the set-up, made of a temporary directory.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use crate::support::executable::executable;
use crate::support::repository;

/// Programs of the real machine that are in the PATH of every test machine.
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

/// The packages that the build needs, and curl, which downloads the Rust installer.
pub const PACKAGES: &str = "gcc libc6-dev pkg-config file libclang-dev ca-certificates \
    libibverbs-dev librdmacm-dev libnl-3-dev libnl-route-3-dev curl";

/// Stubs for the tools of a distribution. `$W` is the directory of the machine.
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

/// A rustup that has a toolchain once it was asked to download one. The file `$W/default` names the default
/// toolchain; the override for the directory, `$W/override`, takes precedence.
const RUSTUP: &str = r#"
    echo "rustup $*" >>"$W/log"
    case "$1 ${2:-}" in
        'toolchain install')
            : >"$W/has-stable"
            # A distribution's rustup fails after the installation, where it is told to update itself.
            case $* in *--no-self-update*) ;; *) echo 'rustup is not installed' >&2; exit 1 ;; esac
            ;;
        'default ') cat "$W/default" ;;
        'default stable') echo stable >"$W/default" ;;
        'override set') echo stable >"$W/override" ;;
    esac"#;

/// The cargo and rustc that rustup puts into the PATH. They report the version of the toolchain that rustup
/// would choose.
const PROXY: &str = r#"
    chosen=$(cat "$W/override" 2>/dev/null || cat "$W/default") || exit 1
    case $chosen in
        stable) [ -e "$W/has-stable" ] && echo "${0##*/} 1.95.0 (f2d3ce0bd 2026-03-21)" ;;
        *) echo "${0##*/} $chosen (f2d3ce0bd 2020-01-01)" ;;
    esac"#;

/// A stand-in for the official installer of Rust.
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

/// How a run of the set-up ended.
#[derive(Debug)]
pub struct Done {
    pub code: Option<i32>,
    pub said: String,
    /// The calls of the tools, one line for each.
    pub log: Vec<String>,
}

impl Machine {
    /// Makes a fresh machine: its user is root, it has no package lists, and nothing is installed.
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
        executable(&machine.path("offered/rustup"), &rustup);
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

    /// Sets a variable in the environment of the set-up.
    pub fn variable(mut self, name: &str, value: &str) -> Machine {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Makes a machine that has all packages, including curl, and package lists.
    pub fn complete(self) -> Machine {
        let all: Vec<&str> = PACKAGES.split_whitespace().collect();
        symlink("/usr/bin/curl", self.path("bin/curl")).unwrap();
        self.write("installed", &format!("{}\n", all.join("\n"))).write("lists", "")
    }

    /// Makes the distribution offer a package named rustup.
    pub fn offering_rustup(self) -> Machine {
        for name in ["cargo", "rustc"] {
            executable(&self.path("offered").join(name), &self.script(PROXY));
        }
        // This single package contains rustup, cargo, and rustc.
        let rustup = self.script(&format!(
            "for name in cargo rustc; do cp \"$W/offered/$name\" \"$W/bin/$name\"; done\n{RUSTUP}"
        ));
        executable(&self.path("offered/rustup"), &rustup);
        self.write("offers-rustup", "")
    }

    /// Puts a cargo and a rustc of these versions into the PATH.
    pub fn with_rust(self, cargo: &str, rustc: &str) -> Machine {
        self.program("cargo", &format!("echo 'cargo {cargo}'"));
        self.program("rustc", &format!("echo 'rustc {rustc}'"));
        self
    }

    /// Puts a rustup with this default toolchain into the PATH, and its `cargo` and `rustc`.
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

    /// Makes the user of the machine an unprivileged one.
    pub fn of_user(self) -> Machine {
        self.write("uid", "1000\n")
    }

    /// Lets downloads use a server of the test, which sends this text as the installer.
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

    /// Does the same as [`Machine::with_server`], with an installer that works and has the right checksum.
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

    /// Puts a program into the PATH.
    pub fn program(&self, name: &str, body: &str) {
        executable(&self.path("bin").join(name), &self.script(body));
    }

    /// Makes the command that runs a program on this machine, without any variables of the machine that
    /// runs the test.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("PATH", self.path("bin")).env("W", self.folder.path());
        command.env("HOME", self.path("home")).env("CARGO_HOME", self.path("home/cargo"));
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs `tests/setup.sh build`.
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

    /// Checks that the tools were called in this order, possibly with other calls in between.
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
