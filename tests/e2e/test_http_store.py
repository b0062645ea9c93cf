# SPDX-License-Identifier: Apache-2.0
"""Finding each other through an HTTP store that several systems share."""
import http.server
import json
import threading
import urllib.parse

import pytest

import harness
import v1


class Store:
    """GET, PUT and DELETE of `?key=...`, as the published store has them; remembers what was asked."""

    def __init__(self):
        outer = self
        self.documents, self.asked, self.lock = {}, [], threading.Lock()
        self.broken = None  # (status, body) to answer with, whatever is asked

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def _answer(self, status, body=b""):
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def _handle(self):
                key = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query).get("key", [""])[0]
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                with outer.lock:
                    outer.asked.append((self.command, key))
                    if outer.broken:
                        return self._answer(*outer.broken)
                    if self.command == "PUT":
                        outer.documents[key] = body
                        return self._answer(200)
                    if self.command == "DELETE":
                        outer.documents.pop(key, None)
                        return self._answer(200)
                    found = outer.documents.get(key)
                return self._answer(200, found) if found is not None else self._answer(404)

            do_GET = do_PUT = do_DELETE = _handle

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = "http://127.0.0.1:%d/metadata" % self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def settings(self):
        return ["--set", "metadata_type=http", "--set", "metadata_servers=" + self.url]

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def store():
    opened = Store()
    yield opened
    opened.close()


@pytest.mark.parametrize("name", ["target-0", "a/b c?d&e=f"])
def test_a_name_leads_to_the_data(ferry, serve, store, name):
    server = serve("--name", name, *store.settings(), memory=("16MiB",))
    assert server.name == name
    assert list(store.documents) == ["mooncake/tent/" + name]
    document = json.loads(store.documents["mooncake/tent/" + name])
    assert document["name"] == name and document["type"] == "memory"
    got = harness.bench(ferry, "--target", name, "--op", "mix", "--check", "--block", "4096..1048576",
                        "--duration", 0.2, *store.settings())
    assert all(r["errors"] == 0 and r["verified_bytes"] > 0 for r in got)
    assert server.stop() == 0, server.stderr()
    assert not store.documents, "the description is withdrawn at the end"


def test_an_unknown_name_is_said_to_be_unknown(ferry, store):
    status, _, err = harness.run([ferry, "bench", "--json", "--target", "nobody-here", "--duration", "0.1",
                                  *store.settings()], 20)
    assert status == harness.ENVIRONMENT and "nobody-here" in err, (status, err)


def test_a_store_that_is_away_is_named(ferry):
    url = "http://127.0.0.1:1/metadata"
    status, _, err = harness.run([ferry, "serve", "--listen", "127.0.0.1:0", "--memory", "1MiB", "--name", "x",
                                  "--set", "metadata_type=http", "--set", "metadata_servers=" + url], 20)
    assert status == harness.ENVIRONMENT, (status, err)
    assert "127.0.0.1:1" in err, err


@pytest.mark.parametrize("broken", [(500, b"oops"), (200, b""), (200, b"{"), (200, b"[]"), (200, b'{"name": 1}')])
def test_a_broken_answer_is_an_error_not_a_crash(ferry, store, broken):
    store.broken = broken
    status, _, err = harness.run([ferry, "bench", "--json", "--target", "x", "--duration", "0.1", *store.settings()], 20)
    assert status in (harness.DATA, harness.ENVIRONMENT) and err, (status, err)


def test_a_v1_server_is_found_through_the_store(ferry, store):
    """The document of a reference engine, put into the store as it would put it."""
    with v1.Server([v1.Buffer(0x7f0000001000, 16 << 20, 0xfedcba9876543210)]) as server:
        document = dict(server.document(), name="reference-0")
        document["a_field_of_tomorrow"] = {"kept": True}
        store.documents["mooncake/tent/reference-0"] = json.dumps(document).encode()
        got = harness.bench(ferry, "--target", "reference-0", "--op", "mix", "--check", "--block", 65536,
                            "--duration", 0.3, *store.settings())
        assert got[0]["errors"] == 0 and got[0]["verified_bytes"] > 0
        assert server.requests


def test_registering_many_buffers_is_few_writes(serve, store):
    """One document, published once a call, not once a buffer."""
    server = serve("--name", "many", *store.settings(), memory=("64KiB",) * 40)
    puts = [key for verb, key in store.asked if verb == "PUT"]
    assert len(server.buffers) == 40
    assert len(puts) <= 42, puts
