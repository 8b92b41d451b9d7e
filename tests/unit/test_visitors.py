# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a new kind of address, serving group, name or model has to visit.

Older code does not know a later feature: so every kind is listed here with each visitor and its answer. Whoever adds a
kind adds a row, and whoever adds a visitor adds a column; a cell that is missing fails.
"""

from __future__ import annotations

import copy
import fnmatch
import json
import re
import shlex
import struct
from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.sparkthor.cluster.plugins.module_utils._facts import evidence
from ansible_collections.sparkthor.cluster.plugins.module_utils._facts import node as node_facts
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.checkpoint import INDEXES, read_model_folder
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import (
    netplan_generator,
    netplan_inspect,
    netplan_live,
    netplan_others,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import netplan_job as job
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines.registry import DEFAULT
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.places import BESIDE, ETC, Places
from ansible_collections.sparkthor.cluster.plugins.module_utils._serving import kept
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import hub, hub_card, models, push
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._discovery.proposal import Machine, once
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import groups
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import (
    changes,
    door,
    front,
    host_name,
    outlook,
    recipe_export,
    recipe_fields,
    serving,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.cluster import shared_nic
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.teardown import TeardownSettings, plan_teardown
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_plan import resolve
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight import network_check
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import usage

from tests.unit import role_state
from tests.unit.netplan import GLOBAL, LINK, files, live_link
from tests.unit.plugins.plugin_utils._plan import conftest, vllm_plan
from tests.unit.plugins.plugin_utils._plan.minimal_recipe import MINIMAL

MANAGEMENT, VIRTUAL, FABRIC, STRANGER = "10.83.0.11/24", "10.83.0.100/24", LINK["address"], "10.83.0.77/24"
#: kinds of address on a host: whether it is the host's own, so that it has to be there and stay
ADDRESSES = {"management": MANAGEMENT, "fabric": FABRIC, "virtual": VIRTUAL, "stranger": STRANGER}
NIC = {"management": "enP7s7", "fabric": LINK["netdev"], "virtual": "enP7s7", "stranger": "enP7s7"}


def a_change_stops_at_it(kind: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Preflight's probe, the role's change, its comparison, drift and teardown all ask ``inspect``."""
    generated = files("1.1.2", "networkd", "planned")
    monkeypatch.setattr(netplan_generator, "source_files", dict)
    monkeypatch.setattr(netplan_generator, "generate", lambda given, generator="": generated if given else {})
    monkeypatch.setattr(netplan_others, "static_settings", lambda: {"/etc/systemd/network/1.network": MANAGED})
    monkeypatch.setattr(job, "generated_files", lambda root="": generated)
    live = {"enP7s7": live_link({MANAGEMENT: GLOBAL}), LINK["netdev"]: live_link({FABRIC: GLOBAL})}
    live[NIC[kind]]["addresses"][ADDRESSES[kind]] = GLOBAL
    monkeypatch.setattr(job, "live_links", lambda: live)
    found = netplan_inspect.inspect("/etc/netplan/40-cx7.yaml", [LINK], floating=[VIRTUAL])["findings"]
    return "runtime_address" in {item.id for item in found}


MANAGED = f"[Match]\nName=enP7s7\n[Network]\nAddress={MANAGEMENT}\n"


def a_rollback_misses_it(kind: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Also what a confirmation takes for the loss of the way in."""
    from ansible_collections.sparkthor.cluster.plugins.module_utils._network import netplan_change

    address, nic = ADDRESSES[kind], NIC[kind]
    recorded = netplan_change._lasting({nic: live_link({address: GLOBAL})}, ["10.83.0.100"])
    return bool(netplan_live.missing_addresses(recorded, {nic: live_link()}, nic))


def a_rollback_removes_it(kind: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Where it came to a NIC of ours while the change was armed."""
    plan = {"live": {"fab0": live_link()}, "floating": ["10.83.0.100"]}
    return bool(netplan_live.strange_addresses(plan, "fab0", {"fab0": live_link({ADDRESSES[kind]: GLOBAL})}))


def discovery_proposes_it(kind: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    bare = ADDRESSES[kind].partition("/")[0]
    facts = {
        "boot_id": "b",
        "kind": "spark",
        "declared": {"virtual": "10.83.0.100"},
        "management": {"netdev": "enP7s7"},
    }
    found, _notes = once([Machine(bare, copy.deepcopy(facts)), Machine("10.83.0.12", copy.deepcopy(facts))])
    return found[0].address == bare


def a_lan_takes_it_for_the_hosts(kind: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    addresses = [{"address": one, "family": "inet", "scope": "global"} for one in (ADDRESSES[kind], "10.83.0.12/24")]
    node = {
        "management": {"netdev": "eth0", "cidr": "10.0.0.1/24"},
        "interfaces": [{"name": "eth9", "addresses": addresses}],
        "declared": {"virtual": "10.83.0.100"},
    }
    return shared_nic("a", {"fabric_lan_nic": "eth9"}, node)[1] == ADDRESSES[kind]


def facts_take_it_for_the_way_in(kind: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    addresses = [{"address": one, "family": "inet"} for one in (ADDRESSES[kind], "10.83.0.12/24")]
    routes = [{"dst": "default", "dev": "eth0"}]
    found = node_facts.management_of("", [{"name": "eth0", "addresses": addresses}], routes, "10.83.0.100")
    return found["cidr"] == ADDRESSES[kind]


def preflight_tells_of_it(kind: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    addresses = [{"address": one, "scope": "global"} for one in dict.fromkeys((MANAGEMENT, ADDRESSES[kind]))]
    node = {"interfaces": [{"name": "enP7s7", "addresses": addresses}], "declared": {"virtual": "10.83.0.100"}}
    entry = {"control_netdev": "enP7s7", "control_address": "10.83.0.11"}
    return bool(network_check.second_address_problems("a", entry, node))


#: visitor → its answer by kind of address
ADDRESS_VISITORS: dict[Callable[[str, pytest.MonkeyPatch], bool], dict[str, bool]] = {
    a_change_stops_at_it: {"management": False, "fabric": False, "virtual": False, "stranger": True},
    a_rollback_misses_it: {"management": True, "fabric": True, "virtual": False, "stranger": True},
    a_rollback_removes_it: {"management": True, "fabric": True, "virtual": False, "stranger": True},
    discovery_proposes_it: {"management": True, "fabric": True, "virtual": False, "stranger": True},
    a_lan_takes_it_for_the_hosts: {"management": True, "fabric": True, "virtual": False, "stranger": True},
    preflight_tells_of_it: {"management": False, "fabric": False, "virtual": False, "stranger": True},
    facts_take_it_for_the_way_in: {"management": True, "fabric": True, "virtual": False, "stranger": True},
}


@pytest.mark.parametrize("kind", ADDRESSES)
@pytest.mark.parametrize("visitor", ADDRESS_VISITORS, ids=lambda visitor: visitor.__name__)
def test_every_visitor_has_an_answer_to_every_kind_of_address(
    visitor: Callable[[str, pytest.MonkeyPatch], bool], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert visitor(kind, monkeypatch) is ADDRESS_VISITORS[visitor][kind]


#: kinds of serving group on a host
GROUPS = {"own": Places(), "beside": Places("small")}


def taken_back() -> dict[str, list[Any]]:
    """By a teardown of serving, with one small group beside the host's own."""
    settings = TeardownSettings(teardown_parts="serving", serving_beside={"small": {}})
    known = plan_teardown(settings, True)["serving"]
    tasks = yaml.safe_load((role_state.ROLES / "vllm_serve/tasks/teardown.yml").read_text(encoding="utf-8"))
    states = [
        *role_state.undone_runs("vllm_serve", __vllm_serve_groups=known),
        tasks[-1]["sparkthor.cluster.host_state"],
    ]
    return {name: [item for state in states for item in state.get(name, ())] for name in ("absent", "restore", "units")}


def a_teardown_takes_its_units(group: Places, _root: Path) -> bool:
    taken = taken_back()
    files = {f"/etc/systemd/system/{unit}" for unit in (group.unit, group.watchdog)}
    return {group.unit, group.watchdog} <= {unit["name"] for unit in taken["units"]} and files <= set(taken["restore"])


def a_teardown_takes_its_settings(group: Places, _root: Path) -> bool:
    taken = taken_back()
    gone = {str(item) for item in (*taken["absent"], *taken["restore"])}
    paths = (group.config, f"{group.etc}/{DEFAULT.config}", group.environment)
    return all(path in gone or (f"{ETC}/{BESIDE}" in gone and path.startswith(f"{ETC}/{BESIDE}/")) for path in paths)


def evidence_asks_for_its_units(group: Places, root: Path) -> bool:
    asked = {*evidence.UNITS, *node_facts.units_beside(str(root))}
    return {group.unit, group.watchdog} <= asked


def a_rollback_brings_its_command_back(group: Places, _root: Path) -> bool:
    return group == Places() or fnmatch.fnmatchcase(f"{group.etc}/{DEFAULT.config}", kept.BESIDE)


GROUP_VISITORS = (
    a_teardown_takes_its_units,
    a_teardown_takes_its_settings,
    evidence_asks_for_its_units,
    a_rollback_brings_its_command_back,
)


@pytest.mark.parametrize("kind", GROUPS)
@pytest.mark.parametrize("visitor", GROUP_VISITORS, ids=lambda visitor: visitor.__name__)
def test_every_visitor_knows_every_kind_of_group(
    visitor: Callable[[Places, Path], bool], kind: str, tmp_path: Path
) -> None:
    (tmp_path / ETC.lstrip("/") / BESIDE / "small").mkdir(parents=True)
    assert visitor(GROUPS[kind], tmp_path)


#: ways to name what is served: ``vllm_serve_served_model_name``, and under which names clients ask for it
NAMED: dict[str, tuple[Any, list[str]]] = {
    "one": ("alpha", ["alpha"]),
    "list": (["alpha", "beta"], ["alpha", "beta"]),
    "list_of_one": (["alpha"], ["alpha"]),
    "none": (None, ["tiny"]),
}


def head_variables() -> dict[str, Any]:
    found: dict[str, Any] = conftest.variables.__wrapped__()  # the fixture of the planners' tests
    return found


def files_of_a_head(named: Any) -> dict[str, str]:
    """Of one that serves a model by these names, and a smaller one while a host is away."""
    smaller = {"max_model_len": 64, "tensor_parallel": 2, "pipeline_parallel": 1, "hosts": 1, "args": {}}
    planned = {"model": "tiny", "models": [{"name": "tiny"}], "served_model_name": named}
    given = vllm_plan.with_serving(head_variables(), **planned, degraded={**smaller, **planned})
    return vllm_plan.files(vllm_plan.plan(given, vllm_serve_degraded_after="300"))


def _served(named: Any, config: str) -> list[str]:
    given = yaml.safe_load(files_of_a_head(named)[f"{ETC}/{config}.yaml"])["served-model-name"]
    return [given] if isinstance(given, str) else list(given)


def vllm_serves_them(named: Any) -> list[str]:
    return _served(named, "vllm")


def vllm_serves_them_while_a_host_is_away(named: Any) -> list[str]:
    return _served(named, "vllm-degraded")


def doors_and_limited_keys_know_them(named: Any) -> list[str]:
    cluster = {"group": "g", "head": "a", "hosts": ["a"], "serving": {"model": "tiny", "served_model_name": named}}
    names = groups.offer(cluster, None).names
    keys = [front.NamedKey(name, "k" * 32, models=(name,)) for name in names]
    assert all(re.search(wanted, door.words(names)) for wanted in door.limited_keys(keys).values())
    return list(names)


def a_run_ends_with_them(named: Any) -> list[str]:
    api = usage.Api("http://h/v1", groups.names_of(named, "tiny"), "/key", "off")
    [called] = [line for line in usage.lines(api) if "the model is called" in line]
    return called.partition("the model is called ")[2].rstrip(".").split(" or ")


def _flagged(words: Sequence[str]) -> list[str]:
    behind = words[words.index("--served-model-name") + 1 :] if "--served-model-name" in words else ["tiny"]
    return list(takewhile(lambda word: not word.startswith("--"), behind))


def an_exported_recipe_has_them(named: Any) -> list[str]:
    data = recipe_fields.validated({**MINIMAL, "model": "org/tiny", "served_model_name": named or ""}, "n")
    return _flagged(shlex.split(yaml.safe_load(recipe_export.sparkrun(data, "image"))["command"]))


def the_command_for_people_has_them(named: Any) -> list[str]:
    data = {**MINIMAL, "model": "org/tiny", "served_model_name": named or ""}
    return _flagged(resolve(data, ["a"], topology="lan")["command"])


NAME_VISITORS = (
    vllm_serves_them,
    vllm_serves_them_while_a_host_is_away,
    doors_and_limited_keys_know_them,
    a_run_ends_with_them,
    an_exported_recipe_has_them,
    the_command_for_people_has_them,
)


@pytest.mark.parametrize("kind", NAMED)
@pytest.mark.parametrize("visitor", NAME_VISITORS, ids=lambda visitor: visitor.__name__)
def test_every_visitor_knows_a_model_by_all_its_names(visitor: Callable[[Any], list[str]], kind: str) -> None:
    named, names = NAMED[kind]
    assert visitor(named) == names


@pytest.mark.parametrize("kind", NAMED)
def test_who_asks_by_one_name_takes_the_first(kind: str) -> None:
    """The watchdog's probes, the line of the plan, and what a run says of other groups."""
    named, names = NAMED[kind]
    watched = json.loads(files_of_a_head(named)[f"{ETC}/serving.json"])
    assert (watched["model"], watched["degraded"]["model"]) == (names[0], names[0])
    planned = {"served_model_name": named, "model": "tiny", "tensor_parallel": 1, "pipeline_parallel": 2}
    assert outlook.line(planned).startswith(f"{names[0]} on 2 GPUs")
    [others] = usage.other_models([{"group": "g", "names": names, "head": "h"}], "own")
    assert others.startswith(f"The same API serves {names[0]} (by g on h)")


#: what a machine is called: its name in the inventory then and now, its own name (hostnamectl) then and now, whether it
#: is the same machine
CALLED = {
    "as_before": ("spark1", "spark1", "one", "one", True),
    "renamed_in_the_inventory": ("spark1", "alpha", "one", "one", True),
    "renamed_by_hand": ("spark1", "spark1", "one", "two", True),
    "renamed_twice": ("spark1", "alpha", "one", "two", True),
    "another_under_its_name": ("spark1", "spark1", "one", "one", False),
    "another_under_a_new_name": ("spark1", "alpha", "one", "one", False),
}


def announcements(kind: str) -> list[str]:
    then, now, _was, _is, same = CALLED[kind]
    declared = {"cluster": "id", "generation": 3, "host": then, "head": then, "hosts": [then, "other"]}
    declared |= {"machines": {then: "M1", "other": "M2"}, "topology": "direct"}
    mine: dict[str, Any] = {"machine": "M1", "declared": declared} if same else {"machine": "M3"}
    nodes = {now: mine, "other": {"machine": "M2", "declared": {**declared, "host": "other"}}}
    cluster = {"hosts": [now, "other"], "head": now, "topology": "direct", "id": "id"}
    return changes.announced(cluster, {now: {}, "other": {}}, nodes)


def it_is_said_to_leave(kind: str) -> bool:
    return any("leaves the cluster" in line for line in announcements(kind))


def it_is_said_to_stay(kind: str) -> bool:
    return any("it stays" in line for line in announcements(kind))


def it_is_said_to_be_new(kind: str) -> bool:
    return any("is added" in line or "another machine" in line for line in announcements(kind))


def the_way_back_is_open(kind: str) -> bool:
    """To a configuration that the cluster served with before."""
    then, now, _was, _is, same = CALLED[kind]
    about = {"hosts": sorted([then, "other"]), "machines": {then: "M1", "other": "M2"}}
    return kept._by_the_same(about, [now, "other"], {now: "M1" if same else "M3", "other": "M2"})


def its_own_name_is_told(kind: str) -> bool:
    """By status, doctor and drift."""
    _then, _now, was, now, _same = CALLED[kind]
    return bool(host_name.told({"hostname": now, "declared": {"hostname": was}}))


#: visitor -> the kinds to which it says yes
CALLED_VISITORS: dict[Callable[[str], bool], set[str]] = {
    it_is_said_to_leave: {"another_under_a_new_name"},
    it_is_said_to_stay: {"renamed_in_the_inventory", "renamed_twice"},
    it_is_said_to_be_new: {"another_under_its_name", "another_under_a_new_name"},
    the_way_back_is_open: set(CALLED) - {"another_under_a_new_name"},
    its_own_name_is_told: {"renamed_by_hand", "renamed_twice"},
}


@pytest.mark.parametrize("kind", CALLED)
@pytest.mark.parametrize("visitor", CALLED_VISITORS, ids=lambda visitor: visitor.__name__)
def test_every_visitor_knows_a_machine_under_all_its_names(visitor: Callable[[str], bool], kind: str) -> None:
    assert visitor(kind) is (kind in CALLED_VISITORS[visitor])


#: how ``vllm_serve_model`` may name a model; ``~`` is the folder below
MODELS = ("org/tiny", "tiny", "/srv/tiny", "~/tiny", "org/tiny:Q4_K_M", "/srv/tiny.gguf", "a/b/tiny")


def it_may_be_served(name: str) -> bool:
    """Named by the inventory: a recipe may name no folder of the controller."""
    try:
        resolve({**MINIMAL, "model": "org/other"}, ["a"], topology="lan", overrides={"model": name})
    except recipe_fields.RecipeError:
        return False
    return True


def the_hub_is_asked_for_it(name: str) -> bool:
    return serving._asked(lambda _repo, _revision: ({}, 1), {"model": name}, {}) is not None


def hosts_get_it_from_the_controller(name: str) -> bool:
    return bool(serving.stored({"model": name, "revision": ""})[1])


def its_size_is_read_on_the_controller(name: str) -> bool:
    return bool(serving.model_on_controller({"model": name}, {}, "/")[1])


def a_name_means_the_same_at_any_time(name: str) -> bool:
    return all(models.fixed(one) for one in serving.stored({"model": name, "revision": ""})[1])


#: visitor -> what it says yes to; who is refused before is not asked
MODEL_VISITORS: dict[Callable[[str], bool], set[str]] = {
    it_may_be_served: {"org/tiny", "tiny", "/srv/tiny", "~/tiny"},
    the_hub_is_asked_for_it: {"org/tiny"},
    hosts_get_it_from_the_controller: {"org/tiny", "~/tiny"},
    its_size_is_read_on_the_controller: {"~/tiny"},
    a_name_means_the_same_at_any_time: {"tiny", "/srv/tiny", "~/tiny"},
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("visitor", MODEL_VISITORS, ids=lambda visitor: visitor.__name__)
def test_every_visitor_knows_every_way_to_name_a_model(
    visitor: Callable[[str], bool], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write_model(tmp_path / "tiny", FORMATS["one_file"][0])
    if visitor is it_may_be_served or it_may_be_served(name):
        assert visitor(name) is (name in MODEL_VISITORS[visitor])
    assert groups.names_of(None, "org/tiny") == groups.names_of(None, "~/tiny") == ("tiny",)


_NUMBERED = ("-00001-of-00002.safetensors", "-00002-of-00002.safetensors")
#: a model's files beside its README: which of them are its weights for vLLM and for the plan, or how it is refused
FORMATS: dict[str, tuple[tuple[str, ...], set[str] | str]] = {
    "one_file": (("config.json", "model.safetensors"), {"model.safetensors"}),
    "several": (
        ("config.json", *(f"model{end}" for end in _NUMBERED), INDEXES[0]),
        {f"model{end}" for end in _NUMBERED},
    ),
    "mistral": (("config.json", "params.json", "consolidated.safetensors"), {"consolidated.safetensors"}),
    "mistral_in_several": (
        ("config.json", "params.json", *(f"consolidated{end}" for end in _NUMBERED), INDEXES[1]),
        {f"consolidated{end}" for end in _NUMBERED},
    ),
    "both": (("config.json", "model.safetensors", "consolidated.safetensors"), {"model.safetensors"}),
    "with_others": (("config.json", "model.safetensors", "tiny.gguf", "pytorch_model.bin"), {"model.safetensors"}),
    "mistral_without_config": (("params.json", "consolidated.safetensors"), "no config.json: vLLM reads Mistral's own"),
    "gguf": (("tiny-Q4.gguf",), r"no config.json.*\.gguf.*in safetensors"),
    "gguf_with_config": (("config.json", "tiny-Q4.gguf"), r"no safetensors.*\.gguf.*in safetensors"),
    "bin": (("config.json", "pytorch_model.bin"), r"no safetensors.*\.bin.*in safetensors"),
    "pth_alone": (("consolidated.00.pth",), r"no config.json.*\.pth.*in safetensors"),
}


def write_model(folder: Path, names: Sequence[str]) -> None:
    """Each file of weights has one tensor, of eight bytes."""
    folder.mkdir(exist_ok=True)
    weights = [name for name in names if name.endswith(".safetensors")]
    header = json.dumps({"x": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]}}).encode()
    for name in ("README.md", *names):
        text = {"weight_map": {f"x{number}": one for number, one in enumerate(weights)}} if name in INDEXES else {}
        (folder / name).write_text(json.dumps(text))
    for number, name in enumerate(weights):
        own = header.replace(b'"x"', f'"x{number}"'.encode())
        (folder / name).write_bytes(struct.pack("<Q", len(own)) + own + bytes(8))


def weights_of_a_folder(folder: Path, _monkeypatch: pytest.MonkeyPatch) -> int:
    return sum(read_model_folder(str(folder))[1].values()) // 8


def weights_on_the_hub(folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Told by the hub before anything is fetched; a file of weights counts eight bytes here."""
    listed = [hub.Listed(path.name, 8, "b") for path in folder.iterdir()]
    monkeypatch.setattr(hub, "listing", lambda *_words, **_options: ("c" * 40, listed))
    monkeypatch.setattr(hub_card, "_small_files", lambda *_words: str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    return hub_card.card("org/tiny", "", client=object()).weights // 8


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("visitor", [weights_of_a_folder, weights_on_the_hub], ids=lambda visitor: visitor.__name__)
def test_every_visitor_counts_every_format_or_refuses_it(
    visitor: Callable[[Path, pytest.MonkeyPatch], int], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, wanted = FORMATS[kind]
    write_model(tmp_path / "tiny", names)
    if isinstance(wanted, str):
        with pytest.raises((SizingError, hub.HubError), match=wanted):
            visitor(tmp_path / "tiny", monkeypatch)
    else:
        assert visitor(tmp_path / "tiny", monkeypatch) == len(wanted)


@pytest.mark.parametrize("kind", [kind for kind, (_names, wanted) in FORMATS.items() if not isinstance(wanted, str)])
def test_what_is_counted_is_what_hosts_get(kind: str, tmp_path: Path) -> None:
    names, wanted = FORMATS[kind]
    assert isinstance(wanted, set)
    assert {name for name in hub.wanted(names) if not name.endswith(".json")} == wanted
    write_model(tmp_path / "tiny", names)
    # of a folder all is taken: its owner made it as it is
    assert {*names, "README.md"} == set(push.folder_files(str(tmp_path / "tiny"), "tiny"))
