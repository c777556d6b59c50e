//! A system call filter (seccomp) for a test's thread, which answers as a sandbox or another kernel would.

use nix::errno::Errno;
use nix::libc;

/// Which calls to refuse.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Which {
    All,
    /// Those whose second argument has this flag.
    With(u32),
    /// Those whose second argument does not have it.
    Without(u32),
}

/// Makes a system call fail with this error, in this thread and for the rest of its life.
pub(crate) fn refuse(call: libc::c_long, errno: Errno, which: Which) {
    let code = |code: u32| u16::try_from(code).unwrap();
    let statement = |code, k| libc::sock_filter { code, jt: 0, jf: 0, k };
    let load = |offset: usize| {
        statement(code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS), u32::try_from(offset).unwrap())
    };
    let give = |what| statement(code(libc::BPF_RET | libc::BPF_K), what);
    let is_call = statement(code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K), u32::try_from(call).unwrap());
    let (flag, jt, jf) = match which {
        Which::All => (0, 1, 1),
        Which::With(flag) => (flag, 1, 0),
        Which::Without(flag) => (flag, 0, 1),
    };
    let has_flag = statement(code(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K), flag);
    let mut filter = [
        load(std::mem::offset_of!(libc::seccomp_data, nr)),
        libc::sock_filter { jf: 2, ..is_call },
        // Loads the lower half of the argument, on processors that store it first.
        load(std::mem::offset_of!(libc::seccomp_data, args) + 8),
        libc::sock_filter { jt, jf, ..has_flag },
        give(libc::SECCOMP_RET_ALLOW),
        give(libc::SECCOMP_RET_ERRNO | (errno as i32).cast_unsigned()),
    ];
    let program = libc::sock_fprog { len: 6, filter: filter.as_mut_ptr() };
    // SAFETY: the program outlives the calls, which change this thread alone.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program), 0);
    }
}
