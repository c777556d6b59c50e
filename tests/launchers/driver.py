"""The driver of a job on Ray: an actor on each node prints what NCCL finds and gets there.

    driver.py NODES keep|ignore|runtime NCCL OFFSET

Waits for so many nodes. Each actor gets the driver's variables of NCCL, UCX and vLLM, as vLLM
copies them to its workers, but for the names in vLLM's list; with `ignore`, the list does not
count. With `runtime`, Ray itself copies them all (`runtime_env`), and starts each worker through
`rdma-init exec`. It then loads the library NCCL, which has its ncclGetEnv at OFFSET (hexadecimal). Prints a line
for each node: ADDRESS NAME=VALUE... gets:NAME=VALUE...
"""

import ctypes
import json
import os
import sys
import time

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

count, mode, library, offset = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4], 16)
asked = ("NCCL_IB_HCA", "NCCL_SOCKET_IFNAME")
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

    def gets(self):
        nccl = ctypes.CDLL(library)
        if nccl.ncclGetUniqueId(ctypes.create_string_buffer(128)) != 0:
            raise RuntimeError("NCCL does not start")
        with open("/proc/self/maps") as maps:
            start = min(int(line.split("-")[0], 16) for line in maps if line.rstrip().endswith(library))
        get = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_char_p)(start + offset)
        return {name: (get(name.encode()) or b"").decode() for name in asked}


for node in nodes:
    there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    runtime = {"env_vars": copied, "py_executable": "/rdma-init exec -- python"} if mode == "runtime" else {}
    worker = Worker.options(scheduling_strategy=there, runtime_env=runtime).remote()
    if mode != "runtime":
        ray.get(worker.update.remote(copied))
    words = [f"{name}={value}" for name, value in sorted(ray.get(worker.variables.remote()).items())]
    words += [f"gets:{name}={value}" for name, value in ray.get(worker.gets.remote()).items()]
    print(node["NodeManagerAddress"], *words)
