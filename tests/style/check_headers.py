#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Each header compiles alone and twice in a row; installed ones also as C11, and as C++."""
import concurrent.futures
import subprocess

import style

FLAGS = ["-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wundef", "-Wno-unused-parameter",
         "-Wno-unused-function", "-Werror"]


def pkg_config():
    done = subprocess.run(["pkg-config", "--cflags", "json-c", "libcurl", "libmicrohttpd", "hwloc"],
                          capture_output=True, text=True, timeout=30)
    return done.stdout.split() if done.returncode == 0 else []


def jobs(top):
    """(compiler, language flags, header) of every compilation to try."""
    compilers = [c for c in (style.first_tool("gcc"), style.first_tool("clang")) if c]
    for header in style.files(top, ".h", under=("include", "src", "tools", "bench", "tests")):
        for compiler in compilers:
            yield compiler, ["-x", "c", "-std=gnu17", "-D_GNU_SOURCE", "-I" + top + "/src"], header
            if header.startswith("include/"):
                yield compiler, ["-x", "c", "-std=c11"], header
        if header.startswith("include/") and style.first_tool("clang"):
            yield style.first_tool("clang"), ["-x", "c++", "-std=c++17", "-nostdinc++"], header


def compile_one(top, extra, job):
    compiler, language, header = job
    text = '#include "%s/%s"\n#include "%s/%s"\nextern int ferry_style_anchor;\n' % (top, header, top, header)
    command = [compiler] + language + FLAGS + ["-I" + top + "/include", "-I" + top + "/tests",
                                               "-I" + top + "/tests/support", "-I" + top + "/tests/sim/urma/include",
                                               "-I" + top + "/bench", "-I" + top + "/tools"] + extra + ["-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120)
    return header, compiler, language, done


def main():
    top = style.root()
    report = style.Report("headers")
    if not style.first_tool("gcc", "clang"):
        style.skip("no C compiler in PATH")
    extra = pkg_config()
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        for header, compiler, language, done in pool.map(lambda job: compile_one(top, extra, job), jobs(top)):
            report.looked_at += 1
            if done.returncode != 0:
                lines = done.stderr.strip().splitlines()
                first = [line for line in lines if "error:" in line] or lines
                report.add(header, 1, "does not stand alone with %s %s: %s"
                           % (compiler, " ".join(language[:3]), first[0] if first else "no message"))
    for name in ("gcc", "clang"):
        if not style.first_tool(name):
            print("SKIP: %s is not installed, headers were not tried with it" % name)
    report.finish()


main()
