#!/usr/bin/env python3
"""Writes the linker script that puts the functions of a start beside each other (src/start.ld).

order.py MAP SCRIPT PROFILE...: the linker's map of the program, the script to write, and what callgrind found in each
process of some starts. Functions of the first profiles come first.
"""

import bisect
import re
import sys

# The variants of a C function for different processors, such as memmove-evex-unaligned-erms.o. Which one runs
# depends on the processor, and valgrind's is not the machine's. The variants of one processor are together.
VARIANT = re.compile(r"^libc\.a:(\w+?)-(avx512|evex512|evex|avx2|sse2|sse4|avx|no-vzeroupper)[\w-]*\.o$")
PROCESSORS = ["evex", "avx512", "avx", "sse"]

# What runs before `main`, or is `main`, and has no name of its own; and how the C library looks up the functions of the
# vDSO, which valgrind hides from it.
FIRST = ["*crt1.o(.text)", "*crtbeginT.o(.text)", "*(.text.main)"]
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
    """Returns the sections of LLD's map, sorted: where each begins, its size, and its file and name."""
    found = []
    for line in open(path):
        match = re.match(r"\s*([0-9a-f]+)\s+[0-9a-f]+\s+([0-9a-f]+)\s+\d+ {9,16}(\S.*)", line)
        if match:
            found.append((int(match[1], 16), int(match[2], 16), match[3]))
    return sorted(found)


def executed(path):
    """Returns the addresses of the instructions in a profile of callgrind, in the order of the profile."""
    return [int(address, 16) for address in re.findall(r"^0x([0-9a-f]+) ", open(path).read(), re.M)]


def section_at(all_sections, address):
    """Returns the name and the size of the section with this address; None if there is none."""
    start, size, text = all_sections[bisect.bisect(all_sections, (address, float("inf"))) - 1]
    return (text, size) if start <= address < start + size else None


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
    if member is None:
        # A function of this program with a plain name.
        return f"*({name})" if name.startswith(".text.") else None
    return f"*{file}:{member}({name})"


def main(map_file, script, *profiles):
    all_sections = sections(map_file)
    order = {}
    for profile in profiles:
        found = {section_at(all_sections, address) for address in executed(profile)}
        # Little of a large function is executed, so large ones would keep the others apart. By name, so that
        # two runs give one list.
        for section in sorted(filter(None, found), key=lambda section: (section[1] > LARGE, pattern(section) or "")):
            order.setdefault(section)
    matched = {}
    for _, size, text in all_sections:
        matched.setdefault(pattern((text, size)), set()).add((text, size))
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
