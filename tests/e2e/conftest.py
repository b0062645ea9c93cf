# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the two-process scenarios: the command, servers that go away, relays, namespaces."""
import os
import signal
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fakes"))

import harness  # noqa: E402
import namespaces  # noqa: E402
import relay as relays  # noqa: E402

TOP = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
TEST_SECONDS = 60


def pytest_configure(config):
    config.addinivalue_line("markers", "seconds(n): the test may take n seconds instead of %d" % TEST_SECONDS)
    config.addinivalue_line("markers", "xdist_group(name): never at the same time as others of the group")
    config.addinivalue_line("markers", "long: only in the long run (FERRY_TEST_LONG=1)")
    config.addinivalue_line("markers", "not_under(sanitizers, reason): not in such a build (FERRY_TEST_SANITIZER)")


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("long") and not harness.LONG:
            item.add_marker(pytest.mark.skip(reason="takes long; scripts/test --long runs it"))
        for marker in item.iter_markers("not_under"):
            sanitizers, reason = marker.args
            if harness.SANITIZER in sanitizers:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    """A test that hangs is a failed test, not a hanging run."""
    marker = item.get_closest_marker("seconds")
    seconds = (marker.args[0] if marker else TEST_SECONDS) * harness.PATIENCE

    def expired(_number, _frame):
        raise AssertionError("the test took more than %g s" % seconds)
    old = signal.signal(signal.SIGALRM, expired)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, old)


@pytest.fixture(scope="session")
def ferry():
    """Path of the command under test: FERRY_TEST_COMMAND, or build/ferry."""
    path = os.environ.get("FERRY_TEST_COMMAND", os.path.join(TOP, "build", "ferry"))
    assert os.access(path, os.X_OK), "no command at %s; run scripts/build, or set FERRY_TEST_COMMAND" % path
    return os.path.abspath(path)


@pytest.fixture
def processes():
    """A list of processes that are ended, by their number, when the test is over."""
    started = []
    yield started
    for process in reversed(started):
        process.close()


@pytest.fixture
def serve(ferry, processes):
    """serve(arguments...) starts `ferry serve` and waits until it is ready."""
    def start(*arguments, **options):
        server = harness.Serve(ferry, *arguments, **options)
        processes.append(server)
        return server
    return start


@pytest.fixture
def start(processes):
    """start(command, ...) starts any command."""
    def begin(command, **options):
        process = harness.Process(command, **options)
        processes.append(process)
        return process
    return begin


@pytest.fixture
def relay():
    """relay(server, filter_factory) gives the name of a peer whose data goes through a filter."""
    opened = []

    def open_relay(server, make_filter=relays.Forward, make_back=None):
        peer = relays.RelayedPeer(server.name, make_filter, make_back)
        opened.append(peer)
        return peer
    yield open_relay
    for peer in opened:
        peer.close()


@pytest.fixture
def netns():
    """Two network namespaces joined by a veth pair, with addresses of both families."""
    reason = namespaces.why_not()
    if reason:
        pytest.skip(reason)
    pair = namespaces.Pair()
    yield pair
    pair.close()
