# SPDX-License-Identifier: Apache-2.0
"""One side dies in mid-stream: the other reports it in time, leaks nothing, and goes on (field report B08)."""
import random
import signal
import subprocess
import time

import pytest

import harness

ROUNDS = 50 if harness.LONG else 5
LENGTH = 64 << 20
WITHIN_MS = 1000
PROGRAM = harness.program("survivor")


def restart(ferry, name, processes):
    """A new target under the old name, which is the old address."""
    server = harness.Serve(ferry, listen=name, memory=("64MiB",))
    processes.append(server)
    return server


@pytest.mark.seconds(60 + 6 * ROUNDS)
def test_initiator_survives_its_target(ferry, processes, start):
    server = restart(ferry, "127.0.0.1:0", processes)
    name, seeds = server.name, random.Random(1)
    client = start([PROGRAM, name, LENGTH], stdin=subprocess.PIPE)
    assert client.line(20) == "ready"
    base = None
    for i in range(ROUNDS):
        client.tell("stream")
        assert client.line(20) == "streaming", "round %d" % i
        if i == 1:
            base = harness.settled_uses(client.pid)
        time.sleep(seeds.uniform(0, 0.15))
        began = harness.now()
        server.kill()
        answer = client.line(20)
        took = harness.now() - began
        assert answer.startswith("failed "), answer
        assert took * 1000 < WITHIN_MS * harness.PATIENCE, "round %d: %s after %.0f ms" % (i, answer, took * 1000)
        server = restart(ferry, name, processes)
        assert client.ask("open " + name, 20) == "ok", "round %d" % i
        assert client.ask("once", 20) == "ok", "round %d" % i
    harness.wait_until(lambda: harness.fd_count(client.pid) <= base[0] and harness.thread_count(client.pid) <= base[1],
                       5, "descriptors and threads are back to %r" % (base,))
    client.child.stdin.close()
    client.child.stdin = None
    status, _, err = client.finish(15)
    assert status == 0, err


@pytest.mark.seconds(60 + 6 * ROUNDS)
def test_target_survives_its_initiator(serve, start):
    server, seeds = serve(memory=("64MiB",)), random.Random(2)
    base = None
    for i in range(ROUNDS):
        client = start([PROGRAM, server.name, LENGTH], stdin=subprocess.PIPE)
        assert client.line(20) == "ready"
        client.tell("stream")
        assert client.line(20) == "streaming"
        time.sleep(seeds.uniform(0, 0.15))
        client.kill()
        if base is None:
            base = harness.settled_uses(server.pid)
        harness.wait_until(lambda: harness.fd_count(server.pid) <= base[0], 5,
                           "round %d: descriptors are back to %d" % (i, base[0]))
        assert harness.thread_count(server.pid) <= base[1]
        assert server.alive(), server.stderr()
    client = start([PROGRAM, server.name, LENGTH], stdin=subprocess.PIPE)
    assert client.line(20) == "ready" and client.ask("once", 20) == "ok"
    assert server.stop() == 0, server.stderr()


@pytest.mark.seconds(60)
def test_a_stopped_target_ends_requests_by_the_progress_timeout(ferry, processes, start):
    """SIGSTOP in place of SIGKILL: nothing is closed, so only the clock can tell (2 s here)."""
    server = restart(ferry, "127.0.0.1:0", processes)
    client = start([PROGRAM, server.name, LENGTH], stdin=subprocess.PIPE,
                   env={"FERRY_TRANSPORTS_HP_TCP_PROGRESS_TIMEOUT_MS": "2000"})
    assert client.line(20) == "ready"
    client.tell("stream")
    assert client.line(20) == "streaming"
    began = harness.now()  # nothing moves from some moment of pause() on
    server.pause()
    stood = harness.now()
    answer = client.line(20)
    ended = harness.now()
    server.signal(signal.SIGCONT)
    assert answer.startswith("failed "), answer
    assert ended - began > 1.5, answer
    assert ended - stood < 3.5 * harness.PATIENCE, answer
    # The peer has bytes of the WRITE that failed in its sockets: they must not land over this one's.
    harness.wait_until(lambda: client.ask("once", 20) == "ok", 10, "the peer answers again")
