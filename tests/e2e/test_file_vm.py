# SPDX-License-Identifier: Apache-2.0
"""Files on NVMe/TCP volumes, in a machine whose devices can be stopped, broken, and cut from their power."""
import os
import subprocess

import pytest

TOP = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
VM = os.path.join(TOP, "tests", "vm", "run-in-vm")
BUILD = os.environ.get("FERRY_TEST_BUILD", os.path.join(TOP, "build-test"))

BEGIN = """
set -eux
export DM_DISABLE_UDEV=1 PATH=%(folder)s:/usr/sbin:/usr/bin:/sbin:/bin
set -- $VM_NVME_MOUNTS; FIRST=$1 SECOND=$2
set -- $VM_NVME_DEVICES; DEVICE=$1
SECTORS=$(blockdev --getsz $DEVICE)
# A device of our own over the first volume.
own_device() {
    umount $FIRST
    modprobe dm-flakey
    dmsetup create own --table "0 $SECTORS linear $DEVICE 0"
    dmsetup mknodes
    mkfs.ext4 -q -F /dev/mapper/own
    mkdir -p /mnt/own
    mount /dev/mapper/own /mnt/own
}
table() { dmsetup suspend --nolockfs --noflush own; dmsetup load own --table "$1"; dmsetup resume own; }
"""

TRANSFERS = """
cd $FIRST
export FERRY_TEST_SECOND_FOLDER=$SECOND
for way in pool uring gds; do %(programs)s/contract_file $way %(double)s; done
echo SCENARIO DONE
"""

# What the device has when the command says that it is done, and nothing of the page cache.
DURABILITY = """
own_device
head -c 4194304 /dev/urandom >/tmp/new
for durability in none data full; do
    mountpoint -q /mnt/own || mount /dev/mapper/own /mnt/own
    head -c 4194304 /dev/zero >/mnt/own/file
    sync
    ferry cp --quiet --set transports.file.durability=$durability --set transports.file.direct_io=false \\
        /tmp/new file:///mnt/own/file
    table "0 $SECTORS flakey $DEVICE 0 0 3600 1 drop_writes"
    umount /mnt/own
    table "0 $SECTORS linear $DEVICE 0"
    echo 3 >/proc/sys/vm/drop_caches
    mount /dev/mapper/own /mnt/own
    if cmp -s /tmp/new /mnt/own/file; then echo "RESULT $durability kept"; else echo "RESULT $durability lost"; fi
    umount /mnt/own
done
echo SCENARIO DONE
"""

ERRORS = """
own_device
head -c 4194304 /dev/urandom >/mnt/own/file
head -c 4194304 /dev/urandom >$SECOND/file
sync
echo 3 >/proc/sys/vm/drop_caches
table "0 $SECTORS error"
! ferry cp file:///mnt/own/file /tmp/copy 2>/tmp/said
cat /tmp/said
grep -q 'Input/output error' /tmp/said
ferry cp file://$SECOND/file /tmp/copy
cmp $SECOND/file /tmp/copy
echo SCENARIO DONE
"""

STALL = """
own_device
export FERRY_TEST_MARKS=/tmp/marks FERRY_TEST_FOLDER=/mnt/own/files
mkdir -p /mnt/own/files
for way in pool uring; do
    rm -rf /tmp/marks
    mkdir -p /tmp/marks /mnt/own/files
    cd /tmp
    %(programs)s/contract_file_limits $way --child device_stall &
    until [ -e /tmp/marks/ready ]; do sleep 0.1; done
    dmsetup suspend --nolockfs --noflush own
    touch /tmp/marks/stopped
    until [ -e /tmp/marks/timed_out ]; do sleep 0.1; kill -0 $!; done
    dmsetup resume own
    touch /tmp/marks/started
    wait $!
done
echo SCENARIO DONE
"""


def vm_is_missing():
    done = subprocess.run([VM, "--check"], capture_output=True, text=True)
    return (done.stdout + done.stderr).strip() if done.returncode else None


def run(ferry, folder, script):
    reason = vm_is_missing()
    if reason:
        pytest.skip(reason)
    os.symlink(ferry, folder / "ferry")
    values = {"folder": folder, "programs": os.path.join(BUILD, "tests", "contract"),
              "double": os.path.join(BUILD, "tests", "fakes", "cufile", "libcufile-double.so")}
    (folder / "scenario.sh").write_text((BEGIN + script) % values)
    done = subprocess.run([VM, "--mem", "2G", "--timeout", "900", "--work", str(folder), "--setup", "nvmeof", "--",
                           "bash", str(folder / "scenario.sh")], capture_output=True, text=True, timeout=960)
    assert done.returncode == 0 and "SCENARIO DONE" in done.stdout, done.stdout[-6000:] + done.stderr[-6000:]
    return done.stdout


@pytest.mark.seconds(1000)
@pytest.mark.not_under(("address", "thread"), "an emulated processor is slow enough without")
@pytest.mark.long
def test_transfers_across_two_volumes(ferry, tmp_path):
    run(ferry, tmp_path, TRANSFERS)


@pytest.mark.seconds(1000)
@pytest.mark.not_under(("address", "thread"), "an emulated processor is slow enough without")
@pytest.mark.long
def test_what_is_durable_survives_a_loss_of_power(ferry, tmp_path):
    said = run(ferry, tmp_path, DURABILITY)
    assert "RESULT data kept" in said and "RESULT full kept" in said, said[-3000:]
    # The scenario can tell the difference: what only the page cache had is gone.
    assert "RESULT none lost" in said, said[-3000:]


@pytest.mark.seconds(1000)
@pytest.mark.not_under(("address", "thread"), "an emulated processor is slow enough without")
@pytest.mark.long
def test_an_error_of_a_device_is_told_and_others_go_on(ferry, tmp_path):
    run(ferry, tmp_path, ERRORS)


@pytest.mark.seconds(1000)
@pytest.mark.not_under(("address", "thread"), "an emulated processor is slow enough without")
@pytest.mark.long
def test_a_device_that_stalls_keeps_only_its_memory(ferry, tmp_path):
    run(ferry, tmp_path, STALL)
