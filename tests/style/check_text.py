#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Text rules: licence lines, no open markers, no trailing blanks, nothing that only makes sense elsewhere."""
import re

import style

NEEDS_SPDX = (".c", ".h", ".py", ".sh")
BINARY = (".bin", ".png", ".pdf", ".gz", ".raw")
MARKER = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b")
# Text must stand alone: no path outside of the tree, no number of a tracker that a reader cannot open.
ELSEWHERE = re.compile(r"\.\./shared\b|(?<![\w.])/work/|\bissues? #?\d+\b|(?<!\w)#\d{1,4}\b(?!\w)", re.I)
# A field report is cited where it became a test, nowhere else.
FIELD_REPORT = re.compile(r"\bfield report B\d\d\b", re.I)
SELF = "tests/style/check_text.py"


def is_script(text):
    return text.startswith("#!")


def check_file(report, path, text):
    head = "\n".join(text.splitlines()[:6])
    if (path.endswith(NEEDS_SPDX) or is_script(text)) and "SPDX-License-Identifier: Apache-2.0" not in head:
        report.add(path, 1, "no SPDX line in the first lines")
    for number, line in enumerate(text.splitlines(), 1):
        if MARKER.search(line):
            report.add(path, number, "open marker: " + line.strip())
        found = ELSEWHERE.search(line)
        # In C a # begins a directive, in a style sheet or script a colour or comment; prose only.
        if found and not (found.group(0).startswith("#") and not path.endswith(".md")):
            report.add(path, number, "speaks of something outside of the tree: " + found.group(0))
        if FIELD_REPORT.search(line) and not path.startswith("tests/"):
            report.add(path, number, "a field report is cited in tests only")
        if line != line.rstrip() and not path.endswith((".md", ".patch")):
            report.add(path, number, "blanks at the end of the line")
        if "\t" in line and path.endswith((".c", ".h", ".py", "meson.build")):
            report.add(path, number, "a tab; four spaces indent")
    if text and not text.endswith("\n"):
        report.add(path, len(text.splitlines()), "no newline at the end of the file")


def main():
    top = style.root()
    report = style.Report("text")
    for path in style.files(top):
        if path.endswith(BINARY) or path in (SELF, "LICENSE") or "/corpus" in path:
            continue
        try:
            text = style.read(top, path)
        except UnicodeDecodeError:
            report.add(path, 1, "not UTF-8")
            continue
        report.looked_at += 1
        check_file(report, path, text)
    report.finish()


main()
