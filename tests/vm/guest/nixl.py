"""Moves data from one agent of NIXL to another one of this process, and says that it arrived."""

import time

import numpy
from nixl_cu12._api import nixl_agent, nixl_agent_config

SIZE = 1 << 20


def agent(name):
    return nixl_agent(name, nixl_agent_config(backends=["UCX"]))


def registered(owner, data):
    owner.register_memory([(data.ctypes.data, data.nbytes, 0, "")], "DRAM")
    return owner.get_xfer_descs([(data.ctypes.data, data.nbytes, 0)], "DRAM")


reader, owner = agent("reader"), agent("owner")
here, there = numpy.zeros(SIZE, numpy.uint8), numpy.arange(SIZE, dtype=numpy.uint8)
local, remote = registered(reader, here), registered(owner, there)
reader.add_remote_agent(owner.get_agent_metadata())
owner.add_remote_agent(reader.get_agent_metadata())
transfer = reader.initialize_xfer("READ", local, remote, "owner", b"")
state = reader.transfer(transfer)
while state == "PROC":
    time.sleep(0.01)
    state = reader.check_xfer_state(transfer)
print("arrived" if state == "DONE" and (here == there).all() else f"lost: {state}")
