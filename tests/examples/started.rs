//! A container of a Pod, as the manifest describes it, in the Docker engine.

use serde_json::Value;

use super::engine::{Container, Ended, Engine, engine};
use super::host::Host;
use super::manifests::Manifest;
use crate::support::repository;

/// What says what it is started with, and stands in for these.
pub const STANDINS: &[&str] = &[
    "/usr/local/bin/mpirun",
    "/usr/local/bin/python",
    "/usr/local/bin/sleep",
    "/usr/local/bin/torchrun",
    "/usr/sbin/sshd",
];

/// A container of a Pod.
#[derive(Debug)]
pub struct Described<'a> {
    /// Example and name.
    pub name: String,
    pub pod: &'a Value,
    pub container: &'a Value,
}

/// Every container of the Pods of a manifest, whatever makes them.
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

/// The strings of a list; none where there is no list.
pub fn strings(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().map(|text| text.as_str().unwrap()).collect()
}

impl Described<'_> {
    /// Its variables, as the manifest gives them.
    pub fn environment(&self) -> Vec<(&str, &str)> {
        let pairs = self.container["env"].as_array().into_iter().flatten();
        pairs.map(|pair| (pair["name"].as_str().unwrap(), pair["value"].as_str().unwrap())).collect()
    }

    /// Command and arguments, with `$(VARIABLE)` replaced as the kubelet does.
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

    /// The options of `docker run` and the arguments that make this container, with what the
    /// platform adds to its environment.
    pub fn docker_run(&self, platform: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
        let environment = [&self.environment(), platform].concat();
        let mut words = self.words(&environment);
        let entrypoint = words.remove(0);
        let mut options = ["--ulimit", "memlock=65536:65536", "--entrypoint"].map(str::to_owned).to_vec();
        options.push(entrypoint);
        for (name, value) in &environment {
            options.extend(["--env".to_owned(), format!("{name}={value}")]);
        }
        for capability in strings(&self.container["securityContext"]["capabilities"]["add"]) {
            options.extend(["--cap-add".to_owned(), capability.to_owned()]);
        }
        (options, words)
    }

    /// Starts it with stand-ins for what it starts.
    pub fn start<'e>(&self, engine: &'e Engine, host: &Host, platform: &[(&str, &str)]) -> Container<'e> {
        let (mut options, arguments) = self.docker_run(platform);
        options.extend(stand_ins());
        engine.start(host.options(&texts(&options)), &texts(&arguments))
    }
}

pub fn texts(strings: &[String]) -> Vec<&str> {
    strings.iter().map(String::as_str).collect()
}

/// The options that put the stand-ins into a container.
pub fn stand_ins() -> impl Iterator<Item = String> {
    let script = repository("tests/examples/standin.sh");
    STANDINS.iter().flat_map(move |path| ["--volume".to_owned(), format!("{}:{path}:ro", script.display())])
}

/// A host for one container.
pub fn with_host() -> Option<(&'static Engine, Host)> {
    let engine = engine()?;
    Some((engine, Host::with_one_hca(engine)))
}

/// What a stand-in said that it was started with.
pub fn arguments(ended: &Ended) -> Vec<&str> {
    ended.stdout.lines().filter_map(|line| line.strip_prefix("argument ")).collect()
}

/// It was the program that started it, as PID 1, and nothing in between.
#[track_caller]
pub fn is_child_of_pid_1(ended: &Ended) {
    assert!(ended.stdout.lines().any(|line| line == "parent 1 rdma-init"), "{ended:#?}");
}

#[test]
fn the_stand_ins_refuse_what_the_real_ones_would() {
    let Some((engine, host)) = with_host() else { return };
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
