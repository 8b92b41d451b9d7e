# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The document and the screen of the status of simulated hosts, with one thing changed at a time."""

from __future__ import annotations

import copy
import time

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import page, screen, status

from tests.unit.plugins.plugin_utils._report.captured_status import GROUPS, HOSTS, NOW, made, texts, variables


def test_a_healthy_cluster_has_nothing_to_fix(outcomes):
    document = made(outcomes)
    assert texts(document) == []
    assert document["ok"] is True
    assert document["serving"]["endpoint"] == "http://10.110.1.11:8000/v1"
    text = screen.render(document)
    assert "SERVING for 1 h 1 min" in text
    assert "TP=1 PP=3" in text
    assert "nothing to fix" in text
    assert "last completion 4 s ago in 0.12 s" in text


def test_the_state_has_the_word_of_the_page_on_the_head(outcomes):
    document = made(outcomes)
    document["serving"]["state"] = "restarting"
    assert "HEALING BY ITSELF for 1 h 1 min" in screen.render(document)


def test_a_host_that_was_renamed_by_hand_is_named(outcomes):
    node = outcomes["spark-02"]["status"]["node"]
    node.update(hostname="kitchen", declared={"hostname": "spark-02"})
    [found] = [item for item in made(outcomes)["problems"] if "kitchen" in item["text"]]
    assert (found["host"], found["text"]) == (
        "spark-02",
        "its host name is kitchen; it was spark-02 when site.yml last set the host up",
    )
    assert "hostnamectl set-hostname spark-02" in found["fix"]


def test_what_the_kernel_counters_and_the_last_boot_tell_is_named_as_the_doctor_names_it(outcomes):
    facts = outcomes["spark-02"]["status"]
    facts["kernel"] = "NVRM: Xid (PCI:000f:01:00): 79, pid=811, name=python3, GPU has fallen off the bus."
    facts["pcie_errors"] = {"hours": 3.0, "devices": {"0000:01:00.0": {"uncorrected": 2}}}
    facts["rdma_counters"] = {"rocep1s0f0": {"port_rcv_packets": 10**8, "out_of_sequence": 20_000}}
    facts["previous_boot"] = {"ended": int(facts["time"]) - 3600, "how": "cut", "last": ["CRON"]}
    document = made(outcomes)
    found = {item["fix"].partition("(")[2].rstrip(")"): item for item in document["problems"]}
    assert set(found) == {"gpu-error", "pcie-errors", "fabric-loses"}
    assert {item["host"] for item in found.values()} == {"spark-02"}
    assert "The driver reported an error of the GPU: NVRM: Xid" in found["gpu-error"]["text"]
    assert "rocep1s0f0: out_of_sequence 20000, of 100000000 packets received" in found["fabric-loses"]["text"]
    # what is over is shown, and is nothing to fix
    assert "spark-02: its last boot ended at" in screen.render(document)
    assert "without an orderly stop" in document["hosts"]["spark-02"]["previous_boot"]
    facts["time"] += 8 * 86400
    assert made(outcomes)["hosts"]["spark-02"]["previous_boot"] == ""


def test_an_image_s_own_settings_of_nccl_are_named_unless_something_outranks_them(outcomes):
    facts = outcomes["spark-02"]["status"]
    planned = next(iter(facts["environment"]))
    rank = {"pid": 7, "program": "vllm", "env": {"NCCL_A": "1"}, "nccl_conf": {"NCCL_A": "0", planned: "1"}}
    facts["processes"] = [rank]
    assert made(outcomes)["problems"] == []
    rank["nccl_conf"] = {"NCCL_IB_USE_INLINE": "1"}
    (found,) = made(outcomes)["problems"]
    assert (found["host"], found["text"]) == (
        "spark-02",
        "NCCL has settings that nobody planned: /etc/nccl.conf inside the image of vllm (process 7): "
        "NCCL_IB_USE_INLINE=1",
    )
    facts["processes"], facts["nccl"] = [], {"/etc/nccl.conf": {"settings": {"NCCL_IB_USE_INLINE": "1"}}}
    assert "/etc/nccl.conf: NCCL_IB_USE_INLINE=1" in made(outcomes)["problems"][0]["text"]


def test_one_slow_link_among_fast_ones_is_named_with_its_cable(outcomes):
    links = outcomes["spark-02"]["status"]["rdma"]["links"]
    next(link for link in links if link["netdev"] == "enp1s0f1np1")["rate"] = 100
    found = [item for item in made(outcomes)["problems"] if "negotiated 100 Gb/s" in item["text"]]
    assert len(found) == 1
    assert "other links of this fabric have 200" in found[0]["text"]
    assert "set fabric_speed: 100 for spark-02" in found[0]["fix"]


LEFT = (
    "one of two cables is lost: of cage 0; the one of cage 1 is left, and NCCL uses it alone when the serving group "
    "starts again"
)


def test_one_of_two_cables_lost_says_what_is_left(outcomes):
    hostvars = {host: {**own, "fabric_cages": [1, 0]} for host, own in variables().items()}
    for host, own in made(outcomes, hostvars=hostvars)["hosts"].items():
        for link in own["links"]:
            address = {"address": link["address"], "family": "inet", "scope": "global", "dynamic": False}
            change(outcomes, host, link["netdev"], addresses=[address], mtu=9000, carrier=True, up=True)
    assert LEFT not in str(texts(made(outcomes, hostvars=hostvars)))
    lost = ("enp1s0f0np0", "enP2p1s0f0np0")
    for netdev in lost:
        change(outcomes, "spark-02", netdev, carrier=False)
    told = [text for text in texts(made(outcomes, hostvars=hostvars)) if "carrier" in text or "cables" in text]
    assert told == [*(f"spark-02: {netdev} has no carrier" for netdev in lost), f"spark-02: {LEFT}"]
    for netdev in ("enp1s0f1np1", "enP2p1s0f1np1"):
        change(outcomes, "spark-02", netdev, carrier=False)
    assert LEFT not in str(texts(made(outcomes, hostvars=hostvars))), "nothing is left"


def test_speed_half_mtu_and_address_of_every_link(outcomes):
    links = made(outcomes)["hosts"]["spark-02"]["links"]
    assert [(link["netdev"], link["half"], link["mtu"], link["rate_gbits"], link["address"]) for link in links] == [
        ("enp1s0f1np1", 0, 9000, 200.0, "10.100.0.2/17"),
        ("enP2p1s0f1np1", 1, 9000, 200.0, "10.100.128.2/17"),
    ]


def change(outcomes, host, netdev, **values):
    [port] = [item for item in outcomes[host]["status"]["node"]["interfaces"] if item["name"] == netdev]
    port.update(values)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"carrier": False}, "enP2p1s0f1np1 has no carrier"),
        ({"carrier": False, "up": False}, "enP2p1s0f1np1 is administratively down"),
        ({"mtu": 1500}, "enP2p1s0f1np1 has MTU 1500, not 9000"),
        ({"addresses": []}, "enP2p1s0f1np1 lacks its address 10.100.128.3/17 (has none)"),
        ({"name": "eth9"}, "enP2p1s0f1np1 does not exist"),
        ({"name": "eth9", "pci": "0002:01:00.1"}, "NIC enP2p1s0f1np1 is now called eth9"),
    ],
)
def test_a_wrong_link_is_one_line_with_host_and_fix(outcomes, values, expected):
    change(outcomes, "spark-03", "enP2p1s0f1np1", **values)
    document = made(outcomes)
    assert texts(document) == [f"spark-03: {expected}"]
    assert document["problems"][0]["fix"]
    assert not document["ok"]


def test_a_port_that_lost_its_rdma_state(outcomes):
    for link in outcomes["spark-01"]["status"]["rdma"]["links"]:
        if link["netdev"] == "enp1s0f1np1":
            link["port_state"] = "DOWN"
    assert texts(made(outcomes)) == ["spark-01: rocep1s0f1 is DOWN although enp1s0f1np1 is up"]


def test_half_a_cluster_still_has_a_plan_for_all_links(outcomes):
    outcomes["spark-03"] = {"unreachable": True, "msg": "ssh: connect to host 10.110.1.13 port 22: timed out"}
    document = made(outcomes)
    assert texts(document) == [
        "spark-03: it does not answer at 10.110.1.13: powered off, frozen, or on another network"
    ]
    assert "hold the power button" in document["problems"][0]["fix"]
    assert len(document["hosts"]["spark-01"]["links"]) == 2
    assert "no answer" in screen.render(document)


@pytest.mark.parametrize("topology", ["switch", "ring", "lan"])
def test_no_cluster_at_all_is_an_answer(topology):
    outcomes = {host: {"unreachable": True, "msg": "no route to host"} for host in HOSTS}
    document = made(outcomes, topology)
    assert [text.partition(" at ")[0] for text in texts(document)] == [f"{host}: it does not answer" for host in HOSTS]
    assert document["serving"]["state"] == document["ray"]["state"] == "unknown"
    assert "3 to fix" in screen.render(document)


def test_a_status_that_failed_is_a_host_without_an_answer(outcomes):
    outcomes["spark-02"] = {"failed": True, "module_stderr": "Traceback: disk full", "msg": "MODULE FAILURE"}
    document = made(outcomes)
    assert texts(document) == ["spark-02: it cannot be reached at 10.110.1.12"]
    assert "[MODULE FAILURE]" in document["problems"][0]["fix"]


def test_a_host_that_a_limit_left_out_is_no_host_without_an_answer(outcomes):
    document = made({**outcomes, "spark-03": {}})
    assert texts(document) == []
    row = next(line for line in screen.render(document).splitlines() if line.startswith("spark-03"))
    assert "not asked" in row


def test_an_inventory_without_a_plan_is_one_line(outcomes):
    hostvars = variables()
    for values in hostvars.values():
        values["fabric_cidr"] = "10.100.0.0/31"
    document = made(outcomes, hostvars=hostvars)
    [line] = texts(document)
    assert line.startswith("inventory: ")
    assert "fabric_cidr" in line
    assert "HOST" in screen.render(document)


def test_versions_that_differ_are_named_with_their_hosts(outcomes):
    outcomes["spark-02"]["status"]["versions"]["ray"] = "2.54.0"
    document = made(outcomes)
    assert texts(document) == ["cluster: ray differs: spark-01 2.60.0, spark-02 2.54.0, spark-03 2.60.0"]
    assert "ray 2.60" not in screen.render(document).split("versions:")[1].splitlines()[0]


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"updated": NOW - 500}, "not serving: no watchdog reports; sparkthor-vllm is active"),
        ({"state": "loading", "line": "loading: shards 3/9"}, "not serving: loading: shards 3/9"),
    ],
)
def test_a_group_that_does_not_serve(outcomes, state, expected):
    outcomes["spark-01"]["status"]["serving"]["state"].update(state)
    assert texts(made(outcomes)) == [f"spark-01: {expected}"]


@pytest.mark.parametrize(("engine", "named"), [("vllm", "moe-backend"), ("llama_cpp", "compare the model's files")])
def test_a_model_that_computes_nonsense_is_something_to_fix(outcomes, engine, named):
    serving = outcomes["spark-01"]["status"]["serving"]
    serving["engine"] = engine
    serving["state"]["answers"] = {"asked": 4, "right": 3, "wrong": "17 + 25: '41'"}
    assert texts(made(outcomes)) == []
    serving["state"]["answers"]["right"] = 1
    document = made(outcomes)
    assert texts(document) == ["spark-01: the model answers 1 of 4 simple tasks rightly (17 + 25: '41')"]
    assert named in document["problems"][0]["fix"]
    assert not document["ok"]


def test_ray_says_itself_what_is_wrong(outcomes):
    cluster = outcomes["spark-01"]["status"]["ray"]["cluster"]
    cluster.update(
        healthy=False,
        reason="2 of 3 nodes: spark-03 is not a member",
        problems=[{"code": "absent", "node": "spark-03", "cause": "spark-03 is not a member", "fix": "power"}],
        alive=cluster["alive"][:2],
    )
    document = made(outcomes)
    assert texts(document) == ["spark-03: Ray: spark-03 is not a member"]
    row = next(line for line in screen.render(document).splitlines() if line.startswith("spark-03"))
    assert "absent" in row


def test_ray_that_is_down(outcomes):
    outcomes["spark-01"]["status"]["ray"] = {"configured": True, "error": "no answer within 5 s"}
    assert texts(made(outcomes)) == ["spark-01: Ray: no answer within 5 s"]


@pytest.mark.parametrize(
    ("firewall", "watch", "expected"),
    [
        ({"state": "closed", "reason": ""}, "active", []),
        ({"state": "unmanaged", "reason": ""}, "absent", []),
        ({"state": "unconfirmed", "reason": "a change"}, "active", []),
        ({"state": "open", "reason": "it is not loaded"}, "active", ["the firewall is open: it is not loaded"]),
        ({"state": "unknown", "reason": "no nft"}, "active", ["the firewall cannot be read: no nft"]),
        ({"state": "closed", "reason": ""}, "inactive", ["nobody watches over the firewall"]),
    ],
)
def test_an_open_firewall_is_something_to_fix(outcomes, firewall, watch, expected):
    look = outcomes["spark-02"]["status"]
    look["firewall"] = firewall
    look["units"]["sparkthor-firewall-watch"] = {"active": watch}
    document = made(outcomes)
    assert [text.removeprefix("spark-02: ").partition(": a flush")[0] for text in texts(document)] == expected
    assert document["hosts"]["spark-02"]["firewall"] == firewall["state"]


def test_failed_units_memory_disk_and_swap(outcomes):
    facts = outcomes["spark-02"]["status"]
    facts["units"]["sparkthor-ray"].update(active="failed", result="exit-code")
    facts["memory"].update(available=status.GIB, total=100 * status.GIB, swap_used=3 * status.GIB)
    facts["disk"] = {"total": 1000 * status.GIB, "free": status.GIB}
    assert texts(made(outcomes)) == [
        "spark-02: sparkthor-ray is failed (running), result exit-code, 0 restarts",
        "spark-02: only 1.0 GiB of memory are left",
        "spark-02: disk nearly full: 1.0 GiB left",
        "spark-02: 3.0 GiB are swapped out",
    ]


def test_a_front_proxy_that_systemd_starts_again_and_again_is_something_to_fix(outcomes):
    front = outcomes["spark-01"]["status"]["units"]["sparkthor-front"]
    front.update(active="activating", sub="auto-restart", result="exit-code", restarts=1)
    document = made(outcomes)
    told = "sparkthor-front is activating (auto-restart), result exit-code, 1 restarts"
    assert texts(document) == [f"spark-01: {told}"]
    assert not document["ok"]
    assert document["problems"][0]["fix"] == "journalctl -u sparkthor-front -n 50"


def test_a_group_in_maintenance_misses_no_unit_on_any_of_its_hosts(outcomes):
    rank = outcomes["spark-02"]["status"]["units"]
    rank["sparkthor-vllm"] = {**rank["sparkthor-ray"], "active": "activating", "sub": "start-pre", "restarts": 9}
    assert texts(made(outcomes)) == ["spark-02: sparkthor-vllm is activating (start-pre), result success, 9 restarts"]
    outcomes["spark-01"]["status"]["serving"]["maintenance"] = "stopped by playbooks/stop.yml"
    assert texts(made(outcomes)) == []


@pytest.mark.parametrize("topology", ["switch", "ring", "lan"])
def test_a_host_known_by_name_that_is_down_leaves_the_others_their_plan(outcomes, topology):
    hostvars = variables(topology)
    for host in HOSTS:
        hostvars[host]["ansible_host"] = f"{host}.example.net"
    outcomes["spark-03"] = {"unreachable": True, "msg": "ssh: connect to host spark-03.example.net: No route to host"}
    document = made(outcomes, topology, hostvars)
    assert not [text for text in texts(document) if text.startswith("inventory")]
    assert document["hosts"]["spark-03"]["management"] == "spark-03.example.net"
    facts_by_host = {host: outcome["status"] for host, outcome in outcomes.items() if outcome.get("status")}
    _cluster, fabric, nodes, error = status.plan(GROUPS, HOSTS, hostvars, facts_by_host)
    assert (error, list(fabric)) == ("", HOSTS)
    assert nodes["spark-03"]["management"]["cidr"] == "10.110.1.254/24"


def test_the_endpoint_is_the_one_that_answers(outcomes):
    for tls, scheme in ((False, "http"), (True, "https")):
        outcomes["spark-01"]["status"]["serving"].update(tls=tls, certificate="AB:CD" if tls else "", page=True)
        document = made(outcomes)
        assert document["serving"]["endpoint"] == f"{scheme}://10.110.1.11:8000/v1"
        assert document["serving"]["page"] == f"{scheme}://10.110.1.11:8000/console/"
        assert ("SHA-256 AB:CD" in screen.render(document)) is tls


def test_what_the_head_keeps_of_doctor_and_drift_is_a_line_each(outcomes):
    facts = outcomes["spark-01"]["status"]
    taken = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(facts["time"] - 7300))
    doctor = {"taken": taken, "errors": 1, "warnings": 2, "findings": []}
    facts["serving"]["checks"] = {"doctor": doctor, "drift": {"taken": taken, "count": 0, "lines": []}}
    document = made(outcomes)
    lines = screen.render(document).splitlines()
    assert "  doctor.yml 2 h ago: 1 error, 2 warnings" in lines
    assert "  drift.yml 2 h ago: as the plan wants it" in lines
    assert document["serving"]["checks"]["doctor"] == doctor
    assert "<p>doctor.yml 2 h ago: 1 error, 2 warnings</p>" in page.page(document, [], None, None)


def on_another_nic(outcomes, topology):
    """Peers meet on eth9, ssh comes in elsewhere."""
    for host, outcome in outcomes.items():
        address = {"address": f"10.9.0.{HOSTS.index(host) + 1}/24", "family": "inet", "scope": "global"}
        port = {"name": "eth9", "addresses": [address], "up": True, "carrier": True, "mtu": 1500}
        outcome["status"]["node"]["interfaces"].append(port)
    return {host: {**values, "fabric_lan_nic": "eth9"} for host, values in variables(topology).items()}


@pytest.mark.parametrize("topology", ["lan", "ring"])
def test_one_host_without_the_nic_of_the_lan_leaves_the_others_their_plan(outcomes, topology):
    hostvars = on_another_nic(outcomes, topology)
    for host in (None, "spark-03"):
        if host:
            outcomes[host] = {"unreachable": True, "msg": "ssh: connect to host 10.110.1.13: No route to host"}
        document = made(outcomes, topology, hostvars)
        assert not [text for text in texts(document) if text.startswith("inventory")]
        assert document["hosts"]["spark-02"]["control_address"] == "10.9.0.2"
    change(outcomes, "spark-02", "eth9", addresses=[])
    document = made(outcomes, topology, hostvars)
    assert not [text for text in texts(document) if text.startswith("inventory")]
    lost = "spark-02: fabric_lan_nic of host spark-02 is eth9, which has no IPv4 address there"
    assert lost in texts(document)
    assert document["cluster"]["head_address"] == "10.9.0.1"
    assert document["hosts"]["spark-02"]["management"] == "10.110.1.12"


@pytest.mark.parametrize(("topology", "shown"), [("lan", ""), ("switch", "10.100.0.1")])
def test_an_address_that_was_made_up_is_not_shown(outcomes, topology, shown):
    hostvars = variables(topology)
    hostvars["spark-01"]["ansible_host"] = "spark-01.example.net"
    assert made(outcomes, topology, hostvars)["cluster"]["head_address"]
    outcomes["spark-01"] = {"unreachable": True, "msg": "ssh: No route to host"}
    document = made(outcomes, topology, hostvars)
    assert document["hosts"]["spark-01"]["control_address"] == shown
    assert document["cluster"]["head_address"] == shown


def test_an_address_that_a_host_lost_is_not_replaced_by_one_that_was_made_up(outcomes):
    hostvars = on_another_nic(outcomes, "lan")
    change(outcomes, "spark-01", "eth9", addresses=[])
    document = made(outcomes, "lan", hostvars)
    assert (document["hosts"]["spark-01"]["control_address"], document["cluster"]["head_address"]) == ("", "")


def grouped(outcomes):
    """The same hosts as two serving groups."""
    groups = {**GROUPS, "ray_head": [HOSTS[0], HOSTS[2]], "ray_workers": [HOSTS[1]]}
    groups |= {"pair": HOSTS[:2], "single": HOSTS[2:]}
    hostvars = {host: {**own, "serving_groups": ["pair", "single"]} for host, own in variables().items()}
    return status.document(groups, hostvars, outcomes, NOW)


def test_every_serving_group_is_told_by_its_own_head(outcomes):
    outcomes[HOSTS[2]]["status"]["serving"]["model"] = "other"
    document = grouped(outcomes)
    assert [(name, one["head"], one["hosts"]) for name, one in document["groups"].items()] == [
        ("pair", HOSTS[0], HOSTS[:2]),
        ("single", HOSTS[2], HOSTS[2:]),
    ]
    # the first group serves, the other one does not: the cluster is not well, and the line names its head
    assert document["groups"]["pair"]["serving"]["state"] == "serving"
    assert document["ok"] is False
    assert any(text.startswith(f"{HOSTS[2]}: not serving") for text in texts(document))
    assert [document["hosts"][host]["role"] for host in HOSTS] == ["head", "worker", "head"]
    text = screen.render(document)
    assert "pair: switch, 2 hosts, head spark-01: SERVING" in text
    assert "single: switch, 1 hosts, head spark-03: UNKNOWN" in text


def test_groups_with_different_engines_differ_in_nothing(outcomes):
    outcomes[HOSTS[2]]["status"]["versions"] = {"sglang": "0.5.23"}
    assert grouped(outcomes)["differences"] == {}
    outcomes[HOSTS[1]]["status"]["versions"]["vllm"] = "0.31.0"
    assert grouped(outcomes)["differences"] == {"vllm": {HOSTS[0]: "0.32.0", HOSTS[1]: "0.31.0"}}


def test_one_group_without_a_name_is_no_list_of_groups(outcomes):
    assert "groups" not in made(outcomes)


def test_the_host_that_has_the_virtual_address_is_shown(outcomes):
    own = {host: {**given, "vllm_serve_virtual_address": "192.168.77.100/24"} for host, given in variables().items()}

    def seen():
        document = status.document(GROUPS, own, outcomes, NOW)
        texts = [item["text"] for item in document["problems"] if "virtual" in item["text"]]
        return document["virtual"]["holders"], texts, screen.render(document)

    holders, texts, text = seen()
    assert (holders, texts) == ([], ["no head has the virtual address 192.168.77.100"])
    assert "virtual address 192.168.77.100: on no host" in text
    item = {"address": "192.168.77.100/24", "family": "inet", "scope": "global"}
    for number, host in enumerate(HOSTS[:2]):
        outcomes[host]["status"]["node"]["interfaces"][0]["addresses"].append(item)
        holders, texts, text = seen()
        assert holders == HOSTS[: number + 1]
    assert f"virtual address 192.168.77.100: {HOSTS[0]} and {HOSTS[1]}\n" in text
    assert "do not hear each other" in texts[0]
    # a head that did not answer may be the one
    outcomes[HOSTS[1]]["status"]["node"]["interfaces"][0]["addresses"].pop()
    del outcomes[HOSTS[0]]["status"]
    assert seen()[:2] == ([], [])
    assert "virtual" not in made(outcomes)


def test_a_group_beside_another_is_told_by_the_same_head(outcomes):
    facts = outcomes[HOSTS[0]]["status"]
    own = {**facts["serving"], "model": "embed", "executor": "mp", "state": {}, "options": {}}
    facts["serving"]["beside"] = {"embed": own}
    facts["units"]["sparkthor-vllm-embed"] = {**facts["units"]["sparkthor-vllm"], "active": "activating"}
    document = grouped(outcomes)
    assert list(document["groups"]) == ["pair", "embed", "single"]
    embed = document["groups"]["embed"]
    assert (embed["head"], embed["hosts"], embed["ray"]["state"]) == (HOSTS[0], HOSTS[:1], "absent")
    assert (embed["serving"]["model"], embed["serving"]["unit"]) == ("embed", "activating")
    assert any(
        text.startswith(f"{HOSTS[0]}: group embed: not serving: no watchdog reports") for text in texts(document)
    )
    assert "embed: switch, 1 hosts, head spark-01: UNKNOWN" in screen.render(document)


def test_the_split_that_sglang_serves_is_told(outcomes):
    facts = copy.deepcopy(next(one["status"] for one in outcomes.values() if one["status"]["serving"]["model"]))
    facts["serving"]["options"] = {"model-path": "/m", "context-length": "4096", "tp-size": "2", "pp-size": "3"}
    told = status.serving_status("a", facts, 8000)
    assert (told["tensor_parallel"], told["pipeline_parallel"], told["max_model_len"]) == (2, 3, "4096")
    assert told["options"] == facts["serving"]["options"]
