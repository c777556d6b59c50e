"""The driver of a job on Ray: an actor on each node prints what NCCL would find there.

    driver.py NODES keep|ignore

Waits for so many nodes. Each actor gets the driver's variables of NCCL, UCX and vLLM, as vLLM
copies them to its workers, but for the names in vLLM's list; with `ignore`, the list does not
count. Prints a line for each node: ADDRESS NAME=VALUE...
"""

import json
import os
import sys
import time

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

count, mode = int(sys.argv[1]), sys.argv[2]
prefixes = ("NCCL_", "UCX_", "VLLM_")

ray.init(address="auto", logging_level="ERROR", log_to_driver=False)
until = time.monotonic() + 120
while True:
    nodes = [node for node in ray.nodes() if node["Alive"]]
    if len(nodes) == count:
        break
    if time.monotonic() > until:
        sys.exit(f"{len(nodes)} nodes of {count}")
    time.sleep(0.05)

root = os.environ.get("VLLM_CONFIG_ROOT", os.path.expanduser("~/.config/vllm"))
with open(os.path.join(root, "ray_non_carry_over_env_vars.json")) as file:
    kept = set(json.load(file)) if mode == "keep" else set()
copied = {name: value for name, value in os.environ.items() if name.startswith(prefixes) and name not in kept}


@ray.remote(num_cpus=0)
class Worker:
    def update(self, variables):
        os.environ.update(variables)

    def variables(self):
        return {name: value for name, value in os.environ.items() if name.startswith(prefixes)}


for node in nodes:
    there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    worker = Worker.options(scheduling_strategy=there).remote()
    ray.get(worker.update.remote(copied))
    variables = ray.get(worker.variables.remote())
    print(node["NodeManagerAddress"], *(f"{name}={value}" for name, value in sorted(variables.items())))
