# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_config import ServeConfigError

from tests.unit.plugins.plugin_utils._plan.test_door import of_group, with_beside
from tests.unit.plugins.plugin_utils._plan.vllm_plan import files, plan, secret_files, started_by, units, with_serving

VLLM = "/etc/systemd/system/sparkthor-vllm.service"
HOST = ["/usr/bin/python3", "-IB", "/usr/local/lib/sparkthor/sparkthor_host"]
#: how a program of the engine gets its environment, but for the file of its service
LAUNCH = "launch --file=/etc/sparkthor/fabric.env --file=-/etc/sparkthor/engine.env"


def test_the_head_serves_and_watches(variables: dict[str, Any]) -> None:
    planned = plan(variables)
    found = files(planned)
    config = yaml.safe_load(found["/etc/sparkthor/vllm.yaml"])
    assert config == {
        **{"model": "/srv/mine", "served-model-name": "mine", "tensor-parallel-size": 1, "pipeline-parallel-size": 4},
        **{"distributed-executor-backend": "ray", "uds": "/run/sparkthor/vllm/vllm.sock"},
        "disable-uvicorn-access-log": True,
        "allowed-media-domains": ["NO DOMAIN"],
    }
    serving = json.loads(found["/etc/sparkthor/serving.json"])
    declared = json.loads(found["/etc/sparkthor/cluster.json"])
    assert (declared["cluster"], declared["generation"]) == ("one", 3)
    # by which a later run knows a host with another name
    given = {**variables, "sparkthor_cluster": {**variables["sparkthor_cluster"], "machines": {"a": "m1", "b": "m2"}}}
    assert json.loads(files(plan(given))["/etc/sparkthor/cluster.json"])["machines"] == {"a": "m1", "b": "m2"}
    # what a superseded head was told is void: this run declares its place
    assert "/var/lib/sparkthor/superseded.json" in planned["state"]["absent"]
    assert serving["degraded"] == {}
    assert serving["settings"]["expected"] == {"10.0.0.1": "a", "10.0.0.2": "b"}
    assert (serving["settings"]["interval"], serving["settings"]["degraded_after"]) == (10.0, 0.0)
    assert "/opt/sparkthor/venv/.sparkthor-engine.json" in serving["inputs"]
    assert "/etc/sparkthor/group.json" not in serving["inputs"]
    assert planned["model_elsewhere"] is True
    # root's copies of what served
    good = {item["path"]: item.get("mode") for item in planned["state"]["directories"]}["/var/lib/sparkthor-last-good"]
    assert good == "0700"
    assert set(units(planned)) == {
        *("sparkthor.target", "sparkthor-drop-caches.path", "sparkthor-hang.path", "sparkthor-front.service"),
        *("sparkthor-watchdog.service", "sparkthor-vllm.service"),
        *("sparkthor-address.service", "sparkthor-tokens.service", "sparkthor-on-demand.service"),
        *("sparkthor-power-guard.service", "sparkthor-certificate.timer"),
    }
    # vllm_service starts it
    assert "state" not in units(planned)["sparkthor-vllm.service"]
    assert "/etc/sparkthor/serving.json" in units(planned)["sparkthor-watchdog.service"]["restart_on"]
    assert "/etc/sparkthor/front" in units(planned)["sparkthor-front.service"]["reload_on"]
    assert [file["path"] for file in planned["state"]["files"] if file.get("secret")] == ["/etc/sparkthor/vllm.env"]


def test_page_caches_are_dropped_beside_the_imports(variables: dict[str, Any]) -> None:
    unit = files(plan(variables))[VLLM].splitlines()
    [started] = [line for line in unit if line.startswith("ExecStart=")]
    drop = "/opt/sparkthor/venv/bin/python -B /usr/local/lib/sparkthor/sparkthor_host nodes-prepare 10.0.0.1:6379"
    serve = "/opt/sparkthor/venv/bin/vllm serve --config /etc/sparkthor/vllm.yaml"
    launch = f"{' '.join(HOST)} {LAUNCH} --file=%d/vllm.env --"
    assert started == f'ExecStart={launch} /bin/sh -c "({drop} &); exec {serve}"'
    assert "LoadCredential=vllm.env:/etc/sparkthor/vllm.env" in unit
    # systemd 255 gives ExecStartPost no credentials, and Ray asks for its token
    assert [line for line in unit if "nodes-prepare" in line] == [started]
    # the journal names the engine, not the shell
    assert "SyslogIdentifier=vllm" in unit
    contained = files(plan(variables, engine_runtime="container"))[VLLM].splitlines()
    [before] = [line for line in contained if "nodes-prepare" in line]
    assert before.startswith("ExecStartPre=-+/usr/bin/python3 -IB ")
    assert before.endswith(" nodes-prepare 10.0.0.1:6379")
    assert "vllm.env" not in "\n".join(contained)


def test_the_head_of_ray_asks_the_other_hosts_what_their_ranks_do(variables: dict[str, Any]) -> None:
    found = files(plan(variables))
    here = found["/etc/systemd/system/sparkthor-hang.service"]
    assert "Wants=sparkthor-hang-nodes.service" in here
    assert "--py-spy=/opt/sparkthor/venv/bin/py-spy" in here
    others = found["/etc/systemd/system/sparkthor-hang-nodes.service"]
    assert "nodes-prepare 10.0.0.1:6379 --hang\n" in others
    assert "User=sparkthor\n" in others
    without = plan(started_by(variables, "mp"))
    assert "Wants=" not in files(without)["/etc/systemd/system/sparkthor-hang.service"]
    assert "/etc/systemd/system/sparkthor-hang-nodes.service" in without["state"]["absent"]


def test_a_lost_hosts_power_is_switched_by_the_head_alone(variables: dict[str, Any]) -> None:
    given = {
        "vllm_serve_power_commands": [["/usr/local/bin/plug", "cycle", "{outlet}"]],
        "vllm_serve_power_outlets": {"b": "socket-7"},
    }
    found = files(plan(variables, **given))
    config = json.loads(found["/etc/sparkthor/power.json"])
    assert config["hosts"]["b"]["commands"] == [["/usr/local/bin/plug", "cycle", "socket-7"]]
    assert (config["after"], config["pause"]) == (900, 60)
    assert "WatchdogSec=840" in found["/etc/systemd/system/sparkthor-power-guard.service"]
    assert "/etc/sparkthor/power.json" not in files(plan(variables))
    worker = plan(variables, inventory_hostname="b", **given)
    assert "/etc/sparkthor/power.json" in worker["state"]["absent"]


def test_the_engine_core_may_be_forked(variables: dict[str, Any]) -> None:
    planned = plan(variables, vllm_serve_env={"VLLM_WORKER_MULTIPROC_METHOD": "fork"})
    assert 'VLLM_WORKER_MULTIPROC_METHOD="fork"' in files(planned)["/etc/sparkthor/vllm.env"].splitlines()


def test_a_worker_of_ray_has_no_engine_of_its_own(variables: dict[str, Any]) -> None:
    planned = plan(variables, inventory_hostname="b")
    assert set(files(planned)) == {
        "/etc/sparkthor/cluster.json",
        "/etc/systemd/system/sparkthor-drop-caches.path",
        "/etc/systemd/system/sparkthor-hang.path",
        "/etc/systemd/system/sparkthor-hang.service",
        "/etc/systemd/system/sparkthor.target",
        "/etc/tmpfiles.d/sparkthor-serving.conf",
    }
    assert VLLM in planned["state"]["absent"]
    assert {path.rpartition("/")[2] for path in planned["kept"]} == {
        *("venv", "engine.env", "container.json", "ray.env", "ray.json", "sparkthor-ray.service"),
    }
    # what it was as a former head, and with a token for the hub
    gone = ("front", "front.good", "front.good.old", "secrets/api_key", "secrets/hf_token")
    assert {f"/etc/sparkthor/{name}" for name in gone} <= set(planned["state"]["absent"])
    with_token = plan(variables, inventory_hostname="b", vllm_serve_hf_token="hf_0123456789")
    assert "/etc/sparkthor/secrets/hf_token" in with_token["state"]["absent"]
    assert {name for name, unit in units(planned).items() if not unit["enabled"]} == {
        "sparkthor-address.service",
        "sparkthor-certificate.timer",
        "sparkthor-front.service",
        "sparkthor-on-demand.service",
        "sparkthor-power-guard.service",
        "sparkthor-tokens.service",
        "sparkthor-watchdog.service",
        "sparkthor-vllm.service",
    }
    assert planned["state"]["groups"] == planned["state"]["users"] == []


def test_a_rank_without_ray_stands_by(variables: dict[str, Any]) -> None:
    given = {**started_by(variables, "mp"), "inventory_hostname": "b"}
    planned = plan(given)
    found = files(planned)
    group = json.loads(found["/etc/sparkthor/group.json"])
    assert (group["host"], group["head"], group["port"]) == ("b", "a", 29502)
    assert group["members"] == {"10.0.0.1": "a", "10.0.0.2": "b"}
    launch = [*HOST, *LAUNCH.split(), "--file=/etc/sparkthor/vllm.env", "--"]
    serve = ["/opt/sparkthor/venv/bin/vllm", "serve", "--config", "/etc/sparkthor/vllm.yaml"]
    assert group["command"] == [*launch, *serve]
    # of earlier versions
    kept = {"/etc/sparkthor/group.json", "/etc/sparkthor/vllm.env", VLLM, "/opt/sparkthor/venv"}
    assert kept <= set(planned["kept"])
    assert not [path for path in planned["kept"] if "ray" in path.rpartition("/")[2].partition(".")[0].split("-")]
    assert {"/etc/sparkthor/group.json", "/etc/sparkthor/secrets/ray_token"} <= set(group["inputs"])
    config = yaml.safe_load(found["/etc/sparkthor/vllm.yaml"])
    assert (config["node-rank"], config["nnodes"], config["headless"]) == (1, 2, True)
    assert "Type=notify" in found[VLLM]
    assert units(planned)["sparkthor-vllm.service"]["no_block"] is True
    assert "/etc/sparkthor/group.json" not in planned["state"]["absent"]
    assert set(secret_files(given, lambda name: f"<{name}>")) == {"/etc/sparkthor/secrets/ray_token"}


def test_a_container_is_root_s_to_start(variables: dict[str, Any]) -> None:
    planned = plan(started_by(variables, "mp"), engine_runtime="container")
    unit = files(planned)[VLLM]
    assert "After=docker.service" in unit
    assert "ExecStopPost=-+/usr/bin/python3 -IB /usr/local/lib/sparkthor/sparkthor_host container remove vllm" in unit
    group = json.loads(files(planned)["/etc/sparkthor/group.json"])
    assert group["command"][:6] == [*HOST, "container", "run", "vllm"]
    assert group["cleanup"] == [*HOST, "container", "remove", "vllm"]
    assert "/etc/sparkthor/container.json" in group["inputs"]
    assert planned["options"]["command"] == [*HOST, "container", "python"]


def test_store_and_caches_lie_where_their_variables_say(variables: dict[str, Any]) -> None:
    moved = {"model_store_root": "/data/models", "engine_cache_dir": "/data/cache", "vllm_serve_model": "org/m"}
    planned = plan(variables, **moved, model_store_models=[{"name": "org/m", "source": "/srv/m"}])
    found = files(planned)
    assert planned["model_path"] == "/data/models/org/m"
    assert planned["model_elsewhere"] is False
    assert yaml.safe_load(found["/etc/sparkthor/vllm.yaml"])["model"] == "/data/models/org/m"
    environment = found["/etc/sparkthor/vllm.env"]
    for line in ('HOME="/data/cache"', 'VLLM_CACHE_ROOT="/data/cache/vllm"', 'HF_HOME="/data/cache/huggingface"'):
        assert line in environment.splitlines()
    assert "WorkingDirectory=/data/cache\n" in found[VLLM]
    places = {entry["path"]: entry.get("owner") for entry in planned["state"]["directories"]}
    assert places["/data/cache"] == "sparkthor"
    assert planned["options"]["cache_dir"] == "/opt/sparkthor"
    assert json.loads(found["/etc/sparkthor/serving.json"])["cache"] == "/data/cache"
    folders = json.loads(found["/etc/sparkthor/cluster.json"])["folders"]
    assert folders == {"models": "/data/models", "cache": "/data/cache"}
    assert "PYTHONPYCACHEPREFIX=/data/cache/pycache" in planned["options"]["command"]
    assert planned["sizing"]["model_path"] == "/data/models/org/m"
    assert not [
        text for text in found.values() if "/var/lib/sparkthor/cache" in text or "/var/lib/sparkthor/models" in text
    ]


@pytest.mark.parametrize(
    ("served", "names"), [("small", ["small"]), (["small"], ["small"]), (["small", "default"], ["small", "default"])]
)
def test_degraded_mode_serves_under_every_name(variables: dict[str, Any], served: Any, names: list[str]) -> None:
    smaller = {
        **{"model": "s", "served_model_name": served, "max_model_len": 1024, "args": {}, "hosts": 1},
        **{"tensor_parallel": 2, "pipeline_parallel": 1},
    }
    given = with_serving(variables, model="m", models=[{"name": "m"}], served_model_name=served, degraded=smaller)
    found = files(plan(given, vllm_serve_degraded_after="300"))
    for path in ("vllm", "vllm-degraded"):
        config = yaml.safe_load(found[f"/etc/sparkthor/{path}.yaml"])
        assert config["served-model-name"] == (names if len(names) > 1 else names[0])
    # what the watchdog asks for
    serving = json.loads(found["/etc/sparkthor/serving.json"])
    assert (serving["model"], serving["degraded"]["model"]) == ("small", "small")


def test_degraded_mode(variables: dict[str, Any]) -> None:
    smaller = {
        **{"model": "s", "served_model_name": "small", "max_model_len": 1024, "args": {}, "hosts": 1},
        **{"tensor_parallel": 2, "pipeline_parallel": 1, "answers": False},
    }
    given = with_serving(variables, model="m", models=[{"name": "m"}], degraded=smaller)
    planned = plan(given, vllm_serve_degraded_after="300")
    found = files(planned)
    config = yaml.safe_load(found["/etc/sparkthor/vllm-degraded.yaml"])
    assert (config["model"], config["tensor-parallel-size"]) == ("/var/lib/sparkthor/models/s", 2)
    serving = json.loads(found["/etc/sparkthor/serving.json"])
    assert serving["degraded"]["link"] == "/run/sparkthor/vllm/serve.yaml"
    assert (serving["answers"], serving["degraded"]["answers"]) == (True, False)
    assert (serving["settings"]["degraded_after"], serving["settings"]["degraded_hosts"]) == (300.0, 1)
    assert "serve --config /run/sparkthor/vllm/serve.yaml" in found[VLLM]
    assert "--without /run/sparkthor/degraded.json" in found[VLLM]
    assert "/run/sparkthor/degraded.json" not in planned["state"]["absent"]
    assert "/run/sparkthor/degraded.json" in plan(given, inventory_hostname="b")["state"]["absent"]


@pytest.mark.parametrize(
    ("tls", "present", "gone"),
    [
        ("off", [], ["/etc/sparkthor/front/self-signed"]),
        # an unquoted off in YAML
        (False, [], ["/etc/sparkthor/front/self-signed"]),
        ("self_signed", ["/etc/sparkthor/front/self-signed"], []),
        ("given", ["/etc/sparkthor/front/tls.crt"], ["/etc/sparkthor/front/self-signed"]),
        # two hosts with a cable of their own
        ("auto", [], ["/etc/sparkthor/front/self-signed"]),
    ],
)
def test_tls(variables: dict[str, Any], tls: Any, present: list[str], gone: list[str]) -> None:
    given = {**variables, "vllm_serve_tls": tls, "vllm_serve_tls_key": "KEY", "vllm_serve_tls_certificate": " CERT\n"}
    planned = plan(given)
    found = files(planned)
    assert [path for path in found if path.startswith("/etc/sparkthor/front/") and ".conf" not in path] == present
    assert [path for path in planned["state"]["absent"] if "self-signed" in path] == gone
    assert ("ssl_certificate tls.crt;" in found["/etc/sparkthor/front/nginx.conf"]) is (tls in ("self_signed", "given"))
    assert json.loads(found["/etc/sparkthor/cluster.json"])["tls"] is (tls in ("self_signed", "given"))
    if tls == "self_signed":
        assert found[present[0]] == "DNS:a,IP:10.0.0.1,IP:192.168.1.1\n"
    secret = secret_files(given, lambda _name: "k" * 16)
    assert secret.get("/etc/sparkthor/front/tls.key", {}).get("content") == ("KEY\n" if tls == "given" else None)


def test_a_limit_of_tokens_brings_all_that_it_needs(variables: dict[str, Any]) -> None:
    unit, script, limits = (
        "/etc/systemd/system/sparkthor-tokens.service",
        "/etc/sparkthor/front/tokens.js",
        "/etc/sparkthor/front/limits.json",
    )
    key = {"name": "ci", "key": "ci-key-0123456789", "tokens_per_month": 5000}
    limited, free = plan({**variables, "vllm_serve_api_keys": [key]}), plan(variables)
    found = files(limited)
    assert json.loads(found[limits]) == {"ci": {"month": 5000}}
    assert script in found
    assert units(limited)["sparkthor-front.service"]["reload_on"] == ["/etc/sparkthor/front"]
    assert units(limited)["sparkthor-tokens.service"]["restart_on"] == [unit]
    assert "\nUser=sparkthor-front\n" in found[unit]
    config = found["/etc/sparkthor/front/nginx.conf"]
    assert "if ($sparkthor_over = over) {" in config
    assert "js_body_filter tokens.used" in config
    # so that a stream says its tokens too
    assert "enable-force-include-usage: true" in found["/etc/sparkthor/vllm.yaml"]
    assert {unit, script, limits} <= set(free["state"]["absent"])
    assert units(free)["sparkthor-tokens.service"]["enabled"] is False
    assert "sparkthor_over" not in files(free)["/etc/sparkthor/front/nginx.conf"]
    assert "force-include-usage" not in files(free)["/etc/sparkthor/vllm.yaml"]


def test_limits_of_tokens_and_answers_that_nobody_sees_exclude_each_other(variables: dict[str, Any]) -> None:
    keys = [{"name": "ci", "key": "ci-key-0123456789", "tokens_per_month": 5000}]
    for value, stores in (("1", True), ("0", False)):
        given = {**variables, "vllm_serve_env": {"VLLM_ENABLE_RESPONSES_API_STORE": value}}
        plan(given)
        limited = {**given, "vllm_serve_api_keys": keys}
        if stores:
            with pytest.raises(ServeConfigError, match=r"vllm_serve_env: VLLM_ENABLE_RESPONSES_API_STORE .* of ci in"):
                plan(limited)
        else:
            plan(limited)


def test_named_keys_and_limits(variables: dict[str, Any]) -> None:
    keys = [
        {"name": "ci", "key": "ci-key-0123456789", "requests_per_minute": 60},
        {"name": "one", "key": "one-key-0123456789", "requests_per_minute": 1},
        {"name": "web", "key": "web-key-0123456789"},
    ]
    given = {**variables, "vllm_serve_api_keys": keys}
    config = files(plan(given))["/etc/sparkthor/front/nginx.conf"]
    assert "-key-0123456789" not in config
    assert "limit_req zone=sparkthor_per_minute_60 burst=59 nodelay;" in config
    assert "limit_req zone=sparkthor_per_minute_1;" in config
    assert "web" not in config
    read = {"api_key": "main-key-0123456789", "api_key.previous": "former-key-0123456789"}
    lines = secret_files(given, read.__getitem__)["/etc/sparkthor/front/keys.conf"]["content"].splitlines()[1:]
    assert [line.split()[-1] for line in lines] == ["default;", "previous;", "ci;", "one;", "web;"]
    with_limits, without = (
        files(plan(variables, vllm_serve_front_requests_at_once=at_once, vllm_serve_front_requests_per_second=rate))[
            "/etc/sparkthor/front/nginx.conf"
        ]
        for at_once, rate in ((7, 3), (0, 0))
    )
    assert "limit_conn sparkthor_at_once 7;" in with_limits
    assert "rate=3r/s;" in with_limits
    assert "burst=15 nodelay;" in with_limits
    limits = [line for line in without.splitlines() if "limit_conn " in line or "limit_req" in line.split("_status")]
    # of bodies at once alone
    assert {line.split()[1].removesuffix("_of_key") for line in limits} == {
        *("sparkthor_digits_5", "sparkthor_digits_6", "sparkthor_digits_7", "sparkthor_largest")
    }


def test_a_key_for_an_adapter_may_ask_for_its_model(variables: dict[str, Any]) -> None:
    keys = [{"name": name, "key": name * 10, "models": [name]} for name in ("sqls", "other")]
    given = {"vllm_serve_api_keys": keys, "vllm_serve_args": {"enable-lora": True, "lora-modules": ["sqls=/srv/s"]}}
    found = files(plan({**variables, **given}))
    [names] = re.findall(r"sparkthor_vllm '( mine .*)';", found["/etc/sparkthor/front/engine.conf"])
    allowed = dict(re.findall(r'"~\^(\w+) \.\*\((\S.*)\)" "";', found["/etc/sparkthor/front/nginx.conf"]))
    assert {name: bool(re.search(f"({wanted})", names)) for name, wanted in allowed.items()} == {
        "sqls": True,
        "other": False,
    }


@pytest.mark.parametrize("page", [True, False])
def test_a_key_that_was_blocked_stays_so_without_a_page(variables: dict[str, Any], page: bool) -> None:
    conf = files(plan({**variables, "console_enabled": page}))["/etc/sparkthor/front/nginx.conf"]
    [known] = re.findall(r"map \S+ \$sparkthor_key \{[^}]*\}", conf)
    assert "include blocked*.conf;" in known
    assert ("location /console/" in conf) is page


def test_the_hub_s_token_goes_only_where_vllm_fetches_the_model(variables: dict[str, Any]) -> None:
    path, token = "/etc/sparkthor/secrets/hf_token", {"vllm_serve_hf_token": "hf_0123456789"}
    assert path in plan(variables, **token)["state"]["absent"]
    given = {**variables, **token, "vllm_serve_from_hub": True, "vllm_serve_model": "org/m"}
    planned = plan(given)
    assert planned["model_path"] == "org/m"
    assert path not in planned["state"]["absent"]
    assert "LoadCredential=hf_token" in files(planned)[VLLM]
    assert "HF_HUB_OFFLINE" not in files(planned)["/etc/sparkthor/vllm.env"]
    assert "hf_0123456789" not in str(planned)
    secret = secret_files(given, lambda _name: "k" * 16)
    assert secret[path]["content"] == "hf_0123456789\n"
    # the module's own mode for such a file is 0600
    assert all(file["secret"] and file.get("mode", "0600") == "0600" for file in secret.values())


def test_only_what_a_host_needs_is_read_of_the_secrets(variables: dict[str, Any]) -> None:
    asked: list[str] = []

    def read(name: str) -> str:
        asked.append(name)
        return "" if name == "api_key.previous" else "k" * 16

    assert secret_files({**variables, "inventory_hostname": "b"}, read) == {}
    assert asked == []
    secret_files(variables, read)
    # the key itself, and the list of all keys
    assert set(asked) == {"api_key", "api_key.previous"}


def test_a_group_beside_another_shares_no_file_and_no_unit_with_it(variables: dict[str, Any]) -> None:
    alone, planned = plan(of_group(variables, "c")), plan(with_beside(variables))
    found = files(planned)
    more = set(found) - set(files(alone))
    etc = "/etc/sparkthor/beside/embed"
    assert more == {
        *(f"{etc}/{name}" for name in ("vllm.env", "vllm.yaml", "group.json", "serving.json")),
        *(f"/etc/systemd/system/sparkthor-{name}-embed.service" for name in ("vllm", "watchdog")),
    }
    # what is the host's own group's is as before, but for the front proxy and its groups
    changed = {path for path, text in files(alone).items() if found[path] != text}
    assert changed == {f"/etc/sparkthor/front/{name}.conf" for name in ("nginx", "engine", "names")}
    # a way back is for both, which share the engine
    models = "/var/lib/sparkthor/models"
    assert set(planned["kept"]) - set(alone["kept"]) == {
        *(f"{etc}/{name}" for name in ("vllm.env", "vllm.yaml", "group.json", "serving.json")),
        *("/etc/systemd/system/sparkthor-vllm-embed.service", f"{models}/emb"),
    }
    # a stop ends with the next run, as that of the host's own group
    assert {"/var/lib/sparkthor/beside/embed/maintenance", "/run/sparkthor/beside/embed/draining"} <= set(
        planned["state"]["absent"]
    )
    assert set(units(planned)) - set(units(alone)) == {
        "sparkthor-vllm-embed.service",
        "sparkthor-watchdog-embed.service",
    }
    assert units(planned)["sparkthor-watchdog-embed.service"]["restart_on"] == [
        "/etc/systemd/system/sparkthor-watchdog-embed.service",
        f"{etc}/serving.json",
    ]
    assert (planned["beside"], alone["beside"]) == (["embed"], [])
    assert [options["arguments"] for options in planned["beside_options"]] == [{}]


def test_an_engine_beside_another_is_one_host_without_ray(variables: dict[str, Any]) -> None:
    found = files(plan(with_beside(variables)))
    etc = "/etc/sparkthor/beside/embed"
    config = yaml.safe_load(found[f"{etc}/vllm.yaml"])
    assert (config["model"], config["served-model-name"]) == ("/var/lib/sparkthor/models/emb@1", "embed")
    assert config["distributed-executor-backend"] == "mp"
    assert config["uds"] == "/run/sparkthor/beside/embed/vllm/vllm.sock"
    group, serving = json.loads(found[f"{etc}/group.json"]), json.loads(found[f"{etc}/serving.json"])
    assert (group["port"], group["members"]) == (29503, {"10.100.0.3": "c"})
    # the page cache is not dropped under the other group
    assert group["drop_request"] == ""
    assert (serving["beside"], serving["unit"], serving["ray"]) == ("embed", "sparkthor-vllm-embed.service", False)
    assert serving["inputs"] == group["inputs"]
    assert not {"/etc/sparkthor/vllm.yaml", "/etc/sparkthor/vllm.env", VLLM} & set(serving["inputs"])
    unit = found["/etc/systemd/system/sparkthor-vllm-embed.service"]
    for line in (
        f"ExecStartPre=+{' '.join(HOST)} vllm-prepare {etc}/serving.json\n",
        f"ExecStart={' '.join(HOST)} rank {etc}/group.json\n",
        "RuntimeDirectory=sparkthor/beside/embed/vllm\n",
        "StateDirectory=sparkthor/beside/embed/group\n",
    ):
        assert line in unit
    assert "sparkthor-ray" not in unit
    assert f"--file={etc}/vllm.env" in group["command"]
    watchdog = found["/etc/systemd/system/sparkthor-watchdog-embed.service"]
    assert f"ExecStart={' '.join(HOST)} watchdog {etc}/serving.json\n" in watchdog
    assert "RuntimeDirectory=sparkthor/beside/embed/watchdog\n" in watchdog


def test_a_container_beside_another_has_its_own_name(variables: dict[str, Any]) -> None:
    found = files(plan(with_beside(variables, engine_runtime="container")))
    group = json.loads(found["/etc/sparkthor/beside/embed/group.json"])
    assert group["command"][:6] == [*HOST, "container", "run", "vllm-embed"]
    assert group["cleanup"] == [*HOST, "container", "remove", "vllm-embed"]
    assert "container remove vllm-embed\n" in found["/etc/systemd/system/sparkthor-vllm-embed.service"]


def test_a_group_that_is_no_longer_beside_goes(variables: dict[str, Any]) -> None:
    facts = {"sparkthor_node": {**variables["ansible_facts"]["sparkthor_node"], "beside": ["embed", "rerank"]}}
    planned = plan(with_beside(variables, ansible_facts=facts))
    gone = {path for path in planned["state"]["absent"] if "rerank" in path}
    assert gone == {
        *(f"{folder}/beside/rerank" for folder in ("/etc/sparkthor", "/run/sparkthor", "/var/lib/sparkthor")),
        *(f"/etc/systemd/system/sparkthor-{name}-rerank.service" for name in ("vllm", "watchdog")),
    }
    assert not [path for path in planned["state"]["absent"] if path.endswith(("/embed", "-embed.service"))]
    assert units(planned)["sparkthor-vllm-rerank.service"]["state"] == "stopped"
    assert units(planned)["sparkthor-vllm-embed.service"] == {"name": "sparkthor-vllm-embed.service", "enabled": True}
