#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Every mutant applies to the tree as it is, and names the test that catches it.

    check_mutants.py ROOT
"""
import glob
import importlib.util
import os
import sys


def main():
    folder = os.path.join(sys.argv[1], "tests", "mutants")
    sys.dont_write_bytecode = True
    spec = importlib.util.spec_from_file_location("mutants", os.path.join(folder, "run.py"))
    runner = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(runner)
    wrong = 0
    for path in sorted(glob.glob(os.path.join(folder, "*.patch"))):
        mutant = runner.Mutant(path)
        trouble = None if mutant.tests else "names no test that catches it"
        try:
            mutant.changed(sys.argv[1])
        except (ValueError, OSError) as e:
            trouble = str(e)
        if trouble:
            print("%s:1: %s" % (os.path.relpath(path, sys.argv[1]), trouble))
            wrong += 1
    sys.exit(1 if wrong else 0)


main()
