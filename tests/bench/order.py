#!/usr/bin/env python3
"""Writes the linker script that puts the functions of a start beside each other (src/start.ld).

order.py BINARY MAP SCRIPT PROFILE...: the binary with its symbols, the linker's map of it, the script to
write, and what callgrind found in each process of some starts. Functions of the first profiles come first.
"""

import re
import subprocess
import sys

# The variants of a C function for different processors, such as memmove-evex-unaligned-erms.o. Which one runs
# depends on the processor, and valgrind's is not the machine's. The variants of one processor are together.
VARIANT = re.compile(r"^libc\.a:(\w+?)-(avx512|evex512|evex|avx2|sse2|sse4|avx|no-vzeroupper)[\w-]*\.o$")
PROCESSORS = ["evex", "avx512", "avx", "sse"]

# What runs before `main`, or is `main`, and has no name of its own; and how the C library looks up the functions of the
# vDSO, which valgrind hides from it.
FIRST = ["*crt1.o(.text)", "*(.text.main)"]
FIRST += [f"*libc.a:dl-{name}.o(.text)" for name in ["object", "setup_hash", "lookup", "misc"]]

# In bytes.
LARGE = 4096

HEAD = """\
/* The functions that a start runs, beside each other: the kernel then maps few pages of the program, which is
   most of what a start costs. `make order` writes this file, for a release of Rust and of the code. A name that
   no longer exists matches nothing, and its function stays among the others. */
SECTIONS
{
  .text.start :
  {
"""
TAIL = """\
  }
}
INSERT BEFORE .text;
/* The table of a thread's keys, which no start uses, keeps the variables before it from those behind it. */
SECTIONS
{
  .bss.keys (NOLOAD) : { *libc.a:pthread_keys.o(.bss) }
}
INSERT AFTER .bss;
"""


def sections(path):
    """Returns the section of each symbol's address, by LLD's map: its file, its name, and its size."""
    found, current = {}, None
    for line in open(path):
        match = re.match(r"\s*([0-9a-f]+)\s+[0-9a-f]+\s+([0-9a-f]+)\s+\d+( +)(.*)", line)
        if not match:
            continue
        address, size, depth, text = int(match[1], 16), int(match[2], 16), len(match[3]), match[4]
        if depth < 9:
            current = None
        elif depth < 17:
            current = (text, size)
        elif current:
            found.setdefault(address, current)
    return found


def symbols(path):
    """Returns the addresses of each function."""
    found = {}
    for line in subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout.splitlines():
        address, kind, name = (line.split() + ["", ""])[:3]
        if kind and kind in "tTwWiI":
            found.setdefault(name, []).append(int(address, 16))
    return found


def executed(path):
    """Returns the names of the functions in a profile of callgrind."""
    names = re.findall(r"^c?fn=\(\d+\) (\S+)", open(path).read(), re.M)
    return [name.split("'")[0] for name in names]


def pattern(section):
    """Returns the pattern of a section, without what changes from build to build; None if it is not code."""
    match = re.match(r"(?:.*/)?([^/()]+)(?:\(([^()]*)\))?:\((\.text[^)]*)\)$", section[0])
    if not match:
        return None
    file, member, name = match.groups()
    if "._R" in name:
        # The hash of each crate, and the number of a copy.
        name = re.sub(r"Cs[0-9a-zA-Z]+_", "Cs*_", re.sub(r"\.(llvm\.)?\d+$", "*", name))
        return f"*({name})"
    return f"*{file}:{member}({name})" if member else None


def main(binary, map_file, script, *profiles):
    by_address, addresses = sections(map_file), symbols(binary)
    order = {}
    for profile in profiles:
        found = [by_address.get(address) for name in executed(profile) for address in addresses.get(name, [])]
        # Little of a large function is executed, so large ones would keep the others apart. By name, so that
        # two runs give one list.
        for section in sorted(filter(None, found), key=lambda section: (section[1] > LARGE, pattern(section) or "")):
            order.setdefault(section)
    matched = {}
    for section in set(by_address.values()):
        matched.setdefault(pattern(section), set()).add(section)
    patterns, families = [], []
    for section in order:
        text = pattern(section)
        if text is None or text in patterns:
            continue
        variant = VARIANT.match(text.split("(")[0].lstrip("*"))
        if variant:
            families.append(variant[1])
            continue
        size = sum(one[1] for one in matched[text])
        used = sum(one[1] for one in matched[text] if one in order)
        # A name that most functions of this name have nothing to do with.
        if size - used <= max(512, used // 2):
            patterns.append(text)
    variants = [
        f"*libc.a:{family}-{processor}*.o(.text .text.*)"
        for processor in PROCESSORS
        for family in dict.fromkeys(families)
    ]
    with open(script, "w") as file:
        file.write(HEAD + "".join(f"    {text}\n" for text in variants + FIRST + patterns) + TAIL)
    print(f"{script}: {len(patterns)} functions of {len(order)}", file=sys.stderr)


main(*sys.argv[1:])
