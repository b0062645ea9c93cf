#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The library exports what its headers declare and its map lists, nothing else; inside, all is ferry_*.

    check_symbols.py SOURCE_ROOT LIBFERRY_SO LIBFERRY_INTERNAL_A
"""
import re
import subprocess
import sys

import style


def nm(*arguments):
    done = subprocess.run(["nm", *arguments], capture_output=True, text=True, timeout=120, check=True)
    rows = [line.split() for line in done.stdout.splitlines()]
    return [(row[-2], row[-1]) for row in rows if len(row) >= 3 and len(row[-2]) == 1]


def declared(top):
    names = {}
    for path in style.files(top, ".h", under=("include/ferry",)):
        text = style.read(top, path)
        for match in re.finditer(r"^FERRY_API(?:_CHECKED)?\s+[^;{]*?\b(ferry_\w+)\s*\(", text, re.M | re.S):
            names[match.group(1)] = (path, style.line_of(text, match.start()))
    return names


def mapped(top):
    text = style.code_only(style.read(top, "src/ferry.map"))
    return {m.group(1): style.line_of(text, m.start()) for m in re.finditer(r"^\s+(ferry_\w+);", text, re.M)}


def main():
    if not style.first_tool("nm"):
        style.skip("nm (binutils) is not installed")
    top = style.root()
    report = style.Report("symbols")
    exported = {name.split("@")[0]: name for kind, name in nm("-D", "--defined-only", sys.argv[2]) if kind in "TDBRVWi"}
    in_headers, in_map = declared(top), mapped(top)
    report.looked_at = len(exported)
    for name, (path, line) in sorted(in_headers.items()):
        if name not in in_map:
            report.add("src/ferry.map", 1, "%s is declared in %s:%d and not listed" % (name, path, line))
        if name not in exported:
            report.add(path, line, "%s is declared and the library does not export it" % name)
    for name, line in sorted(in_map.items()):
        if name not in in_headers:
            report.add("src/ferry.map", line, "%s is listed and no installed header declares it" % name)
    for name in sorted(exported):
        if name not in in_map:
            report.add("src/ferry.map", 1, "%s is exported and not listed" % name)
    for kind, name in nm("-g", "--defined-only", sys.argv[3]):
        report.looked_at += 1
        # Sanitizers add symbols of their own to instrumented objects.
        if not name.startswith("ferry_") and not re.match(r"__(asan|odr_asan|tsan|ubsan|sanitizer|start|stop)_", name):
            report.add("src", 1, "internal symbol %s (%s) does not start with ferry_" % (name, kind))
    report.finish()


main()
