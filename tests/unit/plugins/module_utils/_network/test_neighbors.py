# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import socket
import threading
import time
import typing as t

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import neighbors
from hypothesis import given, settings
from hypothesis import strategies as st

MAC = b"\x02\x00\x00\x00\x00\x01"
P0, P1 = "enp1s0f0np0", "enp1s0f1np1"


class Wires:
    """Cables between (host, NIC) ends: pairs of datagram sockets, which keep frame borders as a wire does."""

    def __init__(self, cables: list[tuple[tuple[str, str], tuple[str, str]]]) -> None:
        self.ends: dict[tuple[str, str], socket.socket] = {}
        for one, two in cables:
            left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
            for end, port in ((one, left), (two, right)):
                port.setblocking(False)
                self.ends[end] = port

    def opener(self, host: str) -> t.Callable[[str], tuple[t.Any, bytes]]:
        def open_netdev(netdev: str) -> tuple[t.Any, bytes]:
            if (host, netdev) not in self.ends:
                raise OSError(19, "No such device")
            return self.ends[(host, netdev)].dup(), MAC

        return open_netdev

    def close(self) -> None:
        for port in self.ends.values():
            port.close()


def together(
    wires: Wires, wanted: dict[str, dict[str, tuple[str, str]]], seconds: float, late: dict[str, float] | None = None
) -> dict[str, tuple[neighbors.Seen, dict[str, str], float]]:
    """Run the exchange on all hosts at once, some of them starting late."""
    results: dict[str, t.Any] = {}

    def one(host: str) -> None:
        time.sleep((late or {}).get(host, 0))
        started = time.monotonic()
        seen, errors = neighbors.exchange(host, wanted[host], seconds, wires.opener(host), interval=0.02)
        results[host] = (seen, errors, time.monotonic() - started)

    threads = [threading.Thread(target=one, args=(host,)) for host in wanted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wires.close()
    return results


def timed(
    wires: Wires, wanted: dict[str, tuple[str, str]], window: float = 60.0, host: str = "a", **options: t.Any
) -> tuple[neighbors.Seen, float]:
    started = time.monotonic()
    seen, _errors = neighbors.exchange(host, wanted, window, wires.opener(host), 0.02, **options)
    wires.close()
    return seen, time.monotonic() - started


def hello(wires: Wires, host: str, netdev: str, to: tuple[str, str]) -> None:
    """A frame that this port of this host sent lies in front of that one."""
    wires.ends[to].send(neighbors.encode(MAC, host, netdev))


H0 = "enP2p1s0f0np0"
RING = [(("a", P0), ("b", P1)), (("a", H0), ("b", "enP2p1s0f1np1"))]


def test_a_half_whose_ends_were_both_up_before_is_given_up_soon() -> None:
    wires = Wires(RING)
    hello(wires, "b", P1, ("b", P1))
    wanted = {P0: ("b", P1), H0: ("b", "enP2p1s0f1np1")}
    seen, took = timed(wires, wanted, dark=lambda: {H0}, training=50.0, settled=[P0, H0])
    assert seen == {P0: {("b", P1)}, H0: set()}
    assert neighbors.GRACE <= took < 40


def test_a_half_that_was_just_set_up_gets_time_to_train() -> None:
    wires = Wires(RING)
    hello(wires, "b", P1, ("b", P1))
    wanted = {P0: ("b", P1), H0: ("b", "enP2p1s0f1np1")}
    _seen, took = timed(wires, wanted, dark=lambda: {H0}, training=3.0)
    assert 3 <= took < 40, "the peer runs, so only the training is waited for"


def test_a_carrier_behind_which_the_running_peer_is_not() -> None:
    wires = Wires(RING)
    hello(wires, "b", P1, ("b", P1))
    _seen, took = timed(wires, {P0: ("b", P1), H0: ("b", "enP2p1s0f1np1")})
    assert neighbors.GRACE <= took < 40


def test_a_silent_peer_gets_the_whole_window() -> None:
    _seen, took = timed(Wires(RING), {P0: ("b", P1)}, window=3.0)
    assert 3 <= took < 40


def test_a_cable_found_in_the_other_cage_ends_the_search_on_both_sides() -> None:
    """The cable between the cages 1 ends in cage 0 of b; both hosts send out of every port."""
    wires = Wires([(("a", P1), ("b", P0))])
    results: dict[str, t.Any] = {}

    def one(host: str, peer: str, dark: set[str], others: dict[str, bool]) -> None:
        started = time.monotonic()
        ports = {P1: (peer, P1)}
        opener = wires.opener(host)
        seen, _errors = neighbors.exchange(
            host, ports, 6.0, opener, 0.02, dark=lambda: dark, training=6.0, others=others
        )
        results[host] = (seen, time.monotonic() - started)

    # b's dark port can be opened and hears nothing
    lone, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    lone.setblocking(False)
    wires.ends[("b", P1)] = lone
    threads = [
        threading.Thread(target=one, args=("a", "b", set(), {})),
        threading.Thread(target=one, args=("b", "a", {P1}, {P0: True})),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wires.close()
    other.close()
    assert results["a"][0] == {P1: {("b", P0)}}
    assert results["b"][0] == {P1: set(), P0: {("a", P1)}}
    assert results["a"][1] < 4
    assert results["b"][1] < 4


def test_a_frame_comes_back_as_what_was_sent() -> None:
    frame = neighbors.encode(MAC, "spark-01", P1)
    assert frame[:14] == b"\xff" * 6 + MAC + b"\x88\xb5"
    assert neighbors.decode(frame) == ("spark-01", P1)
    assert len(neighbors.encode(MAC, "s", "e")) >= 60, "Ethernet's minimum"


@given(st.one_of(st.binary(max_size=200), st.binary(max_size=120).map(lambda body: b"\xff" * 12 + b"\x88\xb5" + body)))
@settings(deadline=None)
def test_foreign_frames_are_nothing(frame: bytes) -> None:
    assert neighbors.decode(frame) is None


@pytest.mark.parametrize(
    "body",
    [
        *(b"[]", b"{}", b'{"host": 1, "netdev": "x"}', b'{"host": "", "netdev": "x"}', b'{"host": "a"', b"[" * 1500),
        *(b'{"host": "a\\nb", "netdev": "x"}', b'{"host": "' + b"a" * 300 + b'", "netdev": "x"}'),
    ],
)
def test_our_frames_with_nonsense_inside_are_nothing(body: bytes) -> None:
    assert neighbors.decode(b"\xff" * 12 + b"\x88\xb5" + b"sparkthor.cluster/1 " + body + b"\n") is None


def test_a_sound_ring_is_seen_quickly_by_hosts_that_start_apart() -> None:
    ring = [("a", "b"), ("b", "c"), ("c", "a")]
    wires = Wires([((one, P0), (two, P1)) for one, two in ring])
    wanted: dict[str, dict[str, tuple[str, str]]] = {"a": {}, "b": {}, "c": {}}
    for one, two in ring:
        wanted[one][P0] = (two, P1)
        wanted[two][P1] = (one, P0)
    results = together(wires, wanted, 60.0, {"b": 0.3, "c": 0.5})
    for host, (seen, errors, took) in results.items():
        assert errors == {}
        assert {netdev: next(iter(found)) for netdev, found in seen.items()} == wanted[host]
        assert took < 40, "nobody waits for the end of the window"


def test_swapped_cables_are_seen_as_they_are() -> None:
    # a's two cables changed places at a
    wires = Wires([(("a", P1), ("b", P1)), (("a", P0), ("c", P0))])
    wanted = {"a": {P0: ("b", P1), P1: ("c", P0)}, "b": {P1: ("a", P0)}, "c": {P0: ("a", P1)}}
    results = together(wires, wanted, 0.6)
    assert results["a"][0] == {P0: {("c", P0)}, P1: {("b", P1)}}
    assert results["b"][0] == {P1: {("a", P1)}}
    assert results["a"][2] >= 0.6


def test_wrong_cables_do_not_cost_the_whole_window() -> None:
    wires = Wires([(("a", P1), ("b", P1)), (("a", P0), ("c", P0))])
    wanted = {"a": {P0: ("b", P1), P1: ("c", P0)}, "b": {P1: ("a", P0)}, "c": {P0: ("a", P1)}}
    results = together(wires, wanted, 9.0)
    assert results["a"][0] == {P0: {("c", P0)}, P1: {("b", P1)}}
    assert neighbors.GRACE <= results["a"][2] < 6


def test_a_port_that_cannot_be_opened_is_an_error_of_that_port() -> None:
    seen, errors = neighbors.exchange("a", {P0: ("b", P1)}, 0.1, Wires([]).opener("a"))
    assert (seen, errors) == ({P0: set()}, {P0: "No such device"})


def test_either_half_of_the_right_cage_is_the_neighbour() -> None:
    assert neighbors.is_neighbour({("b", "enP2p1s0f1np1")}, "b", P1)
    assert not neighbors.is_neighbour({("b", P0)}, "b", P1)
    assert not neighbors.is_neighbour({("c", P1)}, "b", P1)


class Switch:
    """Ports of hosts on one switch: it floods broadcasts, and keeps what no bridge passes on."""

    def __init__(self, *hosts: str) -> None:
        self.inside: dict[str, socket.socket] = {}
        self.outside: dict[str, socket.socket] = {}
        for host in hosts:
            self.inside[host], self.outside[host] = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
            self.inside[host].setblocking(False)
            self.outside[host].setblocking(False)

    def opener(self, host: str) -> t.Callable[[str], tuple[t.Any, bytes]]:
        switch = self

        class Port:
            def send(self, data: bytes) -> int:
                for other, end in switch.inside.items():
                    if other != host and data[:6] == neighbors.BROADCAST:
                        end.send(data)
                return len(data)

            def recv(self, size: int) -> bytes:
                return switch.outside[host].recv(size)

            def fileno(self) -> int:
                return switch.outside[host].fileno()

            def close(self) -> None:
                pass

        return lambda _netdev: (Port(), MAC)


def on_a_switch(
    switch: Switch, hosts: str, late: dict[str, float], seconds: float = 1.0, training: float = 1.0
) -> dict[str, tuple[neighbors.Seen, neighbors.Seen, float]]:
    results: dict[str, t.Any] = {}

    def one(host: str) -> None:
        time.sleep(late.get(host, 0))
        started = time.monotonic()
        cabled: neighbors.Seen = {}
        crowd = {P0: [other for other in hosts if other != host]}
        seen, _errors = neighbors.exchange(
            host, {P0: ("", "")}, seconds, switch.opener(host), 0.02, training=training, crowds=crowd, cabled=cabled
        )
        results[host] = (seen, cabled, time.monotonic() - started)

    threads = [threading.Thread(target=one, args=(host,)) for host in switch.inside]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_all_on_a_switch_hear_each_other_and_nothing_that_only_a_cable_passes() -> None:
    for host, (seen, cabled, took) in on_a_switch(Switch(*"abc"), "abc", {"c": 0.3}, seconds=60.0).items():
        assert {name for name, _netdev in seen[P0]} == set("abc") - {host}
        assert cabled == {P0: set()}
        assert took < 40, "nobody waits for the end of the window"


def test_on_a_switch_a_host_that_begins_late_is_waited_for_where_frames_pass() -> None:
    found = on_a_switch(Switch(*"abc"), "abc", {"c": 1.5}, seconds=1.0, training=30.0)
    assert all({name for name, _netdev in found[host][0][P0]} == set("abc") - {host} for host in "abc")


def test_a_switch_that_drops_our_frames_costs_the_window_alone() -> None:
    found = on_a_switch(Switch("a"), "ab", {}, seconds=0.5, training=60.0)
    assert found["a"][0] == {P0: set()}
    assert 0.5 <= found["a"][2] < 40


def test_frames_that_no_bridge_passes_on_show_a_plain_cable() -> None:
    wires = Wires([(("a", P0), ("b", P1))])
    wires.ends[("b", P1)].send(neighbors.encode(MAC, "b", P1, neighbors.NEAREST))
    host = Host(up=True)
    result = neighbors.find_neighbours("a", [LINK], host.states, host.run, 0.5, open_netdev=wires.opener("a"))
    wires.close()
    assert result["neighbours"] == {P0: [{"host": "b", "netdev": P1}]}
    assert result["cabled"] == {P0: ["b"]}


class Host:
    """Link states and the ip command of one host."""

    def __init__(self, up: bool, refuse: str = "") -> None:
        self.up, self.refuse, self.commands = up, refuse, []

    def states(self) -> dict[str, dict[str, t.Any]]:
        return {P0: {"up": self.up, "carrier": self.up, "mtu": 1500}}

    def run(self, argv: list[str]) -> tuple[int, str, str]:
        self.commands.append(argv)
        if argv[-1] == self.refuse:
            return 2, "", "RTNETLINK answers: Operation not permitted"
        self.up = argv[-1] == "up"
        return 0, "", ""


LINK = {"netdev": P0, "peer": "b", "peer_netdev": P1}


def test_a_port_that_is_down_is_raised_and_restored() -> None:
    wires = Wires([(("a", P0), ("b", P1))])
    wires.ends[("b", P1)].send(neighbors.encode(MAC, "b", P1))
    host = Host(up=False)
    result = neighbors.find_neighbours("a", [LINK], host.states, host.run, 0.5, 1.0, open_netdev=wires.opener("a"))
    wires.close()
    assert result["ports"] == {P0: {"present": True, "up": False, "carrier": True, "mtu": 1500}}
    assert result["neighbours"] == {P0: [{"host": "b", "netdev": P1}]}
    assert result["raised"] == [P0]
    assert [argv[-1] for argv in host.commands] == ["up", "down"]
    assert host.up is False


def test_a_port_whose_peer_comes_up_later_is_waited_for() -> None:
    wires = Wires([(("a", P0), ("b", P1))])
    timer = threading.Timer(0.4, wires.ends[("b", P1)].send, [neighbors.encode(MAC, "b", P1)])
    timer.start()
    host = Host(up=True)
    dark = {P0: {"up": True, "carrier": False, "mtu": 1500}}
    result = neighbors.find_neighbours("a", [LINK], lambda: dark, host.run, 0.1, 1.5, open_netdev=wires.opener("a"))
    timer.join()
    wires.close()
    assert result["ports"][P0]["carrier"] is True, "whoever was heard was there"
    assert host.commands == []


def test_a_port_on_a_switch_gets_time_to_train() -> None:
    host = Host(up=False)
    result = neighbors.find_neighbours("a", [{**LINK, "peer": ""}], host.states, host.run, 0.2, 1.0)
    assert result["ports"][P0]["carrier"] is True
    assert [argv[-1] for argv in host.commands] == ["up", "down"]


def test_it_is_restored_when_the_probe_breaks() -> None:
    def broken(netdev: str) -> tuple[t.Any, bytes]:
        raise RuntimeError("out of luck")

    host = Host(up=False)
    with pytest.raises(RuntimeError):
        neighbors.find_neighbours("a", [LINK], host.states, host.run, 0.2, 0.1, open_netdev=broken)
    assert host.up is False


def test_check_mode_changes_nothing_and_says_unknown() -> None:
    host = Host(up=False)
    result = neighbors.find_neighbours("a", [LINK], host.states, host.run, 0.2, 0.1, change_nothing=True)
    assert host.commands == []
    assert result["ports"][P0]["carrier"] is None
    assert result["neighbours"] == {}


def test_a_port_that_cannot_be_raised_is_an_error() -> None:
    host = Host(up=False, refuse="up")
    result = neighbors.find_neighbours("a", [LINK], host.states, host.run, 0.2, 0.1)
    assert result["errors"] == {P0: "RTNETLINK answers: Operation not permitted"}
    assert result["raised"] == []


def test_nothing_is_sent_on_a_switch_whose_hosts_do_not_probe_together() -> None:
    def never(netdev: str) -> tuple[t.Any, bytes]:
        raise AssertionError(netdev)

    host = Host(up=True)
    link = {"netdev": P0, "peer": "", "peer_netdev": ""}
    result = neighbors.find_neighbours(
        "a", [link, {**link, "netdev": "gone0"}], host.states, host.run, 0.2, open_netdev=never
    )
    assert result["ports"]["gone0"] == {"present": False, "up": False, "carrier": None, "mtu": 0}
    assert result["neighbours"] == {}


def test_a_cable_in_the_other_cage_is_found_and_the_ports_are_restored() -> None:
    up: dict[str, bool] = {P0: False, P1: False}

    def states() -> dict[str, dict[str, t.Any]]:
        # the cable is in cage 0, the plan uses cage 1
        return {name: {"up": on, "carrier": on and name == P0, "mtu": 1500} for name, on in up.items()}

    def run(argv: list[str]) -> tuple[int, str, str]:
        up[argv[-2]] = argv[-1] == "up"
        return 0, "", ""

    wires = Wires([(("a", P1), ("b", P1))])
    link = {"netdev": P1, "peer": "b", "peer_netdev": P1}
    result = neighbors.find_neighbours("a", [link], states, run, 0.3, 0.3, open_netdev=wires.opener("a"))
    assert result["ports"][P0]["carrier"] is True
    assert result["ports"][P1]["carrier"] is False
    assert up == {P0: False, P1: False}
    found = neighbors.find_neighbours(
        "a", [link], states, run, 0.1, 0.1, change_nothing=True, open_netdev=wires.opener("a")
    )
    wires.close()
    assert found["ports"][P0]["carrier"] is None
