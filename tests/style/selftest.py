#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The style checks must be able to fail: each is run on a small tree with one fault put in.

    selftest.py FOLDER_OF_THE_CHECKS
"""
import os
import subprocess
import sys
import tempfile

STATUS_H = """/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FERRY_STATUS_H
#define FERRY_STATUS_H
#define FERRY_STATUS_TABLE(X) X(OK, 0, COMPLETED, "success") X(ERR_INVALID, -100, INVALID, "wrong")
#endif
"""
GOOD_H = """/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FERRY_ONE_H
#define FERRY_ONE_H
#define FERRY_API
/**
 * ferry_one() - does one thing.
 * @number: a number, > 0.
 *
 * Ownership: none.
 * Threads: any thread.
 * Return: FERRY_OK, FERRY_ERR_INVALID.
 */
FERRY_API int ferry_one(int number);
#endif
"""
GOOD_C = """/* SPDX-License-Identifier: Apache-2.0 */
#include "base/one.h"

int ferry_base_one(int number)
{
    return number;
}
"""
BASE_H = """/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FERRY_BASE_ONE_H
#define FERRY_BASE_ONE_H
int ferry_base_one(int number);
#endif
"""
GOOD = {
    "include/ferry/status.h": STATUS_H,
    "include/ferry/one.h": GOOD_H,
    "src/base/one.h": BASE_H,
    "src/base/one.c": GOOD_C,
    "src/wire/w.h": BASE_H.replace("BASE", "WIRE").replace("base", "wire"),
    "src/transport/hp_tcp/a.h": BASE_H.replace("BASE", "HP").replace("base", "hp"),
    "src/transport/loop/b.c": GOOD_C.replace("one", "loop", 0),
    "scripts/fine": "#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\ntrue\n",
}

# (check, file, text before, text after): a fault that the check has to report in that file.
FAULTS = [
    ("includes", "src/base/one.c", '"base/one.h"', '"wire/w.h"'),
    ("includes", "src/transport/loop/b.c", '"base/one.h"', '"transport/hp_tcp/a.h"'),
    ("includes", "include/ferry/one.h", "#define FERRY_API", '#include "base/one.h"'),
    ("headers", "src/base/one.h", "int ferry_base_one(int number);", "int ferry_base_one(uint64_t number);"),
    ("headers", "src/base/one.h", "int ferry_base_one(int number);", "static inline int f(void)\n{\n}\n"),
    ("contracts", "include/ferry/one.h", " * Ownership: none.\n", ""),
    ("contracts", "include/ferry/one.h", " * Threads: any thread.\n", " * Threads: some.\n"),
    ("contracts", "include/ferry/one.h", " * @number: a number, > 0.\n", ""),
    ("contracts", "include/ferry/one.h", "FERRY_ERR_INVALID.", "FERRY_ERR_MISSPELT."),
    ("contracts", "include/ferry/one.h", "ferry_one() - does", "does"),
    ("contracts", "include/ferry/one.h", "Threads: any thread.", "Threads: any thread, not from a callback."),
    ("size", "src/base/one.c", "    return number;\n", "    number++;\n" * 80 + "    return number;\n"),
    ("size", "src/base/one.c", "int number)", "int a, int b, int c, int d, int e, int f, int number)"),
    ("size", "src/base/one.c", "    return number;\n", "    return number;\n" + "\n" * 900),
    ("calls", "src/base/one.c", "return number", "return number->ops->post(1)"),
    ("calls", "src/base/one.c", "return number", "return sprintf(number, "")"),
    ("text", "src/base/one.c", "/* SPDX-License-Identifier: Apache-2.0 */\n", "\n"),
    ("text", "src/base/one.c", "    return", "    /* TO" + "DO: more */\n    return"),
    ("text", "src/base/one.c", "    return", "    /* see .." + "/shared/x */\n    return"),
    ("text", "src/base/one.c", "return number;", "return number; "),
    ("scripts", "scripts/fine", "true", "if true"),
]


def write_tree(top, files):
    for path, text in files.items():
        full = os.path.join(top, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(full, 0o755 if text.startswith("#!") else 0o644)


def run(folder, check, top):
    return subprocess.run([sys.executable, os.path.join(folder, "check_%s.py" % check), top],
                          capture_output=True, text=True, timeout=120)


def main():
    folder = os.path.abspath(sys.argv[1])
    failed = 0
    with tempfile.TemporaryDirectory(prefix="ferry-style-") as top:
        write_tree(top, GOOD)
        for check in sorted({fault[0] for fault in FAULTS}):
            done = run(folder, check, top)
            if done.returncode != 0:
                failed += 1
                print("%s complains about a clean tree:\n%s%s" % (check, done.stdout, done.stderr))
        for check, path, before, after in FAULTS:
            assert before in GOOD[path], (path, before)
            write_tree(top, {path: GOOD[path].replace(before, after, 1)})
            done = run(folder, check, top)
            if done.returncode != 1 or path not in done.stdout:
                failed += 1
                print("%s does not see %r in %s:\n%s%s" % (check, after[:60], path, done.stdout, done.stderr))
            write_tree(top, {path: GOOD[path]})
    print("selftest: %d faults put in, %d problems" % (len(FAULTS), failed))
    sys.exit(1 if failed else 0)


main()
