# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import base64
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.action import cluster_secrets


def test_a_kept_secret_is_private_from_its_first_moment(tmp_path):
    path = tmp_path / "secrets" / "api_key"
    value = cluster_secrets.new_secret()
    cluster_secrets.keep(str(path), value)
    assert cluster_secrets.read_kept(str(path)) == value
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert [item.name for item in path.parent.iterdir()] == ["api_key"]


def test_two_secrets_differ_and_are_long():
    first, second = cluster_secrets.new_secret(), cluster_secrets.new_secret()
    assert first != second
    assert len(first) >= 32


def test_no_file_is_no_secret(tmp_path):
    assert cluster_secrets.read_kept(str(tmp_path / "api_key")) is None


@pytest.mark.parametrize(("text", "mode", "words"), [("", 0o600, "0 characters"), ("x" * 40, 0o644, "chmod 0600")])
def test_an_empty_or_readable_file_is_refused_without_showing_it(tmp_path, text, mode, words):
    path = tmp_path / "api_key"
    path.write_text(text)
    path.chmod(mode)
    with pytest.raises(AnsibleActionFail, match=words) as caught:
        cluster_secrets.read_kept(str(path))
    assert not text or text not in str(caught.value)


class Action(cluster_secrets.ActionModule):
    """Without a play: nothing is fetched, the folder is as the variable says."""

    def __init__(self, args, check_mode=False):
        self._task = SimpleNamespace(action="cluster_secrets", args=args, check_mode=check_mode, run_once=True)
        self._templar = SimpleNamespace(template=lambda value: value)

    def once(self, folder, **variables):
        return self.run(None, {"sparkthor_secrets_dir": str(folder), **variables})


@pytest.fixture
def kept(tmp_path, monkeypatch):
    monkeypatch.setattr("ansible.plugins.action.ActionBase.run", lambda self, tmp=None, task_vars=None: {})
    for name in ("api_key", "ray_token", "peer_secret"):
        cluster_secrets.keep(str(tmp_path / name), f"{name}-of-some-length")
    return tmp_path


def content(folder):
    return {path.name: path.read_text().strip() for path in folder.iterdir()}


def test_a_key_whose_former_one_is_still_valid_is_not_replaced_again(kept):
    assert Action({"rotate": ["api_key"], "once": True}).once(kept)["rotated"] == [str(kept / "api_key")]
    after = content(kept)
    # the run broke off, or somebody runs it twice: clients still have the first one
    assert Action({"rotate": ["api_key"], "once": True}).once(kept)["changed"] is False
    assert content(kept) == after
    Action({"forget": ["api_key"]}).once(kept)
    assert Action({"rotate": ["api_key"], "once": True}).once(kept)["rotated"] == [str(kept / "api_key")]


def test_a_rotation_keeps_the_former_until_it_is_forgotten(kept):
    result = Action({"rotate": ["api_key"]}).once(kept)
    assert result["changed"] is True
    assert result["rotated"] == [str(kept / "api_key")]
    after = content(kept)
    assert after["api_key.previous"] == "api_key-of-some-length"
    assert after["api_key"] != after["api_key.previous"]
    assert after["ray_token"] == "ray_token-of-some-length"
    assert (kept / "api_key.previous").stat().st_mode & 0o777 == 0o600
    result = Action({"forget": ["api_key"]}).once(kept)
    assert result["forgotten"] == [str(kept / "api_key.previous")]
    assert "api_key.previous" not in content(kept)
    assert Action({"forget": ["api_key"]}).once(kept)["changed"] is False


def test_check_mode_rotates_nothing(kept):
    before = content(kept)
    assert Action({"rotate": ["api_key", "ray_token"]}, check_mode=True).once(kept)["changed"] is True
    assert content(kept) == before


def test_a_secret_given_as_a_variable_is_replaced_where_it_is_given(kept):
    before = content(kept)
    with pytest.raises(AnsibleActionFail, match="vllm_serve_api_key: it is given as a variable"):
        Action({"rotate": ["ray_token", "api_key"]}).once(kept, vllm_serve_api_key="from-vault-of-length")
    assert content(kept) == before


def test_a_secret_that_was_made_a_moment_ago_is_not_replaced(kept):
    (kept / "api_key").unlink()
    result = Action({"rotate": ["api_key"]}).once(kept)
    assert (result["created"], result["rotated"]) == ([str(kept / "api_key")], [])


def test_what_the_head_has_is_asked_of_the_head(tmp_path, monkeypatch):
    monkeypatch.setattr("ansible.plugins.action.ActionBase.run", lambda self, tmp=None, task_vars=None: {})
    of_head = ["api_key", "peer_secret", "ray_token"]
    # the play's first host, for which the task runs once, is a worker: it knows the token alone, or nothing yet
    for of_worker in (["ray_token"], []):
        hosts = {"head": of_head, "worker": of_worker}
        facts = {host: {"ansible_facts": {"sparkthor_node": {"secrets": known}}} for host, known in hosts.items()}
        action = Action({})
        action._fetch = MagicMock(side_effect=lambda name, _task_vars: f"{name}-of-the-cluster")
        folder = tmp_path / str(len(of_worker))
        action.once(folder, groups={"ray_head": ["head"]}, hostvars=facts, **facts["worker"])
        assert sorted(call.args[0] for call in action._fetch.call_args_list) == of_head
        kept = content(folder)
        assert kept.pop(".gitignore").endswith("*")
        assert kept == {name: f"{name}-of-the-cluster" for name in of_head}


def test_what_is_fetched_is_not_printed_by_the_connection():
    action = Action({})
    context = SimpleNamespace(no_log=False)
    action._connection = SimpleNamespace(_play_context=context)
    seen = []

    def slurp(module, arguments, task_vars):
        seen.append((module, arguments["src"], context.no_log))
        return {"content": base64.b64encode(b"the-key-of-the-cluster\n").decode()}

    action._execute_module = slurp
    assert action._fetch("api_key", {}) == "the-key-of-the-cluster"
    assert seen == [("ansible.legacy.slurp", "/etc/sparkthor/secrets/api_key", True)]
    assert context.no_log is False
    action._execute_module = lambda *_words, **_more: {"failed": True, "msg": "Permission denied"}
    with pytest.raises(AnsibleActionFail, match="could not be read from there; check become, or set vllm_serve_api"):
        action._fetch("api_key", {})
    assert context.no_log is False


@pytest.mark.parametrize(
    "text",
    [b"sixteen-characters\nand: a line of their own", b"sixteen characters and spaces", b"\xff" * 20, b"x" * 513],
)
def test_a_head_does_not_choose_what_goes_into_files_of_all_hosts(text):
    action = Action({})
    action._connection = SimpleNamespace(_play_context=SimpleNamespace(no_log=False))
    action.host = "head"
    action._task.delegate_to = None
    action._execute_module = lambda *_words, **_more: {"content": base64.b64encode(text).decode()}
    with pytest.raises(AnsibleActionFail, match=r"host head has in /etc/sparkthor/secrets/ray_token is no secret"):
        action._fetch("ray_token", {})


def test_the_folder_of_the_secrets_is_ignored_by_git(tmp_path, monkeypatch):
    monkeypatch.setattr("ansible.plugins.action.ActionBase.run", lambda self, tmp=None, task_vars=None: {})
    ours = tmp_path / "cluster" / ".secrets"
    checked = Action({}, check_mode=True).once(ours)
    assert str(ours / ".gitignore") in checked["created"]
    assert not ours.exists()
    assert str(ours / ".gitignore") in Action({}).once(ours)["created"]
    assert "*" in (ours / ".gitignore").read_text().splitlines()
    # one from an earlier version gets it too, once
    (ours / ".gitignore").unlink()
    assert Action({}).once(ours)["created"] == [str(ours / ".gitignore")]
    assert Action({}).once(ours)["changed"] is False


def test_a_folder_that_holds_other_things_too_is_left_to_its_owner(kept):
    assert Action({}).once(kept)["changed"] is False
    assert not (kept / ".gitignore").exists()
