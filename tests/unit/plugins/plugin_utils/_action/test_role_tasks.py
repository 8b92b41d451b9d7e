# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who reads what a role declares reads the role's own task, as Ansible would template it."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import module_files, role_tasks

TASK = """
- name: Something else
  sparkthor.cluster.host_state: {units: [{name: x.service, state: stopped}]}
- name: Configure it
  sparkthor.cluster.host_state:
    files: [{path: "{{ folder }}/x", template: x.j2, when: "{{ wanted }}"}]
  when: [one_on, "not two_on"]
"""


@pytest.fixture
def role(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A role of the collection's, with a template."""
    (tmp_path / "mine/tasks").mkdir(parents=True)
    (tmp_path / "mine/templates").mkdir()
    (tmp_path / "mine/tasks/main.yml").write_text(TASK)
    (tmp_path / "mine/templates/x.j2").write_text("{{ word | upper }}\n")
    monkeypatch.setattr(role_tasks, "ROLES", tmp_path)
    monkeypatch.setattr(
        "ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.role_values.ROLES", tmp_path
    )
    return tmp_path / "mine"


def files(**given: object) -> dict[str, str] | None:
    loader = DataLoader()
    variables = {"folder": "/etc", "word": "a", "wanted": True, "one_on": True, "two_on": False, **given}
    found = role_tasks.state("mine", loader, Templar(loader=loader, variables={}), variables)
    return None if found is None else {file["path"]: file["content"] for file in found["files"]}


def test_the_task_is_read_with_its_conditions_and_templates(role: Path) -> None:
    assert files() == {"/etc/x": "A\n"}
    assert files(word="b", folder="/srv") == {"/srv/x": "B\n"}
    assert files(wanted="no") == {}
    assert files(one_on=False) == {}
    assert files(two_on=True) == {}


def test_configure_goes_before_main(role: Path) -> None:
    (role / "tasks/configure.yml").write_text(TASK.replace("/x", "/y").replace("template: x.j2", "content: z"))
    assert files() == {"/etc/y": "z"}


def test_a_role_without_such_a_task_has_none(role: Path) -> None:
    (role / "tasks/main.yml").write_text("- sparkthor.cluster.host_state: {units: []}\n- ansible.builtin.meta: noop\n")
    assert files() is None


def test_of_two_such_tasks_none_is_chosen(role: Path) -> None:
    (role / "tasks/main.yml").write_text(TASK + TASK)
    with pytest.raises(ValueError, match="has 2 tasks of"):
        files()


NCCL = """
- sparkthor.cluster.nccl_conf:
    present: {NCCL_DEBUG: "{{ word }}"}
    absent: [NCCL_ALGO]
  when: wanted
"""


def test_what_another_module_is_told_is_read_from_its_task(role: Path) -> None:
    (role / "tasks/main.yml").write_text(NCCL)
    templar = Templar(loader=DataLoader(), variables={})
    found = role_tasks.calls_that_make_files("mine", templar, {"word": "INFO", "wanted": True})
    wanted = {"present": {"NCCL_DEBUG": "INFO"}, "absent": ["NCCL_ALGO"]}
    assert found == [{"module": "nccl_conf", "arguments": wanted}]
    content = "# Ansible managed: sparkthor.cluster\nNCCL_DEBUG=INFO\n"
    assert module_files.of_call(found[0]) == [{"path": "/etc/nccl.conf", "content": content}]
    assert module_files.of_call({"module": "nccl_conf", "arguments": {**wanted, "present": {}}}) == []
    assert role_tasks.calls_that_make_files("mine", templar, {"word": "INFO", "wanted": False}) == []
    assert files() is None


INCLUDED = """
- ansible.builtin.include_tasks: image.yml
  when: wanted
- name: What a comparison cannot know
  ansible.builtin.command: docker
"""
IMAGE = """
- sparkthor.cluster.engine_image: "{{ told | combine({'deliver': word}) }}"
  register: brought
- sparkthor.cluster.engine_image: "{{ told }}"
  when: brought.wheels is defined
"""


def test_a_module_of_an_included_file_is_found_by_its_first_call(role: Path) -> None:
    (role / "tasks/main.yml").write_text(INCLUDED)
    (role / "tasks/image.yml").write_text(IMAGE)
    templar = Templar(loader=DataLoader(), variables={})
    given = {"told": {"image": "x"}, "word": "fabric", "wanted": True}
    found = role_tasks.calls_that_make_files("mine", templar, given)
    assert found == [{"module": "engine_image", "arguments": {"image": "x", "deliver": "fabric"}}]
    assert role_tasks.calls_that_make_files("mine", templar, {**given, "wanted": False}) == []


def test_a_template_costs_no_copy_of_all_that_is_known(role: Path) -> None:
    class Plan(dict[str, str]):
        def __deepcopy__(self, memo: object) -> dict[str, str]:
            raise AssertionError("the variables are copied in depth")

    assert files(sparkthor_cluster=Plan(), word="b") == {"/etc/x": "B\n"}


def test_a_role_without_other_modules_tells_them_nothing(role: Path) -> None:
    assert role_tasks.calls_that_make_files("mine", Templar(loader=DataLoader(), variables={}), {}) == []


LOOP = """
- sparkthor.cluster.host_state:
    files:
      - {path: "/etc/{{ item }}", content: "{{ item }} {{ word }}", restarts: true, when: "{{ item != 'off' }}"}
      - {path: /etc/all, content: all, kept: true}
      - {path: /etc/secret, from_secret: key}
  loop: "{{ several }}"
  when: item != 'skipped'
"""


def test_a_task_with_a_loop_says_what_its_runs_say(role: Path) -> None:
    (role / "tasks/main.yml").write_text(LOOP.replace("      - {path: /etc/secret, from_secret: key}\n", ""))
    given = {"several": ["one", "skipped", "off", "two"]}
    assert files(**given) == {"/etc/one": "one a", "/etc/all": "all", "/etc/two": "two a"}


def test_files_are_known_by_their_flags(role: Path) -> None:
    (role / "tasks/main.yml").write_text(LOOP)
    variables = {"word": "a", "several": ["one", "skipped", "off", "two"]}
    templar = Templar(loader=DataLoader(), variables={})

    def flagged(flag: str, **given: object) -> list[str]:
        return role_tasks.flagged("mine", flag, templar, variables, **given)

    assert flagged("restarts") == ["/etc/one", "/etc/two"]
    assert flagged("restarts", item="two") == ["/etc/two"]
    assert set(flagged("kept")) == {"/etc/all"}
    assert flagged("restarts", item="off") == []


def test_without_secrets_none_is_read(role: Path) -> None:
    (role / "tasks/main.yml").write_text(LOOP)
    loader = DataLoader()
    templar = Templar(loader=loader, variables={})
    found = role_tasks.state("mine", loader, templar, {"word": "a", "several": ["one"]}, secrets=False)
    assert found is not None
    assert [file["path"] for file in found["files"]] == ["/etc/one", "/etc/all"]


RUN = """
- name: Ask
  sparkthor.cluster.netplan_apply: {state: "{{ word }}"}
  check_mode: true
  register: asked
- name: Change
  sparkthor.cluster.netplan_apply: {state: changed}
  when: asked.needs_change
- name: In a block
  when: wanted
  vars: {more: 1}
  block:
    - sparkthor.cluster.host_state: {absent: ["{{ more }}"]}
    - ansible.builtin.include_tasks: more.yml
      when: word == 'a'
- name: Judge
  ansible.builtin.assert: {that: asked.fine}
"""


def calls(**given: object) -> list[tuple[str, object]]:
    variables = {"word": "a", "wanted": True, "several": ["one", "two"], **given}
    found = role_tasks.calls("mine", Templar(loader=DataLoader(), variables={}), variables)
    return [(module, next(iter(told.values()))) for module, told, _own in found]


def test_the_calls_of_a_role_are_those_that_a_run_would_make(role: Path) -> None:
    """With blocks, included files and loops; what a task will register decides nothing yet."""
    (role / "tasks/main.yml").write_text(RUN)
    looped = "- sparkthor.cluster.vllm_service: {group: '{{ item }}'}\n  loop: '{{ several }}'\n"
    (role / "tasks/more.yml").write_text(looped)
    beside = [("vllm_service", "one"), ("vllm_service", "two")]
    assert calls() == [("netplan_apply", "a"), ("host_state", [1]), *beside]
    assert calls(word="b") == [("netplan_apply", "b"), ("host_state", [1])]
    assert calls(wanted=False) == [("netplan_apply", "a")]


def test_what_only_a_run_can_do_is_named(role: Path) -> None:
    task = "- name: Install it\n  ansible.builtin.include_role: {name: x}\n  when: wanted\n"
    (role / "tasks/main.yml").write_text(task)
    with pytest.raises(role_tasks.NotCompared, match="Install it"):
        calls()
    assert calls(wanted=False) == []


def test_a_question_that_changes_nothing_is_not_compared(role: Path) -> None:
    task = "- name: Ask it\n  ansible.builtin.command: {argv: [x]}\n"
    (role / "tasks/main.yml").write_text(f"{task}  changed_when: false\n")
    assert calls() == []
    (role / "tasks/main.yml").write_text(task)
    role_tasks.read.cache_clear()
    with pytest.raises(role_tasks.NotCompared, match="Ask it"):
        calls()
