use super::*;
use crate::facts::environment::Environment;

/// A host: its variables, its command, its name and its files.
#[derive(Default)]
struct Host<'a> {
    variables: &'a [(&'a str, &'a str)],
    command: &'a str,
    name: &'a str,
    files: &'a [(&'a str, &'a str)],
}

impl Host<'_> {
    fn asked(&self, asked: &Overrides) -> anyhow::Result<Part> {
        let entries: Vec<std::ffi::CString> = self
            .variables
            .iter()
            .map(|(name, value)| std::ffi::CString::new(format!("{name}={value}")).unwrap())
            .collect();
        let command: Vec<String> = self.command.split_whitespace().map(str::to_owned).collect();
        let file = |path: &str| {
            let found = self.files.iter().find(|(known, _)| *known == path);
            found.map(|(_, text)| (*text).to_owned())
        };
        let seen = Seen {
            environment: &Environment::new(&entries),
            command: &command,
            host: self.name,
            file: &file,
        };
        let found = find(asked, &seen);
        // The report counts nodes in the same way as the preflight.
        if let (Ok(part), Some(nodes)) = (&found, launchers::nodes(&seen))
            && asked.nodes.is_none()
            && asked.node.is_none()
        {
            assert_eq!((part.nodes, part.node), (nodes.count, nodes.this));
        }
        found
    }

    /// Returns `NODE of NODES, task LOCAL RANK, at PLACE`.
    fn found(&self) -> String {
        match self.asked(&Overrides::default()) {
            Ok(part) => format!(
                "{} of {}, task {}, at {}",
                part.node,
                part.nodes,
                part.local_rank,
                part.meet.as_deref().unwrap_or("nowhere")
            ),
            Err(why) => why.to_string(),
        }
    }

    fn part(&self) -> Part {
        self.asked(&Overrides::default()).unwrap()
    }
}

const SLURM: [(&str, &str); 8] = [
    ("SLURM_JOB_ID", "77"),
    ("SLURM_STEP_ID", "2"),
    ("SLURM_NNODES", "9"),
    ("SLURM_STEP_NUM_NODES", "3"),
    ("SLURM_STEP_NODELIST", "node[07-08,12]"),
    ("SLURM_JOB_NODELIST", "node[01-12]"),
    ("SLURM_NODEID", "2"),
    ("SLURM_LOCALID", "5"),
];

#[test]
fn a_step_of_slurm() {
    let part = Host { variables: &SLURM, ..Host::default() }.part();
    assert_eq!((part.nodes, part.node, part.local_rank), (3, 2, 5));
    assert_eq!(part.meet.as_deref(), Some("node07"));
    assert_eq!(part.job.as_deref(), Some("77.2"));
    assert_eq!((part.names.get(2).map(String::as_str), part.names.len()), (Some("node12"), 3));
    assert_eq!(
        part.evidence,
        ["SLURM_STEP_NUM_NODES=3", "SLURM_NODEID=2", "SLURM_LOCALID=5", "SLURM_STEP_NODELIST=node[07-08,12]"]
    );
}

#[test]
fn a_batch_script_is_no_step() {
    let batch =
        [("SLURM_JOB_ID", "77"), ("SLURM_NNODES", "4"), ("SLURM_NODEID", "0"), ("SLURM_LOCALID", "0")];
    let found = Host { variables: &batch, ..Host::default() }.found();
    assert!(found.contains("start it with srun, once on each node"), "{found}");
    let one = [("SLURM_JOB_ID", "77"), ("SLURM_NNODES", "1")];
    assert_eq!(Host { variables: &one, ..Host::default() }.found(), "0 of 1, task 0, at nowhere");
}

#[test]
fn the_arguments_of_torchrun() {
    let of = |command: &str| Host { command, ..Host::default() }.found();
    for (command, found) in [
        (
            "torchrun --nnodes=2 --nproc-per-node=8 --node-rank=1 --master-addr=train-0.train train.py --nnodes 7",
            "1 of 2, task 0, at train-0.train",
        ),
        (
            "python -m torch.distributed.launch --nnodes 4 --node_rank 3 --master_addr a --master_port 1 main.py",
            "3 of 4, task 0, at a",
        ),
        (
            "/opt/bin/torchrun --nnodes 2:2 --node_rank=0 --rdzv_endpoint [fd00::1]:29400 --rdzv-id x train.py",
            "0 of 2, task 0, at fd00::1",
        ),
        ("torchrun --nproc-per-node 8 train.py", "0 of 1, task 0, at nowhere"),
        ("torchrun --standalone --nnodes=4 train.py", "0 of 1, task 0, at nowhere"),
        (
            "exec numactl torchrun --nnodes 2 -m --node-rank 1 --master-addr a pkg.main",
            "1 of 2, task 0, at a",
        ),
    ] {
        assert_eq!(of(command), found, "{command}");
    }
    let elastic = of("torchrun --nnodes=1:4 train.py");
    assert!(elastic.starts_with("torchrun --nnodes=1:4: an elastic job has no fixed number"), "{elastic}");
    let unnumbered = of("torchrun --nnodes=4 --rdzv-endpoint=a:29400 train.py");
    assert_eq!(
        unnumbered,
        "cannot determine which of the 4 nodes (torchrun --nnodes=4) this one is (not set by torchrun's arguments); set --node I"
    );
    for command in ["torchrun --nnodes", "torchrun", "torchrun --nnodes x train.py"] {
        of(command);
    }
    let abbreviated = of("torchrun -t3 --nnode=4 --node-=1 --master_a=a train.py");
    assert_eq!(abbreviated, "1 of 4, task 0, at a");
    let unclear = of("torchrun --new-option train.py");
    assert!(
        unclear.contains("where the nodes meet: rdma-init does not know torchrun's option --new-option"),
        "{unclear}"
    );
}

#[test]
fn a_default_of_one_node_does_not_win_over_another_launchers_number() {
    let of =
        |variables: &[(&str, &str)], command: &str| Host { variables, command, ..Host::default() }.found();
    let step_of_one = [("SLURM_STEP_NODELIST", "n1"), ("SLURM_NODEID", "0"), ("SLURM_STEP_NUM_NODES", "1")];
    let batch = [("SLURM_JOB_ID", "77"), ("SLURM_NNODES", "4")];
    let group = [("LWS_LEADER_ADDRESS", "a"), ("LWS_GROUP_SIZE", "2"), ("LWS_WORKER_INDEX", "1")];
    for (variables, says) in
        [(&SLURM[..], "SLURM_STEP_NUM_NODES=3"), (&batch, "SLURM_NNODES=4"), (&group, "LWS_GROUP_SIZE=2")]
    {
        let said = of(variables, "torchrun --nproc-per-node 8 train.py");
        let expected = format!("torchrun without --nnodes starts a job of 1 node, and {says} contradicts it");
        assert!(said.starts_with(&expected), "{said}");
        assert!(of(variables, "torchrun --standalone train.py").starts_with("0 of 1"));
    }
    assert_eq!(of(&step_of_one, "torchrun train.py"), "0 of 1, task 0, at n1");
    let host = Host { variables: &SLURM, command: "torchrun train.py", ..Host::default() };
    let by_hand = Overrides { nodes: Some(1), node: Some(0), ..Overrides::default() };
    assert_eq!(host.asked(&by_hand).unwrap().nodes, 1);
}

#[test]
fn torchrun_takes_its_index_from_slurm_where_its_arguments_have_none() {
    let host = Host {
        variables: &SLURM,
        command: "torchrun --nnodes=3 --rdzv-backend=c10d --rdzv-endpoint=node07:29400 train.py",
        ..Host::default()
    };
    assert_eq!(host.found(), "2 of 3, task 5, at node07");
}

#[test]
fn the_variables_of_pytorch_jobs() {
    let kubeflow = [
        ("PET_NNODES", "3"),
        ("PET_NODE_RANK", "2"),
        ("PET_MASTER_ADDR", "train-master-0"),
        ("PET_NPROC_PER_NODE", "8"),
        ("MASTER_ADDR", "train-master-0"),
        ("WORLD_SIZE", "24"),
        ("RANK", "2"),
    ];
    assert_eq!(Host { variables: &kubeflow, ..Host::default() }.found(), "2 of 3, task 0, at train-master-0");
    let names = Host { variables: &kubeflow, ..Host::default() }.part().names;
    assert_eq!(names, ["train-master-0", "train-worker-0", "train-worker-1"]);
    // Without the first three variables: an operator that does not set torchrun's variables.
    assert_eq!(
        Host { variables: &kubeflow[3..], ..Host::default() }.found(),
        "2 of 3, task 0, at train-master-0"
    );
    assert_eq!(
        Host { variables: &kubeflow[4..], ..Host::default() }.found(),
        "2 of 24, task 0, at train-master-0"
    );
    let elastic = [("PET_NNODES", "2"), ("PET_RDZV_ENDPOINT", "train-worker-0:23456")];
    let elastic = Host { variables: &elastic, name: "train-worker-1", ..Host::default() };
    assert_eq!(elastic.found(), "1 of 2, task 0, at train-worker-0");
}

#[test]
fn processes_that_torchrun_or_ray_has_started() {
    let worker = [
        ("TORCHELASTIC_RUN_ID", "none"),
        ("GROUP_RANK", "1"),
        ("GROUP_WORLD_SIZE", "2"),
        ("LOCAL_RANK", "6"),
        ("RANK", "14"),
        ("WORLD_SIZE", "16"),
        ("LOCAL_WORLD_SIZE", "8"),
        ("MASTER_ADDR", "node0"),
    ];
    let part = Host { variables: &worker, ..Host::default() }.part();
    assert_eq!((part.node, part.nodes, part.local_rank, part.job), (1, 2, 6, None));
    let ray = [
        ("NODE_RANK", "1"),
        ("LOCAL_RANK", "6"),
        ("RANK", "14"),
        ("WORLD_SIZE", "16"),
        ("LOCAL_WORLD_SIZE", "8"),
        ("MASTER_ADDR", "10.0.0.1"),
    ];
    assert_eq!(Host { variables: &ray, ..Host::default() }.found(), "1 of 2, task 6, at 10.0.0.1");
    let kuberay = [("RAY_CLUSTER_NAME", "train"), ("FQ_RAY_IP", "train-head-svc.default.svc.cluster.local")];
    let found = Host { variables: &kuberay, ..Host::default() }.found();
    assert!(
        found.contains(
            "how many nodes the job has and which of them this one is: Ray does not number its nodes"
        ),
        "{found}"
    );
}

#[test]
fn numbers_that_a_user_passes_on_to_torchrun() {
    let of = |variables: &[(&str, &str)]| Host { variables, ..Host::default() }.found();
    let by_hand = [("NNODES", "2"), ("NODE_RANK", "1"), ("MASTER_ADDR", "a")];
    assert_eq!(of(&by_hand), "1 of 2, task 0, at a");
    for odd in ["auto", "1", "1:4"] {
        let odd = [("NNODES", odd), ("NODE_RANK", "1"), ("MASTER_ADDR", "a")];
        assert!(of(&odd).contains("no variable of a known launcher is set"), "{odd:?}");
    }
    let processes = |rank, local| {
        [
            ("WORLD_SIZE", "16"),
            ("RANK", rank),
            ("LOCAL_WORLD_SIZE", "8"),
            ("LOCAL_RANK", local),
            ("MASTER_ADDR", "a"),
        ]
    };
    assert_eq!(of(&processes("9", "1")), "1 of 2, task 1, at a");
    assert!(of(&processes("9", "4")).contains("not numbered node by node"));
}

const HNP: &str = "1077084160.0;tcp://192.0.2.2,172.17.0.1:56569;tcp6://[fd00::2]:58151";

fn open_mpi<'a>(
    size: &'a str,
    rank: &'a str,
    local: [&'a str; 2],
    nodes: &'a str,
    policy: &'a str,
) -> Vec<(&'a str, &'a str)> {
    vec![
        ("OMPI_COMM_WORLD_SIZE", size),
        ("OMPI_COMM_WORLD_RANK", rank),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", local[0]),
        ("OMPI_COMM_WORLD_LOCAL_RANK", local[1]),
        ("OMPI_MCA_orte_num_nodes", nodes),
        ("OMPI_MCA_rmaps_base_mapping_policy", policy),
        ("OMPI_MCA_orte_hnp_uri", HNP),
    ]
}

#[test]
fn ranks_of_open_mpi() {
    let of = |variables: Vec<(&str, &str)>| Host { variables: &variables, ..Host::default() }.found();
    for (size, rank, local, nodes, policy, found) in [
        ("4", "3", ["1", "0"], "4", "ppr:1:node", "3 of 4, task 0, at 192.0.2.2"),
        ("4", "3", ["1", "0"], "", "", "3 of 4, task 0, at 192.0.2.2"),
        ("16", "13", ["8", "5"], "2", "", "1 of 2, task 5, at 192.0.2.2"),
        ("16", "13", ["8", "6"], "2", "node", "1 of 2, task 6, at 192.0.2.2"),
        ("16", "13", ["8", "6"], "2", "node:OVERSUBSCRIBE", "1 of 2, task 6, at 192.0.2.2"),
    ] {
        assert_eq!(of(open_mpi(size, rank, local, nodes, policy)), found, "{size} {rank}");
    }
    // 8 ranks on one node and 4 on the other.
    let uneven = of(open_mpi("12", "9", ["4", "1"], "2", ""));
    assert!(uneven.contains("start one on each node (mpirun --map-by ppr:1:node)"), "{uneven}");
    let nowhere = of(open_mpi("4", "3", ["1", "0"], "4", "")[..6].to_vec());
    assert!(nowhere.contains("where the nodes meet: mpirun does not say where rank 0 is"), "{nowhere}");
}

#[test]
fn a_place_to_meet_is_an_address_with_a_host() {
    let of = |meet, node| {
        let variables = [("PET_NNODES", "2"), ("PET_NODE_RANK", node), ("PET_MASTER_ADDR", meet)];
        Host { variables: &variables, ..Host::default() }.found()
    };
    assert_eq!(
        of("a b", "1"),
        "PET_MASTER_ADDR=a b: \"a b\" is not an address; expected HOST:PORT, [IPV6]:PORT, or HOST alone for port 18516"
    );
    assert!(of("n1:0", "1").ends_with("port 0 is not a port of node 0"));
    assert!(of(":7777", "1").ends_with("the address of node 0 has no host"));
    assert_eq!(of(":7777", "0"), "0 of 2, task 0, at :7777");
}

#[test]
fn mpi_ranks_find_their_rendezvous_host() {
    let mut variables = open_mpi("3", "2", ["1", "0"], "3", "");
    // A Slurm allocation in which mpirun has started its daemons as a step.
    variables.extend(SLURM);
    assert_eq!(Host { variables: &variables, ..Host::default() }.found(), "2 of 3, task 0, at node01");
    let mut variables = open_mpi("3", "2", ["1", "0"], "3", "");
    variables.push(("OMPI_MCA_orte_default_hostfile", "/etc/mpi/hostfile"));
    let hosts = "10.0.0.7\ttrain-worker-2.train.default.svc.cluster.local\ttrain-worker-2\n";
    let mut host = Host {
        variables: &variables,
        name: "train-worker-2",
        files: &[("/etc/hosts", hosts)],
        ..Host::default()
    };
    assert_eq!(host.found(), "2 of 3, task 0, at train-worker-0.train.default.svc.cluster.local");
    host.files = &[("/etc/mpi/hostfile", "# workers\n\ntrain-worker-0.train.default.svc slots=8\n")];
    assert_eq!(host.found(), "2 of 3, task 0, at train-worker-0.train.default.svc");
    let hydra = [
        ("PMI_SIZE", "4"),
        ("PMI_RANK", "3"),
        ("MPI_LOCALNRANKS", "2"),
        ("MPI_LOCALRANKID", "1"),
        ("SLURM_JOB_NODELIST", "n[1-2]"),
    ];
    assert_eq!(Host { variables: &hydra, ..Host::default() }.found(), "1 of 2, task 1, at n1");
    // mpiexec -hosts n1,n2 -n 4: ranks 0 and 2 are on the first node.
    let around = [("PMI_SIZE", "4"), ("PMI_RANK", "1"), ("MPI_LOCALNRANKS", "2"), ("MPI_LOCALRANKID", "0")];
    let said = Host { variables: &around, ..Host::default() }.found();
    assert!(said.contains("start one on each node (mpiexec -ppn 1)"), "{said}");
}

#[test]
fn jobs_of_kubernetes() {
    let hosts =
        "127.0.0.1 localhost\n10.0.0.7 train-node-0-3.train.default.svc.cluster.local train-node-0-3\n";
    let index = [("JOB_COMPLETION_INDEX", "3"), ("JOBSET_NAME", "train")];
    let mut host = Host {
        variables: &index,
        command: "torchrun --nnodes=4 train.py",
        name: "train-node-0-3",
        files: &[("/etc/hosts", hosts)],
    };
    assert_eq!(host.found(), "3 of 4, task 0, at train-node-0-0.train.default.svc.cluster.local");
    host.files = &[];
    assert_eq!(host.found(), "3 of 4, task 0, at train-node-0-0.train");
    host.variables = &index[..1];
    assert!(host.found().contains("where the nodes meet: the Pods of the Indexed Job have no subdomain"));
    host.command = "python train.py";
    assert_eq!(
        host.found(),
        "cannot determine how many nodes the job has and where the nodes meet: the Pods of the Indexed Job have no subdomain, so they cannot resolve each other's names; set --nodes N and --meet HOST, a name or address of node 0"
    );
    let part = host
        .asked(&Overrides { nodes: Some(4), node: None, meet: Some("here:1"), ..Overrides::default() })
        .unwrap();
    assert_eq!((part.node, part.meet.as_deref()), (3, Some("here:1")));
    assert_eq!(part.evidence, ["--nodes=4", "JOB_COMPLETION_INDEX=3", "--meet=here:1"]);
}

#[test]
fn leader_worker_sets() {
    let variables =
        [("LWS_LEADER_ADDRESS", "serve-0.serve.default"), ("LWS_GROUP_SIZE", "3"), ("LWS_WORKER_INDEX", "2")];
    let host = Host { variables: &variables, name: "serve-0-2", ..Host::default() };
    assert_eq!(host.found(), "2 of 3, task 0, at serve-0.serve.default");
    assert_eq!(host.part().names, ["serve-0", "serve-0-1", "serve-0-2"]);
}

#[test]
fn jobs_of_volcano() {
    let lists = [
        ("VC_TASK_INDEX", "1"),
        ("VK_TASK_INDEX", "1"),
        ("VC_MPIMASTER_HOSTS", "train-mpimaster-0.train"),
        ("VC_MPIWORKER_HOSTS", "train-mpiworker-0.train,train-mpiworker-1.train"),
        ("VC_MPIWORKER_NUM", "2"),
    ];
    let mut host = Host { variables: &lists, name: "train-mpiworker-1", ..Host::default() };
    assert_eq!(host.found(), "1 of 2, task 0, at train-mpiworker-0.train");
    host.name = "other";
    assert!(host.found().contains("no VC_..._HOSTS names other"));
    let both = [
        ("VC_TASK_INDEX", "0"),
        ("VC_WORKER_HOSTS", "train-worker-0.train,train-worker-1.train"),
        ("VC_MASTER_HOSTS", "train-master-0.train"),
    ];
    let host = Host { variables: &both, name: "train-worker-0", ..Host::default() };
    assert_eq!(host.found(), "1 of 3, task 0, at train-master-0.train");
    assert_eq!(host.part().names, ["train-master-0", "train-worker-0", "train-worker-1"]);
}

#[test]
fn numbers_by_hand_win() {
    let slurm = Host { variables: &SLURM, ..Host::default() };
    let part = slurm
        .asked(&Overrides { nodes: Some(2), node: Some(1), meet: Some("here"), ..Overrides::default() })
        .unwrap();
    assert_eq!((part.nodes, part.node, part.meet.as_deref()), (2, 1, Some("here")));
    let none = Host::default();
    let ask = |nodes, node, meet| none.asked(&Overrides { nodes, node, meet, prefix: "" });
    assert_eq!(ask(Some(1), None, None).unwrap().node, 0);
    assert_eq!(ask(Some(2), Some(0), None).unwrap().meet, None);
    for (nodes, node, meet, why) in [
        (
            None,
            None,
            None,
            "how many nodes the job has, which of them this one is and where the nodes meet (no variable of a known launcher is set",
        ),
        (Some(2), None, None, "which of the 2 nodes (--nodes=2) this one is and where the nodes meet"),
        (None, Some(0), None, "how many nodes the job has (no variable"),
        (None, Some(1), Some("a"), "cannot determine how many nodes"),
        (Some(2), None, Some("a"), "which of the 2 nodes (--nodes=2) this one is"),
        (Some(2), Some(1), None, "where the nodes meet"),
        (Some(2), Some(2), Some("a"), "--node=2 and --nodes=2 contradict each other"),
        (Some(0), Some(0), None, "--nodes=0: a job has 1 to 65536 nodes"),
        (Some(70_000), Some(0), None, "--nodes=70000: a job has 1 to 65536 nodes"),
    ] {
        let error = ask(nodes, node, meet).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    let asked = Overrides { prefix: "preflight-", ..Overrides::default() };
    let all = "; set --preflight-nodes N, --preflight-node I and --preflight-meet HOST, a name or address of node 0";
    assert!(none.asked(&asked).unwrap_err().to_string().ends_with(all));
}

#[test]
fn contradictions_and_nonsense_are_sentences() {
    for (name, value, why) in [
        ("SLURM_NODEID", "3", "SLURM_NODEID=3 and SLURM_STEP_NUM_NODES=3 contradict each other"),
        ("SLURM_NODEID", "-1", "SLURM_NODEID=-1: this is not a number"),
        ("SLURM_STEP_NUM_NODES", "many", "SLURM_STEP_NUM_NODES=many: this is not a number"),
        ("SLURM_STEP_NODELIST", "node[1-", "SLURM_STEP_NODELIST is not a list of hosts"),
    ] {
        let variables: Vec<_> =
            SLURM.iter().map(|&(known, old)| (known, if known == name { value } else { old })).collect();
        let found = Host { variables: &variables, ..Host::default() }.found();
        assert!(found.contains(why), "{found}");
    }
}
