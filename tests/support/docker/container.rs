//! A container of the engine.

use std::net::Ipv4Addr;
use std::process::Command;

use super::attached::{Attached, Ended};
use super::{Engine, Network};
use crate::support::nodes::limit;

/// A container. Dropping this value removes it, even if it is running.
pub struct Container<'a> {
    pub(super) engine: &'a Engine,
    pub name: String,
    pub(super) attached: Option<Attached>,
}

impl Container<'_> {
    /// Attaches this container, which must be new, to one more network.
    pub fn connect(&self, network: &Network, address: Ipv4Addr) {
        let address = address.to_string();
        self.docker(["network", "connect", "--ip", &address, &network.name], &[]).expect_code(0);
    }

    /// Starts a container that was created or that has ended.
    pub fn start(&mut self) {
        let command = self.engine.command(["start", "--attach", &self.name]);
        self.attached = Some(Attached::start(command));
    }

    /// Waits until the command prints this line.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) {
        self.attached.as_mut().unwrap().wait_for(text);
    }

    /// Gives the network of this container, which runs, the rate of [`limit`], if this kernel can.
    pub fn limit_rate(&self) {
        let pid = self.inspect("{{.State.Pid}}");
        let limit = limit(0);
        let tc = ["--target", &pid, "--net", "tc"].into_iter().chain(limit.split(' '));
        let _ = Command::new("nsenter").args(tc).status();
    }

    /// Takes the link of its only network down. The engine's own command could take longer than a test may.
    pub fn cut_off(&self) {
        let pid = self.inspect("{{.State.Pid}}");
        let down = ["--target", &pid, "--net", "ip", "link", "set", "eth0", "down"];
        assert!(Command::new("nsenter").args(down).status().unwrap().success());
    }

    /// Returns the process on this machine that is attached to the container: the docker client.
    pub fn client(&self) -> u32 {
        self.attached.as_ref().unwrap().child.id()
    }

    /// Waits for the end of the container. The engine rarely loses all that a container has printed on the way to its
    /// client (moby issue 27289), and has it in the log.
    #[track_caller]
    pub fn wait(mut self) -> Ended {
        let mut ended = self.wait_again();
        if ended.stdout.is_empty() || ended.stderr.is_empty() {
            let logged = self.docker(["logs"], &[]).expect_code(0);
            let take = |lost: &mut String, logged: String| {
                if lost.is_empty() {
                    *lost = logged;
                }
            };
            take(&mut ended.stdout, logged.stdout);
            take(&mut ended.stderr, logged.stderr);
        }
        ended
    }

    /// Does the same as [`Container::wait`] for a container that will be started again.
    #[track_caller]
    pub fn wait_again(&mut self) -> Ended {
        let ended = self.end();
        assert!(!ended.engine_failed(), "the engine failed: {ended:#?}");
        ended
    }

    #[track_caller]
    pub(super) fn end(&mut self) -> Ended {
        self.attached.take().unwrap().wait()
    }

    /// Runs `docker COMMAND... CONTAINER MORE...`.
    pub fn docker<const N: usize>(&self, command: [&str; N], more: &[&str]) -> Ended {
        self.engine.docker(command.iter().chain(&[self.name.as_str()]).chain(more))
    }

    pub fn exec(&self, command: &[&str]) -> Ended {
        self.docker(["exec"], command)
    }

    /// Sends a signal to the container's PID 1 with `docker kill --signal`.
    pub fn signal(&self, signal: &str) {
        self.docker(["kill", "--signal", signal], &[]).expect_code(0);
    }

    /// Returns the output of `docker inspect --format`.
    pub fn inspect(&self, format: &str) -> String {
        let said = self.docker(["inspect", "--format", format], &[]).expect_code(0).stdout;
        said.trim_end().to_owned()
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        let _ = self.engine.command(["rm", "--force", "--volumes", &self.name]).output();
        if let Some(attached) = &mut self.attached {
            let _ = attached.child.kill();
            let _ = attached.child.wait();
        }
    }
}
