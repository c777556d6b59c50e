//! Runs scripts in virtual machines whose kernel has soft-RoCE. A machine boots when a script first needs it, and then
//! runs one script after the other, because a boot takes longer than most scripts. See tests/vm/run.sh.

use std::env::{self, consts::ARCH};
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::{repository, skip};

/// Returns the machine that tests/vm/machine.sh selects.
pub fn machine() -> String {
    env::var("RDMA_INIT_VM_MACHINE").unwrap_or_else(|_| ARCH.to_owned())
}

/// Runs a script of tests/vm/guest in a virtual machine, and returns its output; `None` if no such machine can be
/// set up here.
pub fn guest(script: &str, arguments: &[&Path]) -> Option<Vec<u8>> {
    guest_of(&machine(), SECONDS, script, arguments)
}

/// Does the same as [`guest`], in this machine of tests/vm/machine.sh, which may take so many seconds.
pub fn guest_of(machine: &str, seconds: u64, script: &str, arguments: &[&Path]) -> Option<Vec<u8>> {
    Taken::new(machine, script, 1, MACHINES).0[0].run(machine, seconds, script, arguments)
}

/// This is longer than any script takes on a busy machine, but one that is asked to take longer.
pub const SECONDS: u64 = 600;

/// Does the same as [`guest`], in so many machines. The arguments of each one are those of its number, from 1 on.
pub fn guests<'a>(
    count: u8,
    script: &str,
    arguments: impl Fn(u8) -> Vec<&'a Path> + Sync,
) -> Vec<Option<Vec<u8>>> {
    let machine = machine();
    let mut taken = Taken::new(&machine, script, count.into(), count);
    let run = |place: &mut Place| place.run(&machine, SECONDS, script, &arguments(place.number));
    let run = &run;
    let ended = thread::scope(|scope| {
        let guests: Vec<_> = taken.0.iter_mut().map(|place| scope.spawn(move || run(place))).collect();
        guests.into_iter().map(|guest| guest.join()).collect::<Vec<_>>()
    });
    ended.into_iter().map(Result::unwrap).collect()
}

/// So many machines run scripts at the same time. Three networks connect them.
const MACHINES: u8 = 3;

/// The scripts that take longest, which begin before others that wait. Those of several machines are among them: their
/// places would never be idle at the same time otherwise.
const LONGEST: [&str; 8] = [
    "preflight_paths.sh",
    "preflight.sh",
    "watch_loss.sh",
    "pair.sh",
    "node_gid_pair.sh",
    "nccl.sh",
    "docker.sh",
    "watch_job.sh",
];

/// Where one of the machines runs, and others with other kernels wait for a script.
struct Place {
    /// From 1 on.
    number: u8,
    guests: Vec<Guest>,
}

impl Place {
    fn run(&mut self, machine: &str, seconds: u64, script: &str, arguments: &[&Path]) -> Option<Vec<u8>> {
        let known = self.guests.extract_if(.., |guest| guest.machine == machine).next();
        let mut guest = match known {
            Some(guest) => guest,
            None => Guest::boot(machine, self.number)?,
        };
        let ended = guest.run(seconds, script, arguments);
        let output = String::from_utf8_lossy(&ended.output).into_owned();
        // A machine that has not answered is of no use, and one that is not as after its boot would confuse the next script.
        if ended.is_clean {
            self.guests.push(guest);
        }
        assert!(ended.status == "0", "{script}: {}\n{output}", ended.status);
        Some(ended.output)
    }
}

/// The places that run no script. No machine is dropped at the end of the test program; its input ends with it.
struct Idle {
    places: Vec<Place>,
    /// The scripts that wait: the rank in [`LONGEST`], and the number of the last place that each could use.
    waiting: Vec<(usize, u8)>,
}

static IDLE: LazyLock<Mutex<Idle>> = LazyLock::new(|| {
    let places = (1..=MACHINES).map(|number| Place { number, guests: Vec::new() }).collect();
    Mutex::new(Idle { places, waiting: Vec::new() })
});
static IS_RETURNED: Condvar = Condvar::new();

impl Idle {
    fn lock() -> MutexGuard<'static, Idle> {
        IDLE.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The places of one script, in the order of their numbers. They are idle again once this is dropped.
struct Taken(Vec<Place>);

impl Taken {
    /// Waits for so many places with numbers up to `last` that no waiting script could use which takes longer.
    fn new(machine: &str, script: &str, count: usize, last: u8) -> Taken {
        let rank = LONGEST.iter().position(|long| *long == script).unwrap_or(LONGEST.len());
        let mut idle = Idle::lock();
        idle.waiting.push((rank, last));
        let is_fit = |place: &Place, waiting: &[(usize, u8)]| {
            place.number <= last
                && !waiting.iter().any(|(other, until)| *other < rank && place.number <= *until)
        };
        let has_to_wait =
            |idle: &mut Idle| idle.places.iter().filter(|place| is_fit(place, &idle.waiting)).count() < count;
        let mut idle = IS_RETURNED.wait_while(idle, has_to_wait).unwrap_or_else(PoisonError::into_inner);
        let Idle { places, waiting } = &mut *idle;
        let at = waiting.iter().position(|one| *one == (rank, last)).unwrap();
        waiting.swap_remove(at);
        // A machine that runs is better than one that has to boot.
        places.sort_by_key(|place| !place.guests.iter().any(|guest| guest.machine == machine));
        let mut taken: Vec<_> = places.extract_if(.., |place| is_fit(place, waiting)).collect();
        places.extend(taken.drain(count..));
        taken.sort_by_key(|place| place.number);
        IS_RETURNED.notify_all();
        Taken(taken)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        Idle::lock().places.append(&mut self.0);
        IS_RETURNED.notify_all();
    }
}

/// A machine, which ends when this is dropped.
struct Guest {
    machine: String,
    run: Child,
    scripts: Option<ChildStdin>,
    output: Receiver<Vec<u8>>,
}

/// How a script has ended: with the status `0`, with another one, or with the reason why there is none.
struct Ended {
    status: String,
    is_clean: bool,
    output: Vec<u8>,
}

impl Guest {
    fn boot(machine: &str, number: u8) -> Option<Guest> {
        static NETWORKS: LazyLock<[u16; 3]> = LazyLock::new(|| {
            // All sockets are bound at the same time, so that their ports are distinct.
            let sockets = [(); 3].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
            sockets.map(|socket| socket.local_addr().unwrap().port())
        });
        let program = |name| {
            let mut program = Command::new(repository(name));
            program.env("RDMA_INIT_VM_MACHINE", machine);
            program
        };
        if !program("tests/vm/setup.sh").status().unwrap().success() {
            skip("the virtual machine cannot be set up (see above)");
            return None;
        }
        let mut run = program("tests/vm/run.sh")
            .args(NETWORKS.map(|port| format!("-b{port}:{number}")))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let scripts = run.stdin.take();
        let mut from = run.stdout.take().unwrap();
        let (sender, output) = mpsc::channel();
        thread::spawn(move || {
            let mut buffer = [0; 1 << 14];
            while let Ok(length @ 1..) = from.read(&mut buffer) {
                // If no test waits for it any more, the machine has been given up.
                let _ = sender.send(buffer[..length].to_vec());
            }
        });
        Some(Guest { machine: machine.to_owned(), run, scripts, output })
    }

    fn run(&mut self, seconds: u64, script: &str, arguments: &[&Path]) -> Ended {
        let token = format!("end-{:x}", fastrand::u64(..));
        let script = repository("tests/vm/guest").join(script);
        let words = [script.as_path()].into_iter().chain(arguments.iter().copied());
        let words: Vec<String> = words.map(|word| quoted(word.as_os_str())).collect();
        // If the machine has ended, the output says why.
        let _ = writeln!(self.scripts.as_ref().unwrap(), "{token} {}", words.join(" "));
        let until = Instant::now() + Duration::from_secs(seconds);
        let mut output = Vec::new();
        loop {
            match self.output.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(more) => output.extend(more),
                Err(why) => {
                    let status = match why {
                        RecvTimeoutError::Timeout => format!("was not done within {seconds} s"),
                        RecvTimeoutError::Disconnected => "the virtual machine ended".to_owned(),
                    };
                    return Ended { status, is_clean: false, output };
                }
            }
            if let Some((length, line)) = last_line(&output)
                && let Some(line) = line.strip_prefix(&format!("{token} "))
            {
                let (status, left) = line.split_once(' ').unwrap();
                let (status, is_clean) = (status.to_owned(), left == "clean");
                output.truncate(length);
                return Ended { status, is_clean, output };
            }
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.scripts.take();
        let _ = self.run.wait();
    }
}

/// Returns a word of a shell.
fn quoted(word: &OsStr) -> String {
    format!("'{}'", word.to_str().unwrap().replace('\'', r"'\''"))
}

/// Returns the last line of an output that ends with one, and the length of what is before it and its newline.
fn last_line(output: &[u8]) -> Option<(usize, &str)> {
    let output = output.strip_suffix(b"\n")?;
    let length = output.iter().rposition(|byte| *byte == b'\n')?;
    Some((length, str::from_utf8(&output[length + 1..]).ok()?))
}
