#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the manual page ferry(3) from the contracts in the installed headers, as scdoc text.

    man3.py HEADER... > ferry.3.scd
"""
import os
import re
import sys

FUNCTION = re.compile(r"^/\*\*\n((?: \*[^\n]*\n)+?) \*/\nFERRY_API(?:_CHECKED)?\s+([^;{]*?\bferry_\w+\s*\([^;]*?\))\s*;",
                      re.M)
OPENING = re.compile(r"\A/\* SPDX[^\n]*\*/\n/\*\n((?: \*[^\n]*\n)+?) \*/\n")

HEAD = """ferry(3) "libferry"

# NAME

libferry - moves registered memory between processes, hosts and files

# SYNOPSIS

*#include <ferry/ferry.h>*

cc ... $(pkg-config --cflags --libs ferry)

# DESCRIPTION

Each fallible function returns a status by value; results come through parameters whose names end in
\\_out and are written only on success. The contracts below are those of the headers.

"""
TAIL = """# SEE ALSO

*ferry*(1), *ferry-bench*(1), *ferry-config*(1)
"""


def plain(comment):
    """The words of a comment without its stars."""
    return re.sub(r"^ \* ?", "", comment, flags=re.M).rstrip("\n")


def literal(text):
    return "```\n" + text + "\n```\n\n"


def page(paths):
    out = [HEAD]
    for path in paths:
        with open(path, encoding="utf-8") as f:
            text = f.read()
        functions = list(FUNCTION.finditer(text))
        if not functions:
            continue
        out.append("# <FERRY/%s>\n\n" % os.path.basename(path).upper())
        opening = OPENING.search(text)
        if opening:
            out.append(literal(plain(opening.group(1))))
        for match in functions:
            name = re.search(r"\b(ferry_\w+)\s*\(", match.group(2)).group(1)
            prototype = re.sub(r"\s+", " ", match.group(2)).replace("( ", "(")
            out.append("## %s\n\n" % name.replace("_", "\\_"))
            out.append(literal(prototype + ";\n\n" + plain(match.group(1)).split("\n", 1)[1].strip("\n")))
    out.append(TAIL)
    return "".join(out)


print(page(sys.argv[1:]), end="")
