#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the stages of the test run one after the other and sums up what they say.

    scripts/test [--long] [--only STAGE[,STAGE]] [--minutes N]

A test that fails, times out, crashes or did not run at all counts as failed; a stage that runs out of
time too. What was skipped is printed with its reason at the end, before the last line.
"""
import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PYTHON = "/usr/bin/python3"
CORES = min(4, len(os.sched_getaffinity(0)))
JOBS = str(CORES)
# Most tests wait more than they compute.
TESTS_AT_ONCE = str(2 * CORES)
SCENARIOS_AT_ONCE = str(CORES + 1)
C_SUITES = ["unit", "contract", "property", "model", "fuzz", "examples"]
# Suites that must have tests; the others may be empty.
WANTED_SUITES = {"unit", "contract", "property", "model", "fuzz"}
FUZZ_SECONDS, FUZZ_SECONDS_LONG = 5, 300


class Tally:
    """What one stage found."""

    def __init__(self):
        self.passed, self.failed, self.skips, self.failures = 0, 0, [], []

    def ok(self, count=1):
        self.passed += count

    def fail(self, what, detail="", count=1):
        self.failed += count
        self.failures.append((what, detail))

    def skip(self, what, reason):
        self.skips.append((what, reason))


class Run:
    """One test run: its options, its deadline, its processes."""

    def __init__(self, arguments):
        self.long = arguments.long
        self.deadline = time.monotonic() + arguments.minutes * 60
        self.environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1")
        self.environment.pop("PYTHONPATH", None)
        if self.long:
            self.environment["FERRY_TEST_LONG"] = "1"
            self.environment["FERRY_TEST_SCHEDULES"] = "1000000"

    def left(self):
        return max(1.0, self.deadline - time.monotonic())

    def command(self, command, seconds, env=None, quiet=True):
        """Run in a process group of its own; (exit status or None if time ran out, output)."""
        seconds = min(seconds, self.left())
        child = subprocess.Popen(command, cwd=TOP, env=dict(self.environment, **(env or {})), text=True,
                                 stdout=subprocess.PIPE if quiet else None,
                                 stderr=subprocess.STDOUT if quiet else None, errors="replace",
                                 start_new_session=True)
        try:
            output, _ = child.communicate(timeout=seconds)
            return child.returncode, output or ""
        except subprocess.TimeoutExpired:
            return None, self._stop(child) + "\nstopped after %d s" % seconds

    def _stop(self, child):
        """End a command that ran out of time, first so that it can clean up; its output."""
        for number, patience in ((signal.SIGINT, 20), (signal.SIGKILL, 20)):
            try:
                os.killpg(child.pid, number)
                return child.communicate(timeout=patience)[0] or ""
            except subprocess.TimeoutExpired:
                continue
            except ProcessLookupError:
                break
        return ""

    def build(self, tally, folder, options, env=None):
        """Configure and compile; True if it worked. The build counts as one test."""
        path = os.path.join(TOP, folder)
        if not os.path.exists(os.path.join(path, "build.ninja")):
            shutil.rmtree(path, ignore_errors=True)
            status, output = self.command(["meson", "setup", folder, "-Dwerror=true", *options], 120, env)
            if status != 0:
                tally.fail("configure " + folder, output[-6000:])
                return False
        status, output = self.command(["ninja", "-C", folder, "-j", JOBS], 900, env)
        if status != 0:
            tally.fail("build " + folder, "\n".join(line for line in output.splitlines()
                                                     if not re.match(r"\[\d+/\d+\]", line))[-6000:])
            return False
        tally.ok()
        return True


# Meson's suites.

REASON = re.compile(r"^(?:SKIP|NOT PROVED): (.*)$", re.M)


def case_counts(text):
    """(passed, failed, [(name, reason) of each skipped]) of the test cases that a cmocka program reports."""
    def sum_of(word):
        return sum(int(n) for n in re.findall(r"\[  %s  \] (\d+) test\(s\)" % word, text))
    skipped = {}
    for case in re.finditer(r"^\[ RUN      \] (\S+)$(.*?)(?=^\[ RUN      \]|^\[=====|\Z)", text, re.M | re.S):
        if re.search(r"^\[  SKIPPED \] ", case.group(2), re.M):
            reasons = REASON.findall(case.group(2))
            skipped[case.group(1)] = reasons[0] if reasons else "no reason given"
    return sum_of("PASSED"), sum_of("FAILED"), sorted(skipped.items())


def take_meson_row(tally, row, folder):
    text = (row.get("stdout") or "") + "\n" + (row.get("stderr") or "")
    passed, failed, skipped = case_counts(text)
    name, result = "%s (%s)" % (row["name"], folder), row["result"]
    for case, reason in skipped:
        tally.skip(name + ": " + case, reason)
    if result in ("OK", "EXPECTEDFAIL"):
        tally.ok(passed if passed or skipped else 1)
        if not skipped:
            for reason in REASON.findall(text):
                tally.skip(name, reason)
    elif result == "SKIP":
        tally.skip(name, (REASON.findall(text) or ["no reason given"])[0])
    else:
        tally.ok(passed)
        tally.fail(name + ": " + result, text[-4000:], max(1, failed))


def meson_tests(run, tally, folder, suites, seconds, multiplier=1, env=None, prefix=(), but=None):
    """Run suites of a build folder, without the tests whose name matches but; what was to run and left no
    result counts as failed."""
    status, listing = run.command(["meson", "introspect", "--tests", folder], 60)
    if status != 0:
        tally.fail("list the tests of " + folder, listing)
        return
    rows = json.loads(listing[listing.index("["):])
    wanted = {}
    for row in rows:
        mine = {suite.split(":")[-1] for suite in row["suite"]}
        if mine & set(suites) and not (but and re.search(but, row["name"])):
            wanted[row["name"]] = mine
    for suite in sorted(WANTED_SUITES & set(suites)):
        if not any(suite in mine for mine in wanted.values()):
            tally.fail("suite %s has no tests" % suite)
    log = os.path.join(TOP, folder, "meson-logs", "testlog.json")
    if os.path.exists(log):
        os.unlink(log)
    command = [*prefix, "meson", "test", "-C", folder, "--no-rebuild", "--num-processes", TESTS_AT_ONCE,
               "-t", str(multiplier), *sorted(wanted)]
    status, output = run.command(command, seconds, env)
    seen = set()
    if os.path.exists(log):
        with open(log, encoding="utf-8", errors="replace") as f:
            for line in f:
                try:
                    row = json.loads(line)
                except ValueError:
                    continue
                seen.add(row["name"].split(" / ")[-1].split(":")[-1])
                row["name"] = row["name"].split(" / ")[-1].split(":")[-1]
                take_meson_row(tally, row, folder)
    for name in sorted(set(wanted) - seen):
        tally.fail("%s (%s) left no result" % (name, folder), output[-2000:] if not seen else "")
    if status is None:
        tally.fail("tests of %s ran out of time" % folder)


# The stages.

def stage_build(run, tally):
    run.build(tally, "build-test", ["--buildtype=debugoptimized"])
    # The release is what the demonstration and the benchmark use, and what a reader builds first.
    status, output = run.command(["scripts/build"], 600)
    if status == 0:
        tally.ok()
    else:
        tally.fail("scripts/build", output[-6000:])


def stage_style(run, tally):
    meson_tests(run, tally, "build-test", ["style"], 300)


def stage_c(run, tally):
    meson_tests(run, tally, "build-test", C_SUITES, 900 if not run.long else 7200, 10 if run.long else 1)


def stage_fuzz(run, tally):
    """A short search from the corpora, in builds that see every wrong access."""
    if not shutil.which("clang"):
        tally.skip("fuzzing", "clang is not installed")
        return
    options = ["-Dfuzz=true", "-Db_sanitize=address,undefined", "-Db_lundef=false", "--buildtype=debugoptimized"]
    folder = "build-fuzz"
    if not os.path.exists(os.path.join(TOP, folder, "build.ninja")):
        status, output = run.command(["meson", "setup", folder, *options], 120, {"CC": "clang"})
        if status != 0:
            tally.fail("configure " + folder, output[-4000:])
            return
    status, output = run.command(["ninja", "-C", folder, "-t", "targets", "all"], 60)
    targets = sorted(set(re.findall(r"^(tests/fuzz/fuzz_\w+): ", output, re.M)))
    if not targets:
        tally.fail("no fuzz targets were built", output[-2000:])
        return
    status, output = run.command(["ninja", "-C", folder, "-j", JOBS, *targets], 600)
    if status != 0:
        tally.fail("build the fuzz targets", output[-4000:])
        return
    seconds = FUZZ_SECONDS_LONG if run.long else FUZZ_SECONDS
    for target in targets:
        fuzz_one(run, tally, folder, target, seconds)


def fuzz_one(run, tally, folder, target, seconds):
    name = target.rsplit("/fuzz_", 1)[1]
    found = os.path.join(TOP, folder, "found", name)
    os.makedirs(found, exist_ok=True)
    corpus = os.path.join("tests", "fuzz", "corpus", name)
    command = [os.path.join(folder, target), "-max_total_time=%d" % seconds, "-timeout=10", "-rss_limit_mb=2048",
               "-print_final_stats=1", "-artifact_prefix=" + found + "/", found, corpus]
    status, output = run.command(command, seconds + 120)
    runs = re.search(r"number_of_executed_units: (\d+)", output)
    if status == 0 and runs and int(runs.group(1)) > 0:
        tally.ok()
        print("  fuzz %s: %s inputs tried" % (name, runs.group(1)))
    else:
        tally.fail("fuzz %s, input in %s" % (name, os.path.relpath(found, TOP)), output[-4000:])


# In a short run the sanitizer builds see the scenarios in which most happens; in a long one all.
SANITIZED_SCENARIOS = ["b08_partial_headers", "cli", "fork", "http_store", "kill9", "v1_interop"]


def scenarios(run, tally, folder, seconds, env=None, prefix=()):
    """Run the two-process scenarios against the command of a build folder."""
    report = os.path.join(TOP, folder, "e2e.xml")
    if os.path.exists(report):
        os.unlink(report)
    files = ["tests/e2e"]
    if env and not run.long:
        files = ["tests/e2e/test_%s.py" % name for name in SANITIZED_SCENARIOS]
        tally.skip("scenarios (%s)" % folder, "%s only; --long runs all of them" % ", ".join(SANITIZED_SCENARIOS))
    command = [*prefix, PYTHON, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", SCENARIOS_AT_ONCE,
               "--dist", "loadgroup", "--junitxml", report, *files]
    status, output = run.command(command, 7200 if run.long else seconds,
                                 {"FERRY_TEST_COMMAND": os.path.join(TOP, folder, "tools", "ferry"),
                                  "FERRY_TEST_BUILD": os.path.join(TOP, folder), **(env or {})})
    try:
        cases = list(xml.etree.ElementTree.parse(report).getroot().iter("testcase"))
    except (OSError, xml.etree.ElementTree.ParseError) as e:
        tally.fail("the scenarios (%s) left no report (%s)" % (folder, e), output[-4000:])
        return
    for case in cases:
        name = "%s.%s (%s)" % (case.get("classname", "").split(".")[-1], case.get("name"), folder)
        wrong = [part for part in case if part.tag in ("failure", "error")]
        skipped = case.find("skipped")
        if wrong:
            tally.fail(name, (wrong[0].text or wrong[0].get("message") or "")[-4000:])
        elif skipped is not None:
            tally.skip(name, skipped.get("message") or "no reason given")
        else:
            tally.ok()
    if status not in (0, 1) or not cases:
        tally.fail("pytest (%s) ended with %s" % (folder, status), output[-4000:])


def stage_e2e(run, tally):
    scenarios(run, tally, "build-test", 600)


def no_randomization():
    """ThreadSanitizer of these compilers fails to start where addresses are too random."""
    return ["setarch", "-R"] if shutil.which("setarch") else []


# The rig steps everything in one thread, so the thread sanitizer has nothing to find in it; under the
# other sanitizers each schedule costs many times more.
MODEL_SCHEDULES_SANITIZED = "1000"
TSAN_SUITES = [suite for suite in C_SUITES if suite != "model"]
# What differs in these is not in the threads: the same on epoll, and io_uring without them, are run.
TSAN_LEFT_OUT = r"^contract_transport(_memory)?_hp_tcp-(tls|key)-uring$"


def stage_asan(run, tally):
    options = ["-Db_sanitize=address,undefined", "-Db_lundef=false", "--buildtype=debugoptimized"]
    env = {"FERRY_TEST_SCHEDULES": MODEL_SCHEDULES_SANITIZED, "FERRY_TEST_SANITIZER": "address",
           "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=0:detect_stack_use_after_return=1",
           "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1"}
    # Clang here and gcc in the other builds, so that both compile every file without a warning.
    if run.build(tally, "build-asan", options, {"CC": "clang"} if shutil.which("clang") else None):
        meson_tests(run, tally, "build-asan", C_SUITES, 1200 if not run.long else 7200, 4, env)
        scenarios(run, tally, "build-asan", 600, dict(env, FERRY_TEST_PATIENCE="3"))


def stage_tsan(run, tally):
    options = ["-Db_sanitize=thread", "-Db_lundef=false", "--buildtype=debugoptimized"]
    env = {"FERRY_TEST_SANITIZER": "thread",
           "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1"}
    if run.build(tally, "build-tsan", options):
        tally.skip("model (build-tsan)", "runs in one thread; it is run under the other sanitizers")
        if not run.long:
            tally.skip("contracts with TLS or keys on io_uring (build-tsan)", "on epoll only; --long runs both")
        meson_tests(run, tally, "build-tsan", TSAN_SUITES, 1200 if not run.long else 7200, 6, env, no_randomization(),
                    but=None if run.long else TSAN_LEFT_OUT)
        scenarios(run, tally, "build-tsan", 600, dict(env, FERRY_TEST_PATIENCE="3"), no_randomization())


def stage_mutants(run, tally):
    command = [PYTHON, "-B", "tests/mutants/run.py", "--json"] + (["--all"] if run.long else ["--minutes", "1"])
    status, output = run.command(command, 7200 if run.long else 420)
    seen = 0
    for line in output.splitlines():
        if not line.startswith("{"):
            continue
        row = json.loads(line)
        seen += 1
        if row["result"] == "caught":
            tally.ok()
        elif row["result"] == "skipped":
            tally.skip("mutant " + row["mutant"], row["detail"])
        else:
            tally.fail("mutant %s: %s" % (row["mutant"], row["result"]), row["detail"][-3000:])
    if status is None or seen == 0:
        tally.fail("the mutants did not run to their end", output[-3000:])


STAGES = [("build", stage_build), ("style", stage_style), ("c", stage_c), ("fuzz", stage_fuzz), ("e2e", stage_e2e),
          ("mutants", stage_mutants), ("asan", stage_asan), ("tsan", stage_tsan)]


def run_stage(run, name, function):
    tally = Tally()
    began = time.monotonic()
    print("== %s" % name, flush=True)
    if run.deadline - time.monotonic() <= 0:
        tally.fail("stage %s did not start: the time for the whole run is over" % name)
    else:
        try:
            function(run, tally)
        except Exception as e:  # a defect of this script must not look like a pass
            tally.fail("stage %s broke: %s: %s" % (name, type(e).__name__, e))
    if not tally.passed and not tally.failed and not tally.skips:
        tally.fail("stage %s ran nothing" % name)
    for what, detail in tally.failures:
        print("FAILED %s" % what)
        if detail:
            print("\n".join("    " + line for line in detail.strip().splitlines()[-60:]))
    print("-- %s: %d passed, %d failed, %d skipped, %.0f s" % (name, tally.passed, tally.failed, len(tally.skips),
                                                              time.monotonic() - began), flush=True)
    return tally


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--long", action="store_true", help="the long lengths: hours, not minutes")
    parser.add_argument("--only", default="", help="stages, separated by commas: " + ", ".join(n for n, _ in STAGES))
    parser.add_argument("--minutes", type=float, default=0, help="bound of the whole run; 24, or 600 with --long")
    arguments = parser.parse_args()
    arguments.minutes = arguments.minutes or (600 if arguments.long else 24)
    chosen = [name for name in arguments.only.split(",") if name]
    unknown = [name for name in chosen if name not in dict(STAGES)]
    if unknown:
        parser.error("no such stage: " + ", ".join(unknown))
    run = Run(arguments)
    began = time.monotonic()
    tallies = [run_stage(run, name, function) for name, function in STAGES if not chosen or name in chosen]
    passed, failed = sum(t.passed for t in tallies), sum(t.failed for t in tallies)
    print("\nfailed:" if failed else "\nnothing failed", flush=True)
    for tally in tallies:
        for what, _ in tally.failures:
            print("  " + what)
    print("not proved in this run:")
    skips = [skip for tally in tallies for skip in tally.skips]
    for what, reason in skips:
        print("  %s: %s" % (what, reason))
    for name, _ in STAGES:
        if chosen and name not in chosen:
            print("  stage %s: not asked for (--only)" % name)
    if not run.long:
        print("  the long lengths (10^6 schedules, 50 kills a side, 5 minutes of fuzzing a target): run --long")
    print("  RDMA and GPU memory: no such transport in this version")
    print("  UB on hardware, cuFile with a GPU: a simulated fabric and a stand-in library were run in their place")
    print("took %.0f s" % (time.monotonic() - began))
    print("%d passed, %d failed" % (passed, failed), flush=True)
    sys.exit(0 if failed == 0 and passed > 0 else 1)


if __name__ == "__main__":
    main()
