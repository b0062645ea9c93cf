# SPDX-License-Identifier: Apache-2.0
"""The command as a person meets it: help, exit statuses, JSON, how it starts and ends."""
import json
import os
import signal
import socket

import pytest

import harness
import v1

SUBCOMMANDS = ["serve", "bench", "cp", "segment", "info", "doctor", "config"]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def test_help_names_every_subcommand(ferry):
    status, out, err = harness.run([ferry, "--help"])
    assert status == 0, err
    for name in SUBCOMMANDS:
        assert name in out


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_each_subcommand_has_help_with_exit_statuses(ferry, name):
    status, out, err = harness.run([ferry, name, "--help"])
    assert status == 0, err
    assert name in out and len(out.splitlines()) > 5
    assert "--help" in out


def test_version_is_one_line(ferry):
    status, out, _ = harness.run([ferry, "--version"])
    assert status == 0
    assert len(out.splitlines()) == 1 and "0.1.0" in out


@pytest.mark.parametrize("arguments", [["nonsense"], ["--nonsense"], ["serve", "--nonsense"], ["bench", "--nonsense"],
                                       ["cp"], ["segment"], ["config", "--set", "no.such.key=1"],
                                       ["serve", "--memory", "lots"], ["serve", "--listen", "nowhere"]])
def test_wrong_usage_ends_with_2_and_says_what(ferry, arguments):
    status, out, err = harness.run([ferry, *arguments], 5)
    assert status == harness.USAGE, (status, out, err)
    assert out == ""
    wrong = arguments[-1] if len(arguments) > 1 else arguments[0]
    assert wrong.split("=")[0].lstrip("-") in err, err


def test_info_describes_build_and_host(ferry):
    status, out, err = harness.run([ferry, "info", "--json"])
    assert status == 0, err
    info = json.loads(out)
    text = json.dumps(info)
    assert "0.1.0" in text and "hp_tcp" in text
    status, out, _ = harness.run([ferry, "info"])
    assert status == 0 and "hp_tcp" in out


def test_doctor_gives_a_verdict_on_each_limit(ferry):
    status, out, err = harness.run([ferry, "doctor", "--json"])
    assert status in (0, harness.ENVIRONMENT), err
    assert json.loads(out)


def test_config_shows_value_and_origin(ferry):
    status, out, err = harness.run([ferry, "config", "--json", "--set", "transports.hp_tcp.port=7001"],
                                   env={"FERRY_TRANSPORTS_HP_TCP_WORKER_COUNT": "3"})
    assert status == 0, err
    text = out
    rows = {}
    for line in text.splitlines():
        value = json.loads(line)
        for row in value if isinstance(value, list) else value.get("settings", [value]):
            rows[row["name"]] = row
    assert str(rows["transports.hp_tcp.port"]["value"]) == "7001"
    assert "command" in rows["transports.hp_tcp.port"]["origin"]
    assert str(rows["transports.hp_tcp.worker_count"]["value"]) == "3"
    assert "environment" in rows["transports.hp_tcp.worker_count"]["origin"]
    assert rows["transports.hp_tcp.connections_per_peer"]["origin"] == "default"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_ends_cleanly_on_a_signal(serve, number):
    server = serve(memory=("4MiB",))
    server.signal(number)
    status, _, err = server.finish(10)
    assert status == 0, err


def test_serve_offers_every_memory_it_was_asked_for(serve):
    server = serve(memory=("4MiB", "8MiB"))
    assert sorted(b["length"] for b in server.buffers) == [4 << 20, 8 << 20]
    published = server.document()["detail"]["buffers"]
    assert sorted(b["length"] for b in published) == [4 << 20, 8 << 20]
    assert {b["addr"] for b in published} == {b["addr"] for b in server.buffers}


def test_serve_loads_a_file_into_memory(serve, tmp_path):
    data = v1.pattern(4, 100001)
    path = tmp_path / "data"
    path.write_bytes(data)
    server = serve("--load", str(path), memory=())
    address, length, registration = server.registration()
    assert length >= len(data)
    with v1.Client(*server.data_endpoint()) as client:
        assert client.read(registration, address, len(data)) == data


def test_serve_says_when_the_port_is_taken(ferry, serve):
    server = serve(memory=("1MiB",))
    status, _, err = harness.run([ferry, "serve", "--listen", server.name, "--memory", "1MiB"], 10)
    assert status == harness.ENVIRONMENT, (status, err)
    assert server.name.rsplit(":", 1)[1] in err


@pytest.mark.parametrize("limit", range(13, 21))
def test_serve_does_not_start_without_descriptors_for_a_peer(ferry, limit):
    """It listened, printed its name, and could not accept anybody."""
    status, out, err = harness.run([ferry, "serve", "--memory", "1MiB"], 20,
                                   prefix=["prlimit", "--nofile=%d" % limit, "--"])
    assert status == harness.ENVIRONMENT, (status, out, err)
    assert "limit is %d" % limit in err and "ulimit -n" in err, err
    assert out == ""


def test_segment_show_is_read_by_people(ferry, serve):
    server = serve(memory=("4MiB",))
    status, out, err = harness.run([ferry, "segment", "show", server.name], 10)
    assert status == 0, err
    line = next(line for line in out.splitlines() if line.startswith("transport "))
    assert "hp_tcp" in line and "%s:%d" % server.data_endpoint() in line and "1 GiB" in line
    assert "{" not in out


def test_segment_show_prints_what_is_published(ferry, serve):
    server = serve(memory=("4MiB",))
    status, out, err = harness.run([ferry, "segment", "show", server.name, "--json"], 10)
    assert status == 0, err
    assert str(server.buffers[0]["addr"]) in out
    status, out, err = harness.run([ferry, "segment", "show", server.name], 10)
    assert status == 0 and "4" in out, err


def test_segment_show_of_nobody_fails_with_the_address(ferry):
    name = "127.0.0.1:%d" % free_port()
    status, _, err = harness.run([ferry, "segment", "show", name], 10)
    assert status in (harness.DATA, harness.ENVIRONMENT)
    assert name in err and "refused" in err.lower(), err


@pytest.mark.parametrize("length", [1, 4096, (3 << 20) + 17])
def test_cp_carries_a_file_there_and_back(ferry, serve, tmp_path, length):
    server = serve(memory=("8MiB",))
    data, there, back = v1.pattern(length, length), tmp_path / "there", tmp_path / "back"
    there.write_bytes(data)
    status, _, err = harness.run([ferry, "cp", "--verify", str(there), server.name + "/"], 30)
    assert status == 0, err
    status, _, err = harness.run([ferry, "cp", "--verify", "--length", str(length), server.name + "/", str(back)], 30)
    assert status == 0, err
    assert back.read_bytes()[:length] == data


def test_cp_of_more_than_fits_is_refused(ferry, serve, tmp_path):
    server = serve(memory=("1MiB",))
    there = tmp_path / "there"
    there.write_bytes(bytes(2 << 20))
    status, _, err = harness.run([ferry, "cp", str(there), server.name + "/"], 30)
    assert status != 0
    assert "1048576" in err or "1.0 MiB" in err or "1 MiB" in err, err


def test_standard_streams_are_closed_early_without_a_crash(ferry, serve):
    """Output to a pipe whose reader is gone ends the command, not with a signal we did not ask for."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    import subprocess
    done = subprocess.run([ferry, "config"], stdout=write_end, stderr=subprocess.PIPE, timeout=10, check=False)
    os.close(write_end)
    assert done.returncode in (0, 1, 3, -signal.SIGPIPE), done
