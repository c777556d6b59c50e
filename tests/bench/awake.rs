//! Keeps the CPUs awake while the benchmark runs. In a virtual machine, waking a sleeping CPU takes longer
//! than the times measured here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use nix::libc;

/// One busy thread for each CPU. The scheduler runs it only if that CPU has nothing else to do.
pub struct Awake {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Awake {
    pub fn keep() -> Awake {
        let over = Arc::new(AtomicBool::new(false));
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        let spin = |over: Arc<AtomicBool>| {
            move || {
                let parameters = libc::sched_param { sched_priority: 0 };
                // SAFETY: the call only reads the structure; 0 means the calling thread.
                let idle = unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &parameters) } == 0;
                while idle && !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            }
        };
        let threads = (0..cpus).map(|_| thread::spawn(spin(Arc::clone(&over)))).collect();
        Awake { over, threads }
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
