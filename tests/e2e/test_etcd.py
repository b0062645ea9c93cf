# SPDX-License-Identifier: Apache-2.0
"""Engines that find each other through etcd: names, leases, restarts, large descriptions."""
import base64
import json
import os
import signal
import urllib.request

import pytest

import etcd as etcds
import harness

pytestmark = pytest.mark.skipif(not os.access(etcds.PROGRAM, os.X_OK), reason="no etcd (Debian: etcd-server)")

LEASE = ["--set", "metadata_lease_s=2"]


@pytest.fixture
def etcd():
    server = etcds.Etcd()
    yield server
    server.close()


def all_keys(etcd):
    """Every key that etcd has, not just ours."""
    request = urllib.request.Request("http://127.0.0.1:%d/v3/kv/range" % etcd.port,
                                     b'{"key":"AA==","range_end":"AA==","keys_only":true}')
    with urllib.request.urlopen(request, timeout=20 * harness.PATIENCE) as reply:
        return sorted(base64.b64decode(kv["key"]).decode() for kv in json.load(reply).get("kvs", []))


def names(ferry, etcd):
    status, out, err = harness.run([ferry, "segment", "list", "--memory", "--json", *etcd.settings])
    assert status == 0, err
    return json.loads(out)


def test_a_name_leads_to_the_data(ferry, serve, etcd):
    server = serve("--name", "target/0 ü", *etcd.settings, memory=("16MiB",))
    assert all_keys(etcd) == ["mooncake/tent/target/0 ü"]
    got = harness.bench(ferry, "--target", "target/0 ü", "--op", "mix", "--check", "--block", "4096..1048576",
                        "--duration", 0.2, *etcd.settings)
    assert all(r["errors"] == 0 and r["verified_bytes"] > 0 for r in got)
    assert server.stop() == 0, server.stderr()
    assert all_keys(etcd) == []


def test_engines_of_a_cluster_see_only_each_other(ferry, serve, etcd):
    serve("--name", "x", *etcd.settings, "--set", "metadata_cluster=blue", memory=("1MiB",))
    assert all_keys(etcd) == ["mooncake/blue/tent/x"]
    status, _, err = harness.run([ferry, "segment", "show", "x", *etcd.settings])
    assert status == harness.ENVIRONMENT and "knows no segment" in err
    status, _, _ = harness.run([ferry, "segment", "show", "x", *etcd.settings, "--set", "metadata_cluster=blue"])
    assert status == 0


def test_a_name_that_lives_is_not_taken(ferry, serve, etcd):
    serve("--name", "one", *etcd.settings, memory=("1MiB",))
    status, _, err = harness.run([ferry, "serve", "--listen", "127.0.0.1:0", "--memory", "1MiB", "--name", "one",
                                  *etcd.settings], 30)
    assert status == harness.ENVIRONMENT and "belongs to a living engine" in err
    status, _, err = harness.run([ferry, "serve", "--listen", "127.0.0.1:0", "--memory", "1MiB", "--name", "nvmeof/x",
                                  *etcd.settings], 30)
    assert status == harness.USAGE and "file segments" in err


@pytest.mark.seconds(120)
def test_of_engines_that_start_under_one_name_one_gets_it(ferry, start, etcd):
    """Claimed by comparing: never two, and never none."""
    for number in range(3):
        name = "raced-%d" % number
        racing = [start([ferry, "serve", "--listen", "127.0.0.1:0", "--memory", "1MiB", "--json", "--name", name,
                         *etcd.settings]) for _ in range(4)]

        def settled():
            return sum(not p.alive() for p in racing) == 3
        harness.wait_until(settled, 60, "three of four give up")
        losers = [p for p in racing if not p.alive()]
        assert all("belongs to a living engine" in p.stderr() for p in losers), [p.stderr() for p in losers]
        winner = next(p for p in racing if p.alive())
        json.loads(winner.line(20))
        assert names(ferry, etcd) == [name]
        winner.child.send_signal(signal.SIGTERM)
        harness.wait_until(lambda: not winner.alive(), 30, "the winner ends")


@pytest.mark.seconds(120)
def test_entries_go_with_their_owner(ferry, serve, etcd):
    """Field report B24: killed, ended, closed; nobody has to clean up."""
    servers = {n: serve("--name", n, *etcd.settings, *LEASE, memory=("1MiB",)) for n in ("killed", "ended", "stays")}
    assert names(ferry, etcd) == ["ended", "killed", "stays"]
    assert servers["ended"].stop() == 0
    assert names(ferry, etcd) == ["killed", "stays"]
    os.kill(servers["killed"].pid, signal.SIGKILL)
    # Until the lease ends, opening it fails for a reason, and soon.
    status, _, err = harness.run([ferry, "bench", "--json", "--target", "killed", "--duration", "0.1", *etcd.settings], 30)
    assert status in (harness.DATA, harness.ENVIRONMENT) and err
    harness.wait_until(lambda: names(ferry, etcd) == ["stays"], 30, "the entry of the killed one goes away")
    assert all(key.startswith("mooncake/tent/") for key in all_keys(etcd))


@pytest.mark.seconds(120)
def test_a_successor_takes_the_name_of_a_killed_engine_at_once(ferry, serve, etcd):
    first = serve("--name", "seg", *etcd.settings, "--set", "metadata_lease_s=600", memory=("1MiB",))
    os.kill(first.pid, signal.SIGKILL)
    harness.wait_until(lambda: not first.alive(), 20, "it is gone")
    serve("--name", "seg", *etcd.settings, memory=("16MiB",))
    got = harness.bench(ferry, "--target", "seg", "--op", "read", "--block", 65536, "--duration", 0.1, *etcd.settings)
    assert got[0]["errors"] == 0


@pytest.mark.seconds(180)
def test_transfers_do_not_notice_a_restart_of_etcd(ferry, serve, start, etcd):
    server = serve("--name", "seg", *etcd.settings, *LEASE, memory=("16MiB",))
    running = start([ferry, "bench", "--json", "--target", "seg", "--op", "mix", "--check", "--block", "65536",
                     "--duration", "8", *etcd.settings])
    harness.wait_until(lambda: harness.cpu_seconds(running.pid) > 0.3, 60, "the benchmark moves data")
    for _ in range(2):
        etcd.kill()
        etcd.start()
    began = harness.now()
    late = serve("--name", "late", *etcd.settings, memory=("1MiB",))
    assert harness.now() - began < 5 * harness.PATIENCE
    status, out, err = running.finish(90)
    assert status == 0, err
    assert all(r["errors"] == 0 and r["verified_bytes"] > 0 for r in harness.records(out))
    # Longer than the lease: both are still there.
    harness.wait_until(lambda: names(ferry, etcd) == ["late", "seg"], 30, "both are known")
    assert server.stop() == 0 and late.stop() == 0


@pytest.mark.seconds(120)
def test_an_etcd_that_lost_its_data_learns_the_entry_again(ferry, serve, etcd):
    server = serve("--name", "seg", *etcd.settings, *LEASE, memory=("1MiB",))
    etcd.kill()
    harness.shutil.rmtree(os.path.join(etcd.dir, "data"))
    etcd.start()
    harness.wait_until(lambda: names(ferry, etcd) == ["seg"], 30, "the entry is back")
    status, _, err = harness.run([ferry, "segment", "show", "seg", *etcd.settings])
    assert status == 0, err
    assert server.stop() == 0


@pytest.mark.seconds(120)
def test_a_description_that_outgrows_etcd_is_refused_whole(ferry, start, etcd):
    """Field report B23, with etcd's own limit: 1.5 MiB."""
    etcd.kill()
    etcd.args = ("--max-request-bytes=65536",)
    etcd.start()
    process = start([ferry, "serve", "--listen", "127.0.0.1:0", "--json", "--name", "big", *etcd.settings]
                    + ["--memory", "64KiB"] * 400)
    harness.wait_until(lambda: not process.alive(), 60, "it gives up")
    err = process.stderr()
    assert "bytes" in err and "max-request-bytes" in err, err
    assert all_keys(etcd) == []


def test_wrong_credentials_are_named_and_not_shown(ferry, etcd):
    status, _, err = harness.run([ferry, "segment", "list", *etcd.settings, "--set", "metadata_user=nobody",
                                  "--set", "metadata_password=hush"])
    # This etcd knows no users, so nobody needs to be one.
    assert status == 0 and "hush" not in err
    status, out, _ = harness.run([ferry, "config", "metadata_password", "--set", "metadata_password=hush"])
    assert "hush" not in out
