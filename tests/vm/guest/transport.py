"""NVSHMEM's transport over InfiniBand and RoCE (ibrc): it starts, and chooses HCAs and GIDs.

  transport.py MODULE      nvshmem_transport_ibrc.so.3

Soft-RoCE has no place on the PCI bus, so the module ends with an error after it has chosen. It does not
come to call CUDA.
"""

import ctypes
import sys

# The interface of NVSHMEM 3.2.
VERSION = 30000

transport = ctypes.c_void_p()
functions = ctypes.create_string_buffer(4096)
code = ctypes.CDLL(sys.argv[1]).nvshmemt_init(ctypes.byref(transport), functions, VERSION)
print(f"nvshmemt_init: {code}", flush=True)
