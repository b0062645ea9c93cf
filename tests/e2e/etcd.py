# SPDX-License-Identifier: Apache-2.0
"""A real etcd for the scenarios: one member on loopback, its data in a folder that goes with it."""
import os
import shutil
import signal
import socket
import subprocess
import tempfile

import harness

PROGRAM = "/usr/bin/etcd"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Etcd:
    def __init__(self, *args):
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.dir = tempfile.mkdtemp(prefix="ferry-etcd-", dir=memory)
        self.port, self.peer_port = free_port(), free_port()
        self.args, self.child = args, None
        self.start()

    def start(self):
        client, peer = ("http://127.0.0.1:%d" % port for port in (self.port, self.peer_port))
        guard = ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []
        with open(os.path.join(self.dir, "log"), "ab") as log:
            self.child = subprocess.Popen(
                guard + [PROGRAM, "--name=test", "--data-dir", os.path.join(self.dir, "data"),
                         "--listen-client-urls", client, "--advertise-client-urls", client,
                         "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                         "--initial-cluster", "test=" + peer, "--heartbeat-interval=20",
                         "--election-timeout=200", "--logger=zap", *self.args],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        harness.wait_until(self._listens, 60, "etcd listens; see %s/log" % self.dir)

    def _listens(self):
        assert self.child.poll() is None, "etcd has ended; see %s/log" % self.dir
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self):
        if self.child and self.child.poll() is None:
            self.child.send_signal(signal.SIGKILL)
            self.child.wait()

    @property
    def settings(self):
        return ["--set", "metadata_type=etcd", "--set", "metadata_servers=127.0.0.1:%d" % self.port]

    def close(self):
        self.kill()
        shutil.rmtree(self.dir, ignore_errors=True)
