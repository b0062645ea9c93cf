# SPDX-License-Identifier: Apache-2.0
"""No small request waits for a delayed acknowledgement (field report B04)."""
import socket
import subprocess

import pytest

import harness

PROGRAM = harness.program("survivor")


REQUESTS = 2000
DELAYED_MS, MANY_MS = 35, 5


def samples(client, op, block):
    """The times of so many requests, one at a time, in milliseconds, sorted."""
    answer = client.ask("time %s %d %d" % (op, block, REQUESTS), 120).split()
    assert answer[0] == "ok" and len(answer) == 1 + REQUESTS, answer[:5]
    return sorted(int(ns) / 1e6 for ns in answer[1:])


@pytest.mark.parametrize("op", ["read", "write"])
@pytest.mark.parametrize("block", [1, 512, 4096, 65536])
@pytest.mark.seconds(300)
def test_no_request_waits_for_a_delayed_acknowledgement(serve, start, op, block):
    """
    The report asks for a p99 below 5 ms and at most 2 samples of 35 ms and more out of 2000. A machine that does other
    work delays samples, too, at random; a delayed acknowledgement hits nearly all of them, always by 40 ms. So in the
    short run the best of a few rounds counts, and the report's own figures only in the long run, on an idle machine.
    """
    server = serve(memory=("4MiB",))
    client = start([PROGRAM, server.name, 65536], stdin=subprocess.PIPE)
    assert client.line(20) == "ready"
    seen = []
    for _ in range(5):
        times = samples(client, op, block)
        delayed = sum(ms >= DELAYED_MS for ms in times)
        seen.append((times[REQUESTS // 2], times[REQUESTS * 99 // 100], delayed))
        if times[REQUESTS * 99 // 100] < MANY_MS and delayed <= 2:
            return
        if not harness.LONG and times[REQUESTS // 2] < MANY_MS and delayed <= REQUESTS // 100:
            return
    pytest.fail("median and p99 in ms, samples of %d ms and more: %r" % (DELAYED_MS, seen))


@pytest.mark.parametrize("reactor", ["uring", "epoll"])
def test_nagle_is_off_on_both_ends(serve, start, reactor):
    server = serve("--set", "reactor=" + reactor, memory=("4MiB",))
    client = start([PROGRAM, server.name, 65536], stdin=subprocess.PIPE, env={"FERRY_REACTOR": reactor})
    assert client.line(20) == "ready"
    assert client.ask("once") == "ok"
    port = server.data_endpoint()[1]
    for pid, end in ((server.pid, "getsockname"), (client.pid, "getpeername")):
        try:
            sockets = harness.sockets_of(pid)
        except (OSError, AttributeError) as e:
            pytest.skip("the sockets of another process cannot be looked at here: %s" % e)
        data = [s for s in sockets if getattr(s, end)()[1] == port]
        nodelay = [s.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for s in data]
        for one in sockets:
            one.close()
        assert nodelay and all(nodelay), nodelay
