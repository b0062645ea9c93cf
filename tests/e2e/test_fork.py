# SPDX-License-Identifier: Apache-2.0
"""Forking while the engine is at work (field report B18)."""
import json
import os

import pytest

import harness

PROGRAM = harness.program("forker")
REQUESTS, CHILDREN = (10000, 20) if harness.LONG else (2000, 3)


@pytest.mark.seconds(120)
@pytest.mark.not_under(("thread",), "ThreadSanitizer forbids threads in a child of a program that had some")
def test_children_of_every_sort_leave_the_parent_alone(serve):
    server = serve(memory=("4MiB",))
    # A child that returns from main leaves its parent's engine where it is; that is no leak of the child's.
    options = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
    status, out, err = harness.run([PROGRAM, server.name, REQUESTS, CHILDREN], 100, env={"ASAN_OPTIONS": options})
    assert status == 0, err
    result = json.loads(out)
    assert result == {"failed": 0, "exit": 0, "return": 0, "exec": 0, "fresh": 0, "reuse": 0}, err
    assert server.document()["detail"]["buffers"], "the published description is still there"
