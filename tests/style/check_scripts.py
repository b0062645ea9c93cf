#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Python files compile, shell scripts parse, and whatever has a #! line may be executed."""
import os
import subprocess

import style


def check_python(report, top, path, text):
    try:
        compile(text, path, "exec")
    except SyntaxError as e:
        report.add(path, e.lineno or 1, "does not compile: %s" % e.msg)


def check_shell(report, top, path, shell):
    done = subprocess.run([shell, "-n", path], cwd=top, capture_output=True, text=True, timeout=30)
    if done.returncode != 0:
        report.add(path, 1, "%s -n: %s" % (shell, done.stderr.strip()))


def main():
    top = style.root()
    report = style.Report("scripts")
    for path in style.files(top):
        with open(os.path.join(top, path), "rb") as f:
            first = f.readline(200)
        shebang = first.startswith(b"#!")
        if not shebang and not path.endswith(".py"):
            continue
        report.looked_at += 1
        text = style.read(top, path)
        if shebang and not os.access(os.path.join(top, path), os.X_OK) and not path.endswith(".py"):
            report.add(path, 1, "has a #! line and is not executable")
        if path.endswith(".py") or b"python" in first:
            check_python(report, top, path, text)
        elif b"bash" in first and style.first_tool("bash"):
            check_shell(report, top, path, "bash")
        elif shebang and first.strip().endswith(b"sh"):
            check_shell(report, top, path, "sh")
    report.finish()


main()
