# SPDX-License-Identifier: Apache-2.0
"""WRITEs whose answer is lost, between two ferry processes with a relay that cuts their connections: what
was applied is not sent again, what was not is, and what nobody knows is said to be unknown."""
import random
import socket
import struct
import subprocess
import threading

import pytest

import harness
import relay as relays
import v1

MIB = 1 << 20
HELLO, WRITE, WRITE_REPLY, RESOLVE, RESOLVE_REPLY = 1, 4, 6, 7, 8


class Scissors:
    """Makes the filters of both directions: counts frames, and cuts a connection at chosen ones.

    cut maps a frame type to how often the connection that carries such a frame is cut, with the frame.
    body: how often one is cut in the middle of a WRITE's payload, each time behind so many bytes.
    """

    def __init__(self, cut=None, body=0, body_bytes=0):
        self.cut, self.body, self.body_bytes, self.body_left = dict(cut or {}), body, body_bytes, body_bytes
        self.seen, self.predecessors, self.lock = {}, [], threading.Lock()

    def count(self, kind):
        with self.lock:
            return self.seen.get(kind, 0)

    def strikes(self, kind):
        with self.lock:
            left = self.cut.get(kind, 0)
            self.cut[kind] = left - 1
            return left > 0

    def take_body(self, length):
        """How much of a piece passes before the cut; None: all of it, and no cut."""
        with self.lock:
            if self.body == 0:
                return None
            if length <= self.body_left:
                self.body_left -= length
                return None
            keep, self.body_left, self.body = self.body_left, self.body_bytes, self.body - 1
            return keep

    def filter(self):
        outer = self

        class Cutting(relays.Forward):
            def header(self, data):
                if data[:4] != relays.FERRY_MAGIC:
                    return data
                kind = data[5]
                with outer.lock:
                    outer.seen[kind] = outer.seen.get(kind, 0) + 1
                    if kind == HELLO:
                        outer.predecessors.append(struct.unpack(">Q", data[72 + 32:72 + 40])[0])
                if outer.strikes(kind):
                    raise ConnectionAbortedError("cut at a frame of type %d" % kind)
                return data

            def payload(self, data):
                keep = outer.take_body(len(data))
                if keep is None:
                    return data
                self.far.sendall(data[:keep])
                raise ConnectionAbortedError("cut in a body")
        return Cutting()


def initiator(start, name, length, **settings):
    """A program of ours with one lane, so that the frames are easily counted."""
    env = {"FERRY_TRANSPORTS_HP_TCP_" + key.upper(): str(value) for key, value in settings.items()}
    env.setdefault("FERRY_TRANSPORTS_HP_TCP_CONNECTIONS_PER_PEER", "1")
    env.setdefault("FERRY_TRANSPORTS_HP_TCP_CHUNK_BYTES", "1073741824")
    process = start([harness.program("survivor"), name, length], stdin=subprocess.PIPE, env=env)
    assert process.line(20) == "ready"
    return process


@pytest.fixture
def target(serve):
    return serve(memory=("4MiB",))


@pytest.mark.parametrize("length", [4096, MIB])
def test_a_write_that_was_applied_completes_and_is_not_sent_again(start, target, relay, length):
    scissors = Scissors({WRITE_REPLY: 1})
    peer = relay(target, scissors.filter)
    client = initiator(start, peer.name, length)
    assert client.ask("once", 20) == "ok"
    assert scissors.count(WRITE) == 1 and scissors.count(RESOLVE) == 1, scissors.seen
    assert scissors.predecessors[0] == 0 and scissors.predecessors[1] != 0
    # And so does the next one.
    assert client.ask("once", 20) == "ok"
    assert scissors.count(WRITE) == 2


@pytest.mark.parametrize("length,passed", [(4096, 0), (4096, 4095), (MIB, 300000), (MIB, MIB - 1)])
def test_a_write_that_landed_in_part_is_sent_again_and_completes(start, target, relay, length, passed):
    scissors = Scissors(body=1, body_bytes=passed)
    peer = relay(target, scissors.filter)
    client = initiator(start, peer.name, length)
    assert client.ask("once", 20) == "ok"
    assert scissors.count(WRITE) == 2 and scissors.count(RESOLVE_REPLY) == 1, scissors.seen


def test_a_question_whose_answer_is_lost_is_asked_again(start, target, relay):
    scissors = Scissors({WRITE_REPLY: 1, RESOLVE_REPLY: 2})
    peer = relay(target, scissors.filter)
    client = initiator(start, peer.name, 65536)
    assert client.ask("once", 20) == "ok"
    assert scissors.count(WRITE) == 1 and scissors.count(RESOLVE) == 3, scissors.seen
    # Each of the three names the same predecessor, and its answers were kept.
    assert len(set(scissors.predecessors[1:4])) == 1


def test_many_chunks_on_many_lanes_survive_many_cuts(start, target, relay):
    """Cuts strike all lanes, at answers and in bodies; what came of each chunk is found out."""
    scissors = Scissors({WRITE_REPLY: 12}, body=4, body_bytes=500000)
    peer = relay(target, scissors.filter)
    client = initiator(start, peer.name, 3 * MIB, connections_per_peer=4, chunk_bytes=65536, lanes_per_task=4)
    for _ in range(4):
        assert client.ask("once", 30) == "ok"
    assert scissors.count(RESOLVE) > 0 and scissors.body == 0, scissors.seen


class Holder(relays.Forward):
    """The body of the first WRITE goes nowhere until `release` is set; then it is still delivered."""

    armed, release = True, None

    def payload(self, data):
        if not Holder.armed:
            return data
        Holder.armed = False
        self.near.shutdown(socket.SHUT_RDWR)  # the initiator sees the end; the target sees nothing
        assert Holder.release.wait(30 * harness.PATIENCE)
        return data


def test_late_bytes_of_a_fenced_connection_do_not_land(start, target, relay):
    Holder.armed, Holder.release = True, threading.Event()
    peer = relay(target, Holder, relays.Forward)
    client = initiator(start, peer.name, 16384)
    assert client.ask("once", 20) == "ok"  # the first one, sent again on a second connection
    assert client.ask("once", 20) == "ok"  # other bytes over it
    address, _, registration = target.registration()
    with v1.Client(*target.data_endpoint()) as reader:
        now = reader.read(registration, address, 16384)
        Holder.release.set()
        # The relay delivers the old body now; the connection that it came on is closed, so it cannot land.
        for _ in range(20):
            assert reader.read(registration, address, 16384) == now
    assert client.ask("once", 20) == "ok"


class Mute(relays.Forward):
    """Lets no answer to a question through, and the first answer to a WRITE neither."""

    cuts = 1

    def header(self, data):
        if data[5] == RESOLVE_REPLY:
            return b""
        if data[5] == WRITE_REPLY and Mute.cuts > 0:
            Mute.cuts -= 1
            raise ConnectionAbortedError("cut at an answer")
        return data


def test_a_question_has_a_limit_of_its_own(start, target, relay):
    Mute.cuts = 1
    peer = relay(target, relays.Forward, Mute)
    client = initiator(start, peer.name, 4096, resolve_timeout_ms=400)
    began = harness.now()
    answer = client.ask("once", 20)
    assert answer.startswith("failed ERR_OUTCOME_UNKNOWN") and "resolve_timeout_ms" in answer, answer
    assert 0.35 < harness.now() - began < 3 * harness.PATIENCE
    # Nothing is in the way of the next one.
    assert client.ask("once", 20) == "ok"


class LastWords(relays.Forward):
    """At the first answer to a WRITE the relay stops listening, and cuts."""

    relay = None

    def header(self, data):
        if data[5] == WRITE_REPLY:
            LastWords.relay.closing = True
            LastWords.relay.listener.shutdown(socket.SHUT_RDWR)
            LastWords.relay.listener.close()
            raise ConnectionAbortedError("cut for good")
        return data


def test_nobody_to_ask_means_unknown_at_once(start, target, relay):
    peer = relay(target, relays.Forward, LastWords)
    LastWords.relay = peer.relay
    client = initiator(start, peer.name, 4096, resolve_timeout_ms=20000)
    began = harness.now()
    answer = client.ask("once", 20)
    assert answer.startswith("failed ERR_OUTCOME_UNKNOWN") and "nobody answers" in answer, answer
    assert harness.now() - began < 5 * harness.PATIENCE


def test_a_peer_that_forgets_at_once_leaves_the_outcome_unknown(start, serve, relay):
    target = serve("--set", "transports.hp_tcp.resolve_answers_max=0", memory=("4MiB",))
    scissors = Scissors({WRITE_REPLY: 1})
    peer = relay(target, scissors.filter)
    client = initiator(start, peer.name, 4096)
    answer = client.ask("once", 20)
    assert answer.startswith("failed ERR_OUTCOME_UNKNOWN") and "knows nothing" in answer, answer
    assert scissors.count(WRITE) == 1 and scissors.count(RESOLVE) == 1
    assert client.ask("once", 20) == "ok"


def lasting_port():
    """A port that no connection takes while its owner is gone: below those that the kernel gives out."""
    for port in random.sample(range(20000, 32000), 100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
    raise AssertionError("no port is free")


class Pause(relays.Forward):
    """Keeps the first answer to a WRITE until `go_on` is set, and cuts then."""

    reached, go_on = None, None

    def header(self, data):
        if data[5] == WRITE_REPLY and not Pause.reached.is_set():
            Pause.reached.set()
            assert Pause.go_on.wait(30 * harness.PATIENCE)
            raise ConnectionAbortedError("cut at an answer")
        return data


def test_a_write_is_not_sent_to_the_next_life_of_a_peer(ferry, start, processes, serve, relay):
    """The same place, another process: its memory must not see the WRITE of before."""
    Pause.reached, Pause.go_on = threading.Event(), threading.Event()
    port = lasting_port()
    fixed = "--set", "transports.hp_tcp.port=%d" % port
    first = serve(*fixed, memory=("1MiB",))
    peer = relay(first, relays.Forward, Pause)
    client = initiator(start, peer.name, 4096, resolve_timeout_ms=20000)
    client.tell("once")
    assert Pause.reached.wait(20 * harness.PATIENCE)
    first.kill()
    second = harness.Serve(ferry, *fixed, listen=first.name, memory=("1MiB",))
    processes.append(second)
    Pause.go_on.set()
    answer = client.line(30)
    assert answer.startswith("failed ERR_OUTCOME_UNKNOWN") and "restarted" in answer, answer
    address, _, registration = second.registration()
    with v1.Client(*second.data_endpoint()) as reader:
        assert reader.read(registration, address, 4096) == bytes(4096)


@pytest.mark.parametrize("reactor", ["uring", "epoll"])
def test_a_benchmark_sees_no_error_while_answers_are_lost(ferry, target, relay, reactor):
    """Answers are lost again and again under a load that checks every byte."""
    scissors = Scissors({WRITE_REPLY: 0})
    peer = relay(target, scissors.filter)
    stop = threading.Event()

    def cut_now_and_then():
        while not stop.wait(0.05):
            with scissors.lock:
                scissors.cut[WRITE_REPLY] = 1
    cutter = threading.Thread(target=cut_now_and_then)
    cutter.start()
    try:
        got = harness.bench(ferry, "--target", peer.name, "--transport", "hp_tcp", "--op", "write", "--check",
                            "--block", "64KiB", "--batch", 4, "--duration", 1.5, "--set", "reactor=" + reactor)
    finally:
        stop.set()
        cutter.join()
    assert got[0]["errors"] == 0 and got[0]["verified_bytes"] > 0
    assert scissors.count(RESOLVE_REPLY) > 0, scissors.seen
