# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bandwidth between two ends, over the loopback; perftest's text; the search for a path's MTU."""

from __future__ import annotations

import socket

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._measure import link

# rows as printed in linux-rdma/perftest issue 273 (Gb/s) and issue 234 (MB/s)
GBITS = """ #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 8          224958464        0.00               0.48   \t\t   7.498617
---------------------------------------------------------------------------------------
"""
MEGABYTES = """ #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      664644           0.00               11078.41   \t\t   0.177255
"""


def test_perftest_in_both_units():
    assert link.parse_perftest(GBITS) == 0.48
    assert link.parse_perftest(MEGABYTES) == pytest.approx(92.93, abs=0.01)


@pytest.mark.parametrize("text", ["", "Couldn't connect to 10.0.0.1:18515\nUnable to init the socket connection\n"])
def test_perftest_without_a_result_says_its_last_words(text):
    with pytest.raises(link.LinkError, match=r"Unable to init|nothing"):
        link.parse_perftest(text)


def test_arguments_are_the_same_on_both_sides_but_for_the_address():
    server = link.perftest_arguments("rocep1s0f1", 29601, 3)
    client = link.perftest_arguments("rocep1s0f1", 29601, 3, address="10.0.0.2")
    assert client == [*server, "10.0.0.2"]
    assert server[server.index("-x") + 1] == "3"
    assert "-x" not in link.perftest_arguments("rocep1s0f1", 29601, None)


@pytest.mark.parametrize("device", ["", "a b", "$(reboot)", "x" * 40, "../x"])
def test_a_device_must_be_a_name(device):
    with pytest.raises(link.LinkError):
        link.perftest_arguments(device, 1, None)


@pytest.fixture
def agent():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    found = link.Agent("secret", ["127.0.0.1"], port, 0)
    assert not found.errors
    found.serve()  # ends at once, as its time is up; who listens goes on until its socket is shut
    yield port
    for listener in found._sockets:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def path(**values):
    return {"netdev": "", "source": "127.0.0.1", "address": "127.0.0.1", "wanted_mtu": 1500, **values}


def test_what_arrives_is_counted(agent):
    assert link.measure_tcp([path()], "secret", agent, 0.2, 2) > 0.05


def test_a_stranger_gets_nothing(agent):
    with pytest.raises(link.LinkError):
        link.measure_tcp([path()], "wrong", agent, 0.2, 1)


def test_nobody_listening_is_a_reason_of_the_test(agent):
    tests = [{"id": "a", "how": "tcp", "paths": [path(address="127.0.0.2")]}]
    [found] = link.measure(tests, "secret", agent, 0.1, 1, lambda *_: True)
    assert "refused" in found["error"]
    assert found["mtu"] == 1500


def test_rdma_without_perftest_is_measured_by_tcp(agent, monkeypatch):
    monkeypatch.setattr(link.shutil, "which", lambda _name: None)
    tests = [{"id": "a", "how": "rdma", "paths": [path(), path()]}]
    [found] = link.measure(tests, "secret", agent, 0.1, 1, lambda *_: True)
    assert found["how"] == "tcp"
    assert found["gbits"] > 0
    assert "mtu" not in found


def test_rdma_is_measured_by_tcp_where_the_other_side_has_no_perftest(agent, monkeypatch):
    monkeypatch.setattr(link.shutil, "which", lambda _name: "/usr/bin/ib_write_bw")

    def absent(argv, **_options):
        raise FileNotFoundError(2, "No such file or directory", argv[0])

    monkeypatch.setattr(link.subprocess, "Popen", absent)
    ends = {"device": "rocep1s0f1", "peer_device": "rocep1s0f1", "gid_index": 3, "peer_gid_index": 3}
    tests = [{"id": "a", "how": "rdma", "paths": [path(**ends)]}]
    [found] = link.measure(tests, "secret", agent, 0.1, 1, lambda *_: True)
    assert (found["how"], "error" in found) == ("tcp", False)
    assert found["gbits"] > 0

    def broken(argv, **_options):
        raise PermissionError(13, "Permission denied", argv[0])

    # what is there and does not work is said
    monkeypatch.setattr(link.subprocess, "Popen", broken)
    [found] = link.measure(tests, "secret", agent, 0.1, 1, lambda *_: True)
    assert (found["how"], found["error"]) == ("rdma", "ib_write_bw: Permission denied")


def test_an_address_that_is_not_ours_is_named():
    found = link.start_agent("n", ["192.0.2.1"], 29999, 1)
    assert found["started"] is False
    assert list(found["errors"]) == ["192.0.2.1"]


@pytest.mark.parametrize("real", [9000, 8966, 1500, 1499, 1280, 577, 0])
def test_the_search_finds_the_mtu(real):
    asked = []

    def echo(_netdev, _address, size):
        asked.append(size)
        return size <= real

    assert link.measured_path_mtu("a", "b", 9000, echo) == real
    assert len(asked) < 20
