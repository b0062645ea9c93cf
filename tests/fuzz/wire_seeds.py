#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the seed corpora of wire_v1 and wire_frame.

The bytes are packed from the layouts in docs/design/wire.md, not by the codec under test. Files that
a fuzz run found stay beside the seeds; this script never removes a file.
"""
import pathlib
import struct

HERE = pathlib.Path(__file__).parent / "corpus"


def save(target, name, data):
    folder = HERE / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def request(magic=0x4D435450, version=1, opcode=1, flags=0, ident=1, reg=0x1122334455667788,
            addr=0x7F0000001000, length=4096, reserved=0):
    return struct.pack(">IHBBQQQQQ", magic, version, opcode, flags, ident, reg, addr, length, reserved)


def response(magic=0x4D435450, version=1, status=0, ident=1, committed=4096, reserved=0):
    return struct.pack(">IHHQQQ", magic, version, status, ident, committed, reserved)


def extension(kind, value, reserved=0):
    return struct.pack(">HHI", kind, len(value), reserved) + value + bytes(-len(value) % 8)


def frame(kind, body=b"", flags=0, status=0, priority=0, ident=0, reg=0, addr=0, length=0, credit=0,
          sequence=0, checksum=0, header=None, version=1, magic=0x46525259, reserved=0):
    header = 64 + len(body) if header is None else header
    return struct.pack(">IBBHIHBBQQQQQII", magic, version, kind, header, flags, status, priority,
                       reserved, ident, reg, addr, length, credit, sequence, checksum) + body


HELLO = struct.pack(">16sIIQQQQ16s", bytes(range(16)), 2, 4, 15, 0x55, 1 << 30, 0x21, bytes(16))
HELLO_REPLY = struct.pack(">16sQQQQIIQ", bytes(range(16)), 77, 3, 1 << 29, 1 << 22, 64, 0, 1 << 26)
SCATTER = struct.pack(">QQQQQQ", 0x1000, 0x1000, 10, 0x9000, 0x800, 11)
RESOLVE = struct.pack(">QQ", 5, 9)
RESOLVED = struct.pack(">QBxxxxxxxQBxxxxxxx", 5, 1, 9, 2)

V1 = {
    "request_read": request(),
    "request_write": request(opcode=2, ident=0x0102030405060708, reg=2**64 - 1, length=65536),
    "request_write_with_payload": request(opcode=2, length=4) + b"data",
    "request_wrong_magic": request(magic=0x4D435451),
    "request_version_2": request(version=2),
    "request_flags": request(flags=1),
    "request_reserved": request(reserved=1),
    "request_flags_and_opcode": request(flags=1, opcode=9),
    "request_opcode_3": request(opcode=3),
    "request_length_0": request(length=0),
    "request_range_ends_at_the_last_address": request(addr=2**64 - 4097),
    "request_range_wraps": request(addr=2**64 - 4096),
    "request_one_byte_short": request()[:-1],
    "response_ok": response(),
    "response_stale": response(status=6, committed=0),
    "response_bad_version": response(status=1, ident=0, committed=0),
    "response_status_9": response(status=9),
    "response_reserved": response(reserved=1 << 63),
    "response_one_byte_short": response()[:-1],
    "empty": b"",
}

FRAMES = {
    "hello": frame(1, extension(1, HELLO)),
    "hello_reply": frame(2, extension(2, HELLO_REPLY)),
    "hello_reply_full": frame(2, status=11),
    "read": frame(3, ident=7, reg=9, addr=0x1000, length=4096, priority=1),
    "read_scatter": frame(3, extension(3, SCATTER), flags=4, ident=7, length=0x1800),
    "read_range_wraps": frame(3, ident=7, addr=2**64 - 4096, length=4096),
    "write": frame(4, flags=3, ident=8, reg=1, addr=1, length=5, credit=1, sequence=2, checksum=3),
    "write_scatter": frame(4, extension(3, SCATTER), flags=4, ident=7, length=0x1800),
    "write_scatter_sum_differs": frame(4, extension(3, SCATTER), flags=4, ident=7, length=0x1801),
    "write_scatter_sum_wraps": frame(
        4, extension(3, struct.pack(">QQQQQQ", 0, 2**64 - 1, 1, 0, 0x1801, 1)), flags=4, ident=7,
        length=0x1800),
    "read_scatter_2048": frame(3, extension(3, struct.pack(">QQQ", 1, 1, 1) * 2048), flags=4, ident=7,
                               length=2048),
    "read_scatter_2049": frame(3, extension(3, struct.pack(">QQQ", 1, 1, 1) * 2049), flags=4, ident=7,
                               length=2049),
    "read_reply": frame(5, flags=1, ident=7, length=4096, checksum=1),
    "read_reply_stale": frame(5, flags=16, status=4, ident=7),
    "write_reply": frame(6, flags=2, ident=8, length=6144, credit=1 << 20, sequence=3),
    "resolve": frame(7, extension(4, RESOLVE), ident=3),
    "resolve_unsorted": frame(7, extension(4, RESOLVE[8:] + RESOLVE[:8]), ident=3),
    "resolve_reply": frame(8, extension(5, RESOLVED), ident=3),
    "resolve_reply_unknown_session": frame(8, flags=16, status=9, ident=3),
    "credit": frame(9, flags=2, credit=1 << 21, sequence=4),
    "goodbye": frame(10, extension(6, struct.pack(">I", 2))),
    "goodbye_ignorable_extensions": frame(
        10, extension(0x8001, b"abc") + extension(6, struct.pack(">I", 2)) + extension(0xFFFF, b"")),
    "goodbye_unknown_extension": frame(10, extension(6, struct.pack(">I", 2)) + extension(99, b"abc")),
    "challenge": frame(11, extension(7, bytes(range(32)))),
    "challenge_short": frame(11, extension(7, bytes(range(24)))),
    "challenge_with_a_request_id": frame(11, extension(7, bytes(range(32))), ident=1),
    "proof": frame(12, extension(8, bytes(range(32)))),
    "proof_long": frame(12, extension(8, bytes(range(40)))),
    "proof_of_nothing": frame(12, extension(8, b"")),
    "greeting_with_key": frame(1, extension(1, HELLO)) + frame(11, extension(7, bytes(range(32))))
                         + frame(12, extension(8, bytes(range(32)))) + frame(2, extension(2, HELLO_REPLY))
                         + frame(12, extension(8, bytes(range(32, 64)))),
    "goodbye_twice": frame(10, extension(6, struct.pack(">I", 2)) * 2),
    "extension_cut_off": frame(10, struct.pack(">HHI", 6, 65535, 0)),
    "header_size_56": frame(3, ident=7, length=1, header=56),
    "header_size_65528": frame(3, ident=7, length=1, header=65528),
    "header_all_ignorable": frame(3, extension(0x8000, b"") * 64, ident=7, length=1),
    "header_longer_than_input": frame(1, extension(1, HELLO))[:-8],
    "version_2": frame(3, ident=7, length=1, version=2),
    "flag_reserved": frame(3, flags=8, ident=7, length=1),
    "flag_ignorable": frame(3, flags=0xFFFF0000, ident=7, length=1),
    "stream": frame(1, extension(1, HELLO)) + frame(3, ident=7, length=1) + frame(
        7, extension(4, RESOLVE), ident=3) + frame(10, extension(6, struct.pack(">I", 1))),
    "magic_of_v1": request(),
    "empty": b"",
}

for name, data in V1.items():
    save("wire_v1", name, data)
for name, data in FRAMES.items():
    save("wire_frame", name, data)
