# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import re

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import door, roles
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.front import FrontPlanError, NamedKey

from tests.unit import role_state
from tests.unit.plugins.plugin_utils._plan.vllm_plan import files, plan, secret_files, units

GROUPS = [
    {"group": "big", "head": "a", "names": ["chat"], "model": "m", "fallback": "small_a"},
    {"group": "small_a", "head": "c", "names": ["mini", "Mini.2"], "model": "s", "fallback": ""},
    {"group": "small_b", "head": "d", "names": ["Mini.2", "mini"], "model": "s", "fallback": ""},
]
FABRIC = {host: {"control_address": f"10.100.0.{number}"} for number, host in enumerate("abcd", 1)}
CONF, KEY, CERTIFICATE = (f"/etc/sparkthor/front/{name}" for name in ("nginx.conf", "peer.key", "peer.crt"))
ENGINE, NAMES, OTHERS = (f"/etc/sparkthor/front/{name}.conf" for name in ("engine", "names", "others"))
SYSCTL = "/etc/sysctl.d/61-sparkthor-door.conf"


def planned(host="c", topology="switch", groups=None):
    return door.plan_door({"groups": groups or GROUPS, "topology": topology}, FABRIC, host, 8001)


def test_replicas_are_one_model_and_the_own_engine_is_reached_by_its_socket():
    found = planned("c")
    assert [(route.groups, route.servers) for route in found.routes] == [
        (("big",), ("10.100.0.1:8001",)),
        (("small_a", "small_b"), ("unix:/run/sparkthor/front/group.sock", "10.100.0.4:8001")),
    ]
    assert [route.instead for route in found.routes] == [1, None]
    assert found.heads == ("10.100.0.1", "10.100.0.3", "10.100.0.4")


def test_names_of_models_are_matched_as_they_are_written():
    [_chat, mini, _replica] = planned().offers
    assert mini.patterns == ["~^mini$", r"~^Mini\.2$"]
    assert re.match(mini.patterns[1][1:], "MiniX2") is None


def test_a_replica_is_no_fallback_of_the_other():
    groups = [{**GROUPS[1], "fallback": "small_b"}, GROUPS[2]]
    assert [route.instead for route in planned(groups=groups).routes] == [None]


def test_heads_encrypt_where_others_are_on_their_network():
    assert [planned(topology=topology).tls for topology in ("direct", "switch", "ring", "lan")] == [0, 0, 1, 1]


def test_a_key_is_refused_by_the_groups_of_other_models():
    keys = [NamedKey("all", "k" * 16), NamedKey("mini", "l" * 16, 0, ("mini",))]
    [(name, wanted)] = door.limited_keys(keys).items()
    assert name == "mini"
    assert [bool(re.search(wanted, door.words(names))) for names in (["chat"], ["mini", "Mini.2"])] == [False, True]


@pytest.mark.parametrize("odd", ["my model", "a|b", "it's $uri", "org/m:1", "Größe"])
def test_a_limited_key_knows_a_model_by_its_whole_name(odd):
    [wanted] = door.limited_keys([NamedKey("one", "k" * 16, 0, (odd,))]).values()
    served = [[odd], ["other", odd], [f"{odd}2"], [f"x{odd}"], ["a", "model", odd.upper()]]
    assert [bool(re.search(wanted, door.words(names))) for names in served] == [True, True, False, False, False]
    # nginx reads both as text
    assert not set("$'\"") & set(door.words([odd]))


def test_without_a_limit_a_body_has_one_that_memory_can_hold():
    assert [door.body_limit(size) for size in ("0", "0m", "64m", "100", "1G")] == ["64m", "64m", "64m", "100", "1G"]


def of_group(variables, host="a", topology="switch", **given):
    """The variables of a head among the groups."""
    cluster = {**variables["sparkthor_cluster"], "topology": topology, "groups": GROUPS, "group": "big", "head": host}
    fabric = {name: {**next(iter(variables["sparkthor_fabric"].values())), **own} for name, own in FABRIC.items()}
    return {
        **variables,
        "inventory_hostname": host,
        "sparkthor_cluster": {**cluster, "hosts": [host], "workers": []},
        "sparkthor_fabric": fabric,
        **given,
    }


def test_a_head_of_a_group_gets_a_door_and_what_it_reads(variables):
    found = plan(of_group(variables))
    conf = files(found)[CONF]
    assert "load_module /usr/lib/nginx/modules/ngx_http_js_module.so;" in conf
    # the engine's own server is for heads; the door has the port of the API
    inner, _sign, outer = conf.partition("js_import door from door.js;")
    assert "listen 8001 backlog" in inner
    assert inner.count("deny all;") == 1
    assert "listen 0.0.0.0:8000" not in inner
    assert "listen 0.0.0.0:8000" in outer
    assert '"~^small_b " 1;' in outer
    assert "error_page 502 503 504 = @instead_1;" in outer
    # nginx follows one error_page only unless told so, and a fallback may be away as well
    assert "recursive_error_pages on;" in outer
    # the group's own server ends a slow request: another replica is not asked the same then
    assert "proxy_read_timeout 1w;" in outer
    # now, and after a reboot
    lasting = [line.split(" = ") for line in files(found)[SYSCTL].splitlines()[1:]]
    assert lasting == [[item["name"], item["value"]] for item in found["state"]["sysctls"]]
    assert ["net.ipv4.tcp_keepalive_time", "20"] in lasting
    assert "export default" in files(found)["/etc/sparkthor/front/door.js"]
    # what is there is read, whatever it is
    assert units(found)["sparkthor-front.service"]["reload_on"] == ["/etc/sparkthor/front"]


def test_a_door_counts_what_is_served_and_nothing_that_a_client_wrote(variables):
    conf = files(plan(of_group(variables)))[CONF]
    inner, _sign, outer = conf.partition("js_import door from door.js;")
    assert "log_format sparkthor_counted '$sparkthor_who $sparkthor_asked $status $request_time';" in inner
    # each request is counted once, by the door at which it came in
    assert "if (-d /run/sparkthor-exporter) {" in outer
    assert "if (-d /run/sparkthor-exporter) {" not in inner


def test_what_an_upgrade_changes_is_what_a_rollback_brings_back(variables):
    """So that a head that goes back leads to what it serves again, and the others learn its names alone."""
    before, after = of_group(variables), of_group(variables)
    groups = [{**GROUPS[0], "names": ["new"]}, *GROUPS[1:]]
    serving = {"model": "n", "models": [{"name": "n"}], "args": {}, "max_model_len": 64, "served_model_name": "new"}
    after["sparkthor_cluster"] = {**after["sparkthor_cluster"], "groups": groups, "serving": serving}
    then, found = plan(before), plan(after)
    assert {ENGINE, NAMES} <= set(found["kept"])
    front = "/etc/sparkthor/front/"
    differ = {path for path, text in files(found).items() if path.startswith(front) and files(then)[path] != text}
    assert differ == {ENGINE, NAMES}
    other = of_group(variables, "c")
    other["sparkthor_cluster"] = {**other["sparkthor_cluster"], "groups": groups}
    there = files(plan(other))
    # word for word, as the module writes it after a rollback
    assert files(found)[NAMES] in there[OTHERS]
    assert files(found)[NAMES] == '# of a\n"~^new$" "big new";\n"~^first of big$" "new";\n# end of a\n'


def test_a_head_without_doors_has_no_names(variables):
    found = plan(variables)
    assert ENGINE in found["kept"]
    assert not {NAMES, OTHERS} & {*files(found), *found["kept"]}
    assert {NAMES, OTHERS} <= set(found["state"]["absent"])


def test_answers_are_read_only_if_their_tokens_are_to_be_counted(variables):
    def of_plan(given):
        found = plan(given)
        return files(found), found["state"]["absent"]

    script = "/etc/sparkthor/front/tokens.js"
    for given in (variables, of_group(variables)):
        found, absent = of_plan({**given, "vllm_serve_front_tokens": True})
        # once for one group's engine; by a door for each model, and for each that may answer instead
        readers = 3 if "door.js" in found[CONF] else 1
        assert found[CONF].count("js_body_filter tokens.used buffer_type=buffer;") == readers
        assert (script in found, script in absent) == (True, False)
        assert "load_module" in found[CONF]
        found, absent = of_plan(given)
        assert "tokens.js" not in found[CONF]
        assert (script in found, script in absent) == (False, True)


def test_a_name_is_one_word_of_a_line(variables):
    found = plan({**variables, "vllm_serve_served_model_name": "my model' $status;"})
    assert "  default my_model___status_;\n" in files(found)[ENGINE]


def test_the_api_and_the_other_heads_need_two_ports(variables):
    with pytest.raises(FrontPlanError, match="vllm_serve_door_port: 8000 is vllm_serve_api_port as well"):
        plan(of_group(variables, vllm_serve_door_port=8000))


def test_what_a_door_keeps_in_memory_is_bounded(variables):
    def memory_of(given):
        found = files(plan({**given, "vllm_serve_front_max_body": "0"}))
        unit = found["/etc/systemd/system/sparkthor-front.service"]
        return "client_body_buffer_size 64m;" in found[CONF], "MemoryMax=" in unit

    assert memory_of(of_group(variables)) == (True, True)
    assert memory_of(variables) == (False, False)


def test_one_group_has_none_of_it_and_loses_what_several_left(variables):
    found = plan(variables)
    assert "door" not in files(found)[CONF]
    assert "/etc/sparkthor/front/door.js" not in files(found)
    assert {KEY, CERTIFICATE, "/etc/sparkthor/front/door.js", SYSCTL} <= set(found["state"]["absent"])
    assert found["state"]["sysctls"] == []


def test_on_a_lan_all_heads_have_one_certificate_of_a_secret_of_their_own(variables):
    def secrets_of(host, secret, token="t" * 20):
        given = of_group(variables, host, "lan")
        known = {"peer_secret": secret, "ray_token": token}
        found = secret_files(given, lambda name: known.get(name, "k" * 20))
        return {path: file["content"] for path, file in found.items() if "/peer" in path}

    kept = "/etc/sparkthor/secrets/peer_secret"
    assert set(secrets_of("a", "t" * 20)) == {KEY, CERTIFICATE, kept}
    assert secrets_of("a", "t" * 20) == secrets_of("c", "t" * 20) != secrets_of("a", "u" * 20)
    assert secrets_of("a", "t" * 20)[kept] == "t" * 20 + "\n"
    # whoever knows the token between hosts, as every worker does, does not know the heads' key
    assert secrets_of("a", "s" * 20, "t" * 20) == secrets_of("a", "s" * 20, "u" * 20)
    assert secrets_of("a", "t" * 20, "s" * 20)[KEY] != secrets_of("a", "s" * 20, "t" * 20)[KEY]
    # and one that is no head does not get it
    assert kept in plan({**of_group(variables, topology="lan"), "inventory_hostname": "b"})["state"]["absent"]
    assert kept not in plan(of_group(variables, topology="lan"))["state"]["absent"]
    conf = files(plan(of_group(variables, topology="lan")))[CONF]
    assert "listen 8001 ssl" in conf
    assert "proxy_ssl_verify on;" in conf
    assert "proxy_pass https://sparkthor_model_0;" in conf


def test_a_key_for_other_models_is_refused_where_the_model_is(variables):
    keys = [{"name": "narrow", "key": "n" * 20, "models": ["mini"]}]
    conf = files(plan(of_group(variables, vllm_serve_api_keys=keys)))[CONF]
    assert '    "~^narrow .*(?:\\ mini\\ )" "";\n    "~^narrow " 1;\n' in conf
    assert "nnnn" not in conf


@pytest.mark.parametrize("name", ["hostnames", "include", "volatile"])
def test_a_name_that_a_map_of_nginx_takes_for_its_own_word_is_one(variables, name):
    keys = [{"name": name, "key": "n" * 20, "models": ["mini"], "requests_per_minute": 6}]
    conf = files(plan(of_group(variables, vllm_serve_api_keys=keys)))[CONF]
    assert f"    \\{name} {name};\n" in conf
    # a group may be called default as well
    template = (role_state.ROLES / "vllm_serve/templates/nginx.conf.j2").read_text(encoding="utf-8")
    assert not re.findall(r"^ +\{\{ (?:one\.)?name \}\} .*", template, re.MULTILINE)


def test_ray_leaves_the_port_between_heads_free_where_there_are_several(variables):
    ports = {"ray_node_ports": {"gcs": 8001}}
    assert roles.plan("ray_node", {**variables, **ports})["problems"] == []
    [problem] = roles.plan("ray_node", {**of_group(variables), **ports})["problems"]
    assert "port 8001 is wanted by ray_node_ports.gcs and by vllm_serve_door_port" in problem


def with_beside(variables, host="c", name="embed", **given):
    """The same with a group beside small_a, on its head."""
    facts = of_group(variables, host, **given)
    small = {"model": "emb", "served_model_name": "embed", "models": [{"name": "emb"}], "args": {}, "max_model_len": 64}
    beside = {
        **facts["sparkthor_cluster"],
        **{"group": name, "head": "c", "hosts": ["c"], "kinds": {"c": "spark"}, "head_address": "10.100.0.3"},
        **{"serving": small, "tensor_parallel": 1, "pipeline_parallel": 1, "runtime": "venv"},
        "executor": "mp",
        "given": {"vllm_serve_door_port": 8002, "vllm_serve_group_port": 29503, "vllm_serve_recipe": "r"},
    }
    offer = {"group": name, "head": "c", "names": ["embed"], "model": "emb", "fallback": "", "port": 8002}
    facts["sparkthor_cluster"] = {
        **facts["sparkthor_cluster"],
        **{"groups": [*GROUPS, offer], "beside": {name: beside} if host == "c" else {}},
        "revisions": {"emb": "emb@1"},
    }
    return facts


def test_a_group_beside_another_has_a_server_of_its_own_behind_the_doors(variables):
    keys = [{"name": "narrow", "key": "n" * 20, "models": ["chat"]}]
    there = files(plan(with_beside(variables, vllm_serve_api_keys=keys)))
    inner, _sign, outer = there[CONF].partition("js_import door from door.js;")
    assert "listen unix:/run/sparkthor/front/group-embed.sock;\n    listen 8002 backlog=4096;" in inner
    # both servers take requests of heads alone
    assert inner.count("deny all;") == 2
    assert "server unix:/run/sparkthor/beside/embed/vllm/vllm.sock max_fails=0;" in there[ENGINE]
    assert "set $sparkthor_engine sparkthor_vllm_embed;" in inner
    assert "if (-f /run/sparkthor/beside/embed/draining) {" in inner
    # both servers refuse keys for other models
    assert inner.count("if ($sparkthor_refused) {") == 2
    assert "server unix:/run/sparkthor/front/group-embed.sock max_fails=1" in outer
    assert '"~^embed " 2;' in outer
    assert '"~^embed$" "embed embed";\n' in there[NAMES]
    # another head asks that port, and has no such server itself
    other = files(plan(with_beside(variables, "a")))[CONF]
    assert "server 10.100.0.3:8002 max_fails=1 fail_timeout=5s;" in other
    assert "listen 8002" not in other
