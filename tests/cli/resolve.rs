//! Tests that host names are looked up with the container's files and servers, and without any code from the
//! image. Each test has its own network and files in /etc.

use std::ffi::CString;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::ptr::null;
use std::sync::{Arc, Mutex};
use std::thread;

use nix::libc;
use simple_dns::rdata::{A, RData};
use simple_dns::{CLASS, Packet, QTYPE, RCODE, ResourceRecord, TYPE};

use super::nodes::{ONLY, TOKEN, Waiting, self_test};
use super::run::{Ran, run};
use crate::support::{binary, skip};

/// The address of the node that waits for the other one.
const OWN: &str = "10.9.0.1";

const KUBERNETES: &str = "search job.svc.cluster.local svc.cluster.local cluster.local\n\
                          nameserver 10.96.0.10\noptions ndots:5\n";

/// Runs `work` in a thread with its own network namespace, which has two addresses, and its own mount
/// namespace, which has these files in /etc.
fn alone(files: &[(&str, &str)], work: impl FnOnce(&Path) + Send) {
    let done = thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: system calls with constants, for this thread alone.
            let entered = unsafe {
                check(libc::unshare(libc::CLONE_NEWNET | libc::CLONE_NEWNS)).and_then(|()| {
                    let root = c"/".as_ptr();
                    check(libc::mount(null(), root, null(), libc::MS_REC | libc::MS_PRIVATE, null()))
                })
            };
            if let Err(why) = entered {
                return skip(&format!("no network and mount namespace can be made: {why}"));
            }
            for arguments in [
                &["link", "set", "lo", "up"][..],
                &["addr", "add", "10.9.0.1/32", "dev", "lo"],
                &["addr", "add", "10.96.0.10/32", "dev", "lo"],
            ] {
                assert!(Command::new("ip").args(arguments).status().unwrap().success());
            }
            let folder = tempfile::tempdir().unwrap();
            for (name, text) in files {
                let file = folder.path().join(name);
                fs::write(&file, text).unwrap();
                put(&file, Path::new("/etc").join(name).as_path());
            }
            work(folder.path());
        });
        thread.join()
    });
    if let Err(panic) = done {
        std::panic::resume_unwind(panic);
    }
}

fn check(result: i32) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn put(file: &Path, place: &Path) {
    let [file, target] = [file, place].map(|path| CString::new(path.as_os_str().as_bytes()).unwrap());
    // SAFETY: the two strings live longer than the call.
    let mounted =
        check(unsafe { libc::mount(file.as_ptr(), target.as_ptr(), null(), libc::MS_BIND, null()) });
    mounted.unwrap_or_else(|error| panic!("{}: {error}", place.display()));
}

/// Starts a name server that knows one name. Returns the list of names that it is asked for.
fn server(known: &'static str) -> Arc<Mutex<Vec<String>>> {
    let socket = UdpSocket::bind("10.96.0.10:53").unwrap();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let list = asked.clone();
    thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let packet = Packet::parse(&buffer[..length]).unwrap();
            let question = packet.questions[0].clone();
            let name = question.qname.to_string();
            let mut reply = Packet::new_reply(packet.id());
            if name != known {
                *reply.rcode_mut() = RCODE::NameError;
            } else if question.qtype == QTYPE::TYPE(TYPE::A) {
                let data = RData::A(A::from(OWN.parse::<Ipv4Addr>().unwrap()));
                reply.answers.push(ResourceRecord::new(question.qname.clone(), CLASS::IN, 5, data));
            }
            reply.questions.push(question);
            list.lock().unwrap().push(name);
            socket.send_to(&reply.build_bytes_vec().unwrap(), from).unwrap();
        }
    });
    asked
}

/// Starts a node that listens on its address, and a peer that connects to it by name. Returns how both ended.
fn by_name(name: &str, change: impl FnOnce(&mut Command)) -> [Ran; 2] {
    let listen = format!("--listen={OWN}:0");
    let mut listen = self_test(&[&[&listen[..], "--wait=20s"], &ONLY[..]].concat());
    listen.env("RDMA_INIT_TOKEN", TOKEN);
    let waiting = Waiting::start(listen);
    let port = waiting.address.rsplit(':').next().unwrap();
    let peer = format!("--peer={name}:{port}");
    let mut connect = self_test(&[&[&peer[..], "--wait=20s"], &ONLY[..]].concat());
    connect.env("RDMA_INIT_TOKEN", TOKEN);
    change(&mut connect);
    [run(connect), waiting.end()]
}

#[test]
fn a_pod_finds_another_by_its_short_name() {
    alone(&[("resolv.conf", KUBERNETES), ("hosts", "127.0.0.1 localhost\n")], |_| {
        let asked = server("worker-0.job.svc.cluster.local");
        for ran in by_name("worker-0.job", |_| {}) {
            ran.expect_code(0);
        }
        // The server was asked for an address of each family, for each name up to the one that exists.
        let mut asked = asked.lock().unwrap().clone();
        asked.dedup();
        assert_eq!(
            asked,
            ["worker-0.job.job.svc.cluster.local", "worker-0.job.svc.cluster.local"],
            "in the order of the search list"
        );
    });
}

#[test]
fn a_name_of_the_hosts_file_needs_no_server() {
    let hosts = format!("127.0.0.1 localhost\n{OWN} launcher worker-0\n");
    alone(&[("resolv.conf", KUBERNETES), ("hosts", &hosts)], |_| {
        for ran in by_name("Worker-0", |_| {}) {
            ran.expect_code(0);
        }
    });
}

#[test]
fn an_unknown_name_is_reported_with_the_servers_that_were_asked() {
    alone(&[("resolv.conf", KUBERNETES), ("hosts", "")], |_| {
        let _asked = server("another");
        let arguments = ["--peer=worker-0.job", "--any-peer", "--wait=3s"];
        let ran = run(self_test(&[&arguments, &ONLY[..]].concat())).expect_code(1);
        let failed = "FAILED: pair-connect: cannot reach worker-0.job:18516 within ";
        assert!(ran.text().contains(failed), "{}", ran.text());
        // The answer to the last try may come too late.
        let first = "it is not in /etc/hosts, and DNS (10.96.0.10) does not know it (worker-0.job.job.svc.cluster.local, ";
        assert!(ran.stderr.contains(first), "{}", ran.stderr);
    });
}

#[test]
fn servers_that_say_nothing_are_waited_for_as_long_as_asked() {
    alone(&[("resolv.conf", KUBERNETES), ("hosts", "")], |_| {
        let silent = UdpSocket::bind("10.96.0.10:53").unwrap();
        silent.set_nonblocking(true).unwrap();
        let ran = run(self_test(&[&["--peer=worker-0.job", "--any-peer", "--wait=1s"], &ONLY[..]].concat()));
        let ran = ran.expect_code(1);
        // An answer may take 5 s, so there was time for one question, for both families.
        let questions = std::iter::from_fn(|| silent.recv(&mut [0; 512]).ok()).count();
        assert!(questions <= 2, "{questions} questions");
        assert!(
            ran.text().contains("no DNS server of /etc/resolv.conf (10.96.0.10) answers"),
            "{}",
            ran.text()
        );
    });
}

/// A library that creates a mark as soon as it is loaded, and needs no other library.
const PLANTED: &str = r#"
__attribute__((constructor)) static void mark(void) {
    static const char path[] = MARK;
    long result = 2; /* open(path, O_CREAT | O_WRONLY, 0600) */
    __asm__ volatile("syscall" : "+a"(result) : "D"(path), "S"(0101), "d"(0600) : "rcx", "r11", "memory");
}
"#;

#[test]
fn no_code_of_the_image_is_loaded() {
    let nsswitch = "hosts: planted files dns\npasswd: planted files\n";
    let files = [("resolv.conf", KUBERNETES), ("hosts", ""), ("nsswitch.conf", nsswitch)];
    alone(&files, |folder| {
        let (mark, source, planted) =
            (folder.join("mark"), folder.join("planted.c"), folder.join("libnss_planted.so.2"));
        fs::write(&source, PLANTED).unwrap();
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-nostdlib", "-o"])
            .args([&planted, &source])
            .arg(format!("-DMARK=\"{}\"", mark.display()))
            .status();
        assert!(built.unwrap().success());
        for name in ["files", "dns", "compat", "resolve", "myhostname", "systemd"] {
            fs::copy(&planted, folder.join(format!("libnss_{name}.so.2"))).unwrap();
        }
        let _asked = server("worker-0.job.svc.cluster.local");
        // The loader finds the library through the variable, whose empty element is the working directory.
        let hostile = |command: &mut Command| {
            let path = format!(":{}", folder.display());
            command.env("LD_LIBRARY_PATH", path).current_dir(folder);
        };
        for ran in by_name("worker-0.job", hostile) {
            ran.expect_code(0);
        }
        assert!(!mark.exists(), "a library of the image was loaded");
        let mut listen =
            self_test(&[&["--listen=worker-0.job:0", "--any-peer", "--wait=10s"], &ONLY[..]].concat());
        hostile(&mut listen);
        let ran = run(listen).expect_code(1);
        assert!(ran.text().contains("the other node did not connect to 10.9.0.1:"), "{}", ran.text());
        assert!(!mark.exists(), "a library of the image was loaded");

        // A program that uses glibc's lookup loads the library.
        let mut glibc = Command::new("getent");
        hostile(glibc.args(["hosts", "worker-0.job"]));
        let _ = glibc.output().unwrap();
        assert!(mark.exists(), "the test itself does not work");
    });
}

/// Libraries of name services are never loaded, and no code in the program could load them.
#[test]
fn glibc_s_name_services_are_not_in_the_program() {
    let program = fs::read(binary()).unwrap();
    // The first text is a file that only glibc's getaddrinfo reads. The other two are functions that all
    // other look-ups call (getpwuid, getservbyname, gethostbyname); they are found if the program has
    // symbols.
    for trace in [&b"/etc/gai.conf\0"[..], b"\0__nss_lookup\0", b"\0__nss_lookup_function\0"] {
        let is_there = memchr::memmem::find(&program, trace).is_some();
        assert!(!is_there, "{}: something links name services", trace.escape_ascii());
    }
}
