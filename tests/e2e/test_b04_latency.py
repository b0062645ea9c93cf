# SPDX-License-Identifier: Apache-2.0
"""No small request waits for a delayed acknowledgement (field report B04)."""
import socket
import subprocess

import pytest

import harness

PROGRAM = harness.program("survivor")


@pytest.mark.parametrize("op", ["read", "write"])
@pytest.mark.parametrize("block", [1, 512, 4096, 65536])
def test_no_sample_near_forty_milliseconds(ferry, serve, op, block):
    server = serve(memory=("4MiB",))
    record = harness.bench(ferry, "--target", server.name, "--op", op, "--block", block, "--duration", 0.5)[0]
    assert record["errors"] == 0 and record["ops"] > 50
    # A delayed acknowledgement adds 40 ms to nearly every request; other work on the machine to few.
    assert record["latency_us"]["p50"] < 5000
    assert record["latency_us"]["p99"] < 35000


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
