# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.compiled import CompilingHost, Sharing, sharing

NODE = {
    **{"kind": "spark", "arch": "aarch64", "gpu_names": ["NVIDIA GB10"]},
    "os": {"id": "ubuntu", "version": "24.04", "codename": "noble"},
}
VENV, IMAGE = {"digest": "3f6f"}, {"runtime": "container", "image_id": "sha256:1", "digest": "settings"}
SWITCH = {f"s{number}": {"links": [{"address": f"10.100.0.{number}/17"}]} for number in range(1, 5)}


def machine(compiled: bool | None, engine: dict[str, Any] | None = None, **node: Any) -> CompilingHost:
    return CompilingHost({**NODE, **node}, VENV if engine is None else engine, compiled)


def test_one_that_has_nothing_takes_from_the_first_that_has() -> None:
    hosts = {"s1": machine(True), "s2": machine(False), "s3": machine(True), "s4": machine(False)}
    found = sharing(hosts, SWITCH)
    assert found == Sharing("s1", ("s2", "s4"))
    assert [host for host in hosts if found.has(host)] == ["s1", "s2", "s4"]


@pytest.mark.parametrize("states", [(True, True), (False, False), (None, True), (False, None)])
def test_nobody_gives_where_all_are_the_same_or_nobody_has_looked(states: tuple[bool | None, bool | None]) -> None:
    assert sharing({"s1": machine(states[0]), "s2": machine(states[1])}, SWITCH) == Sharing()


@pytest.mark.parametrize(
    "other",
    [
        machine(False, {"digest": "another"}),
        machine(False, {}),
        machine(False, IMAGE),
        machine(False, gpu_names=["NVIDIA RTX PRO 6000"]),
        machine(False, kind="thor"),
        machine(False, os={"id": "ubuntu", "version": "26.04"}),
    ],
)
def test_only_from_a_host_that_is_like_it(other: CompilingHost) -> None:
    assert sharing({"s1": machine(True), "s2": other}, SWITCH) == Sharing()
    assert sharing({"s1": machine(True), "s2": other, "s3": machine(False)}, SWITCH) == Sharing("s1", ("s3",))


def test_an_image_is_known_by_itself_and_not_by_a_hosts_settings() -> None:
    here, there = machine(True, IMAGE), machine(False, {**IMAGE, "digest": "others"})
    assert sharing({"s1": here, "s2": there}, SWITCH).takers == ("s2",)


def test_other_machines_may_have_another_processor() -> None:
    hosts = {"s1": machine(True, kind="generic"), "s2": machine(False, kind="generic")}
    assert sharing(hosts, SWITCH) == Sharing()


def test_on_a_ring_a_neighbour_gives() -> None:
    nets = {"s1": (1, 4), "s2": (1, 2), "s3": (2, 3), "s4": (3, 4)}
    ring = {host: {"links": [{"address": f"10.100.{net}.{host[1]}/24"} for net in pair]} for host, pair in nets.items()}
    hosts = {"s1": machine(True), "s2": machine(True), "s3": machine(False), "s4": machine(True)}
    assert sharing(hosts, ring) == Sharing("s2", ("s3",))
    # two that nobody reaches at once
    hosts = {"s1": machine(True), "s2": machine(False), "s3": machine(None), "s4": machine(False)}
    assert sharing(hosts, ring) == Sharing("s1", ("s2", "s4"))
    hosts = {"s1": machine(False), "s2": machine(True), "s3": machine(False), "s4": machine(None)}
    del ring["s4"]
    assert sharing(hosts, ring) == Sharing("s2", ("s1", "s3"))
    assert sharing({"s1": machine(False), "s3": machine(True)}, ring) == Sharing()
