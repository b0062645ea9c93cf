#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Puts the settings that the command itself lists into the manual page ferry.conf(5), as scdoc text.

    man5.py FERRY ferry.conf.5.scd > ferry.conf.5.full.scd
"""
import os
import subprocess
import sys


def main():
    ferry, page = sys.argv[1:]
    # What the environment sets must not become a default in the page.
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("FERRY_", "MC_"))}
    settings = subprocess.run([ferry, "config", "--man"], env=clean, stdout=subprocess.PIPE, timeout=60,
                              check=True).stdout.decode()
    with open(page, encoding="utf-8") as f:
        print(f.read().replace("@SETTINGS@\n", settings.rstrip("\n") + "\n"), end="")


main()
