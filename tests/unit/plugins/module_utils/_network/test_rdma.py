# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import rdma
from ansible_collections.sparkthor.cluster.plugins.module_utils._network.rdma import (
    RdmaError,
    Sysfs,
    parse_ibdev2netdev,
    parse_rdma_link,
    read_links,
)
from hypothesis import given, settings
from hypothesis import strategies as st

FIXTURES = Path(__file__).parents[4] / "fixtures" / "rdma"
CASES = yaml.safe_load((FIXTURES / "cases.yml").read_text())


def cases(suffix: str) -> list[t.Any]:
    return [pytest.param(case, id=case["file"]) for case in CASES if case["file"].endswith(suffix)]


def text_of(name: str) -> str:
    return (FIXTURES / name).read_bytes().decode()


def build(tmp_path: Path, name: str) -> str:
    """Lay a captured sysfs tree out in a folder."""
    for path, content in yaml.safe_load(text_of(name)).items():
        target = tmp_path / "sys" / path.removesuffix(" ->")
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.endswith(" ->"):
            real = tmp_path / "sys" / content
            real.mkdir(parents=True, exist_ok=True)
            target.symlink_to(real)
        else:
            target.write_text(content + "\n")
    return str(tmp_path)


def brief(links: list[dict[str, t.Any]]) -> list[list[t.Any]]:
    return [[link[key] for key in ("device", "port", "netdev", "state")] for link in links]


def no_tools(argv: list[str]) -> tuple[int, str, str]:
    return 127, "", "not installed"


def test_every_capture_is_used_and_names_its_source() -> None:
    captures = {path.name for path in FIXTURES.iterdir()} - {"cases.yml", "README.md"}
    assert {case["file"] for case in CASES} == captures
    assert len(CASES) >= 15
    assert all(len(case["source"]) > 20 for case in CASES)
    assert sum(not case["source"].startswith("synthetic") for case in CASES) >= 8


@pytest.mark.parametrize("case", cases(".txt"))
def test_ibdev2netdev(case: dict[str, t.Any]) -> None:
    keys = ("device", "port", "netdev", "state", "pci", "firmware", "port_state")
    expected = [dict(zip(keys, link, strict=False)) for link in case["links"]]
    assert parse_ibdev2netdev(text_of(case["file"])) == expected


@pytest.mark.parametrize("case", cases(".json"))
def test_rdma_link(case: dict[str, t.Any]) -> None:
    assert brief(parse_rdma_link(text_of(case["file"]))) == case["links"]


@pytest.mark.parametrize("case", [case for case in cases(".yml") if case.id.startswith("sysfs")])
def test_sysfs_alone(case: dict[str, t.Any], tmp_path: Path) -> None:
    found = read_links(no_tools, build(tmp_path, case["file"]))
    assert brief(found["links"]) == case["links"]
    assert found["source"] == "sysfs"
    assert found["warnings"] == []


def test_everything_sysfs_says_about_a_spark(tmp_path: Path) -> None:
    links = {link["device"]: link for link in read_links(no_tools, build(tmp_path, "sysfs-spark-cage0.yml"))["links"]}
    assert links["roceP2p1s0f0"] == {
        "device": "roceP2p1s0f0",
        "port": 1,
        "netdev": "enP2p1s0f0np0",
        "state": "up",
        "port_state": "ACTIVE",
        "phys_state": "LinkUp",
        "cage": 0,
        "half": 1,
        "pci": "0002:01:00.0",
        "phys_port_name": "p0",
        "phys_switch_id": "3042f90003ea4cfc",
        "mtu": 9000,
        "active_mtu": 4096,
        "rate": 200,
        "link_layer": "Ethernet",
        "gid_index": 3,
        "firmware": "28.45.4028",
    }
    unused = links["rocep1s0f1"]
    assert (unused["state"], unused["cage"], unused["half"], unused["gid_index"]) == ("down", 1, 0, None)
    assert (unused["phys_state"], unused["rate"]) == ("Disabled", 40)
    assert links["rocep1s0f0"]["phys_switch_id"] == links["roceP2p1s0f0"]["phys_switch_id"]


def test_two_ports_of_one_device_in_sysfs(tmp_path: Path) -> None:
    infiniband, ethernet = read_links(no_tools, build(tmp_path, "sysfs-two-ports.yml"))["links"]
    assert (infiniband["rate"], infiniband["link_layer"], infiniband["active_mtu"]) == (40, "InfiniBand", None)
    assert (ethernet["rate"], ethernet["link_layer"], ethernet["active_mtu"]) == (2.5, "Ethernet", 1024)
    assert infiniband["port_state"] == "INIT"


@pytest.mark.parametrize("source", rdma.SOURCES)
def test_each_source_alone_gives_the_same_links(source: str, tmp_path: Path) -> None:
    root = build(tmp_path, "sysfs-spark-cage0.yml")

    def run(argv: list[str]) -> tuple[int, str, str]:
        if argv[0] != source:
            return 127, "", ""
        return 0, text_of("spark-one-cable-cage0.txt" if argv == ["ibdev2netdev"] else "rdma-spark-cage0.json"), ""

    found = read_links(run, root)
    assert found["source"] == source
    assert found["links"] == read_links(no_tools, root, ["sysfs"])["links"]


@pytest.mark.parametrize("source", ["ibdev2netdev", "rdma"])
def test_a_tool_is_believed_without_sysfs(source: str, tmp_path: Path) -> None:
    text = text_of("spark-ring.txt" if source == "ibdev2netdev" else "rdma-spark-cage0.json")
    found = read_links(lambda argv: (0, text, "") if argv[0] == source else (127, "", ""), str(tmp_path))
    assert (found["source"], len(found["links"])) == (source, 4)
    assert [link["half"] for link in found["links"]] == [1, 1, 0, 0]


def test_a_netdev_the_tool_leaves_out_comes_from_sysfs(tmp_path: Path) -> None:
    def run(argv: list[str]) -> tuple[int, str, str]:
        return (0, text_of("rdma-no-netdev.json"), "") if argv[0] == "rdma" else (127, "", "")

    (link,) = read_links(run, build(tmp_path, "sysfs-spark-hotplugged.yml"))["links"]
    assert (link["netdev"], link["state"], link["active_mtu"]) == ("enp1s0f1np1", "up", 1024)


def test_carrier_decides_and_a_port_that_is_administratively_down_is_down(tmp_path: Path) -> None:
    root = build(tmp_path, "sysfs-spark-ring.yml")
    # what the kernel answers with EINVAL cannot be read at all
    (tmp_path / "sys/class/net/enp1s0f0np0/carrier").unlink()

    def run(argv: list[str]) -> tuple[int, str, str]:
        return (0, text_of("spark-ring.txt"), "") if argv[0] == "ibdev2netdev" else (127, "", "")

    states = {link["netdev"]: link["state"] for link in read_links(run, root)["links"]}
    assert states["enp1s0f0np0"] == "down"
    assert states["enp1s0f1np1"] == "up"


def test_a_broken_tool_is_passed_over_with_a_warning(tmp_path: Path) -> None:
    def run(argv: list[str]) -> tuple[int, str, str]:
        return (0, "no such thing\n", "") if argv[0] == "ibdev2netdev" else (124, "", "rdma: no answer within 10 s")

    found = read_links(run, build(tmp_path, "sysfs-spark-ring.yml"))
    assert found["source"] == "sysfs"
    assert len(found["links"]) == 4
    assert found["warnings"] == [
        "ibdev2netdev: line 1 is not in a known form: 'no such thing'",
        "rdma failed with exit code 124: rdma: no answer within 10 s",
    ]


def test_a_tool_that_prints_nothing_does_not_hide_devices(tmp_path: Path) -> None:
    found = read_links(lambda argv: (0, "", ""), build(tmp_path, "sysfs-spark-ring.yml"))
    assert (found["source"], len(found["links"])) == ("sysfs", 4)


def test_a_host_without_rdma_is_an_empty_list(tmp_path: Path) -> None:
    assert read_links(no_tools, str(tmp_path)) == {"links": [], "source": "sysfs", "warnings": []}
    no_kernel_support = (1, "", "Failed to open NETLINK_RDMA socket")
    assert read_links(lambda argv: no_kernel_support, str(tmp_path))["warnings"] == []
    assert read_links(lambda argv: (0, "[]" if argv[0] == "rdma" else "", ""), str(tmp_path))["links"] == []


@pytest.mark.parametrize(
    ("text", "number", "line"),
    [
        ("rocep1s0f0 port 1 ==> enp1s0f0np0 (Up)\nrocep1s0f1 port x ==> enp1s0f1np1 (Up)", 2, "rocep1s0f1 port x"),
        ("\n\n  usage: ibdev2netdev [-v]\n", 3, "usage"),
        ("rocep1s0f0 port 1 ==> enp1s0f0np0", 1, "enp1s0f0np0"),
        ("rocep1s0f0 port 1 -> enp1s0f0np0 (Up)", 1, "->"),
        ("rocep1s0f0 port 1 ==> enp1s0f0np0 (Up) rocep1s0f1 port 1 ==> enp1s0f1np1 (Up)", 1, "rocep1s0f1"),
        ("a" * 5000, 1, "aaa"),
    ],
)
def test_an_unreadable_line_is_named(text: str, number: int, line: str) -> None:
    with pytest.raises(RdmaError) as caught:
        parse_ibdev2netdev(text)
    assert caught.value.number == number
    assert f"line {number} " in str(caught.value)
    assert line in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["{", "{}", "7", '["x"]', '[{"port":1}]', '[{"ifname":"a","port":"1"}]', '[{"ifname":"a","netdev":3}]', "[" * 9999],
)
def test_unreadable_rdma_output_is_the_documented_error(text: str) -> None:
    with pytest.raises(RdmaError, match=r"rdma: line \d+ "):
        parse_rdma_link(text)


WORDS = st.sampled_from(
    [
        *("rocep1s0f0", "port", "1", "==>", "<===>", "enp1s0f0np0", "(Up)", "(Down)", "(DOWN  )", "fw", "28.1"),
        *("(MT1 - A)", "0000:01:00.0", "\n", "\r\n", "  ", "", "(", ")", "\t", "\x00", "\u2028", "²"),
    ]
)


@given(st.one_of(st.text(), st.lists(WORDS, max_size=40).map(" ".join)))
@settings(deadline=None, max_examples=400)
def test_fuzzed_text_ends_in_links_or_the_documented_error(text: str) -> None:
    try:
        links = parse_ibdev2netdev(text)
    except RdmaError as error:
        number, line = error.number, error.line
    else:
        assert all(set(link) >= {"device", "port", "netdev", "state"} for link in links)
        assert all(link["state"] in ("up", "down", "unknown") and type(link["port"]) is int for link in links)
        return
    assert text.split("\n")[number - 1].strip(" \t\r") == line


@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=8)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=4),
            st.dictionaries(st.sampled_from(["ifname", "port", "netdev", "state", "x"]), inner, max_size=5),
        ),
        max_leaves=12,
    ).map(json.dumps)
    | st.text()
)
@settings(deadline=None, max_examples=300)
def test_fuzzed_json_ends_in_links_or_the_documented_error(text: str) -> None:
    try:
        links = parse_rdma_link(text)
    except RdmaError:
        return  # anything else fails the test
    assert all(isinstance(link["device"], str) and isinstance(link["port"], int) for link in links)


@given(st.dictionaries(st.sampled_from(["state", "phys_state", "rate", "link_layer"]), st.text(max_size=20)))
@settings(deadline=None, max_examples=60)
def test_fuzzed_sysfs_ends_in_links(tmp_path_factory: pytest.TempPathFactory, files: dict[str, str]) -> None:
    root = tmp_path_factory.mktemp("sysfs")
    port = root / "sys/class/infiniband/x/ports/1"
    port.mkdir(parents=True)
    for name, content in files.items():
        (port / name).write_bytes(content.encode("utf-8", "surrogatepass"))
    (link,) = read_links(no_tools, str(root))["links"]
    assert link["device"] == "x"
    assert link["rate"] is None or link["rate"] >= 0


def test_cage_and_half_without_help_of_the_driver() -> None:
    assert [rdma.cage_of(name, "") for name in ("enp1s0f0np0", "enP2p1s0f1np1", "eth0", "enp2s0f0")] == [
        0,
        1,
        None,
        None,
    ]
    assert rdma.cage_of("eth0", "p1") == 1
    assert [rdma.half_of(name, "") for name in ("enp1s0f0np0", "enP2p1s0f1np1", "eth0")] == [0, 1, None]
    assert rdma.half_of("eth0", "0002:01:00.0") == 1


def test_path_mtu() -> None:
    assert [rdma.rdma_path_mtu(mtu) for mtu in (None, 100, 1500, 4200, 9000)] == [None, None, 1024, 4096, 4096]


def test_sysfs_survives_odd_names(tmp_path: Path) -> None:
    (tmp_path / "sys/class/infiniband/x/ports/not-a-port").mkdir(parents=True)
    assert Sysfs(str(tmp_path)).links() == []
