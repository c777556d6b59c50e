//! Runs a container of a Pod, as the manifest describes it, in the Docker engine.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use super::manifests::Manifest;
use crate::support::docker::host::Host;
use crate::support::docker::{Container, Ended, Engine};
use crate::support::repository;

/// The paths at which standin.sh replaces the real programs.
pub const STANDINS: &[&str] = &[
    "/usr/local/bin/mpirun",
    "/usr/local/bin/python",
    "/usr/local/bin/ray",
    "/usr/local/bin/sleep",
    "/usr/local/bin/torchrun",
    "/usr/local/bin/vllm",
    "/usr/sbin/sshd",
];

/// A container of a Pod, as its manifest describes it.
#[derive(Debug)]
pub struct Described<'a> {
    /// The names of the example and of the container, with a slash in between.
    pub name: String,
    pub pod: &'a Value,
    pub container: &'a Value,
}

/// Returns the containers of all Pods of a manifest, whatever kind of object makes the Pods.
pub fn containers(manifest: &Manifest) -> Vec<Described<'_>> {
    let mut found = Vec::new();
    for document in &manifest.documents {
        look(document, manifest.example(), &mut found);
    }
    found
}

fn look<'a>(value: &'a Value, example: &str, found: &mut Vec<Described<'a>>) {
    match value {
        Value::Object(fields) => {
            for container in value["containers"].as_array().into_iter().flatten() {
                let name = format!("{example}/{}", container["name"].as_str().unwrap());
                found.push(Described { name, pod: value, container });
            }
            fields.values().for_each(|field| look(field, example, found));
        }
        Value::Array(items) => items.iter().for_each(|item| look(item, example, found)),
        _ => {}
    }
}

/// Returns the strings of a list, or none if there is no list.
pub fn strings(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().map(|text| text.as_str().unwrap()).collect()
}

impl Described<'_> {
    /// Returns the variables that the manifest gives to the container.
    pub fn environment(&self) -> Vec<(&str, &str)> {
        let pairs = self.container["env"].as_array().into_iter().flatten();
        // The manifest does not contain a value from a Secret.
        pairs.filter_map(|pair| Some((pair["name"].as_str().unwrap(), pair["value"].as_str()?))).collect()
    }

    /// Returns command and arguments, with `$(VARIABLE)` replaced as the kubelet does.
    fn words(&self, environment: &[(&str, &str)]) -> Vec<String> {
        let words = [strings(&self.container["command"]), strings(&self.container["args"])].concat();
        let replaced = |word: &str| {
            let mut word = word.to_owned();
            for (name, value) in environment {
                word = word.replace(&format!("$({name})"), value);
            }
            word
        };
        words.into_iter().map(replaced).collect()
    }

    /// Returns the options of `docker run` and the arguments that make this container. The
    /// platform adds some variables to its environment.
    pub fn docker_run(&self, platform: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
        let environment = [&self.environment(), platform].concat();
        let mut words = self.words(&environment);
        let entrypoint = words.remove(0);
        let mut options = ["--ulimit", "memlock=65536:65536", "--entrypoint"].map(str::to_owned).to_vec();
        options.push(entrypoint);
        for (name, value) in &environment {
            options.extend(["--env".to_owned(), format!("{name}={value}")]);
        }
        options.extend(security(self.container));
        (options, words)
    }

    /// Runs the init containers of the Pod one after the other, each in an image that contains only the
    /// program. Returns the options that mount their volumes into this container.
    fn prepare(&self, engine: &Engine, host: &Host) -> Vec<String> {
        let first: Vec<&Value> = self.pod["initContainers"].as_array().into_iter().flatten().collect();
        if first.is_empty() {
            return Vec::new();
        }
        for container in first {
            let words = strings(&container["command"]);
            let mut options = vec!["--entrypoint".to_owned(), words[0].to_owned()];
            options.extend(security(container));
            options.extend(self.volumes(container, host));
            let ended = engine.start_image(&engine.bare_image, &options, &words[1..]).wait().expect_code(0);
            assert!(ended.stderr.is_empty(), "{}: {ended:#?}", self.name);
        }
        // The example is about an image that cannot be rebuilt, so a program in the image is hidden.
        let hidden = ["--volume", "/dev/null:/rdma-init:ro"].map(str::to_owned);
        self.volumes(self.container, host).into_iter().chain(hidden).collect()
    }

    /// Returns the options that mount the Pod's emptyDirs, which are directories of the host, into
    /// a container.
    fn volumes(&self, container: &Value, host: &Host) -> Vec<String> {
        let all = self.pod["volumes"].as_array().unwrap();
        let is_folder = |mount: &&Value| {
            let volume = all.iter().find(|volume| volume["name"] == mount["name"]).unwrap();
            volume["emptyDir"]["medium"].is_null()
        };
        let mounts = container["volumeMounts"].as_array().unwrap().iter().filter(is_folder);
        mounts
            .flat_map(|mount| {
                let text = |field: &str| mount[field].as_str().unwrap();
                let folder = host.folder(text("name"));
                // The kubelet creates an emptyDir with this mode.
                fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
                let mode = if mount["readOnly"] == true { "ro" } else { "rw" };
                let volume = format!("{}:{}:{mode}", folder.display(), text("mountPath"));
                ["--volume".to_owned(), volume]
            })
            .collect()
    }

    /// Starts the container, with stand-ins for the programs that it starts.
    pub fn start<'e>(&self, engine: &'e Engine, host: &Host, platform: &[(&str, &str)]) -> Container<'e> {
        let (mut options, arguments) = self.docker_run(platform);
        options.extend(self.prepare(engine, host));
        options.extend(stand_ins());
        engine.start(host.options(&texts(&options)), &texts(&arguments))
    }
}

/// Returns the options of `docker run` that correspond to a container's security context.
fn security(container: &Value) -> Vec<String> {
    let context = &container["securityContext"];
    let mut options = Vec::new();
    for (field, option) in [("add", "--cap-add"), ("drop", "--cap-drop")] {
        for capability in strings(&context["capabilities"][field]) {
            options.extend([option.to_owned(), capability.to_owned()]);
        }
    }
    if context["readOnlyRootFilesystem"] == true {
        options.push("--read-only".to_owned());
    }
    if context["allowPrivilegeEscalation"] == false {
        options.push("--security-opt=no-new-privileges".to_owned());
    }
    if let Some(user) = context["runAsUser"].as_u64() {
        options.push(format!("--user={user}"));
    }
    options
}

pub fn texts(strings: &[String]) -> Vec<&str> {
    strings.iter().map(String::as_str).collect()
}

/// Returns the options that put the stand-ins into a container.
pub fn stand_ins() -> impl Iterator<Item = String> {
    let script = repository("tests/examples/standin.sh");
    STANDINS.iter().flat_map(move |path| ["--volume".to_owned(), format!("{}:{path}:ro", script.display())])
}

/// Returns the arguments with which a stand-in was started, from its output.
pub fn arguments(ended: &Ended) -> Vec<&str> {
    ended.stdout.lines().filter_map(|line| line.strip_prefix("argument ")).collect()
}

/// Checks that the stand-in's parent is the program as PID 1, with no process in between.
#[track_caller]
pub fn is_child_of_pid_1(ended: &Ended) {
    assert!(ended.stdout.lines().any(|line| line == "parent 1 rdma-init"), "{ended:#?}");
}

#[test]
fn the_stand_ins_refuse_what_the_real_ones_would() {
    let Some((engine, host)) = Host::of_engine() else { return };
    let options: Vec<_> = stand_ins().collect();
    let options = host.options(&texts(&options));
    for (command, fine) in [
        ("torchrun --nnodes=2 --nproc-per-node 8 train.py --any", true),
        ("torchrun --nodes=2 train.py", false),
        ("torchrun --nnodes= train.py", false),
        ("torchrun --nnodes=2", false),
        ("python -m torch.distributed.launch --nnodes 2 main.py", true),
        ("python -m torch.distributed.launch --node-count 2 main.py", false),
    ] {
        let ended = engine.run(options.clone(), &command.split(' ').collect::<Vec<_>>());
        assert_eq!(ended.code == Some(0), fine, "{command}: {ended:#?}");
    }
}
