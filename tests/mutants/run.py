#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Breaks one rule at a time and expects the named test to notice.

    tests/mutants/run.py [--all] [--minutes N] [--json] [NAME...]

Each *.patch beside this file is a small change that breaks one promise. Its header says in words which,
and which test has to fail:

    # A READ completes although its last piece is missing.
    # caught by: unit_batch, property_api

A name that begins with `e2e:` is a scenario, as pytest names it below tests/e2e:

    # caught by: e2e:test_v1_interop.py::test_a_write_is_answered_after_its_last_byte

The patch is applied to a copy of the tree under build-mutants/; only the named tests are built and run.
A mutant is caught when one of them fails or hangs. A mutant that no test sees, that does not apply or
does not build is a failure, and so is a named test that fails without the mutant.
"""
import argparse
import filecmp
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
WORK = os.path.join(TOP, "build-mutants")
SOURCE, BUILD = os.path.join(WORK, "source"), os.path.join(WORK, "build")
PROGRAMS = ("survivor", "forker", "steady", "rounds", "lender", "fabric")  # that scenarios drive
JOBS = str(min(4, len(os.sched_getaffinity(0))))


def run(command, seconds, env=None):
    """(output, exit status or None when time ran out); the whole process group ends with it."""
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                             start_new_session=True, env=env)
    try:
        return child.communicate(timeout=seconds)[0], child.returncode
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        return child.communicate()[0], None


def tree(top):
    """Relative paths of the files that make up the source tree."""
    found = set()
    for part in os.listdir(top):
        if part.startswith((".", "build")):
            continue
        path = os.path.join(top, part)
        if os.path.isfile(path):
            found.add(part)
        for folder, names, entries in os.walk(path):
            names[:] = [n for n in names if n != "__pycache__"]
            found.update(os.path.relpath(os.path.join(folder, e), top) for e in entries)
    return found


def synchronize():
    """Make the copy equal to the tree; what is equal already is not touched and not built again."""
    os.makedirs(SOURCE, exist_ok=True)
    wanted = tree(TOP)
    for path in tree(SOURCE) - wanted:
        os.unlink(os.path.join(SOURCE, path))
    for path in wanted:
        source, target = os.path.join(TOP, path), os.path.join(SOURCE, path)
        a = os.stat(source)
        if os.path.exists(target):
            b = os.stat(target)
            if (a.st_size, a.st_mtime_ns) == (b.st_size, b.st_mtime_ns):
                continue
            # What an earlier run put back keeps its new time: objects made from its mutant are older.
            if filecmp.cmp(source, target, shallow=False):
                continue
            shutil.copyfile(source, target)
            continue
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy2(source, target)


class Mutant:
    def __init__(self, path):
        self.name = os.path.basename(path)[:-len(".patch")]
        with open(path, encoding="utf-8") as f:
            self.text = f.read()
        tests = re.search(r"^# caught by: (.+)$", self.text, re.M)
        self.tests = [t.strip() for t in tests.group(1).split(",")] if tests else []

    def hunks(self):
        """(file, first line, lines before, lines after) of each hunk."""
        path, hunk = None, None
        for line in self.text.splitlines():
            if line.startswith("+++ b/"):
                path = line[len("+++ b/"):].split("\t")[0]
            elif line.startswith("@@"):
                if hunk:
                    yield hunk
                hunk = (path, int(re.match(r"@@ -(\d+)", line).group(1)), [], [])
            elif line.startswith(("--- ", "diff ", "index ", "# ")):
                if hunk:
                    yield hunk
                hunk = None
            elif hunk is not None and line[:1] in (" ", "-", "+", ""):
                if line[:1] != "+":
                    hunk[2].append(line[1:])
                if line[:1] != "-":
                    hunk[3].append(line[1:])
        if hunk:
            yield hunk

    def changed(self, top):
        """The new texts of the files that it changes, by path. ValueError if a place is not found."""
        texts = {}
        for path, first, before, after in self.hunks():
            if path not in texts:
                with open(os.path.join(top, path), encoding="utf-8") as f:
                    texts[path] = f.read()
            lines = texts[path].split("\n")
            places = [i for i in range(len(lines) - len(before) + 1) if lines[i:i + len(before)] == before]
            if not places:
                raise ValueError("does not apply to %s near line %d" % (path, first))
            at = min(places, key=lambda i: abs(i + 1 - first))
            lines[at:at + len(before)] = after
            texts[path] = "\n".join(lines)
        if not texts:
            raise ValueError("has no hunk")
        return texts

    def apply(self):
        """Change the copy; the old texts by path. ValueError if a place is not found."""
        old = {}
        for path, text in self.changed(SOURCE).items():
            full = os.path.join(SOURCE, path)
            with open(full, encoding="utf-8") as f:
                old[path] = f.read()
            with open(full, "w", encoding="utf-8") as f:
                f.write(text)
        return old


def restore(old):
    """Put the texts back; the new time of the file has what was made from the mutant built again."""
    for path, text in old.items():
        with open(os.path.join(SOURCE, path), "w", encoding="utf-8") as f:
            f.write(text)


class Tests:
    """The test programs of the copy's build folder."""

    def __init__(self):
        text, status = run(["meson", "introspect", "--tests", BUILD], 60)
        assert status == 0, text
        self.rows = {row["name"]: row for row in json.loads(text[text.index("["):])}
        self.clean = {}

    def knows(self, name):
        return name.startswith("e2e:") or name in self.rows

    def targets(self, names):
        found = []
        for name in names:
            if name.startswith("e2e:"):
                found += ["tools/ferry"] + ["tests/e2e/programs/e2e_" + p for p in PROGRAMS]
                continue
            for part in self.rows[name]["cmd"]:
                if part.startswith(BUILD + "/"):
                    found.append(os.path.relpath(part, BUILD))
        return found

    def build(self, names):
        text, status = run(["ninja", "-C", BUILD, "-j", JOBS, *self.targets(names)], 600)
        return (status == 0), text

    def passes(self, name):
        if name.startswith("e2e:"):
            return self.scenario(name[len("e2e:"):])
        text, status = run(["meson", "test", "-C", BUILD, "--no-rebuild", name], 300)
        return status == 0, text

    @staticmethod
    def scenario(name):
        env = dict(os.environ, FERRY_TEST_COMMAND=os.path.join(BUILD, "tools", "ferry"), FERRY_TEST_BUILD=BUILD,
                   PYTHONDONTWRITEBYTECODE="1")
        path = os.path.join(SOURCE, "tests", "e2e", name)
        text, status = run([sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", path], 300, env)
        return status == 0, text

    def baseline(self, name):
        """Whether a test passes without any mutant; found out once."""
        if name not in self.clean:
            built, text = self.build([name])
            self.clean[name] = self.passes(name) if built else (False, text)
        return self.clean[name]


def try_mutant(tests, mutant):
    """(result, detail): caught, or what went wrong."""
    if not mutant.tests:
        return "names no test", "a line `# caught by: ...` is missing"
    unknown = [name for name in mutant.tests if not tests.knows(name)]
    if unknown:
        return "names an unknown test", ", ".join(unknown)
    for name in mutant.tests:
        good, text = tests.baseline(name)
        if not good:
            return "not tried", "%s fails without the mutant:\n%s" % (name, text[-2000:])
    try:
        old = mutant.apply()
    except (ValueError, OSError) as e:
        return "does not apply", str(e)
    try:
        built, text = tests.build(mutant.tests)
        if not built:
            return "does not build", text[-2000:]
        for name in mutant.tests:
            good, text = tests.passes(name)
            if not good:
                return "caught", name
        return "survived", "none of %s failed" % ", ".join(mutant.tests)
    finally:
        restore(old)


def prepare():
    """Copy the tree and configure the copy; a text of what went wrong, or None."""
    synchronize()
    if not os.path.exists(os.path.join(BUILD, "build.ninja")):
        shutil.rmtree(BUILD, ignore_errors=True)
        text, status = run(["meson", "setup", BUILD, SOURCE, "-Ddebug=true", "-Doptimization=1"], 120)
        if status != 0:
            return text
    # Tests that came or went since the folder was configured.
    text, status = run(["ninja", "-C", BUILD, "build.ninja"], 120)
    return text if status != 0 else None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="mutants to try; all when none is named")
    parser.add_argument("--all", action="store_true", help="no time limit")
    parser.add_argument("--minutes", type=float, default=10, help="begin no mutant after so many minutes")
    parser.add_argument("--json", action="store_true", help="one record a line")
    arguments = parser.parse_args()
    mutants = [Mutant(path) for path in sorted(glob.glob(os.path.join(HERE, "*.patch")))]
    if arguments.names:
        mutants = [m for m in mutants if m.name in arguments.names]
    if not mutants:
        print("no mutants")
        sys.exit(1)
    if not arguments.all and not arguments.names:
        # Where time runs out, it does not always run out on the same ones.
        first = int(time.time() // 86400) * 7 % len(mutants)
        mutants = mutants[first:] + mutants[:first]
    trouble = prepare()
    if trouble:
        print(trouble)
        sys.exit(1)
    tests, wrong, began = Tests(), 0, time.monotonic()
    for mutant in mutants:
        if not arguments.all and time.monotonic() - began > arguments.minutes * 60:
            result, detail = "skipped", "the time for mutants was over; --all tries every one"
        else:
            result, detail = try_mutant(tests, mutant)
        wrong += result not in ("caught", "skipped")
        if arguments.json:
            print(json.dumps({"mutant": mutant.name, "result": result, "detail": detail}), flush=True)
        else:
            print("%-40s %s%s" % (mutant.name, result, ": " + detail if detail else ""), flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
