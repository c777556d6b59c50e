//! Reads files that are crafted to occupy far more memory than their size.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::libc;

use super::run::has_own_mounts;
use crate::support::process::{from_scratch, rdma_init};
use crate::support::{binary, skip};

/// In KiB: the most memory that a preparation may use, regardless of what it reads.
const MOST: i64 = 100 * 1024;

/// Its arguments are the number of getrusage(2) and a command. Runs the command, and prints its wait status and the
/// `struct rusage` of what it waited for, as numbers.
const RUN: &str = r#"
    my $getrusage = shift;
    my $child = fork // exit 127;
    if (!$child) {
        open STDOUT, ">", "/dev/null";
        exec { $ARGV[0] } @ARGV;
        exit 127;
    }
    waitpid $child, 0;
    my ($status, $usage, $of_children) = ($?, "\0" x 144, -1);
    syscall($getrusage + 0, $of_children, $usage) == 0 or exit 127;
    print join " ", $status, unpack "q18", $usage;
"#;

/// Runs a command. Returns its exit status, its peak resident memory in KiB, and its processor time.
///
/// A small program starts it: a process's peak is at least the memory that it had before its exec (exec_mmap,
/// `fs/exec.c`), which here would be that of all tests.
fn peak(command: &Command) -> (ExitStatus, i64, Duration) {
    let mut perl = Command::new("/usr/bin/perl");
    perl.args(["-e", RUN])
        .arg(libc::SYS_getrusage.to_string())
        .arg(command.get_program())
        .args(command.get_args());
    perl.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    from_scratch(&mut perl);
    let output = perl.stdin(Stdio::null()).stderr(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "perl: {}", output.status);
    let text = String::from_utf8(output.stdout).unwrap();
    let numbers: Vec<i64> = text.split(' ').map(|number| number.parse().unwrap()).collect();
    let [status, user_seconds, _, system_seconds, _, peak, ..] = numbers[..] else { panic!("{text}") };
    let seconds = (user_seconds + system_seconds).unsigned_abs();
    (ExitStatus::from_raw(i32::try_from(status).unwrap()), peak, Duration::from_secs(seconds))
}

#[track_caller]
fn expect_little(what: &str, command: &Command, code: i32) -> Duration {
    let (status, peak, time) = peak(command);
    assert_eq!(status.code(), Some(code), "{what}: {status}");
    assert!(peak < MOST, "{what}: {} MiB", peak / 1024);
    time
}

/// Returns a loader cache in which all entries share one name and one path of the maximum length.
fn cache_of_one_long_path() -> Vec<u8> {
    const ENTRIES: u32 = 60_000;
    let start = 48 + ENTRIES * 24;
    let name = b"libnccl.so.2\0";
    let path = [&b"/"[..], &[b'x'; 4000], b"\0"].concat();
    let mut bytes = b"glibc-ld.so.cache1.1".to_vec();
    let texts = u32::try_from(name.len() + path.len()).unwrap();
    for word in [ENTRIES, texts, 2, 0, 0, 0, 0] {
        bytes.extend(word.to_le_bytes());
    }
    let mut words = [0, start, start + u32::try_from(name.len()).unwrap(), 0, 0, 0];
    for number in 0..ENTRIES {
        // One half of the entries is for x86-64, the other for arm64.
        words[0] = if number % 2 == 0 { 0x0303 } else { 0x0a03 };
        words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    }
    [&bytes[..], name, &path].concat()
}

/// Returns the command that runs the program with this directory in place of /etc.
fn below(etc: &Path, arguments: &[&str]) -> Command {
    let ours = rdma_init(arguments);
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-ec", "mount --bind \"$0\" /etc; exec \"$@\""]).arg(etc);
    command.arg(binary()).args(arguments);
    command.env_clear().envs(ours.get_envs().filter_map(|(name, value)| Some((name, value?))));
    from_scratch(&mut command);
    command
}

#[test]
fn what_is_in_etc_costs_little_memory() {
    if !has_own_mounts() {
        return skip("no mount namespace can be made");
    }
    let sparse = |path: &Path| fs::File::create(path).unwrap().set_len(1 << 30).unwrap();
    let lines = |line: &str| line.repeat(262_000 / line.len());
    let names: String = (0..18_000).map(|number| format!("NCCL_{number}=1\n")).collect();
    let write = |text: String| move |path: &Path| fs::write(path, &text).unwrap();
    type Put = Box<dyn Fn(&Path)>;
    let cases: [(&str, &str, Put); 9] = [
        ("a sparse file", "nccl.conf", Box::new(sparse)),
        ("lines without a name", "nccl.conf", Box::new(write(lines("=\n")))),
        ("many lines of one name", "nccl.conf", Box::new(write(lines("NCCL_A=\n")))),
        ("many names", "nccl.conf", Box::new(write(names))),
        ("many odd lines", "nccl.conf", Box::new(write(lines("NCCL_IB_TC 1\n")))),
        ("a sparse file", "ld.so.cache", Box::new(sparse)),
        ("one long path", "ld.so.cache", Box::new(|path| fs::write(path, cache_of_one_long_path()).unwrap())),
        ("a sparse file", "passwd", Box::new(sparse)),
        ("many lines", "passwd", Box::new(write(lines(":::\n")))),
    ];
    for (what, name, put) in cases {
        let etc = tempfile::tempdir().unwrap();
        put(&etc.path().join(name));
        let what = format!("{what} in place of {name}");
        expect_little(&what, &below(etc.path(), &["plan", "--json"]), 0);
        expect_little(&what, &below(etc.path(), &["--", "true"]), 0);
    }
}

#[test]
fn a_configuration_costs_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    let profiles = folder.path().join("profiles");
    fs::create_dir(&profiles).unwrap();
    let items = |item: &str, bytes: usize| format!("[{}]", item.repeat(bytes / item.len()));
    let head = "name = \"site\"\ntitle = \"t\"\nsource = \"s\"\n";
    // One file has the longest accepted size, and the other is longer.
    for bytes in [260_000, 1_000_000] {
        for item in ["1,", "{},", "[],"] {
            let config = folder.path().join("config.toml");
            fs::write(&config, format!("keep = {}", items(item, bytes))).unwrap();
            let mut command = rdma_init(["--", "true"]);
            command.env("RDMA_INIT_CONFIG", &config);
            expect_little(&format!("a configuration of {item}"), &command, 125);

            fs::write(profiles.join("site.toml"), format!("{head}unset = {}", items(item, bytes))).unwrap();
            let mut command = rdma_init(["--", "true"]);
            command.env("RDMA_INIT_PROFILE_DIR", &profiles);
            expect_little(&format!("a profile of {item}"), &command, 125);
        }
    }
}

/// A directory of the dynamic loader contains many names for one library. A program that compared each name
/// with all the preceding ones would take very long.
#[test]
fn a_folder_of_many_libraries_costs_little() {
    // A disk takes many seconds for so many names.
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    for number in 0..60_000 {
        std::os::unix::fs::symlink("/bin/true", folder.path().join(format!("libnccl.so.{number}"))).unwrap();
    }
    let mut command = rdma_init(["plan", "--json"]);
    command.env("LD_LIBRARY_PATH", folder.path());
    let time = expect_little("many names of one library", &command, 0);
    assert!(time < Duration::from_secs(20), "{time:?}");
}

/// Tests documents that another user may have written.
#[test]
fn documents_of_others_cost_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("document.json");
    let text = |program: &[&str]| {
        let output = rdma_init(program).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    // Replaces this key's value with a list of this many empty objects.
    let with = |document: &str, key: &str, count: usize| {
        let mut value: serde_json::Value = serde_json::from_str(document).unwrap();
        value[key] = serde_json::Value::String("@".to_owned());
        value.to_string().replace("\"@\"", &format!("[{}{{}}]", "{},".repeat(count)))
    };
    let facts = text(&["inspect", "--json"]);
    for (count, code) in [(90_000, 0), (2_700_000, 125)] {
        fs::write(&path, with(&facts, "rdma", count)).unwrap();
        let command = rdma_init(["plan", "--facts", path.to_str().unwrap()]);
        expect_little("facts of many devices", &command, code);
    }
    let report = text(&["self-test", "--level", "quick", "--json"]);
    for key in ["hcas", "checks"] {
        fs::write(&path, with(&report, key, 300_000)).unwrap();
        expect_little("a report", &rdma_init(["compare", path.to_str().unwrap()]), 1);
    }
}
