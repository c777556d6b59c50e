//! A start leaves names and values to other programs that read them. For such a program, some of them would
//! be code or lines of its configuration. The tests let the real programs read them. Other tests search for
//! secrets in the files that a start writes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::run::{Ran, has_own_mounts, run};
use crate::support::process::from_scratch;
use crate::support::{binary, repository, skip};

/// Creates a mount namespace with its own `/etc` and `/run`, a home directory, and an sshd.
const NAMESPACE: &str = r#"
    own=$1 init=$2 sshd=$3
    mkdir "$own/root" && chmod 700 "$own/root"
    cp -a /etc "$own/etc"
    mount --bind "$own/etc" /etc
    mount -t tmpfs none /run
    mkdir -p /run/sshd /etc/ssh/sshd_config.d /etc/profile.d
    rm -f /etc/nccl.conf /etc/environment
    echo 'Include /etc/ssh/sshd_config.d/*.conf' >/etc/ssh/sshd_config
    grep -q ^sshd: /etc/passwd || echo 'sshd:x:65111:65534::/run/sshd:/usr/sbin/nologin' >>/etc/passwd
    test -e /etc/ssh/ssh_host_ed25519_key || ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key
    # The environment is a container's, and has nothing of this machine.
    start() { env -i PATH="$PATH" HOME="$own/root" RDMA_INIT_CONFIG=/dev/null RDMA_INIT_WRITE_NCCL_CONF=true "$@"; }
    cd "$own"
"#;

struct Namespace {
    own: tempfile::TempDir,
}

impl Namespace {
    fn run(&self, script: &str) -> Ran {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-ec", &format!("{NAMESPACE}{script}"), "sh"]);
        command.arg(self.own.path()).arg(binary()).arg(sshd().unwrap_or_default());
        command.env_clear().env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        from_scratch(&mut command);
        run(command)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.own.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }
}

/// Returns `None` if no such namespace can be created.
fn namespace() -> Option<Namespace> {
    if !has_own_mounts() {
        skip("no mount namespace can be made");
        return None;
    }
    Some(Namespace { own: tempfile::tempdir().unwrap() })
}

/// Returns the virtual machines' sshd, which is unpacked but not installed, or else this machine's.
fn sshd() -> Option<PathBuf> {
    let unpacked = repository("target/vm/sshd/usr/sbin/sshd");
    [unpacked, "/usr/sbin/sshd".into()].into_iter().find(|path| path.exists())
}

fn has(program: &str) -> bool {
    let folders = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"];
    folders.iter().any(|folder| Path::new(folder).join(program).exists())
}

/// Checks that a reader got all of these values, and nothing of the hostile names.
fn expect_values(what: &str, text: &str) {
    for line in
        ["NCCL_V_CODE=a;touch pwned", "NCCL_V_DOLLAR=$(touch pwned)`touch pwned`", "NCCL_V_SPACES=  two  "]
    {
        assert!(text.lines().any(|found| found == line), "{what}: no {line:?} in {text}");
    }
    assert!(!text.contains("NCCL_foo") && !text.contains("NCCL_A}"), "{what}: {text}");
}

#[test]
fn what_is_propagated_is_no_code_for_its_readers() {
    let Some(namespace) = namespace() else { return };
    let ran = namespace.run(
        r#"
        start 'NCCL_A}$(touch pwned)=1' 'NCCL_B
PermitRootLogin yes=1' 'NCCL_foo.bar=1' 'NCCL_C;touch pwned;=1' \
            'NCCL_V_CODE=a;touch pwned' 'NCCL_V_DOLLAR=$(touch pwned)`touch pwned`' 'NCCL_V_SPACES=  two  ' \
            'NCCL_V_LINES=1
PermitEmptyPasswords yes
touch pwned' 'NCCL_V_QUOTE=" PermitTunnel=yes "' \
            "$init" --propagate ssh,profile,environment -- sh -c 'cat /proc/$PPID/environ; cat /proc/self/environ' >/dev/null
        cp /etc/environment /etc/profile.d/rdma-init.sh /etc/nccl.conf /run/rdma-init/env.sh .
        cp /etc/ssh/sshd_config.d/rdma-init.conf .
        start dash -lc env >dash-login
        for shell in dash bash zsh; do
            command -v $shell >/dev/null || continue
            start $shell -c '. /etc/profile.d/rdma-init.sh; env' >$shell-profile
            start $shell -c 'set -a; . /etc/environment; env' >$shell-environment
            start $shell -c '. /run/rdma-init/env.sh; ! test -e pwned'
        done
        start su root -c env >pam
        test -z "$sshd" || "$sshd" -T >sshd
        "#,
    );
    let ran = ran.expect_code(0);
    assert!(!namespace.path("pwned").exists(), "{ran:#?}");
    for shell in ["dash", "bash", "zsh"] {
        if !has(shell) {
            skip(&format!("there is no {shell}"));
            continue;
        }
        for file in ["profile", "environment"] {
            let name = format!("{shell}-{file}");
            expect_values(&name, &namespace.text(&name));
        }
    }
    expect_values("dash -l", &namespace.text("dash-login"));
    expect_values("PAM", &namespace.text("pam"));
    match sshd() {
        None => skip("there is no sshd"),
        Some(_) => {
            let shown = namespace.text("sshd");
            let is_no = |key: &str| shown.lines().any(|line| line == format!("{key} no"));
            assert!(is_no("permitemptypasswords") && is_no("permittunnel"), "{shown}");
            assert!(!shown.contains("permitrootlogin yes"), "{shown}");
            let set: String =
                shown.lines().filter_map(|line| line.strip_prefix("setenv ")).collect::<Vec<_>>().join("\n");
            expect_values("sshd", &set);
        }
    }
    for file in ["environment", "rdma-init.sh", "nccl.conf", "env.sh", "rdma-init.conf"] {
        let text = namespace.text(file);
        assert!(!text.lines().any(|line| line.starts_with("Permit")), "{file}: {text}");
    }
    // The message names each value that a format cannot represent.
    for name in ["NCCL_V_LINES", "NCCL_V_QUOTE"] {
        assert!(ran.stderr.contains(&format!("this format cannot hold {name} (its value has ")), "{ran:#?}");
    }
}

/// Logs in to a real sshd, which gets the environment in one of two ways: from SetEnv in its configuration,
/// or from ~/.ssh/environment. The test covers both.
#[test]
fn what_sshd_starts_gets_the_values_and_nothing_more() {
    let Some(namespace) = namespace() else { return };
    if sshd().is_none() || !has("ssh") {
        return skip("there is no sshd, or no ssh");
    }
    let ran = namespace.run(
        r#"
        sed -i "s|^root:.*|root:x:0:0:root:$own/root:/bin/sh|" /etc/passwd
        ssh-keygen -q -t ed25519 -N '' -f key
        session() {
            start 'NCCL_B
PermitRootLogin yes=1' 'NCCL_foo.bar=1' 'NCCL_V_CODE=a;touch pwned' \
                'NCCL_V_DOLLAR=$(touch pwned)`touch pwned`' 'NCCL_V_SPACES=  two  ' 'NCCL_V_QUOTE=a "b" #c \' \
                'NCCL_V_LINES=1
NCCL_V_MORE=2' "$init" --propagate ssh -- true
            # The client needs no network: sshd speaks to it over standard input and output.
            ssh -F none -i key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR \
                -o ProxyCommand="$sshd -i -e -o StrictModes=no -o AuthorizedKeysFile=$own/key.pub 2>>sshd-said" \
                root@here env </dev/null
        }
        session >by-setenv
        test ! -e "$own/root/.ssh/environment"
        echo 'PermitUserEnvironment yes' >/etc/ssh/sshd_config
        session >by-file
        "#,
    );
    let ran = ran.expect_code(0);
    for name in ["by-setenv", "by-file"] {
        let text = namespace.text(name);
        expect_values(name, &text);
        assert!(!text.contains("NCCL_V_MORE") && !text.contains("NCCL_B"), "{name}: {text}");
    }
    // In ~/.ssh/environment, everything up to the end of the line is the value.
    let quoted = "NCCL_V_QUOTE=a \"b\" #c \\";
    assert!(namespace.text("by-file").lines().any(|line| line == quoted));
    assert!(!namespace.path("pwned").exists() && !namespace.path("root/pwned").exists(), "{ran:#?}");
}

/// The command itself gets its environment unchanged, including every odd name.
#[test]
fn names_that_are_none_reach_the_command_as_they_are() {
    let Some(namespace) = namespace() else { return };
    let ran = namespace.run(
        r#"
        start 'NCCL_A}$(id)=1' 'NCCL_foo.bar=2' 'NCCL_B
C=3' "$init" -- cat /proc/self/environ >command
        "#,
    );
    let ran = ran.expect_code(0);
    let environment = fs::read(namespace.path("command")).unwrap();
    let entries: Vec<&[u8]> = environment.split(|byte| *byte == 0).collect();
    for entry in [&b"NCCL_A}$(id)=1"[..], b"NCCL_foo.bar=2", b"NCCL_B\nC=3"] {
        assert!(entries.contains(&entry), "{}", String::from_utf8_lossy(&environment));
    }
    assert!(
        ran.stderr.contains("\"NCCL_A}$(id)\"") && ran.stderr.contains("names that no shell can set"),
        "{ran:#?}"
    );
}

/// A script that collects everything that a start writes or prints, and the output of every command that
/// reads it later.
const EVERYTHING: &str = r#"
    touch -d '1 minute ago' before
    printf '%s\n' NCCL_IB_TC=106 NCCL_DEBUG_FILE=/private/value NCCL_F_TOKEN=hunter2 \
        'export NCCL_G_SECRET=hunter2' >"$own/root/.nccl.conf"
    chmod MODE "$own/root/.nccl.conf"
    run() {
        start NCCL_PLUGIN_PASSWORD=hunter2 RDMA_INIT_TOKEN=hunter2 RDMA_INIT_TERMINATION_LOG="$own/termination" "$@"
    }
    run "$init" --set T_API_KEY=hunter2 --set NCCL_IB_PKEY=1 --propagate ssh,profile,environment \
        --self-test warn --log-level debug -- sh -ec '
        env >command
        for arguments in status "status --json" env "env --all" "env --all --format json" "plan --evidence" \
            "plan --json" "plan --why NCCL_PLUGIN_PASSWORD" "plan --why NCCL_F_TOKEN --json" inspect \
            "inspect --json" "self-test --level quick --json" "self-test --level quick"; do
            $0 $arguments || test $? = 1
        done >said 2>&1
        $0 plan --facts /run/rdma-init/facts.json >>said
        $0 self-test --level quick --json >one || true
        $0 compare one >>said || true
        env -u T_API_KEY RDMA_INIT_TOKEN=hunter2 $0 exec -- env >entered
        ' "$init" 2>log
    run "$init" --log-format json --require-rdma --set T_API_KEY=hunter2 -- true 2>json || test $? = 121
    find /etc /run -newer before -type f -perm -004 -exec cat {} + >public
    find /etc /run -newer before -type f -exec cat {} + >all
    stat -c %a /run/rdma-init/facts.json /run/rdma-init/plan.json >modes
"#;

#[test]
fn what_may_be_a_secret_is_the_command_s_alone() {
    let Some(namespace) = namespace() else { return };
    let ran = namespace.run(&EVERYTHING.replace("MODE", "600")).expect_code(0);
    let command = namespace.text("command");
    assert!(
        command.contains("T_API_KEY=hunter2") && command.contains("NCCL_PLUGIN_PASSWORD=hunter2"),
        "{command}"
    );
    assert!(!command.contains("RDMA_INIT_TOKEN"), "{command}");
    let entered = namespace.text("entered");
    assert!(!entered.contains("RDMA_INIT_TOKEN") && !entered.contains("T_API_KEY"), "{entered}");
    // A partition key's index is not a secret.
    assert!(
        entered.contains("NCCL_IB_PKEY=1") && namespace.text("log").contains("NCCL_IB_PKEY"),
        "{entered}"
    );
    let said = [ran.stderr, ran.stdout.iter().map(|byte| char::from(*byte)).collect()].concat();
    let streams =
        ["said", "log", "json", "one", "termination", "all"].map(|name| (name, namespace.text(name)));
    for (name, text) in streams.iter().map(|(name, text)| (*name, text)).chain([("said", &said)]) {
        let lines: Vec<&str> = text.lines().filter(|line| line.contains("hunter2")).collect();
        assert!(lines.is_empty(), "{name}: {lines:?}");
    }
    // This checks that everything that a start writes was examined.
    let left = namespace.text("all");
    for part in
        ["rdma-init/facts/1", "rdma-init/plan/1", "SetEnv", "# rdma-init: begin", "export NCCL_IB_PKEY=1"]
    {
        assert!(left.contains(part), "no {part} in {left}");
    }
    assert!(
        namespace.text("said").contains("NCCL_PLUGIN_PASSWORD")
            && namespace.text("log").contains("(not shown)")
    );
}

#[test]
fn a_value_of_a_file_keeps_that_file_s_readers() {
    // The directory's mode matters as well.
    for (mode, folder, is_private) in [("600", "755", true), ("644", "700", true), ("644", "755", false)] {
        let Some(namespace) = namespace() else { return };
        let script = EVERYTHING
            .replace("MODE", &format!("{mode} $own/root/.nccl.conf; chmod {folder} $own/root; true"));
        // Only this user may enter the temporary directory that the test created.
        let script = format!("chmod 755 \"$own\"\n{script}");
        namespace.run(&script).expect_code(0);
        let modes = namespace.text("modes");
        let public = namespace.text("public");
        assert_eq!(public.contains("/private/value"), !is_private, "{mode} {folder}: {public}");
        assert_eq!(modes, if is_private { "600\n644\n" } else { "644\n644\n" });
        // This user may read the value, so the messages to this user contain it.
        assert!(namespace.text("log").contains("/private/value"));
        assert!(namespace.text("said").contains("the command runs"));
    }
}
