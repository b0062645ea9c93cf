#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Functions stay within 70 lines and 6 parameters, files within 800 lines, lines within 100 columns.

A test whose rows stand in its own function may be longer.
"""
import re

import style

FUNCTION_LINES_MAX, TEST_LINES_MAX = 70, 140
PARAMETERS_MAX = 6
FILE_LINES_MAX = 800
COLUMNS_MAX = 100
# Callbacks whose parameters another library decides.
FOREIGN = re.compile(r"struct MHD_Connection \*")
# Longer files that are one subject, each with the reason.
LONG_FILES = {}
# Callbacks whose signature a foreign library dictates.
FOREIGN_CALLBACKS = {"ferry_control_on_request": "MHD_AccessHandlerCallback"}


def functions(text):
    """(line of the opening brace, line of the closing brace, signature) of each function definition."""
    lines = style.code_only(text).split("\n")
    start = None
    for number, line in enumerate(lines, 1):
        if line.startswith("{"):
            start = number
        elif line.startswith("}") and start:
            head = start - 2
            while head >= 0 and lines[head].strip() and not lines[head].startswith(("#", "}", "{")) \
                    and not lines[head].rstrip().endswith(";"):
                head -= 1
            yield start, number, " ".join(lines[head + 1:start - 1])
            start = None


def parameter_count(signature):
    found = re.search(r"\((.*)\)\s*$", signature)
    if not found or found.group(1).strip() in ("", "void"):
        return 0
    depth, count = 0, 1
    for c in found.group(1):
        depth += (c in "([{") - (c in ")]}")
        count += c == "," and depth == 0
    return count


def main():
    top = style.root()
    report = style.Report("size")
    for path in style.files(top, ".c", ".h"):
        report.looked_at += 1
        text = style.read(top, path)
        allowed = TEST_LINES_MAX if path.startswith("tests/") else FUNCTION_LINES_MAX
        for start, end, signature in functions(text):
            if end - start > allowed:
                report.add(path, start, "function of %d lines, %d allowed" % (end - start, allowed))
            foreign = any(name + "(" in signature for name in FOREIGN_CALLBACKS)
            if parameter_count(signature) > PARAMETERS_MAX and not foreign:
                report.add(path, start, "%d parameters, %d allowed" % (parameter_count(signature), PARAMETERS_MAX))
        lines = text.splitlines()
        if len(lines) > FILE_LINES_MAX and path not in LONG_FILES:
            report.add(path, len(lines), "file of %d lines, %d allowed" % (len(lines), FILE_LINES_MAX))
        for number, line in enumerate(lines, 1):
            if len(line) > COLUMNS_MAX:
                report.add(path, number, "line of %d columns, %d allowed" % (len(line), COLUMNS_MAX))
    report.finish()


main()
