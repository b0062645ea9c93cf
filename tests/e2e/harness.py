# SPDX-License-Identifier: Apache-2.0
"""Starts ferry processes for the scenarios, reads what they say, and ends them by their number.

Every wait has a deadline. A process that a scenario starts dies with the scenario, also when the
scenario itself is killed.
"""
import json
import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import time

TICK = os.sysconf("SC_CLK_TCK")
LONG = os.environ.get("FERRY_TEST_LONG") == "1"
# Sanitizer builds are slower; deadlines are multiplied, measured limits are not.
PATIENCE = float(os.environ.get("FERRY_TEST_PATIENCE", "1"))
# What the build under test was made with: "address", "thread", or nothing.
SANITIZER = os.environ.get("FERRY_TEST_SANITIZER", "")

USAGE, DATA, ENVIRONMENT = 2, 1, 3


def program(name):
    """Path of a helper program that the build made: FERRY_TEST_BUILD, or build-test."""
    top = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    return os.path.join(os.environ.get("FERRY_TEST_BUILD", os.path.join(top, "build-test")),
                        "tests", "e2e", "programs", "e2e_" + name)


def now():
    return time.monotonic()


def wait_until(condition, seconds, what):
    """Poll until the condition gives a true value, which is returned; AssertionError at the deadline."""
    until = now() + seconds * PATIENCE
    while True:
        got = condition()
        if got:
            return got
        assert now() < until, "not within %g s: %s" % (seconds, what)
        time.sleep(0.005)


class Process:
    """A child with its standard output as lines and its standard error in a file."""

    def __init__(self, command, env=None, prefix=(), stdin=subprocess.DEVNULL):
        guard = ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []
        self.command = [str(part) for part in command]
        self.errors = tempfile.TemporaryFile()
        environment = {k: v for k, v in os.environ.items()
                       if not k.startswith(("FERRY_", "MC_")) or k.startswith("FERRY_TEST_")}
        environment.update(env or {})
        self.child = subprocess.Popen(list(prefix) + guard + self.command, stdout=subprocess.PIPE,
                                      stderr=self.errors, stdin=stdin, env=environment)
        self.buffer = b""
        os.set_blocking(self.child.stdout.fileno(), False)

    @property
    def pid(self):
        return self.child.pid

    def alive(self):
        return self.child.poll() is None

    def stderr(self):
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace")

    def _read_some(self, seconds):
        with selectors.DefaultSelector() as selector:
            selector.register(self.child.stdout, selectors.EVENT_READ)
            if selector.select(max(0, seconds)):
                return os.read(self.child.stdout.fileno(), 1 << 16)
        return None

    def line(self, seconds=10):
        """The next line of standard output, without its newline."""
        until = now() + seconds * PATIENCE
        while b"\n" not in self.buffer:
            got = self._read_some(until - now())
            if got is None:
                raise AssertionError("%s: no line within %g s; stderr:\n%s" % (self.command, seconds, self.stderr()))
            if got == b"":
                raise AssertionError("%s ended with %s before it said a line; stderr:\n%s"
                                     % (self.command, self.child.wait(timeout=10), self.stderr()))
            self.buffer += got
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line.decode()

    def so_far(self):
        """What it has said and nobody has taken yet."""
        self.buffer += self._read_some(0) or b""
        return self.buffer.decode(errors="replace")

    def tell(self, line):
        """A line to its standard input, which must be a pipe."""
        self.child.stdin.write(line.encode() + b"\n")
        self.child.stdin.flush()

    def ask(self, line, seconds=10):
        """Tell it a line; the line it answers."""
        self.tell(line)
        return self.line(seconds)

    def finish(self, seconds=30):
        """Wait for the end; (exit status, rest of standard output, standard error)."""
        until = now() + seconds * PATIENCE
        while True:
            got = self._read_some(until - now())
            if got == b"":
                break
            if got is None:
                self.kill()
                raise AssertionError("%s did not end within %g s; output %r, stderr:\n%s"
                                     % (self.command, seconds, self.buffer[-2000:], self.stderr()))
            self.buffer += got
        try:
            status = self.child.wait(timeout=max(0.1, until - now()))
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError("%s closed its output and did not end" % self.command) from None
        rest, self.buffer = self.buffer.decode(errors="replace"), b""
        return status, rest, self.stderr()

    def signal(self, number):
        if self.alive():
            os.kill(self.pid, number)

    def pause(self):
        """Stop it (SIGSTOP) and wait until every thread stands still; signal(SIGCONT) goes on."""
        self.signal(signal.SIGSTOP)

        def stands():
            states = []
            for task in os.listdir("/proc/%d/task" % self.pid):
                with open("/proc/%d/task/%s/stat" % (self.pid, task), encoding="utf-8", errors="replace") as f:
                    states.append(f.read().rsplit(")", 1)[1].split()[0])
            return all(state in "Tt" for state in states)
        wait_until(stands, 5, "the process is stopped")

    def kill(self):
        self.signal(signal.SIGKILL)
        self.child.wait(timeout=10)

    def stop(self, seconds=10):
        """End it kindly; its exit status. A process that does not go is killed and that is a failure."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        return self.finish(seconds)[0]

    def close(self):
        if self.alive():
            self.kill()
        self.child.stdout.close()
        if self.child.stdin:
            self.child.stdin.close()
        self.errors.close()


class Serve(Process):
    """`ferry serve --json` on a free port; knows its name and buffers once it is ready."""

    def __init__(self, ferry, *arguments, listen="127.0.0.1:0", memory=("64MiB",), env=None, prefix=(), seconds=20):
        command = [ferry, "serve", "--listen", listen, "--json"]
        for size in memory:
            command += ["--memory", size]
        super().__init__(command + list(arguments), env=env, prefix=prefix)
        try:
            self.hello = json.loads(self.line(seconds))
        except BaseException:
            self.close()
            raise
        self.name = self.hello["name"]
        self.buffers = self.hello["buffers"]

    def document(self):
        """The segment document as its control plane gives it to anybody."""
        return json.loads(http_get(self.name, "/v1/segment"))

    def data_endpoint(self):
        """(host, port) of the data listener, from the published document."""
        first = hp_attribute(self.document())["endpoints"][0]
        return first["host"], first["port"]

    def registration(self, index=0):
        """(address, length, registration id) of a published buffer."""
        buffer = sorted(self.document()["detail"]["buffers"], key=lambda b: b["addr"])[index]
        return buffer["addr"], buffer["length"], hp_attribute(buffer)["registration_id"]


def hp_attribute(holder):
    """The hp_tcp attribute of a document, or of one of its buffers."""
    pairs = holder["detail"]["transport_attrs"] if "detail" in holder else holder["transport_attrs"]
    for _, text in pairs:
        if "tent_hp_tcp" in text:
            return json.loads(text)
    raise AssertionError("no hp_tcp attribute in %r" % (holder,))


def http_get(name, path, seconds=5):
    """GET from a control plane by segment name, `host:port`; the body."""
    import http.client
    connection = http.client.HTTPConnection(name, timeout=seconds * PATIENCE)
    try:
        connection.request("GET", path)
        reply = connection.getresponse()
        body = reply.read()
        assert reply.status == 200, "GET %s%s: %d %r" % (name, path, reply.status, body[:300])
        return body
    finally:
        connection.close()


def run(command, seconds=60, env=None, prefix=()):
    """Run to the end; (exit status, standard output, standard error)."""
    process = Process(command, env=env, prefix=prefix)
    try:
        return process.finish(seconds)
    finally:
        process.close()


def records(text):
    """JSON lines; anything else on standard output is a failure."""
    return [json.loads(line) for line in text.splitlines()]


def bench(ferry, *arguments, seconds=120, expect=0, env=None, prefix=()):
    """`ferry bench --json`; its records. Fails unless it ends as expected."""
    status, out, err = run([ferry, "bench", "--json", *arguments], seconds, env=env, prefix=prefix)
    assert status == expect, "ferry bench %s ended with %d, not %d\nstdout: %s\nstderr: %s" % (
        " ".join(map(str, arguments)), status, expect, out[-2000:], err[-4000:])
    return records(out)


# What a process uses, from /proc.

def cpu_seconds(pid):
    """User and system time of all its threads; exact where the kernel keeps scheduling statistics."""
    try:
        total = 0
        for task in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/schedstat" % (pid, task), encoding="ascii") as f:
                total += int(f.read().split()[0])
        return total / 1e9
    except (OSError, ValueError, IndexError):
        return cpu_seconds_by_tick(pid)


def cpu_seconds_by_tick(pid):
    with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as f:
        part = f.read().rsplit(")", 1)[1].split()
    return (int(part[11]) + int(part[12])) / TICK


def sockets_of(pid):
    """Duplicates of a process's connected TCP sockets, to ask them for their options. Needs root."""
    import ctypes
    import socket
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd = os.pidfd_open(pid)
    found = []
    try:
        for entry in os.listdir("/proc/%d/fd" % pid):
            try:
                if not os.readlink("/proc/%d/fd/%s" % (pid, entry)).startswith("socket:"):
                    continue
            except FileNotFoundError:
                continue
            fd = libc.syscall(438, pidfd, int(entry), 0)  # pidfd_getfd
            if fd < 0:
                raise OSError(ctypes.get_errno(), "pidfd_getfd")
            copy = socket.socket(fileno=fd)
            try:
                assert copy.type & socket.SOCK_STREAM and copy.family in (socket.AF_INET, socket.AF_INET6)
                copy.getpeername()
                found.append(copy)
            except (OSError, AssertionError):
                copy.close()
        return found
    finally:
        os.close(pidfd)


def fd_count(pid):
    return len(os.listdir("/proc/%d/fd" % pid))


def thread_count(pid):
    return len(os.listdir("/proc/%d/task" % pid))


def settled_uses(pid, seconds=20):
    """
    (descriptors, threads) of a process once they stay the same for half a second: what later counts are compared
    with. A count taken at once may miss a connection that is not accepted yet, or hold one that is about to close.
    """
    def uses():
        first = fd_count(pid), thread_count(pid)
        until = now() + 0.5
        while now() < until:
            time.sleep(0.02)
            if first != (fd_count(pid), thread_count(pid)):
                return None
        return first
    return wait_until(uses, seconds, "descriptors and threads of process %d stay the same" % pid)


def context_switches(pid):
    total = 0
    for task in os.listdir("/proc/%d/task" % pid):
        try:
            with open("/proc/%d/task/%s/status" % (pid, task), encoding="utf-8") as f:
                total += sum(int(line.split()[1]) for line in f if "ctxt_switches" in line)
        except FileNotFoundError:
            continue
    return total


def resident_bytes(pid):
    with open("/proc/%d/statm" % pid, encoding="utf-8") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def memory_available():
    with open("/proc/meminfo", encoding="utf-8") as f:
        for line in f:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 0
