"""A worker of torchrun, which writes what happens to it to files of a folder.

    worker.py FOLDER save|ignore

Step by step, all workers agree on whether one of them was asked to end. Then each
saves, which takes three seconds, and ends; or none does where they are to ignore it.
"""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist

folder, mode = sys.argv[1:]
rank = os.environ["RANK"]
asked = 0


def write(what, line):
    with open(f"{folder}/{what}-{rank}", "a") as file:
        file.write(f"{line}\n")


def ask(number, frame):
    global asked
    asked = 1 if mode == "save" else 0
    write("asked", signal.Signals(number).name)


signal.signal(signal.SIGTERM, ask)
dist.init_process_group("gloo")
for step in range(sys.maxsize):
    anyone = torch.tensor([asked])
    dist.all_reduce(anyone)
    if step == 0:
        for name, value in os.environ.items():
            write("environment", f"{name}={value}")
        write("ready", "leads a session" if os.getsid(0) == os.getpid() else "leads none")
    if anyone.item():
        break
    time.sleep(0.02)
write("saving", "begun")
time.sleep(3)
write("saved", "done")
