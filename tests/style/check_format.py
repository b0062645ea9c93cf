#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Every C file is what clang-format 14 makes of it."""
import re
import subprocess

import style


def main():
    tool = style.first_tool("clang-format-14", "clang-format")
    if not tool:
        style.skip("clang-format 14 is not installed")
    version = subprocess.run([tool, "--version"], capture_output=True, text=True, timeout=30).stdout
    if not re.search(r"version 14\.", version):
        style.skip("clang-format is not version 14, whose output counts: " + version.strip())
    top = style.root()
    report = style.Report("format")
    paths = style.files(top, ".c", ".h")
    for path in paths:
        report.looked_at += 1
        done = subprocess.run([tool, "--style=file", path], cwd=top, capture_output=True, text=True, timeout=60)
        want, have = done.stdout, style.read(top, path)
        if done.returncode != 0:
            report.add(path, 1, "clang-format failed: " + done.stderr.strip())
        elif want != have:
            pairs = zip(want.splitlines() + [""], have.splitlines() + [""])
            line = next((i for i, (w, h) in enumerate(pairs, 1) if w != h), 1)
            report.add(path, line, "not formatted; run clang-format-14 -i " + path)
    report.finish()


main()
