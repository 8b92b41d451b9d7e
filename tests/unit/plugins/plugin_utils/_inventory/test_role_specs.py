# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import role_specs
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.role_specs import (
    Declared,
    RoleSpecs,
    Templated,
    ValueRefused,
    of_collection,
)

TOP = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists())
ROLES = sorted(path.parent.parent.name for path in TOP.glob("roles/*/meta/argument_specs.yml"))

OPTIONS = {name: {"type": "int", "description": "x"} for name in "ab"}
SPECS = {
    "engine": {
        "main": {
            "options": {
                "engine_runtime": {"description": "x", "type": "str", "choices": ["venv", "container"]},
                "engine_threads": {"description": "x", "type": "int", "required": True},
                "engine_env": {"type": "dict", "options": OPTIONS},
                "engine_list": {"type": "list", "elements": "dict", "options": OPTIONS},
                "engine_words": {"type": "list", "elements": "str", "default": []},
                "engine_folder": {"type": "path"},
                "engine_plain": {"type": "dict"},
                "engine_token": {"type": "int", "no_log": True},
            }
        }
    }
}


def problems(**variables):
    return [str(problem) for problem in RoleSpecs(SPECS).problems({"one": variables, "two": variables})]


def test_sound_variables_and_foreign_names_pass():
    assert problems(engine_runtime="venv", other_name=1) == []


def test_a_wrong_choice_names_role_variable_value_choices_and_hosts():
    [problem] = problems(engine_runtime="vm")
    for word in ("role engine", "engine_runtime", "vm", "venv, container", "on one, two"):
        assert word in problem


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("--max-num-seqs 4", "{max-num-seqs: 4}"),
        ("--max-num-seqs=4 --enforce-eager", "{max-num-seqs: 4}"),
        ("--enforce-eager", "{enforce-eager: value}"),
        ("--api-key sk-12345678", "{api-key: value}"),
        ("sk-12345678", "{key: value}"),
    ],
)
def test_a_text_instead_of_a_mapping(text, form):
    [problem] = problems(engine_plain=text)
    assert f"engine_plain: it is text; write a mapping, as `engine_plain: {form}`; correct" in problem
    assert "sk-" not in problem
    assert problems(engine_plain="a=1") == []
    [problem] = problems(engine_plain=[1])
    assert "it is text" not in problem


def test_a_wrong_type():
    [problem] = problems(engine_threads="many")
    assert "engine_threads" in problem


OF_VLLM = "; an option of the engine itself goes into vllm_serve_args"


def test_an_unknown_name_gets_the_closest_one():
    [problem] = problems(engine_runtme="venv")
    assert "engine_runtme" in problem
    assert "did you mean 'engine_runtime'" in problem


def test_what_a_role_has_found_is_no_variable_of_the_inventory():
    """tune.yml has the roles twice."""
    left = {"preflight_found": {"nothing_to_do": False}, "vllm_serve_ready": {}, "nccl_conf_report": {}}
    assert of_collection().problems({"one": left}) == []
    [refused] = map(str, of_collection().problems({"one": {"preflight_seen": {}}}))
    assert refused.startswith("preflight_seen: no role has a variable of this name")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("vllm_recipe", "vllm_serve_recipe"),
        ("vllm_model", "vllm_serve_model"),
        ("vllm_api_key", "vllm_serve_api_key"),
        ("vllm_server_recipe", "vllm_serve_recipe"),
        ("ray_token", "ray_node_token"),
        ("ray_nodes_token", "ray_node_token"),
        ("fabric_topologie", "fabric_topology"),
        ("nccl_settings", "nccl_conf_settings"),
        ("roce_replace_foreign", "roce_network_replace_foreign"),
    ],
)
def test_a_name_that_lacks_its_roles_second_word_is_told(written, meant):
    [problem] = (str(one) for one in of_collection().problems({"one": {written: "x"}}))
    assert problem == (
        f"{written}: no role has a variable of this name (did you mean '{meant}'?); correct or remove it "
        "(a variable of your own begins with another word) [on one]"
    )


@pytest.mark.parametrize("written", ["vllm_serve_gpu_memory_utilization", "vllm_serve_enforce_eager"])
def test_an_argument_of_vllm_is_not_taken_for_another_variable_of_the_role(written):
    """A role's name alone makes two names of it half alike."""
    [problem] = (str(one) for one in of_collection().problems({"one": {written: "x"}}))
    assert "did you mean" not in problem
    assert OF_VLLM in problem


def test_what_a_validator_would_convert_with_a_loss_is_refused():
    specs = RoleSpecs(SPECS)
    for name, value, words in (
        ("engine_threads", True, "True is not a number"),
        ("engine_runtime", ["venv"], "engine_runtime"),
        ("engine_folder", 0.20, "YAML reads it as 0.2; put it in quotes"),
        ("engine_folder", False, "YAML reads it as False; put it in quotes"),
        ("engine_words", ["a", 1.5], "YAML reads it as 1.5"),
        ("engine_words", None, "empty (null)"),
    ):
        with pytest.raises(ValueRefused) as caught:
            specs.value(name, value)
        assert words in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("engine_env", True, "engine_env: True is no dict"),
        ("engine_env", {"a": None}, "engine_env.a: it is empty (null); remove the line"),
        ("engine_env", {"a": True}, "engine_env.a: True is not a number"),
        ("engine_list", 3, "engine_list: 3 is no list"),
        ("engine_list", [{"a": 1}, None], "engine_list[1]: it is no mapping"),
        ("engine_list", [{"a": 1}, {"b": None}], "engine_list[1].b: it is empty (null)"),
        ("engine_list", [{"b": False}], "engine_list[0].b: False is not a number"),
    ],
)
def test_what_a_validator_cannot_read_or_lets_pass_within_a_variable_is_refused(name, value, words):
    """It ends with a traceback where a mapping is a boolean, and takes nulls and booleans for numbers."""
    [problem] = problems(**{name: value})
    assert words in problem


@pytest.mark.parametrize("value", [None, True, False, {"gcs": None}, {"metrics_export": True}])
def test_ports_of_ray_are_numbers(value):
    [problem] = of_collection().problems({"a": {"ray_node_ports": value}})
    assert "ray_node_ports" in str(problem)
    assert not list(of_collection().problems({"a": {"ray_node_ports": {"metrics_export": 6395}}}))


def test_options_that_were_not_given_are_not_there():
    specs = RoleSpecs(SPECS)
    assert specs.value("engine_env", {"a": "1"}) == {"a": 1}
    assert specs.value("engine_env", {}) == {}
    assert specs.value("engine_env", "b=2") == {"b": 2}
    assert specs.value("engine_list", [{"b": "2"}]) == [{"b": 2}]
    assert specs.value("other_name", {"a": 1}) == {"a": 1}


def test_declared_variables_have_their_types_and_others_stay():
    given = {"vllm_serve_api_port": "8001", "firewall_enabled": "no", "my_own": "8001", "fabric_mtu": "9000"}
    known = Declared(given)
    assert dict(known) == {**given, "vllm_serve_api_port": 8001, "firewall_enabled": False}
    assert "vllm_serve_tls" not in known
    assert known.get("vllm_serve_tls") is None
    with pytest.raises(ValueRefused, match="vllm_serve_api_port"):
        Declared({"vllm_serve_api_port": "http"})["vllm_serve_api_port"]
    assert Declared({"vllm_serve_api_port": "http"}, strict=False)["vllm_serve_api_port"] == "http"


def test_the_collections_own_defaults_are_what_they_are_declared_to_be():
    specs = of_collection()
    for role in ROLES:
        path = TOP / "roles" / role / "defaults" / "main.yml"
        for name, value in ((yaml.safe_load(path.read_text()) if path.exists() else None) or {}).items():
            if "{{" not in str(value):
                assert specs.value(name, value) == value, name


def test_templates_are_evaluated_but_plans_and_facts_are_not():
    asked = []
    templar = SimpleNamespace(template=lambda value: asked.append(value) or f"<{value}>")
    variables = Templated({"a": "x", "ansible_facts": {"b": "{{ c }}"}}, templar)
    assert (variables["a"], variables["ansible_facts"]) == ("<x>", {"b": "{{ c }}"})
    assert asked == ["x"]


def test_a_secret_is_never_part_of_a_message():
    [problem] = problems(engine_token="hunter2hunter2")
    assert "hunter2" not in problem


@pytest.mark.parametrize("role", ROLES)
def test_defaults_and_argument_specs_agree(role):
    """Every public default is a described option and the other way round, with the same default value."""
    specs = yaml.safe_load((TOP / "roles" / role / "meta" / "argument_specs.yml").read_text())["argument_specs"]
    path = TOP / "roles" / role / "defaults" / "main.yml"
    defaults = yaml.safe_load(path.read_text()) if path.exists() else {}
    described: dict = {}
    for entry_point in specs.values():
        described.update(entry_point.get("options") or {})
    assert {name for name, option in described.items() if "default" in option} == set(defaults or {})
    for name, option in described.items():
        assert option.get("description"), name
        if "default" not in option:
            continue
        if option["type"] in ("int", "bool") and "{{" in str(defaults[name]):
            # it follows another variable; ansible-doc has room for the usual value alone
            assert type(option["default"]).__name__ == option["type"], name
            for followed in re.findall(r"role_value', '(\w+)'", defaults[name]):
                assert option["default"] == role_specs.defaults()[followed], name
        else:
            assert option["default"] == defaults[name], name
