#!/usr/bin/env python3
"""Says which variables a wheel reads that the model does not know: names.py PACKAGE VERSION WHEEL [LIBRARY]

LIBRARY is an earlier release that the model knows: what is in there as well is no new variable, such as an error's name.
"""

import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

LIBRARIES = Path(__file__).resolve().parents[2] / "src/libraries"
# What a variable is called that may decide which device, address or network is used. Of a program's own settings, the
# others are only counted.
ABOUT_NETWORKS = re.compile(r"_(HCA|HCAS|NIC|NICS|GID|IB|RDMA|ROCE|IFNAME|HOST|HOSTNAME|IP|ADDR|ADDRESS|NET|NETDEV|TC|SL)(_|$)")
PREFIXES = {
    "nvidia-nccl": ("NCCL_",), "nixl": ("NIXL_",), "nvidia-nvshmem": ("NVSHMEM_",),
    "mooncake": ("MC_", "MOONCAKE_"), "sglang": ("SGLANG_",), "vllm": ("VLLM_",),
}


def listed(name):
    """The first words of a list's lines."""
    lines = (LIBRARIES / name).read_text().splitlines()
    return {line.split()[0] for line in lines if line and not line.startswith("#")}


def known():
    """The names in the lists, and in the model itself."""
    names = set().union(*(listed(f"known/{name}.txt") for name in ("others", "nvshmem", "mooncake", "uccl")))
    names |= listed("nccl/variables.txt")
    for source in LIBRARIES.rglob("*.rs"):
        names |= set(re.findall(r'"([A-Z][A-Z0-9]*_[A-Z0-9_]+)"', source.read_text()))
    return names


def read_names(wheel, prefixes):
    """Whole strings of shared objects, and names in quotes in Python's sources."""
    start = b"(?:" + "|".join(prefixes).encode() + b")[A-Z0-9_]*[A-Z0-9]"
    in_object, in_source = re.compile(rb"\0(" + start + rb")(?=\0)"), re.compile(rb"[\"'](" + start + rb")[\"']")
    names = set()
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            pattern = in_source if name.endswith(".py") else in_object if re.search(r"\.so(\.|$)", name) else None
            if pattern:
                names |= {found.decode() for found in pattern.findall(archive.read(name))}
    return names


def nvshmem(wheel):
    """The names without prefix that NVSHMEM completes as it reads them, with some strings that are no names."""
    with zipfile.ZipFile(wheel) as archive:
        library = next(name for name in archive.namelist() if "libnvshmem_host.so" in name)
        found = re.findall(rb"\0([A-Z][A-Z0-9]*_[A-Z0-9_]*[A-Z0-9])(?=\0)", archive.read(library))
    return {f"NVSHMEM_{name.decode()}" for name in found if not name.startswith((b"NVSHMEM", b"CUDA_", b"NVTX_"))}


# Prints every option of the UCX in a directory, also the hidden ones (1: values, 8: hidden).
PRINT_UCX = """
import ctypes, glob, sys
# libucs first: libucm needs it, and it needs libucm.
libraries = [ctypes.CDLL(path, ctypes.RTLD_GLOBAL) for name in ("ucs", "uct", "ucp")
             for path in glob.glob(f"{sys.argv[1]}/lib{name}-*.so*")]
for path in glob.glob(f"{sys.argv[1]}/ucx/libuct_*.so*"):
    try: ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
    except OSError: pass # It needs a library that is not here, such as CUDA's.
ucs = libraries[0]
ucs.ucs_config_parser_print_all_opts(
    ctypes.c_void_p.in_dll(ctypes.CDLL(None), "stdout"), b"UCX_", 9, ctypes.byref(ctypes.c_char.in_dll(ucs, "ucs_config_global_list")), None)
"""


def ucx(wheel):
    """The variables of the UCX in a wheel, as UCX itself lists them; whether it could be asked."""
    with tempfile.TemporaryDirectory() as directory, zipfile.ZipFile(wheel) as archive:
        archive.extractall(directory)
        libraries = next((path.parent for path in Path(directory).rglob("libucs-*.so*")), None)
        if libraries is None:
            return set(), "the wheel has no libucs"
        asked = subprocess.run([sys.executable, "-c", PRINT_UCX, str(libraries)], capture_output=True, text=True,
                               env={"LD_LIBRARY_PATH": str(libraries)})
        names = set(re.findall(r"^(UCX_[A-Z0-9_]+)=", asked.stdout, re.M))
        return names, "" if names else f"libucs lists no variable: {asked.stderr.strip()}"


def main(package, version, wheel, earlier=None):
    prefixes = next(names for start, names in PREFIXES.items() if package.startswith(start))
    names = read_names(wheel, prefixes)
    if package.startswith("nvidia-nvshmem"):
        names |= nvshmem(wheel)
    missing = names - known()
    if earlier:
        missing = {name for name in missing if f"\0{name}\0".encode() not in Path(earlier).read_bytes()}
    # NCCL's names and these libraries' decide about networks altogether.
    if package.startswith(("sglang", "vllm", "mooncake", "nixl")):
        shown = sorted(name for name in missing if ABOUT_NETWORKS.search(name))
    else:
        shown = sorted(missing)
    print(f"{package} {version}: {len(names)} variables, {len(missing)} of them not in the model")
    print("".join(f"    {name}\n" for name in shown), end="")
    if len(shown) < len(missing):
        print(f"    and {len(missing) - len(shown)} whose names are not about devices or addresses")
    if package.startswith("nixl"):
        names, why = ucx(wheel)
        fields = listed("known/ucx.txt")
        missing = sorted(name for name in names
                         if not any(name.endswith(f"_{field}") for field in fields))
        print(f"the UCX in it: {why or f'{len(names)} variables, {len(missing)} of them not in the model'}")
        print("".join(f"    {name}\n" for name in missing), end="")


if __name__ == "__main__":
    main(*sys.argv[1:])
