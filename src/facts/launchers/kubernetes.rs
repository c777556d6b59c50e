//! Kubernetes launchers: if their variables lack a value, the Pods' names may contain it.

use super::{MOST_NODES, Said, Seen, Sourced};

/// Adds the names of LeaderWorkerSet's Pods: the leader is `NAME-GROUP`, and its workers are `NAME-GROUP-1`
/// and so on (pkg/controllers of LeaderWorkerSet 0.8).
pub(super) fn leader_worker_set(_: &Seen, said: &mut Said) -> Result<bool, String> {
    if let (Some(nodes), Some(leader)) = (&said.nodes, &said.meet) {
        let leader = leader.value.split('.').next().unwrap_or_default();
        let workers = (1..nodes.value.min(MOST_NODES)).map(|index| format!("{leader}-{index}"));
        said.names = std::iter::once(leader.to_owned()).chain(workers).collect();
    }
    Ok(true)
}

/// Corrects and completes PyTorchJob's values. Its Pods are `NAME-master-0`, and the workers from
/// `NAME-worker-0` up. If the operator knows the number of processes on each node, WORLD_SIZE is a multiple
/// of it (`envvar.go` of training-operator 1.9).
pub(super) fn master_and_workers(seen: &Seen, said: &mut Said) -> Result<bool, String> {
    let each = seen.variable("PET_NPROC_PER_NODE").and_then(|text| text.parse::<u32>().ok());
    if let (Some(each @ 2..), Some(nodes)) = (each, &mut said.nodes)
        && nodes.value % each == 0
    {
        nodes.value /= each;
        nodes.from += &format!(" and PET_NPROC_PER_NODE={each}");
    }
    let master = said.meet.as_ref().and_then(|told| told.value.split('.').next());
    if let (Some(nodes), Some(job)) =
        (&said.nodes, master.and_then(|master| master.strip_suffix("-master-0")))
    {
        let workers = (1..nodes.value.min(MOST_NODES)).map(|index| format!("{job}-worker-{}", index - 1));
        said.names = std::iter::once(format!("{job}-master-0")).chain(workers).collect();
    }
    Ok(true)
}

/// Takes the node's index from the Pod's name: an elastic PyTorchJob has only workers, `NAME-worker-0` and so
/// on, and sets no variable with their index (`elastic.go` of training-operator 1.9).
pub(super) fn elastic_workers(seen: &Seen, said: &mut Said) -> Result<bool, String> {
    if said.node.is_none()
        && let Some((job, index)) = seen.host.rsplit_once("-worker-")
        && said.meet.as_ref().is_some_and(|told| told.value == format!("{job}-worker-0"))
        && let Ok(index) = index.parse()
    {
        said.node = Some(Sourced { value: index, from: format!("the name of this Pod, {}", seen.host) });
    }
    Ok(true)
}

/// Reads Volcano's variables: `VC_WORKER_HOSTS=train-worker-0.train,train-worker-1.train`, a list for each
/// task of the job, and this Pod's index within its own task. The master comes before the workers. Any other
/// task stands alone, such as the launcher of an MPI job, which has no devices.
pub(super) fn volcano(seen: &Seen, said: &mut Said) -> Result<bool, String> {
    let variable =
        ["VC_TASK_INDEX", "VK_TASK_INDEX"].into_iter().find_map(|name| Some((name, seen.variable(name)?)));
    let Some((index_name, index)) = variable else { return Ok(false) };
    let lists: Vec<(&str, Vec<&str>)> = seen
        .environment
        .iter()
        .filter(|(name, value)| name.starts_with("VC_") && name.ends_with("_HOSTS") && !value.is_empty())
        .map(|(name, value)| (name, value.split(',').collect()))
        .collect();
    let is_own = |host: &&str| host.split('.').next() == Some(seen.host);
    let Some(own) = lists.iter().find(|(_, hosts)| hosts.iter().any(is_own)) else {
        said.uncounted = Some(format!(
            "{index_name}={index} is there, but no VC_..._HOSTS names {}; the job needs the plugins env and svc",
            seen.host
        ));
        return Ok(true);
    };
    let named = |name: &str| lists.iter().find(|(list, _)| *list == name);
    let together = match (named("VC_MASTER_HOSTS"), named("VC_WORKER_HOSTS")) {
        (Some(master), Some(worker)) if own.0 == master.0 || own.0 == worker.0 => vec![master, worker],
        _ => vec![own],
    };
    let hosts: Vec<&str> = together.iter().flat_map(|(_, hosts)| hosts).copied().collect();
    let from = together.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" and ");
    let place = hosts.iter().position(is_own).and_then(|place| u32::try_from(place).ok());
    let text = hosts.join(",");
    said.nodes = u32::try_from(hosts.len()).ok().map(|count| Sourced::new(count, &from, &text));
    said.node = place.map(|place| Sourced { value: place, from: format!("{index_name}={index}") });
    said.meet = hosts.first().map(|first| Sourced { value: (*first).to_owned(), from: String::new() });
    said.names = hosts.iter().map(|host| host.split('.').next().unwrap_or(host).to_owned()).collect();
    Ok(true)
}

/// Takes node 0's address from the Pod's name. A Pod of an Indexed Job is called `JOB-INDEX` (kubernetes.io,
/// "Job with Pod-to-Pod Communication"). A Pod of a JobSet is called
/// `JOBSET-REPLICATEDJOB-JOB-INDEX.SUBDOMAIN`, where the subdomain is the JobSet's name unless another one is
/// set (pkg/controllers of JobSet 0.8). No variable contains the number of Pods.
pub(super) fn indexed_job(seen: &Seen, said: &mut Said) -> Result<bool, String> {
    // If a Job sets this variable, it means node 0, as for torchrun.
    let master = seen.variable("MASTER_ADDR").map(|host| Sourced::new(host.to_owned(), "MASTER_ADDR", host));
    let index = said.node.as_ref().map(|told| told.value.to_string()).unwrap_or_default();
    let stem = seen.host.strip_suffix(&index).filter(|stem| stem.ends_with('-'));
    said.meet = master.or_else(|| {
        let stem = stem?;
        let domain = domain(seen).or_else(|| seen.variable("JOBSET_NAME").map(str::to_owned))?;
        let host = format!("{stem}0.{domain}");
        Some(Sourced { from: format!("the name of this Pod, {}.{domain}", seen.host), value: host })
    });
    if said.meet.is_none() {
        said.placeless = Some(
            "the Pods of the Indexed Job have no subdomain, so they cannot resolve each other's names"
                .to_owned(),
        );
    }
    Ok(true)
}

/// Returns the host of worker 0 of an MPIJob, if this Pod is one of its workers. They are called
/// `JOB-worker-INDEX`, their subdomain is the job's name, and the host file lists them in that order
/// (pkg/controller/mpi_job_controller.go of mpi-operator 0.8).
pub(super) fn worker_0_of_mpi_job(seen: &Seen) -> Option<Sourced<String>> {
    let (job, _) = seen.host.rsplit_once("-worker-")?;
    let domain = domain(seen)?;
    let is_of_job = domain == job || domain.strip_prefix(job).is_some_and(|rest| rest.starts_with('.'));
    let from = format!("the name of this Pod, {}.{domain}", seen.host);
    is_of_job.then(|| Sourced { value: format!("{job}-worker-0.{domain}"), from })
}

/// Returns the names of an MPIJob's Pods, if this Pod is one of its workers and the job has this many.
pub(super) fn workers_of_mpi_job(seen: &Seen, nodes: u32) -> Vec<String> {
    let job = worker_0_of_mpi_job(seen).and_then(|_| seen.host.rsplit_once("-worker-"));
    let of = |(job, _): (&str, &str)| {
        (0..nodes.min(MOST_NODES)).map(|index| format!("{job}-worker-{index}")).collect()
    };
    job.map(of).unwrap_or_default()
}

/// Returns this Pod's domain. The kubelet writes it into `/etc/hosts` if the Pod has a subdomain.
fn domain(seen: &Seen) -> Option<String> {
    let hosts = (seen.file)("/etc/hosts")?;
    let lines = hosts.lines().map(|line| line.split('#').next().unwrap_or_default());
    let mut names = lines.flat_map(|line| line.split_whitespace().skip(1));
    names.find_map(|name| Some(name.strip_prefix(seen.host)?.strip_prefix('.')?.to_owned()))
}
