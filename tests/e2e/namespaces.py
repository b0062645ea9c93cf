# SPDX-License-Identifier: Apache-2.0
"""Two network namespaces joined by a veth pair. The names are this process's own; close() removes all."""
import itertools
import os
import shutil
import subprocess

import harness

number = itertools.count()


def sh(*command, check=True):
    return subprocess.run(command, check=check, capture_output=True, text=True, timeout=30).stdout


def why_not():
    """Why namespaces cannot be made here, or "" if they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not shutil.which("ip"):
        return "ip (iproute2) is not installed"
    name = "fy%dprobe" % os.getpid()
    done = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, timeout=30)
    if done.returncode != 0:
        return "network namespaces cannot be made here: " + done.stderr.strip()
    made = subprocess.run(["ip", "-n", name, "link", "add", "probe0", "type", "veth", "peer", "name", "probe1"],
                          capture_output=True, text=True, timeout=30)
    sh("ip", "netns", "del", name, check=False)
    return "" if made.returncode == 0 else "veth pairs cannot be made here: " + made.stderr.strip()


class Pair:
    """Namespaces `left` and `right`: 10.77.N.1 and .2, fd77:N::1 and ::2."""

    def __init__(self):
        serial = next(number)
        tag = "fy%dx%d" % (os.getpid(), serial)
        self.left, self.right = tag + "l", tag + "r"
        self.left_v4, self.right_v4 = "10.77.%d.1" % (serial % 250), "10.77.%d.2" % (serial % 250)
        self.left_v6, self.right_v6 = "fd77:%x::1" % (serial + 1), "fd77:%x::2" % (serial + 1)
        self.device = "ferry0"
        try:
            self._up()
        except BaseException:
            self.close()
            raise

    def _up(self):
        for name in (self.left, self.right):
            sh("ip", "netns", "add", name)
            sh("ip", "-n", name, "link", "set", "lo", "up")
        sh("ip", "link", "add", self.device, "netns", self.left, "type", "veth",
           "peer", "name", self.device, "netns", self.right)
        for name, v4, v6 in ((self.left, self.left_v4, self.left_v6), (self.right, self.right_v4, self.right_v6)):
            sh("ip", "-n", name, "addr", "add", v4 + "/24", "dev", self.device)
            # Without duplicate detection the address is usable at once.
            sh("ip", "-n", name, "addr", "add", v6 + "/64", "dev", self.device, "nodad")
            sh("ip", "-n", name, "link", "set", self.device, "up")
        for name in (self.left, self.right):
            harness.wait_until(lambda end=name: "state UP" in sh("ip", "-n", end, "link", "show", self.device), 5,
                               "the link is up")

    def prefix(self, name):
        return ["ip", "netns", "exec", name]

    def link(self, name, state):
        """Take one end of the wire down, or up again."""
        sh("ip", "-n", name, "link", "set", self.device, state)

    def close(self):
        for name in (self.left, self.right):
            sh("ip", "netns", "del", name, check=False)


class Rails:
    """Namespaces `left` and `right` joined by several wires, each with a subnet and a rate of its own.

    Rail r is 10.78.r.1 and .2, fd78:r::1 and ::2, on the devices `rail<r>`; mbit[r] shapes both directions,
    None leaves it as fast as it is.
    """

    def __init__(self, mbit):
        serial = next(number)
        tag = "fy%dr%d" % (os.getpid(), serial)
        self.left, self.right, self.mbit = tag + "l", tag + "r", list(mbit)
        try:
            for name in (self.left, self.right):
                sh("ip", "netns", "add", name)
                sh("ip", "-n", name, "link", "set", "lo", "up")
            for rail in range(len(self.mbit)):
                self._up(rail)
        except BaseException:
            self.close()
            raise

    def device(self, rail):
        return "rail%d" % rail

    def address(self, name, rail, family=4):
        host = 1 if name == self.left else 2
        return "10.78.%d.%d" % (rail, host) if family == 4 else "fd78:%x::%d" % (rail + 1, host)

    def addresses(self, name, family=4):
        return [self.address(name, rail, family) for rail in range(len(self.mbit))]

    def _up(self, rail):
        device = self.device(rail)
        sh("ip", "link", "add", device, "netns", self.left, "type", "veth", "peer", "name", device,
           "netns", self.right)
        for name in (self.left, self.right):
            sh("ip", "-n", name, "addr", "add", self.address(name, rail) + "/24", "dev", device)
            sh("ip", "-n", name, "addr", "add", self.address(name, rail, 6) + "/64", "dev", device, "nodad")
            sh("ip", "-n", name, "link", "set", device, "up")
        for name in (self.left, self.right):
            harness.wait_until(lambda end=name: "state UP" in sh("ip", "-n", end, "link", "show", device), 5,
                               "the link is up")
            self._shape(name, rail)

    def _shape(self, name, rail, discipline=None):
        """The queueing discipline of one end; by default the one that gives the rail its rate."""
        if discipline is None and self.mbit[rail]:
            discipline = ("tbf", "rate", "%dmbit" % self.mbit[rail], "burst", "256kb", "latency", "20ms")
        tc = ("ip", "netns", "exec", name, "tc", "qdisc")
        if discipline:
            sh(*tc, "replace", "dev", self.device(rail), "root", *discipline)
        else:
            sh(*tc, "del", "dev", self.device(rail), "root", check=False)

    def prefix(self, name):
        return ["ip", "netns", "exec", name]

    def link(self, name, rail, state):
        """Take one end of a wire down, or up again."""
        sh("ip", "-n", name, "link", "set", self.device(rail), state)
        if state == "up":
            # An IPv6 address goes with the link.
            sh("ip", "-n", name, "addr", "add", self.address(name, rail, 6) + "/64", "dev", self.device(rail), "nodad",
               check=False)

    def drop(self, rail, dropped):
        """Let every packet of a rail vanish, or no more; both links stay up."""
        for name in (self.left, self.right):
            self._shape(name, rail, ("pfifo", "limit", "0") if dropped else None)

    def reset(self, rail):
        """Reset every connection of a rail, at the left end; how many there were."""
        said = sh("ip", "netns", "exec", self.left, "ss", "-HKt", "src", self.address(self.left, rail) + "/32")
        return len(said.splitlines())

    def carried(self, name, rail):
        """(received, sent) bytes of one end of a wire, headers included, by the kernel's count."""
        base = "/sys/class/net/%s/statistics/" % self.device(rail)
        text = sh("ip", "netns", "exec", name, "cat", base + "rx_bytes", base + "tx_bytes")
        return tuple(int(line) for line in text.split())

    def close(self):
        for name in (self.left, self.right):
            sh("ip", "netns", "del", name, check=False)
