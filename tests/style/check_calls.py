#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Only the one caller of each contract calls through its table."""
import re

import style

CALLERS = {"src/transport/transport.c", "src/metadata/store.c", "src/reactor/reactor.c", "src/reactor/net.c",
           "src/foreign/urma.c", "src/transport/file/backend.c"}
CALL = re.compile(r"(?:->|\.|\b)ops\s*(?:->|\.)\s*(\w+)\s*\(")
CONSTRUCTOR = re.compile(r"__attribute__\s*\(\(\s*constructor|\b(?:strtok|sprintf|strcat|gets|alloca)\s*\(")


def main():
    top = style.root()
    report = style.Report("calls")
    for path in style.files(top, ".c", ".h", under=("src", "tools", "bench")):
        report.looked_at += 1
        text = style.code_only(style.read(top, path))
        if path not in CALLERS:
            for match in CALL.finditer(text):
                report.add(path, style.line_of(text, match.start()),
                           "calls %s through a table; only %s may" % (match.group(1), ", ".join(sorted(CALLERS))))
        for match in CONSTRUCTOR.finditer(text):
            report.add(path, style.line_of(text, match.start()), "not used in this code: " + match.group(0))
    report.finish()


main()
