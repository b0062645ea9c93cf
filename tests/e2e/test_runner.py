# SPDX-License-Identifier: Apache-2.0
"""The test runner must not take silence for success."""
import argparse
import importlib.util
import json
import os

import pytest

TOP = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
CMOCKA = """[==========] Running 3 test(s).
[ RUN      ] test_a
[       OK ] test_a
[  PASSED  ] 2 test(s).
"""


@pytest.fixture(scope="module")
def runner():
    spec = importlib.util.spec_from_file_location("ferry_test_runner", os.path.join(TOP, "scripts", "test.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tally_of(runner, **row):
    tally = runner.Tally()
    runner.take_meson_row(tally, dict({"name": "unit_x", "stdout": "", "stderr": ""}, **row), "b")
    return tally.passed, tally.failed, len(tally.skips)


def test_cases_are_counted(runner):
    assert tally_of(runner, result="OK", stdout=CMOCKA) == (2, 0, 0)
    assert tally_of(runner, result="OK", stdout="no cmocka here") == (1, 0, 0)
    failed = CMOCKA + "[  FAILED  ] 1 test(s), listed below:\n[  FAILED  ] test_c\n"
    assert tally_of(runner, result="FAIL", stdout=failed) == (2, 1, 0)


def test_a_skipped_case_keeps_its_own_reason(runner):
    text = """[==========] Running 3 test(s).
[ RUN      ] test_a
[  SKIPPED ] test_a
[ RUN      ] test_b
SKIP: no network here
[  SKIPPED ] test_b
[ RUN      ] test_c
[       OK ] test_c
[==========] 3 test(s) run.
[  PASSED  ] 1 test(s).
[  SKIPPED ] 2 test(s), listed below:
[  SKIPPED ] test_a
[  SKIPPED ] test_b
"""
    tally = runner.Tally()
    runner.take_meson_row(tally, {"name": "unit_x", "result": "OK", "stdout": text}, "b")
    assert (tally.passed, tally.failed) == (1, 0)
    assert tally.skips == [("unit_x (b): test_a", "no reason given"), ("unit_x (b): test_b", "no network here")]


@pytest.mark.parametrize("result", ["FAIL", "ERROR", "TIMEOUT", "INTERRUPT", "UNEXPECTEDPASS"])
def test_a_program_that_dies_without_a_word_failed(runner, result):
    assert tally_of(runner, result=result) == (0, 1, 0)


def test_a_skip_needs_and_keeps_its_reason(runner):
    tally = runner.Tally()
    runner.take_meson_row(tally, {"name": "unit_x", "result": "SKIP", "stdout": "SKIP: no uring here\n"}, "b")
    assert tally.skips == [("unit_x (b)", "no uring here")]
    assert (tally.passed, tally.failed) == (0, 0)


class Fake:
    """A run whose meson knows two tests, of which only some leave a row."""

    def __init__(self, folder, rows):
        self.folder, self.rows = folder, rows

    def command(self, command, _seconds, _env=None):
        if "introspect" in command:
            tests = [{"name": "unit_a", "suite": ["ferry:unit"]}, {"name": "unit_b", "suite": ["ferry:unit"]}]
            return 0, json.dumps(tests)
        log = os.path.join(self.folder, "meson-logs")
        os.makedirs(log, exist_ok=True)
        with open(os.path.join(log, "testlog.json"), "w", encoding="utf-8") as f:
            for name in self.rows:
                f.write(json.dumps({"name": name, "result": "OK", "stdout": ""}) + "\n")
        return 1, "something went wrong"


def test_a_program_that_left_no_result_failed(runner, tmp_path):
    tally = runner.Tally()
    runner.meson_tests(Fake(str(tmp_path), ["unit_a"]), tally, str(tmp_path), ["unit"], 10)
    assert (tally.passed, tally.failed) == (1, 1)
    assert "unit_b" in tally.failures[0][0]


def test_an_empty_suite_failed(runner, tmp_path):
    tally = runner.Tally()
    runner.meson_tests(Fake(str(tmp_path), ["unit_a", "unit_b"]), tally, str(tmp_path), ["unit", "contract"], 10)
    assert (tally.passed, tally.failed) == (2, 1)
    assert "contract" in tally.failures[0][0]


def test_scenarios_without_a_report_failed(runner, monkeypatch, tmp_path):
    monkeypatch.setattr(runner, "TOP", str(tmp_path))

    class Dead:
        long = False

        def command(self, *_arguments):
            return None, "killed"
    tally = runner.Tally()
    runner.stage_e2e(Dead(), tally)
    assert tally.failed == 1 and tally.passed == 0


def test_a_stage_that_breaks_or_does_nothing_failed(runner, capsys):
    run = runner.Run(argparse.Namespace(long=False, minutes=1))

    def breaks(_run, _tally):
        raise KeyError("x")
    assert runner.run_stage(run, "broken", breaks).failed == 1
    assert runner.run_stage(run, "empty", lambda _run, _tally: None).failed == 1
    run.deadline = 0
    assert runner.run_stage(run, "late", lambda _run, tally: tally.ok()).failed == 1
    assert "did not start" in capsys.readouterr().out


def test_a_command_that_hangs_is_ended(runner):
    run = runner.Run(argparse.Namespace(long=False, minutes=1))
    status, output = run.command(["sh", "-c", "echo before; sleep 60"], 0.5)
    assert status is None and "before" in output
