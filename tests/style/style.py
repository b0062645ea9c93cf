# SPDX-License-Identifier: Apache-2.0
"""What the style checks share: which files there are, C without its comments, and how to report.

A check prints one line per finding, `file:line: what is wrong`, and ends with 1 if there was any.
"""
import os
import re
import shutil
import sys

SKIPPED_FOLDERS = {".git", ".cache", "__pycache__", "build", ".pytest_cache", "subprojects"}
SKIP = 77


def root():
    """The top of the source tree: the first argument, or two folders up."""
    if len(sys.argv) > 1:
        return os.path.abspath(sys.argv[1])
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def files(top, *suffixes, under=("",)):
    """Relative paths of the tree's files, sorted; every file when no suffix is given."""
    found = []
    for part in under:
        for folder, names, entries in os.walk(os.path.join(top, part)):
            names[:] = [n for n in names if n not in SKIPPED_FOLDERS and not n.startswith("build-")]
            for entry in entries:
                path = os.path.join(folder, entry)
                if os.path.islink(path) or (suffixes and not entry.endswith(suffixes)):
                    continue
                found.append(os.path.relpath(path, top))
    return sorted(set(found))


def read(top, path):
    with open(os.path.join(top, path), encoding="utf-8") as f:
        return f.read()


TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def code_only(text):
    """C text with comments and the insides of strings blanked, line numbers kept."""
    def blank(match):
        piece = match.group(0)
        if piece[0] in "\"'":
            return piece[0] + " " * (len(piece) - 2) + piece[0]
        return re.sub(r"[^\n]", " ", piece)
    return TOKEN.sub(blank, text)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def first_tool(*names):
    for name in names:
        path = shutil.which(name)
        if path:
            return path
    return None


def skip(reason):
    print("SKIP: " + reason)
    sys.exit(SKIP)


class Report:
    """Collects findings; finish() prints them and ends the program."""

    def __init__(self, what):
        self.what = what
        self.findings = []
        self.looked_at = 0

    def add(self, path, line, text):
        self.findings.append("%s:%d: %s" % (path, line, text))

    def finish(self):
        for finding in self.findings:
            print(finding)
        print("%s: looked at %d, %d findings" % (self.what, self.looked_at, len(self.findings)))
        if self.looked_at == 0:
            print("%s: nothing to look at, which is wrong in itself" % self.what)
            sys.exit(1)
        sys.exit(1 if self.findings else 0)
