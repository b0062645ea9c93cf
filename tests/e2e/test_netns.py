# SPDX-License-Identifier: Apache-2.0
"""Between two network namespaces, over IPv4 and IPv6."""
import json
import os
import sys

import pytest

import harness

STORE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fakes", "http_store.py")


@pytest.mark.parametrize("family", ["v4", "v6"])
@pytest.mark.parametrize("reactor", ["uring", "epoll"])
@pytest.mark.seconds(90)
def test_data_crosses_a_wire(ferry, netns, serve, family, reactor):
    listen = {"v4": netns.right_v4 + ":0", "v6": "[" + netns.right_v6 + "]:0"}[family]
    setting = ["--set", "reactor=" + reactor]
    server = serve(*setting, listen=listen, memory=("64MiB",), prefix=netns.prefix(netns.right))
    assert server.name.startswith(listen[:-1]), server.name
    got = harness.bench(ferry, "--target", server.name, "--transport", "hp_tcp", "--op", "mix", "--check",
                        "--block", "4096..4194304", "--duration", 0.2, *setting, seconds=60,
                        prefix=netns.prefix(netns.left))
    assert all(r["errors"] == 0 and r["verified_bytes"] > 0 for r in got)
    assert server.stop() == 0, server.stderr()


@pytest.mark.parametrize("family", ["v4", "v6"])
@pytest.mark.seconds(90)
def test_a_name_in_a_store_leads_across_a_wire(ferry, netns, serve, start, family):
    """The store lives in one namespace, the target in the other; only the name is said."""
    host = {"v4": netns.left_v4, "v6": netns.left_v6}[family]
    far = {"v4": netns.right_v4 + ":0", "v6": "[%s]:0" % netns.right_v6}[family]
    store = start([sys.executable, STORE, "--host", host], prefix=netns.prefix(netns.left))
    url = "http://%s:%d/metadata" % ("[%s]" % host if ":" in host else host, int(store.line().rsplit(" ", 1)[-1]))
    settings = ["--set", "metadata_type=http", "--set", "metadata_servers=" + url]
    server = serve("--name", "across", *settings, listen=far, memory=("8MiB",), prefix=netns.prefix(netns.right))
    assert server.name == "across"
    got = harness.bench(ferry, "--target", "across", "--transport", "hp_tcp", "--op", "mix", "--check",
                        "--block", "4096..1048576", "--duration", 0.2, *settings, seconds=60, prefix=netns.prefix(netns.left))
    assert all(r["errors"] == 0 and r["verified_bytes"] > 0 for r in got)
    status, out, err = harness.run([ferry, "segment", "show", "across", "--json", *settings], 10,
                                   prefix=netns.prefix(netns.left))
    assert status == 0, err
    assert far.rsplit(":", 1)[0].strip("[]") in json.dumps(json.loads(out))
    assert server.stop() == 0, server.stderr()


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0"])
def test_a_wildcard_is_never_published(netns, serve, ferry, listen):
    """Listening everywhere publishes an address that the other side can reach."""
    server = serve(listen=listen, memory=("1MiB",), prefix=netns.prefix(netns.right))
    host = server.name.rsplit(":", 1)[0]
    assert host not in ("0.0.0.0", "[::]"), server.name
    status, out, err = harness.run([ferry, "segment", "show", server.name, "--json"], 10,
                                   prefix=netns.prefix(netns.left))
    assert status == 0, err
    for wildcard in ("0.0.0.0", "[::]", '"::"', '\\"::\\"'):
        assert wildcard not in out


@pytest.mark.seconds(90)
def test_a_dead_wire_is_reported_in_time(ferry, netns, serve, start):
    """The link goes down in mid-stream: the request ends by its progress timeout, the command with an error."""
    server = serve(listen=netns.right_v4 + ":0", memory=("64MiB",), prefix=netns.prefix(netns.right))
    client = start([ferry, "bench", "--json", "--target", server.name, "--op", "read", "--block", 1 << 20,
                    "--duration", 20, "--set", "transports.hp_tcp.progress_timeout_ms=1000",
                    "--set", "transports.hp_tcp.connect_timeout_ms=1000"], prefix=netns.prefix(netns.left))
    harness.wait_until(lambda: harness.cpu_seconds(client.pid) > 0.1, 10, "the stream runs")
    netns.link(netns.right, "down")
    began = harness.now()
    status, _, err = client.finish(20)
    assert status != 0, err
    assert harness.now() - began < 15 * harness.PATIENCE
