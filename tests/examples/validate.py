"""Reads Kubernetes manifests and prints them as JSON, with what their APIs refuse.

Core kinds go through Kubernetes' own schemas, in the oldest and the newest release
that there is one for. Of the kinds that operators define, each field has to be one
of the operator's published model; the Pods in them go through the core schema.
"""

import ast
import json
import re
import sys
import types
import typing
from importlib import util
from pathlib import Path

import kubernetes_validate
import yaml
from kubernetes_validate.utils import all_versions

RELEASES = [all_versions()[0], all_versions()[-1]]

# No package has the operator's model of v2beta1. What is below these fields is the same as in
# v1.
MPI_JOB = {
    "apiVersion": "str",
    "kind": "str",
    "metadata": "V1ObjectMeta",
    "spec": {
        "launcherCreationPolicy": "str",
        "mpiImplementation": "str",
        "mpiReplicaSpecs": "dict(str, KubeflowOrgV1ReplicaSpec)",
        "runLauncherAsWorker": "bool",
        "runPolicy": "KubeflowOrgV1RunPolicy",
        "slotsPerWorker": "int",
        "sshAuthMountPath": "str",
    },
}

# No package has these models. The names are those of the operators' API references.
LEADER_WORKER_SET = {
    "apiVersion": "str",
    "kind": "str",
    "metadata": "V1ObjectMeta",
    "spec": {
        "replicas": "int",
        "leaderWorkerTemplate": {
            "leaderTemplate": "V1PodTemplateSpec",
            "workerTemplate": "V1PodTemplateSpec",
            "size": "int",
            "restartPolicy": "str",
        },
        "startupPolicy": "str",
    },
}

RAY_CLUSTER = {
    "apiVersion": "str",
    "kind": "str",
    "metadata": "V1ObjectMeta",
    "spec": {
        "rayVersion": "str",
        "headGroupSpec": {
            "rayStartParams": "dict(str, str)",
            "serviceType": "str",
            "template": "V1PodTemplateSpec",
        },
        "workerGroupSpecs": [
            {
                "groupName": "str",
                "replicas": "int",
                "minReplicas": "int",
                "maxReplicas": "int",
                "rayStartParams": "dict(str, str)",
                "template": "V1PodTemplateSpec",
            }
        ],
    },
}

PLAIN = {"str": str, "int": int, "bool": bool}


def core(document, releases=RELEASES):
    """What Kubernetes refuses of a document of its own."""
    for release in releases:
        try:
            kubernetes_validate.validate(document, release, strict=True)
        except kubernetes_validate.ValidationError as error:
            path = ".".join(str(part) for part in error.path)
            yield f"Kubernetes {release}: {path}: {error.message}"
        except kubernetes_validate.SchemaNotFoundError as error:
            yield error.message


def pod(template):
    """What Kubernetes refuses of the Pods that an operator makes of this."""
    metadata = {"name": "pod", **template.get("metadata", {})}
    yield from core({**template, "apiVersion": "v1", "kind": "Pod", "metadata": metadata})


def metadata(value):
    yield from core({"apiVersion": "v1", "kind": "ConfigMap", "metadata": value})


def job(template):
    yield from core({**template, "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}})


# The types of core Kubernetes, under the names that the models use for them.
CORE = {
    "V1ObjectMeta": metadata,
    "V1PodTemplateSpec": pod,
    "IoK8sApimachineryPkgApisMetaV1ObjectMeta": metadata,
    "IoK8sApiBatchV1JobTemplateSpec": job,
}


def kubeflow(name):
    """The fields of a class of kubeflow-training, which is read and not imported: it wants
    a client of Kubernetes."""
    folder = Path(util.find_spec("kubeflow").submodule_search_locations[0]) / "training/models"
    file = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    assigned = {}
    for node in ast.walk(ast.parse((folder / f"{file}.py").read_text())):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            if node.targets[0].id in ("openapi_types", "attribute_map"):
                assigned[node.targets[0].id] = ast.literal_eval(node.value)
    return {assigned["attribute_map"][field]: kind for field, kind in assigned["openapi_types"].items()}


def fields(kind, value, path):
    """What a model does not have, or has as another type."""
    if isinstance(kind, str):
        inner = re.fullmatch(r"(dict\(str, |list\[)(.*)[)\]]", kind)
        if kind in CORE:
            for error in CORE[kind](value):
                yield f"{path}: {error}"
            return
        if inner:
            items = value.items() if isinstance(value, dict) else enumerate(value)
            for key, item in items:
                yield from fields(inner[2], item, f"{path}.{key}")
            return
        if kind in PLAIN:
            if type(value) is not PLAIN[kind]:
                yield f"{path}: {value!r} is no {kind}"
            return
        kind = kubeflow(kind)
    if isinstance(kind, list):
        for index, item in enumerate(value):
            yield from fields(kind[0], item, f"{path}.{index}")
        return
    for key, item in value.items():
        if key not in kind:
            yield f"{path}.{key}: there is no such field"
        else:
            yield from fields(kind[key], item, f"{path}.{key}")


def typed(kind, value, path):
    """The same for the models that are annotated."""
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        yield from typed(next(part for part in arguments if part is not type(None)), value, path)
    elif typing.get_origin(kind) is typing.Annotated:
        yield from typed(arguments[0], value, path)
    elif typing.get_origin(kind) is list:
        for index, item in enumerate(value):
            yield from typed(arguments[0], item, f"{path}.{index}")
    elif getattr(kind, "__name__", "") in CORE:
        for error in CORE[kind.__name__](value):
            yield f"{path}: {error}"
    elif hasattr(kind, "model_fields"):
        known = {field.alias or name: field for name, field in kind.model_fields.items()}
        for key, item in value.items():
            if key not in known:
                yield f"{path}.{key}: there is no such field"
            else:
                yield from typed(known[key].annotation, item, f"{path}.{key}")


def without_pods(value):
    """The same, with the Pods left out: the models take a quantity for a table."""
    if isinstance(value, list):
        return [without_pods(item) for item in value]
    if not isinstance(value, dict):
        return value
    is_pod = "template" in value and "name" in value
    return {key: {} if is_pod and key == "template" else without_pods(item) for key, item in value.items()}


def trainer_api(document):
    """What the models of kubeflow-trainer-api refuse, which has those of JobSet, too."""
    import kubeflow_trainer_api.models as models
    from pydantic import ValidationError

    group = "JobsetV1alpha2" if document["kind"] == "JobSet" else "TrainerV1alpha1"
    model = getattr(models, group + document["kind"])
    yield from typed(model, document, document["kind"])
    try:
        model.model_validate(without_pods({**document, "metadata": {}}))
    except ValidationError as error:
        yield str(error)


def refused(document):
    match (document.get("apiVersion"), document.get("kind")):
        case ("kubeflow.org/v1", "PyTorchJob"):
            return fields("KubeflowOrgV1PyTorchJob", document, "PyTorchJob")
        case ("kubeflow.org/v2beta1", "MPIJob"):
            return fields(MPI_JOB, document, "MPIJob")
        case ("jobset.x-k8s.io/v1alpha2", "JobSet"):
            return trainer_api(document)
        case ("trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime" | "TrainJob"):
            return trainer_api(document)
        case ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"):
            return fields(LEADER_WORKER_SET, document, "LeaderWorkerSet")
        case ("ray.io/v1", "RayCluster"):
            return fields(RAY_CLUSTER, document, "RayCluster")
        case ("admissionregistration.k8s.io/v1", _):
            # The oldest release does not have these kinds.
            return core(document, RELEASES[-1:])
        case (str(), str()):
            return core(document)
        case _:
            return ["it has no apiVersion or kind"]


def read(path):
    documents = list(yaml.safe_load_all(Path(path).read_text()))
    errors = [error for document in documents for error in refused(document)]
    return {"path": path, "documents": documents, "errors": errors}


json.dump([read(path) for path in sys.argv[1:]], sys.stdout)
