#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The command, each of its subcommands and each transport have a manual page with the usual sections."""
import os
import re

import style

SECTIONS = ("NAME", "SYNOPSIS", "DESCRIPTION", "EXIT STATUS", "SEE ALSO")


def subcommands(top):
    """The subcommands that the command's sources have: one file tools/cmd_<name>.c or tools/<name>.c each."""
    names = set()
    for path in style.files(top, ".c", under=("tools",)):
        text = style.read(top, path)
        names.update(re.findall(r'^\s*\{\s*"([a-z]+)",\s*ferry_cmd_\w+', text, re.M))
        names.update(re.findall(r'^\s*\{\s*"([a-z]+)",\s*cmd_\w+', text, re.M))
    return names | {"serve", "bench", "cp", "segment", "info", "doctor", "config"}


def main():
    top = style.root()
    report = style.Report("manual")
    pages = ["ferry.1"] + ["ferry-%s.1" % name for name in sorted(subcommands(top))]
    for page in pages:
        path = "docs/man/%s.scd" % page
        report.looked_at += 1
        if not os.path.exists(os.path.join(top, path)):
            report.add(path, 1, "missing")
            continue
        text = style.read(top, path)
        for section in SECTIONS:
            if not re.search(r"^# %s$" % section, text, re.M):
                report.add(path, 1, "no section " + section)
        if page not in style.read(top, "docs/meson.build"):
            report.add("docs/meson.build", 1, "does not build " + page)
    report.finish()


main()
