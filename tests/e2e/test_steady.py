# SPDX-License-Identifier: Apache-2.0
"""The hot loop allocates nothing and grows by no page, on either side."""
import json

import pytest

import harness

PROGRAM = harness.program("steady")
REQUESTS = 10 ** 6 if harness.LONG else 10 ** 5


@pytest.mark.parametrize("reactor", ["uring", "epoll"])
@pytest.mark.parametrize("length,outstanding", [(4096, 64), (65536, 4), (1 << 20, 2)])
@pytest.mark.seconds(400)
@pytest.mark.not_under(("address", "thread"), "a sanitizer's own memory cannot be told from the engine's")
def test_no_allocation_in_the_loop(reactor, length, outstanding):
    requests = REQUESTS if length == 4096 else REQUESTS // 20
    status, out, err = harness.run([PROGRAM, requests, length, outstanding], 380, env={"FERRY_REACTOR": reactor})
    assert status == 0, err
    result = json.loads(out)
    assert result["requests"] >= requests and result["failed"] == 0
    assert result["allocations"] == 0
    assert result["pages"] <= 0
