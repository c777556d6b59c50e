"""Mooncake's Transfer Engine, as its wheel has it.

  engine.py take ADDRESS             starts an engine; its log says which GIDs it takes
  engine.py transfer ADDRESS         two processes, and data that goes from one to the other

The folder of the wheel is in PYTHONPATH.
"""

import ctypes
import multiprocessing
import os
import sys

from mooncake.engine import TransferEngine

SIZE = 1 << 20


def engine(address):
    """An engine that others find by ADDRESS and a port, without a server for metadata."""
    started = TransferEngine()
    if started.initialize(address, "P2PHANDSHAKE", "rdma", "") != 0:
        sys.exit("the engine does not start")
    return started


def memory(started):
    """Memory of SIZE bytes that the engine knows."""
    held = ctypes.create_string_buffer(SIZE)
    if started.register_memory(ctypes.addressof(held), SIZE) != 0:
        sys.exit("the engine cannot register memory")
    return held


def receive(address, to_sender, from_sender):
    """The process that is written to. It answers with what it has."""
    started = engine(address)
    held = memory(started)
    to_sender.send((f"{address}:{started.get_rpc_port()}", ctypes.addressof(held)))
    from_sender.recv()
    to_sender.send(held.raw)
    from_sender.recv()


def transfer(address):
    """Writes random bytes into the memory of another process, and compares what it has."""
    here, there = multiprocessing.get_context("spawn").Pipe()
    context = multiprocessing.get_context("spawn")
    other = context.Process(target=receive, args=(address, there, there), daemon=True)
    other.start()
    there.close()
    peer, at = here.recv()
    started = engine(address)
    held = memory(started)
    wanted = os.urandom(SIZE)
    ctypes.memmove(held, wanted, SIZE)
    code = started.transfer_sync_write(peer, ctypes.addressof(held), at, SIZE)
    here.send("look")
    arrived = here.recv() == wanted
    here.send("end")
    other.join()
    print(f"transfer: {code}, {'the data arrived' if arrived else 'no data'}", flush=True)


if __name__ == "__main__":
    what, own = sys.argv[1:]
    if what == "take":
        engine(own)
    else:
        transfer(own)
    # The engine's threads would keep the process until they have given up.
    sys.stdout.flush()
    os._exit(0)
