# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values that people write: each is refused before a host is contacted, with variable, value and fix, or is used.

Through preflight's own first stage, as site.yml calls it; what is used is read as the roles' planners read it.
"""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.action.cluster_plan import ActionModule
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import inventory
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.role_specs import Declared, of_collection
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.patience import PatienceError, plan_patience
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight import forms, values

SOUND = {"fabric_topology": "switch", "fabric_cidr": "10.100.0.0/24"}
KEY = "a-key-of-more-than-16"


def preflight(name: str = "b", **variables: Any) -> None:
    """The first stage for two hosts; the variables are the second one's as well, as of group_vars."""
    task = SimpleNamespace(
        args={"stage": "inventory"}, check_mode=False, diff=False, async_val=0, action="cluster_plan"
    )
    connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir=None))
    groups = {"cluster": ["a", name], "ray_head": ["a"], "ray_workers": [name]}
    hostvars = {host: {**SOUND, **variables} for host in ("a", name)}
    hostvars["a"]["ansible_host"], hostvars[name]["ansible_host"] = "192.168.1.11", "192.168.1.12"
    task_vars = {"groups": groups, "hostvars": hostvars, "ansible_play_hosts_all": ["a", name], "ansible_forks": 5}
    ActionModule(task, connection, SimpleNamespace(), None, None, None).run(task_vars=task_vars)


REFUSED: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    # of another type
    ({"vllm_serve_api_port": "http"}, ("vllm_serve_api_port", "http")),
    ({"vllm_serve_api_port": True}, ("vllm_serve_api_port", "True", "give one")),
    ({"vllm_serve_api_port": None}, ("vllm_serve_api_port", "empty (null)", "remove the line")),
    ({"firewall_tcp_ports": None}, ("firewall_tcp_ports", "empty (null)")),
    ({"engine_vllm_version": 0.20}, ("engine_vllm_version", "0.2", "put it in quotes")),
    ({"engine_image_archive": False}, ("engine_image_archive", "False", "put it in quotes")),
    ({"model_store_root": ["/srv/models"]}, ("model_store_root", "list", "give a text")),
    ({"vllm_serve_front_package_manage": "perhaps"}, ("vllm_serve_front_package_manage", "perhaps")),
    ({"vllm_serve_tls": "yes"}, ("vllm_serve_tls", "yes", "self_signed")),
    ({"vllm_serve_max_model_len": 8192.5}, ("vllm_serve_max_model_len", "8192.5")),
    ({"ray_node_ports": {"gcs": "gcs"}}, ("gcs", "int")),
    ({"ray_node_ports": {"gsc": 6379}}, ("gsc", "gcs")),
    ({"model_store_models": [{"name": "m"}]}, ("model_store_models", "source")),
    # no such variable
    ({"vllm_serve_tensor_paralel_size": 2}, ("did you mean 'vllm_serve_tensor_parallel_size'?",)),
    ({"fabric_mtuu": 9000}, ("did you mean 'fabric_mtu'?",)),
    # out of bounds
    ({"vllm_serve_api_port": 80000}, ("vllm_serve_api_port: 80000", "from 1 to 65535")),
    ({"firewall_ssh_ports": [22, 0]}, ("firewall_ssh_ports", "0 is not a port")),
    ({"firewall_ssh_ports": []}, ("firewall_ssh_ports", "name at least one port")),
    ({"firewall_rollback_timeout": 5}, ("firewall_rollback_timeout: 5", "from 10 to 600")),
    ({"roce_network_rollback_timeout": "5"}, ("roce_network_rollback_timeout: 5", "from 30 to 600")),
    ({"vllm_serve_watchdog_failures": 0}, ("vllm_serve_watchdog_failures: 0", "from 1")),
    ({"os_hardening_oom_ssh": -2000}, ("os_hardening_oom_ssh: -2000", "from -1000 to 1000")),
    ({"ray_node_num_gpus": "two"}, ("ray_node_num_gpus: 'two'", "or auto")),
    ({"ray_node_num_gpus": -1}, ("ray_node_num_gpus: -1",)),
    # words of files and commands
    ({"nccl_conf_settings": {"NCCL_DEBUG": None}}, ("nccl_conf_settings", "NCCL_DEBUG is null", "nccl_conf_remove")),
    ({"nccl_conf_settings": {"NCCL_IB_DISABLE": False}}, ("NCCL_IB_DISABLE is false", "such as 1 or 0")),
    ({"nccl_conf_settings": {"NCCL_ALGO": ["Ring"]}}, ("NCCL_ALGO is a list",)),
    ({"ray_node_labels": {"rack": None}}, ("ray_node_labels", "rack is null")),
    ({"ray_node_labels": {"spare": True}}, ("ray_node_labels", "spare is true", "in quotes")),
    ({"ray_node_labels": {"rack": "a,b=c"}}, ("ray_node_labels: 'rack=a,b=c'", "no label of Ray")),
    ({"ray_node_resources": {"slot": None}}, ("ray_node_resources", "amount of slot", "without quotes")),
    ({"ray_node_resources": {"slot": "1"}}, ("ray_node_resources: '1'", "amount of slot")),
    ({"ray_node_resources": {"slot": -1}}, ("ray_node_resources: -1", "no number from 0")),
    ({"ray_node_resources": {"GPU": 1}}, ("ray_node_resources: 'GPU'", "ray_node_num_gpus")),
    ({"os_hardening_hold": True, "os_hardening_hold_packages": [""]}, ("os_hardening_hold_packages", "is empty")),
    ({"os_hardening_hold": True, "os_hardening_hold_packages": [None]}, ("os_hardening_hold_packages", "is empty")),
    ({"os_hardening_hold_packages": ["a\nPin: x"]}, ("os_hardening_hold_packages", "line break")),
    ({"vllm_serve_listen": ["10.0.0.1", " "]}, ("vllm_serve_listen", "is empty")),
    # addresses
    ({"firewall_api_sources": ["192.168.1.17/24"]}, ("firewall_api_sources", "did you mean 192.168.1.0/24?")),
    ({"firewall_sources": "office.example.com"}, ("firewall_sources", "office.example.com", "write it like")),
    ({"firewall_interfaces": ['eth0"; accept']}, ("firewall_interfaces", "eth0")),
    ({"vllm_serve_metrics_listen": "127.0.0.1:9400; autoindex on"}, ("vllm_serve_metrics_listen", "autoindex")),
    ({"monitoring_prometheus_listen": "localhost"}, ("monitoring_prometheus_listen: 'localhost'", "127.0.0.1:9090")),
    ({"monitoring_scrape_interval": "often"}, ("monitoring_scrape_interval: 'often'", "15s")),
    # folders and files
    ({"ray_node_temp_dir": "/tmp"}, ("ray_node_temp_dir: '/tmp'", "give a folder of its own")),
    ({"engine_cache_dir": "/"}, ("engine_cache_dir: '/'", "give a folder of its own")),
    ({"engine_cache_dir": "/var/lib/"}, ("engine_cache_dir: '/var/lib/'", "give a folder of its own")),
    ({"model_store_root": "models"}, ("model_store_root: 'models'", "from / on")),
    ({"model_store_root": "/srv/../etc"}, ("model_store_root", "without ..")),
    ({"model_store_root": "/srv/my models"}, ("model_store_root: '/srv/my models'", "blank")),
    ({"model_store_root": "/srv/x", "engine_cache_dir": "/srv/x/"}, ("same folder", "model_store_root")),
    ({"roce_network_netplan_path": "/etc/passwd"}, ("roce_network_netplan_path: '/etc/passwd'", "/etc/netplan/")),
    ({"vllm_serve_front_package": "nginx apache2"}, ("vllm_serve_front_package: 'nginx apache2'",)),
    ({"vllm_serve_served_model_name": "a", "vllm_serve_reasoning_parser": "x\ny"}, ("reasoning_parser", "line break")),
    ({"model_store_models": [{"name": "../up", "source": "/srv/m"}]}, ("model_store_models", "name '../up'")),
    # environments
    ({"vllm_serve_env": {"HF_TOKEN": "S3CRET-of-some-length"}}, ("vllm_serve_env", "HF_TOKEN", "vllm_serve_hf_token")),
    ({"vllm_serve_env": {"DB_PASSWORD": "S3CRET-of-some-length"}}, ("DB_PASSWORD", "DB_PASSWORD_FILE")),
    ({"engine_extra_env": {"AWS_SECRET_ACCESS_KEY": "S3CRET-of-some"}}, ("engine_extra_env", "AWS_SECRET_ACCESS_KEY")),
    ({"ray_node_env": {"RAY-X": "1"}}, ("ray_node_env", "'RAY-X'", "letters, digits and _")),
    ({"ray_node_env": {"RAY_X": "1\nRAY_Y=2"}}, ("ray_node_env", "RAY_X", "without line breaks")),
    ({"ray_node_env": {"RAY_X": "1\u2028RAY_Y=2"}}, ("ray_node_env", "RAY_X", "without line breaks")),
    ({"vllm_serve_env": {"VLLM_X": False}}, ("vllm_serve_env", "VLLM_X is false, which is no text", "or null")),
    ({"engine_extra_env": {"X": True}}, ("engine_extra_env", "X is true, which is no text", "'true'")),
    ({"nccl_conf_settings": {"nccl_debug": "INFO"}}, ("nccl_conf_settings", "nccl_debug")),
    # secrets
    ({"vllm_serve_api_key": "S3CRET with a blank"}, ("vllm_serve_api_key", "use letters, digits and")),
    ({"vllm_serve_api_key": "S3CRET"}, ("vllm_serve_api_key", "has 6 characters")),
    ({"vllm_serve_api_keys": [{"name": "me", "key": "S3CRET"}]}, ("vllm_serve_api_keys: me", "shorter than 16")),
    ({"vllm_serve_api_keys": [{"name": "default", "key": KEY}]}, ("vllm_serve_api_keys", "'default' cannot be used")),
    ({"ray_node_token": "S3CRET-Schlüssel-von-Länge"}, ("ray_node_token", "outside of ASCII")),
    ({"vllm_serve_tls": "given", "vllm_serve_tls_key": "/etc/S3CRET.pem"}, ("vllm_serve_tls_certificate", "PEM")),
]


@pytest.mark.parametrize(("variables", "words"), REFUSED, ids=[" ".join(map(str, row[1]))[:60] for row in REFUSED])
def test_refused_with_variable_value_and_fix(variables: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(AnsibleActionFail) as caught:
        preflight(**variables)
    message = str(caught.value)
    assert message.startswith("Nothing was changed: ")
    for word in words:
        assert word in message
    assert re.search(r"on a, b|hosts? a", message)
    assert "S3CRET" not in message


USED: list[tuple[str, Any, Any]] = [
    ("vllm_serve_front_package_manage", "false", False),
    ("firewall_enabled", "off", False),
    ("os_hardening_swap", "no", False),
    ("vllm_serve_tls", False, "off"),
    ("vllm_serve_tls", "off", "off"),
    ("vllm_serve_api_port", "8001", 8001),
    ("vllm_serve_watchdog_interval", " 7 ", 7),
    ("vllm_serve_front_read_timeout", 3600, "3600"),
    ("firewall_tcp_ports", "9100,9101", [9100, 9101]),
    ("firewall_ssh_sources", "192.168.1.0/24", ["192.168.1.0/24"]),
    ("nccl_conf_settings", "NCCL_DEBUG=INFO", {"NCCL_DEBUG": "INFO"}),
    ("ray_node_ports", {"gcs": "7379"}, {"gcs": 7379}),
    ("ray_node_num_gpus", "2", "2"),
    ("vllm_serve_api_key", f" {KEY}\n", f" {KEY}\n"),
    ("vllm_serve_env", {"HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}, {"HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}),
    ("engine_vllm_version", "0.20.1", "0.20.1"),
    ("vllm_serve_max_model_len", None, None),
    ("model_store_models", [{"name": "m", "source": "/srv/m"}], [{"name": "m", "source": "/srv/m"}]),
]


@pytest.mark.parametrize(("name", "given", "used"), USED, ids=[f"{row[0]}={row[1]!r}"[:60] for row in USED])
def test_used_as_preflight_read_it(name: str, given: Any, used: Any) -> None:
    preflight(**{name: given})
    read = Declared({name: given})[name]
    assert read == used
    assert type(read) is type(used)


@pytest.mark.parametrize("name", ["spark_01", "küche", "spark-01.example.com", "スパーク"])
def test_names_of_hosts_that_are_no_host_names_of_dns_are_used(name: str) -> None:
    preflight(name=name)


@pytest.mark.parametrize("name", ["a b", 'a"b', "a/b", "-a", "a\nb"])
def test_names_of_hosts_that_break_files_are_refused(name: str) -> None:
    with pytest.raises(AnsibleActionFail, match="its inventory name holds characters"):
        preflight(name=name)


def proposed() -> list[tuple[dict[str, Any], str, list[Any]]]:
    """Variables that are refused, the fix that is proposed, and the values that it names; None removes the variable."""
    found: list[tuple[dict[str, Any], str, list[Any]]] = []
    for name, (low, high) in values._BOUNDS.items():
        fix, ends = "give", [low, *([high] if high < 2**31 else [low + 30])]
        if name in values._FIXES:
            fix, ends = values._FIXES[name], [int(number) for number in re.findall(r"\d+", values._FIXES[name])]
        found.append(({name: low - 1}, fix, ends))
    for name in ("vllm_serve_tensor_parallel_size", "vllm_serve_pipeline_parallel_size"):
        found += [({name: bad}, inventory.SPLIT_FIX, [1, None]) for bad in (0, "auto", "three")]
    found.append(({"ray_node_num_gpus": "two"}, "give 0 or more, or auto", [0, 1, "auto"]))
    found.append(({"fabric_topology": "star"}, "direct, ring, line, switch, lan", ["direct", "switch", "lan"]))
    found.append(({"engine_runtime": "vm"}, "venv, container", ["venv", "container"]))
    found.append(({"vllm_serve_executor": "dask"}, "auto, ray, mp", ["auto", "ray", "mp"]))
    for name, form in forms.TEXTS.items():
        words = re.findall(r"(?:like|such as|all units read) ([^\s,]+)(?: or (\S+))?", form.fix)
        found += [({name: "\\"}, form.fix, [word for pair in words for word in pair if word])]
    return found


PROPOSED = proposed()


@pytest.mark.parametrize(
    ("variables", "fix", "accepted"),
    PROPOSED,
    ids=[f"{next(iter(row[0]))}={next(iter(row[0].values()))}" for row in PROPOSED],
)
def test_what_a_message_proposes_is_taken(variables: dict[str, Any], fix: str, accepted: list[Any]) -> None:
    with pytest.raises(AnsibleActionFail, match=re.escape(fix)):
        preflight(**variables)
    [name] = variables
    for value in accepted:
        given = {} if value is None else {name: value}
        preflight(**given)
        plan_patience(given, {}, {})


@pytest.mark.parametrize(
    ("variables", "number"),
    [
        ({"vllm_serve_watchdog_step_patience": 5}, 0),
        ({"vllm_serve_watchdog_step_patience": 10**6}, 0),
        ({"vllm_serve_watchdog_wedge_bound": 1}, 0),
        ({"vllm_serve_watchdog_wedge_bound": 1500}, 0),
        ({"vllm_serve_watchdog_interval": 500}, 1),
        ({"vllm_serve_watchdog_load_stall": 1}, 0),
    ],
)
def test_the_patience_that_a_message_proposes_is_taken(variables: dict[str, Any], number: int) -> None:
    [name] = variables
    with pytest.raises(PatienceError) as refused:
        plan_patience(variables, {}, {})
    _words, _give, fix = str(refused.value).rpartition("Give ")
    proposals = re.findall(r"\d+", fix)
    assert len(proposals) > number
    plan_patience({name: proposals[number]}, {}, {})
    if "auto" in fix:
        plan_patience({name: "auto"}, {}, {})


def test_every_variable_that_is_checked_is_one() -> None:
    checked = {*values._BOUNDS, *values._SECRETS, *values._OF_SERVING, *values.FOLDERS, *values.ENVIRONMENTS}
    checked |= {*forms.TEXTS, *forms.ITEMS, *forms.LONG, *forms.ELSEWHERE}
    assert checked - {"fabric_lan_nic"} <= set(of_collection().names)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["clock", "parity=6.17.0-1021-nvidia", "known_bad=7.0.0-1019-nvidia"], ""),
        (["clock,wifi"], ""),
        (["parity"], "preflight_accept: 'parity': it would accept any value; name what the finding shows"),
        (["known_bad="], "it would accept any value"),
        (["cabling"], "preflight_accept: 'cabling': it is no finding that can be accepted; choose of"),
        (["clok"], "it is no finding that can be accepted"),
    ],
)
def test_what_is_accepted(given: list[str], words: str) -> None:
    found = [str(finding) for finding in values.value_problems({"a": {"preflight_accept": given}})]
    assert len(found) == bool(words)
    assert words in "".join(found)


def test_words_of_files_and_commands_may_be_numbers() -> None:
    given = {
        "nccl_conf_settings": {"NCCL_DEBUG": "INFO", "NCCL_IB_TC": 106, "NCCL_TOPO_FILE": "/etc/my topo.xml"},
        "ray_node_labels": {"rack": "r-1", "example.org/row": 2},
        "ray_node_resources": {"slot": 2, "share": 0.5},
    }
    assert list(values.value_problems({"a": {**SOUND, **given}})) == []
