# SPDX-License-Identifier: Apache-2.0
"""Settings of the wrong kind are refused with their name, their value and what was expected (field report B19)."""
import json

import pytest

import harness

KEY = "transports.hp_tcp.worker_count"


def try_file(ferry, tmp_path, text):
    path = tmp_path / "config.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return harness.run([ferry, "config"], 5, env={"FERRY_CONFIG": str(path)})


def hp_file(leaf):
    return '{"transports": {"hp_tcp": {%s}}}' % leaf


@pytest.mark.parametrize("value", ['"4"', "4.5", "-1", "0", "true", "null", "[]", "{}", "99999999999999999999", "1e400",
                                   "18446744073709551616"])
def test_a_wrong_number_in_a_file(ferry, tmp_path, value):
    status, _, err = try_file(ferry, tmp_path, hp_file('"worker_count": ' + value))
    assert status in (harness.USAGE, harness.ENVIRONMENT), err
    assert "config.json" in err, err
    assert "worker_count" in err or value == "1e400", err  # no JSON reader can hold that one


def test_a_whole_number_in_range_is_taken(ferry, tmp_path):
    status, out, err = try_file(ferry, tmp_path, hp_file('"worker_count": 4'))
    assert status == 0, err
    assert KEY in out


@pytest.mark.parametrize("value", ['"false"', "0", "1", '"no"', "null"])
def test_a_wrong_boolean_in_a_file(ferry, tmp_path, value):
    status, _, err = try_file(ferry, tmp_path, hp_file('"enable": ' + value))
    assert status in (harness.USAGE, harness.ENVIRONMENT), err
    assert "transports.hp_tcp.enable" in err, err


def test_a_misspelt_key_is_named(ferry, tmp_path):
    status, _, err = try_file(ferry, tmp_path, hp_file('"worker_cout": 4'))
    assert status in (harness.USAGE, harness.ENVIRONMENT) and "worker_cout" in err, err


@pytest.mark.parametrize("text", ['{"transports": []}', '{"transports": {"hp_tcp": {"port": 1,}}}', "", "[]", "null",
                                  hp_file('"port": 1, "port": 2'), '{"transports"', b"\xff\xfe{}"])
def test_a_file_that_is_no_configuration(ferry, tmp_path, text):
    status, _, err = try_file(ferry, tmp_path, text)
    assert status in (harness.USAGE, harness.ENVIRONMENT) and "config.json" in err, err


def test_a_folder_and_a_missing_file(ferry, tmp_path):
    for path in (tmp_path, tmp_path / "absent.json"):
        status, _, err = harness.run([ferry, "config"], 5, env={"FERRY_CONFIG": str(path)})
        assert status in (harness.USAGE, harness.ENVIRONMENT) and str(path) in err, err


@pytest.mark.parametrize("value", ["", "abc", " 8", "8x", "-1", "0x10", "9" * 20, "4.0"])
def test_a_wrong_number_in_the_environment(ferry, value):
    name = "FERRY_TRANSPORTS_HP_TCP_WORKER_COUNT"
    status, _, err = harness.run([ferry, "config"], 5, env={name: value})
    assert status in (harness.USAGE, harness.ENVIRONMENT), (status, err)
    assert name in err or KEY in err, err


@pytest.mark.parametrize("value", ["False", "0", "off", "maybe", ""])
def test_a_wrong_boolean_in_the_environment(ferry, value):
    status, _, err = harness.run([ferry, "config"], 5, env={"FERRY_TRANSPORTS_HP_TCP_ENABLE": value})
    assert status in (harness.USAGE, harness.ENVIRONMENT), (status, err)
    assert "ENABLE" in err or "transports.hp_tcp.enable" in err, err


def test_an_unknown_variable_of_ours_is_named(ferry):
    status, _, err = harness.run([ferry, "config"], 5, env={"FERRY_TRANSPORTS_HP_TCP_WORKER_COUTN": "1"})
    assert status in (harness.USAGE, harness.ENVIRONMENT) and "WORKER_COUTN" in err, err


def test_tcp_beside_hp_tcp_is_accepted(ferry, tmp_path):
    status, _, err = try_file(ferry, tmp_path, '{"transports": {"tcp": {"enable": false}, "hp_tcp": {"enable": true}}}')
    assert status == 0, err


@pytest.mark.parametrize("node,fine", [("cpu:-1", True), ("cpu:0", True), ("cpu:4096", False), ("gpu:0", False),
                                       ("cpu:x", False)])
def test_numa_nodes(ferry, processes, node, fine):
    if fine:
        server = harness.Serve(ferry, memory=("1MiB@" + node,))
        processes.append(server)
        return
    status, _, err = harness.run([ferry, "serve", "--listen", "127.0.0.1:0", "--memory", "1MiB@" + node], 5)
    assert status in (harness.USAGE, harness.ENVIRONMENT) and node in err, err


def test_precedence_is_command_line_environment_file(ferry, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(hp_file('"worker_count": 2, "port": 7001, "connections_per_peer": 5'))
    status, out, err = harness.run(
        [ferry, "config", "--json", "--set", KEY + "=4"], 5,
        env={"FERRY_CONFIG": str(path), "FERRY_TRANSPORTS_HP_TCP_WORKER_COUNT": "3",
             "FERRY_TRANSPORTS_HP_TCP_PORT": "7002"})
    assert status == 0, err
    text = json.dumps([json.loads(line) for line in out.splitlines()])
    assert '"7001"' not in text and '"7002"' in text
    assert "command line" in text and "environment" in text and "file" in text
