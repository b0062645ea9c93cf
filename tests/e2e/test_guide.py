# SPDX-License-Identifier: Apache-2.0
"""The operator's guide, docs/file-segments.md, command by command, in a machine with two NVMe/TCP volumes.

The machine plays both hosts: the second one finds the volumes connected, since one kernel connects a volume once.
"""
import os
import re
import subprocess

import pytest

import etcd as etcds

TOP = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
GUIDE = os.path.join(TOP, "docs", "file-segments.md")
VM = os.path.join(TOP, "tests", "vm", "run-in-vm")

BEGIN = """
set -eux
PATH=%(folder)s:/usr/sbin:/usr/bin:/sbin:/bin
# The set-up has connected and mounted the volumes: as if it had not.
umount $VM_NVME_MOUNTS
etcd --data-dir /tmp/etcd >/tmp/etcd.log 2>&1 &
for i in $(seq 300); do nc -z 127.0.0.1 2379 && break; sleep 0.2; done
export FERRY_METADATA_TYPE=etcd FERRY_METADATA_SERVERS=127.0.0.1:2379 FERRY_METADATA_TIMEOUT_MS=30000
TARGET=127.0.0.1 PORT=4420
SUBSYSTEMS=$(nvme list-subsys | sed -n 's/.*NQN=\\(.*vol[0-9]*\\)$/\\1/p' | sort)
[ -n "$SUBSYSTEMS" ]
nvme disconnect-all
"""
# One kernel has a volume once; as the second host it is there already.
SECOND = """
umount /mnt/vol0 /mnt/vol1
nvme() { [ "$1" = connect ] || command nvme "$@"; }
"""


def blocks(heading):
    """The commands of one section."""
    with open(GUIDE, encoding="utf-8") as file:
        text = file.read()
    section = text.split("\n## " + heading + "\n")[1].split("\n## ")[0]
    found = re.findall(r"^```sh\n(.*?)^```$", section, re.S | re.M)
    assert len(found) >= 4, heading
    return found


def vm_is_missing():
    if not os.access(etcds.PROGRAM, os.X_OK):
        return "no etcd (Debian: etcd-server)"
    done = subprocess.run([VM, "--check"], capture_output=True, text=True)
    return (done.stdout + done.stderr).strip() if done.returncode else None


@pytest.mark.seconds(1500)
@pytest.mark.not_under(("address", "thread"), "an emulated processor is slow enough without")
@pytest.mark.long
def test_the_guide_works_as_it_is_written(ferry, tmp_path):
    reason = vm_is_missing()
    if reason:
        pytest.skip(reason)
    os.symlink(ferry, tmp_path / "ferry")
    script = BEGIN % {"folder": tmp_path}
    script += "export FERRY_HOST_NAME=first\n" + "".join(blocks("On the first host"))
    script += SECOND + "export FERRY_HOST_NAME=second\n" + "".join(blocks("On every other host"))
    # And a check can fail: the first host's mounts are gone.
    script += "! FERRY_HOST_NAME=first ferry segment verify --quick cache\necho GUIDE DONE\n"
    (tmp_path / "guide.sh").write_text(script)
    done = subprocess.run([VM, "--mem", "3G", "--timeout", "1400", "--work", str(tmp_path), "--setup", "nvmeof", "--",
                           "bash", str(tmp_path / "guide.sh")], capture_output=True, text=True, timeout=1460)
    assert done.returncode == 0 and "GUIDE DONE" in done.stdout, done.stdout[-6000:] + done.stderr[-6000:]
    assert done.stdout.count("no problem found") == 1 and "2 files with a problem" in done.stdout, done.stdout[-6000:]
