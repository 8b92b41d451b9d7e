# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What real machines print, and what our readers make of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.sparkthor.cluster.plugins.module_utils._facts import machine, node
from ansible_collections.sparkthor.cluster.plugins.module_utils._measure import collective, link
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import rdma
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.checks import CHECKS
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.diagnosis import Log, scan
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.logs import load_rules

from tests.unit.plugins.plugin_utils._doctor import sound_cluster

FOLDER = Path(__file__).parents[1] / "fixtures" / "captured"
CASES = yaml.safe_load((FOLDER / "cases.yml").read_text())


def _kinds(text: str) -> list[str]:
    products = [match[1] for match in re.finditer(r"product_name=(.*?)(?: product_version=.*)?$", text, re.MULTILINE)]
    with_gpu = [machine.detect_kind(product, [], False, "", [machine.GB10]) for product in products]
    assert with_gpu == ["spark"] * len(products)
    return [machine.detect_kind(product, [], False, "") for product in products]


def _brief(links: list[dict[str, Any]]) -> list[list[Any]]:
    return [[item[key] for key in ("device", "port", "netdev", "state")] for item in links]


def _doctor(text: str) -> list[str]:
    return sorted(scan(load_rules(CHECKS), [Log("host", "dmesg", text)]))


READERS: dict[str, Callable[[str], Any]] = {
    "dgx_version": machine.dgx_version,
    "tegra_version": machine.tegra_version,
    "kinds_by_dmi": _kinds,
    "meminfo": node.parse_meminfo,
    "interfaces": node.parse_ip_address,
    "ibdev2netdev": lambda text: _brief(rdma.parse_ibdev2netdev(text)),
    "rdma_link": rdma.parse_rdma_link,
    "rate": rdma.parse_rate,
    "perftest": link.parse_perftest,
    "nccl_log": collective.parse_nccl_log,
    "doctor": _doctor,
}


def test_every_capture_has_a_case_that_says_where_it_is_from_and_what_it_told() -> None:
    assert sorted(case["file"] for case in CASES) == sorted(path.name for path in FOLDER.glob("*.txt"))
    assert all(len(case["source"]) > 10 and len(case["told"]) > 20 for case in CASES)


def test_no_rule_of_the_doctor_fires_on_a_capture_but_the_one_of_its_fault() -> None:
    """All others are of machines that their owners call sound, or show what no log rule is about."""
    rules = load_rules(CHECKS)
    found = {
        path.name: sorted(scan(rules, [Log("host", "log", path.read_text(errors="replace"))]))
        for path in sorted(FOLDER.glob("*.txt"))
    }
    assert {name: fired for name, fired in found.items() if fired} == {
        "dmesg-xid119-torn-driver.txt": ["driver-firmware-torn"],
    }


def _lay_memory(host: dict[str, Any], text: str) -> None:
    host["memory"] = {**host["memory"], **node.parse_meminfo(text)}


def _lay_release(host: dict[str, Any], text: str) -> None:
    host["node"]["os"]["dgx"] = text


def _lay_links(host: dict[str, Any], text: str) -> None:
    read = rdma.parse_ibdev2netdev(text)
    known = {link["netdev"]: link for link in host["rdma"]["links"]}
    host["rdma"]["links"] = [{**known.get(link["netdev"], {"rate": 200, "gid_index": 3}), **link} for link in read]


@pytest.mark.parametrize(
    ("lay", "files", "found"),
    [
        (_lay_memory, ["meminfo-gb10-cma.txt"], []),
        (_lay_memory, ["meminfo-gb10-kernel7-cma-signature.txt"], ["kernel-keeps-memory"]),
        (_lay_release, ["dgx-release-two-ota-lines.txt", "dgx-release-build-and-ota.txt"], []),
        (_lay_links, ["ibdev2netdev-oshlabs.txt"], []),
    ],
)
def test_no_check_of_the_doctor_fires_on_what_a_sound_machine_shows(
    lay: Callable[[dict[str, Any], str], None], files: list[str], found: list[str]
) -> None:
    """All check rules over a sound cluster, of which one part is what our readers make of a capture."""
    for name in files:
        case = sound_cluster.world()
        for host in case.hosts:
            lay(sound_cluster.ev(case, host), (FOLDER / name).read_text())
        assert (name, sorted({rule for rule, _hosts in sound_cluster.found(case)})) == (name, found)


@pytest.mark.parametrize("case", [pytest.param(case, id=case["file"]) for case in CASES if case["reads"] != "none"])
def test_a_capture_is_read_or_its_line_is_named(case: dict[str, Any]) -> None:
    read, text = READERS[case["reads"]], (FOLDER / case["file"]).read_text()
    if "refused" in case:
        with pytest.raises(ValueError, match=re.escape(case["refused"])):
            read(text)
        return
    found = read(text)
    if isinstance(case["gives"], dict):
        found = {key: found[key] for key in case["gives"]}
    assert found == case["gives"]
