# SPDX-License-Identifier: Apache-2.0
"""Everything at once, at random, for a while: kills of either side, cuts, delays, memory lent and taken back, on
both reactors. Every request is answered once, every byte that was read is right, nothing grows.

How often each fault struck is printed, and none of them may have been left out.
"""
import os
import random
import subprocess
import time

import pytest

import harness
import relay as relays

SECONDS = 600 if harness.LONG else 4
LENGTH = 1 << 20
GROWTH_MAX = (256 if harness.SANITIZER else 16) << 20
ENV = {"FERRY_TRANSPORTS_HP_TCP_CHUNK_BYTES": "131072", "FERRY_TRANSPORTS_HP_TCP_PROGRESS_TIMEOUT_MS": "2000"}
REACTORS = ("uring", "epoll")


class Slow(relays.Forward):
    """Holds what passes while somebody wants it to."""

    seconds = 0.0

    def after(self, _total):
        if Slow.seconds:
            time.sleep(Slow.seconds)


class Soak:
    """A target behind a relay with an initiator of each reactor, and a lender of memory with a borrower."""

    def __init__(self, choose, serve, start, relay):
        self.choose, self.serve, self.start, self.relay = choose, serve, start, relay
        self.answers, self.struck = {}, dict.fromkeys(FAULTS, 0)
        self.new_target()
        self.clients = [self.initiator(one, self.peer.name) for one in REACTORS]
        self.lender = start([harness.program("lender"), LENGTH], stdin=subprocess.PIPE,
                            env=dict(ENV, FERRY_REACTOR=choose.choice(REACTORS)))
        self.lent = self.lender.line(20)
        assert self.lender.ask("lend read-write") == "ok"
        self.borrower = self.initiator(choose.choice(REACTORS), self.lent)

    def new_target(self):
        self.target = self.serve("--set", "reactor=" + self.choose.choice(REACTORS), memory=("4MiB",), env=ENV)
        self.peer = self.relay(self.target, Slow)

    def initiator(self, reactor, name):
        client = self.start([harness.program("survivor"), name, LENGTH], stdin=subprocess.PIPE,
                            env=dict(ENV, FERRY_REACTOR=reactor))
        assert client.line(20) == "ready"
        return client

    def heard(self, client, patience=20):
        """Its answer, of which there is one; a program that reads other bytes than it wrote ends instead."""
        said = client.line(patience).split()
        what = " ".join(said[:2]) if said[0] == "failed" else said[0]
        self.answers[what] = self.answers.get(what, 0) + 1
        assert client.so_far() == "", "a second answer"
        return what == "ok"

    def round(self):
        """One WRITE and one READ of each, at the same time; the answers."""
        for client in self.clients:
            client.tell("once")
        return [self.heard(client) for client in self.clients]

    def fault(self, how):
        for client in self.clients:
            client.tell("once")
        time.sleep(self.choose.uniform(0, 0.004))
        how(self)
        for client in self.clients:
            self.heard(client)

    # Each of these strikes while requests are under way.

    def cut(self):
        if self.peer.relay.connections() > 0:
            self.peer.relay.cut()
            self.struck["cut"] += 1

    def delay(self):
        Slow.seconds = self.choose.uniform(0.001, 0.02)
        time.sleep(0.05)
        Slow.seconds = 0.0
        self.struck["delay"] += 1

    def kill_target(self):
        self.target.kill()
        self.struck["kill target"] += 1

    def kill_initiator(self):
        victim = self.initiator(self.choose.choice(REACTORS), self.peer.name)
        victim.tell("stream")
        time.sleep(self.choose.uniform(0, 0.05))
        victim.kill()
        victim.close()
        self.struck["kill initiator"] += 1

    def take_back(self):
        self.borrower.tell("stream")
        assert self.borrower.line(20) == "streaming"
        time.sleep(self.choose.uniform(0, 0.02))
        taken = self.lender.ask("take 3000", 20)
        assert taken.startswith("ok"), taken
        assert not self.heard(self.borrower), "memory that was taken back is still read"
        assert self.lender.ask("lend read-write") == "ok"
        assert self.borrower.ask("open " + self.lent, 20) == "ok"
        self.struck["take back"] += 1

    def recover(self):
        """Whatever struck, requests go on; to a new target if the old one is gone."""
        if not self.target.alive():
            self.peer.close()
            self.target.close()
            self.new_target()
            for client in self.clients:
                assert client.ask("open " + self.peer.name, 20) == "ok"
        harness.wait_until(lambda: all(self.round()), 20, "requests go on")

    def lasting(self):
        return self.clients + [self.borrower, self.lender]


FAULTS = {"cut": Soak.cut, "delay": Soak.delay, "kill target": Soak.kill_target,
          "kill initiator": Soak.kill_initiator, "take back": Soak.take_back}


@pytest.mark.seconds(SECONDS + 120)
def test_faults_of_every_kind_for_a_while(serve, start, relay):
    seed = int(os.environ.get("FERRY_TEST_SEED", random.SystemRandom().randrange(1 << 30)))
    print("FERRY_TEST_SEED=%d" % seed)
    choose = random.Random(seed)
    soak = Soak(choose, serve, start, relay)
    until, uses, turns = harness.now() + SECONDS, None, 0
    while harness.now() < until or turns < 3:
        for name in choose.sample(sorted(FAULTS), len(FAULTS)):
            soak.fault(FAULTS[name])
            soak.recover()
        turns += 1
        if turns == 2:
            uses = [(harness.settled_uses(one.pid), harness.resident_bytes(one.pid)) for one in soak.lasting()]
    print("struck:", soak.struck, "answers:", soak.answers, "turns:", turns)
    assert min(soak.struck.values()) > 0, soak.struck
    assert soak.answers["ok"] > sum(soak.struck.values())
    for one, ((descriptors, threads), resident) in zip(soak.lasting(), uses):
        now = harness.settled_uses(one.pid)
        print("descriptors, threads:", (descriptors, threads), now, "resident:", resident,
              harness.resident_bytes(one.pid))
        assert now[0] <= descriptors + 8 and now[1] <= threads
        assert harness.resident_bytes(one.pid) <= resident + GROWTH_MAX
    for one in soak.lasting():
        one.child.stdin.close()
        one.child.stdin = None
        assert one.finish(30)[0] == 0
    assert soak.target.stop() == 0
