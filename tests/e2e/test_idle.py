# SPDX-License-Identifier: Apache-2.0
"""Waiting costs nothing (field report B21)."""
import signal
import subprocess
import time

import pytest

import harness

# 0.15 s of CPU and 50 switches a second over 30 s; the short run measures a part of it.
SECONDS = 30 if harness.LONG else 10
CPU_SECONDS_MAX = 0.15 * SECONDS / 30
SWITCHES_MAX = 50 * SECONDS


@pytest.fixture
def survivor(start):
    def begin(name, length=1 << 20, **options):
        program = harness.program("survivor")
        process = start([program, name, length], stdin=subprocess.PIPE, **options)
        assert process.line(20) == "ready"
        return process
    return begin


@pytest.mark.parametrize("reactor", ["uring", "epoll"])
@pytest.mark.seconds(SECONDS + 40)
def test_two_connected_processes_are_idle(serve, survivor, reactor):
    server = serve("--set", "reactor=" + reactor, memory=("4MiB",))
    client = survivor(server.name, env={"FERRY_REACTOR": reactor})
    assert client.ask("once") == "ok"
    time.sleep(1)  # what the transfer left to do, such as spinning after recent traffic, is not idleness
    pids = (server.pid, client.pid)
    cpu, switches = [harness.cpu_seconds(p) for p in pids], [harness.context_switches(p) for p in pids]
    time.sleep(SECONDS)
    for pid, cpu_before, switches_before in zip(pids, cpu, switches):
        assert harness.cpu_seconds(pid) - cpu_before <= CPU_SECONDS_MAX
        assert harness.context_switches(pid) - switches_before <= SWITCHES_MAX
    assert client.ask("once") == "ok"


@pytest.mark.seconds(60)
def test_waiting_for_a_stopped_peer_does_not_burn_a_core(serve, survivor):
    server = serve(memory=("4MiB",))
    client = survivor(server.name, env={"FERRY_TRANSPORTS_HP_TCP_PROGRESS_TIMEOUT_MS": "5000"})
    assert client.ask("once") == "ok"
    server.pause()
    client.tell("stream")
    time.sleep(0.3)
    before = harness.cpu_seconds(client.pid)
    time.sleep(4)
    assert harness.cpu_seconds(client.pid) - before <= 0.2
    answer = client.line(30)
    server.signal(signal.SIGCONT)
    assert answer.startswith("failed "), answer
