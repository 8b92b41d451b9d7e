# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._serving import kept


class Host:
    """Files of one host, with an environment that a link leads to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.good = str(folder / "good")
        self.yaml, self.env, self.link = folder / "vllm.yaml", folder / "vllm.env", folder / "venv"
        self.paths = [str(path) for path in (self.yaml, self.env, self.link)]
        self.yaml.write_text("model: one\n")
        self.engine("one")

    def engine(self, name: str) -> None:
        marker = self.folder / "venvs" / name / ".sparkthor-engine.json"
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.write_text(json.dumps({"pins": {"vllm": name, "attrs": "1"}}))
        self.link.unlink(missing_ok=True)
        self.link.symlink_to(f"venvs/{name}")

    def keep(self, name: str) -> bool:
        return kept.keep(name, self.paths, self.good)

    def changes(self, name: str) -> list[kept.Change]:
        return kept.differences(kept.choose(name, self.good), [], self.good, lambda _image: False)

    def back(self, name: str) -> list[str]:
        changes = self.changes(name)
        kept.apply(changes, lambda _argv, _seconds: (0, "", ""), str(self.folder / "pending"))
        return [os.path.basename(change.path) for change in changes]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_engine_arguments_and_environment_come_back_together(host: Host) -> None:
    assert host.keep("a") is True
    assert host.keep("a") is False
    host.yaml.write_text("model: two\n")
    host.env.write_text("A=1\n")
    host.engine("two")
    assert host.keep("b") is True
    assert [one.name for one in kept.read(host.good)] == ["b", "a"]
    assert [one.about["versions"] for one in kept.read(host.good)] == [{"vllm": "two"}, {"vllm": "one"}]
    assert host.changes("b") == []
    assert host.back("a") == ["venv", "vllm.env", "vllm.yaml"]
    assert (host.yaml.read_text(), os.readlink(host.link), host.env.exists()) == ("model: one\n", "venvs/one", False)
    assert host.changes("a") == []
    assert host.back("b") == ["venv", "vllm.env", "vllm.yaml"]
    assert (host.yaml.read_text(), os.readlink(host.link)) == ("model: two\n", "venvs/two")


def test_the_model_s_name_means_the_former_revision_again_unless_that_is_gone(host: Host) -> None:
    name = host.folder / "tiny"
    host.paths.append(str(name))
    for digit in "01":
        (host.folder / f"tiny@{digit * 16}").mkdir()
        name.unlink(missing_ok=True)
        name.symlink_to(f"tiny@{digit * 16}")
        host.keep(digit)
    assert host.back("0") == ["tiny"]
    assert os.readlink(name) == "tiny@" + "0" * 16
    # it costs no restart of Ray
    assert not (host.folder / "pending").exists()
    host.back("1")
    (host.folder / ("tiny@" + "0" * 16)).rmdir()
    with pytest.raises(kept.KeptError, match=r"not on this host any more .*tiny@0+\).* or model_store_revisions"):
        host.changes("0")


def test_a_model_s_folder_of_an_earlier_version_is_left_where_it_is(host: Host) -> None:
    name = host.folder / "tiny"
    host.paths.append(str(name))
    name.mkdir()
    host.keep("a")
    name.rmdir()
    name.symlink_to("tiny@" + "0" * 16)
    assert host.changes("a") == []


def test_what_serves_again_is_the_newest_again(host: Host) -> None:
    host.keep("a")
    host.yaml.write_text("model: two\n")
    assert not kept.newest_is_present(host.paths, host.good)
    host.keep("b")
    assert kept.newest_is_present(host.paths, host.good)
    host.back("a")
    host.keep("a")
    assert [one.name for one in kept.read(host.good)] == ["a", "b"]


def test_the_restarts_that_a_way_back_owes_outlive_a_broken_run(host: Host) -> None:
    host.keep("a")
    host.engine("two")
    host.back("a")
    assert [path.name for path in (host.folder / "pending").iterdir()] == ["sparkthor-ray.service"]
    served = kept.Change("/etc/sparkthor/serving.json", "a", "b", kept.Item("x"))
    assert kept.owed([served]) == ["sparkthor-watchdog.service"]
    assert kept.owed([kept.Change("/etc/sparkthor/vllm.yaml", "a", "b", kept.Item("x"))]) == []


def test_a_way_back_owes_the_front_proxy_a_reload_and_no_restart() -> None:
    engine = kept.Change("/etc/sparkthor/front/engine.conf", "a", "b", kept.Item("x"))
    assert kept.owed([engine]) == ["sparkthor-front.service.reload"]


NEW = '# of a\n"~^new$" "big new";\n"~^first of big$" "new";\n# end of a\n'
OLD = '# of a\n"~^old\\.1$" "big old.1";\n"~^first of big$" "old.1";\n# end of a\n'
OTHER = '# of aa\n"~^mini$" "small mini";\n# end of aa\n'


def test_a_door_learns_what_another_head_serves_again_and_keeps_the_rest(tmp_path: Path) -> None:
    others = tmp_path / "others.conf"
    others.write_text(f"# Ansible managed\n{OTHER}{NEW}{OTHER}")
    others.chmod(0o600)
    changes = kept.told(OLD, str(others))
    kept.apply(changes, pending=str(tmp_path / "pending"))
    assert others.read_text() == f"# Ansible managed\n{OTHER}{OLD}{OTHER}"
    assert others.stat().st_mode & 0o777 == 0o600
    assert kept.told(OLD, str(others)) == []
    # no door, and a door that does not lead there
    assert kept.told(OLD, str(tmp_path / "none")) == kept.told(OLD.replace("of a\n", "of b\n"), str(others)) == []


@pytest.mark.parametrize(
    "said",
    [
        "",
        OLD.replace("# end of a", "# end of b"),
        OLD.replace('"big old.1";', '"big old.1";}'),
        OLD.replace('"big old.1"', "$host"),
        OLD.replace('"old.1";', '"$http_authorization";'),
        OLD.replace("# end", "include /etc/shadow;\n# end"),
        OLD.removesuffix("\n"),
    ],
)
def test_nothing_but_names_gets_into_another_heads_configuration(tmp_path: Path, said: str) -> None:
    others = tmp_path / "others.conf"
    others.write_text(NEW)
    with pytest.raises(kept.KeptError, match="no names"):
        kept.told(said, str(others))


def test_groups_beside_that_are_there_are_part_of_the_way_back(tmp_path: Path) -> None:
    for name in ("embed", "late"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "serving.json").write_text("{}")
    paths = ["/etc/sparkthor/vllm.yaml", "/etc/systemd/system/sparkthor-vllm.service"]
    embed = ["/etc/sparkthor/beside/embed/vllm.yaml", "/etc/systemd/system/sparkthor-vllm-embed.service"]
    gone = ["/etc/sparkthor/beside/gone/vllm.yaml", "/etc/systemd/system/sparkthor-vllm-gone.service"]
    # an upgrade that brings a group keeps what served before, and names the files of that group
    coming = {"/etc/sparkthor/beside/late/vllm.yaml": kept.Item()}
    one = kept.Kept("a", {}, {**{path: kept.Item("x") for path in (*paths, *embed, *gone)}, **coming})
    there = str(tmp_path / "*" / "serving.json")
    assert kept.beside(one, there) == (["embed"], ["late"])
    assert list(kept.without_former(one, there).items) == [*paths, *embed]
    changed = kept.Change("/etc/sparkthor/beside/embed/serving.json", "a", "b", kept.Item("x"))
    assert kept.owed([changed]) == ["sparkthor-watchdog-embed.service"]


def test_what_the_front_proxy_includes_stays_where_it_came_later(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nginx.conf that includes it stays as well."""
    monkeypatch.setattr(kept, "FRONT", str(host.env))
    host.keep("a")
    host.env.write_text("upstream engine {}\n")
    host.yaml.write_text("model: two\n")
    assert host.back("a") == ["vllm.yaml"]
    assert host.env.exists()


def test_nothing_of_a_group_that_is_gone_is_written(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its units and its folder are gone, so its files would lie about."""
    host.keep("a")
    monkeypatch.setattr(kept, "_group_of", lambda path: "gone" if path.endswith("vllm.env") else "")
    host.yaml.write_text("model: two\n")
    host.env.write_text("A=1\n")
    assert host.back("a") == ["vllm.yaml"]


@pytest.mark.parametrize("mine", ["big", "small"])
def test_the_model_of_a_group_that_is_gone_is_not_needed_to_go_back(
    host: Host, monkeypatch: pytest.MonkeyPatch, mine: str
) -> None:
    """It was removed with its group; of a model that the host's own group serves as well the revision is needed."""
    config = host.folder / "gone.yaml"
    monkeypatch.setattr(kept, "_group_of", lambda path: "gone" if path == str(config) else "")
    for name in ("big", "small"):
        (host.folder / f"{name}@{'1' * 16}").mkdir()
        (host.folder / name).symlink_to(f"{name}@{'1' * 16}")
        host.paths.append(str(host.folder / name))
    host.paths.append(str(config))
    config.write_text(f"model: {host.folder}/small@{'1' * 16}\n")
    host.yaml.write_text(f"model: {host.folder}/{mine}@{'1' * 16}\n")
    host.keep("a")
    host.yaml.write_text("model: two\n")
    config.unlink()
    (host.folder / "small").unlink()
    (host.folder / f"small@{'1' * 16}").rmdir()
    if mine == "small":
        with pytest.raises(kept.KeptError, match="small@1111"):
            host.changes("a")
    else:
        assert host.back("a") == ["vllm.yaml"]


@pytest.mark.parametrize("path", ["/nowhere", None])
def test_an_image_is_not_there_where_docker_is_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, path: str | None
) -> None:
    """A host whose docker was removed, and one whose docker answers with an error."""
    if path is None:
        (tmp_path / "docker").write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", path or f"{tmp_path}")
    assert kept.has_image("nvcr.io/nvidia/vllm:25.11-py3") is False


def test_renamed_hosts_go_back_together(host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A rename is no reason to stay with what does not serve; another machine is."""
    declared = {"peers": {"a": "10.0.0.1", "b": "10.0.0.2"}, "machines": {"a": "m1", "b": "m2"}}
    (tmp_path / "cluster.json").write_text(json.dumps(declared))
    monkeypatch.setattr(kept.former_head, "CLUSTER", str(tmp_path / "cluster.json"))
    host.keep("one")
    one = kept.choose("one", host.good)
    assert one.about["machines"] == {"a": "m1", "b": "m2"}

    def back(machines: dict[str, str]) -> list[kept.Change]:
        return kept.differences(one, list(machines), host.good, machines=machines)

    assert back({"a": "m1", "b": "m2"}) == back({"a": "", "b": ""}) == back({"x": "m2", "y": "m1"}) == []
    for others in ({"x": "m1", "y": "m3"}, {"x": "m1"}, {"x": "", "y": ""}, {"x": "m1", "y": "m1"}):
        with pytest.raises(kept.KeptError, match="served on the hosts a, b, and the inventory has x"):
            back(others)


def test_units_are_read_anew(host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kept, "UNITS", str(tmp_path))
    host.keep("a")
    host.yaml.write_text("other\n")
    asked: list[list[str]] = []

    def refuse(argv: list[str], _seconds: float) -> tuple[int, str, str]:
        asked.append(argv)
        return 1, "", "no bus"

    with pytest.raises(kept.KeptError, match="daemon-reload: no bus"):
        kept.apply(host.changes("a"), refuse, str(tmp_path / "pending"))
    assert asked == [["systemctl", "daemon-reload"]]


def test_the_environment_is_as_private_in_its_copy_its_diff_and_after_it(host: Host) -> None:
    host.env.write_text("OF_MINE=something-secret\n")
    host.env.chmod(0o640)
    host.keep("a")
    assert {path.stat().st_mode & 0o777 for path in Path(host.good).iterdir()} == {0o600}
    assert Path(host.good).stat().st_mode & 0o777 == 0o700
    host.env.write_text("OF_MINE=another-secret\n")
    host.yaml.write_text("model: broken\n")
    shown = {change["before_header"]: change for change in (one.shown() for one in host.changes("a"))}
    assert "-secret\n" not in str(shown)
    assert shown[str(host.env)]["before"] != shown[str(host.env)]["after"]
    assert shown[str(host.yaml)]["after"] == "model: one\n"
    host.back("a")
    assert (host.env.read_text(), host.env.stat().st_mode & 0o777) == ("OF_MINE=something-secret\n", 0o640)


def test_a_torn_copy_is_no_copy(host: Host) -> None:
    host.keep("a")
    [copy] = Path(host.good).glob("vllm.yaml-*")
    copy.write_text("mod")
    host.yaml.write_text("model: two\n")
    with pytest.raises(kept.KeptError, match=r"vllm\.yaml in the configuration a cannot be used: it is damaged"):
        host.changes("a")
    copy.unlink()
    with pytest.raises(kept.KeptError, match="cannot be used"):
        host.changes("a")


def test_old_configurations_go_and_their_copies_with_them(host: Host) -> None:
    for number in range(kept.LIMIT + 3):
        host.yaml.write_text(f"model: {number}\n")
        host.keep(f"n{number}")
    assert len(kept.read(host.good)) == kept.LIMIT
    # the link has no copy, the environment is absent
    assert len(os.listdir(host.good)) == kept.LIMIT + 1
    assert [os.path.basename(path) for path in kept.needed(host.good).folders] == ["one", "one"]


@pytest.mark.parametrize("gone", [True, False])
def test_an_engine_that_is_gone_or_damaged_is_said_before_anything_changes(host: Host, gone: bool) -> None:
    host.keep("a")
    host.engine("two")
    (host.folder / "venvs" / "one" / ".sparkthor-engine.json").unlink()
    if gone:
        (host.folder / "venvs" / "one").rmdir()
    with pytest.raises(kept.KeptError, match=r"not on this host any more .*venvs/one.* raise engine_keep"):
        host.changes("a")


def test_what_an_image_needs(host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = tmp_path / "container.json"
    monkeypatch.setattr(kept.container, "CONFIG", str(config))
    monkeypatch.setattr(kept, "UNITS", str(tmp_path / "unit"))
    unit = tmp_path / "unit.service"
    unit.write_text("ExecStart=/usr/local/lib/sparkthor/sparkthor_host container run ray\n")
    config.write_text(json.dumps({"image": "sha256:1", "versions": {"vllm": "0.33"}}))
    kept.keep("c", [str(config), str(unit)], host.good)
    [configuration] = kept.read(host.good)
    assert (configuration.about["runtime"], configuration.about["versions"]) == ("container", {"vllm": "0.33"})
    # Docker is asked about images alone, and would refuse a folder's name
    assert kept.needed(host.good) == ([], ["sha256:1"])
    assert kept.differences(configuration, [], host.good, lambda image: image == "sha256:1") == []
    with pytest.raises(kept.KeptError, match="sha256:1"):
        kept.differences(configuration, [], host.good, lambda _image: False)


def test_other_hosts_and_another_executor_are_no_matter_of_files(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "describe", lambda _items: {"hosts": ["a", "b"], "executor": "ray"})
    host.keep("a")
    configuration = kept.choose("a", host.good)
    assert kept.differences(configuration, ["b", "a"], host.good) == []
    with pytest.raises(kept.KeptError, match="served on the hosts a, b, and the inventory has a, b, c"):
        kept.differences(configuration, ["a", "b", "c"], host.good)
    monkeypatch.setattr(kept, "executor", lambda: "mp")
    with pytest.raises(kept.KeptError, match="vllm_serve_executor: ray"):
        kept.differences(configuration, ["a", "b"], host.good)


def test_a_name_that_nobody_knows_shows_those_that_are(host: Host) -> None:
    with pytest.raises(kept.KeptError, match=r"no configuration 'x' is kept on this host \(none\)"):
        kept.choose("x", host.good)
    host.keep("a")
    with pytest.raises(kept.KeptError, match=r"\(a\)"):
        kept.choose("x", host.good)


def test_what_the_serving_user_says_is_no_copy(host: Host) -> None:
    """Earlier versions had each rank keep its own, as that user."""
    assert not kept.serving.GOOD.startswith("/var/lib/sparkthor/")
    host.keep("a")
    [copy] = Path(host.good).glob("vllm.yaml-*")
    copy.unlink()
    os.mkfifo(copy)
    host.yaml.write_text("model: two\n")
    with pytest.raises(kept.KeptError, match="cannot be used"):
        host.changes("a")
    (Path(host.good) / "index.json").write_text('{"kept": [{"name": 1}, 5], "files": {}}')
    assert kept.read(host.good) == []


def test_what_is_served_and_what_served_last_is_in_use(tmp_path: Path) -> None:
    new = "tiny@" + "e" * 16
    config, good, name = tmp_path / "vllm.yaml", tmp_path / "good", tmp_path / "tiny"
    folders = ["tiny@" + digit * 16 for digit in "abcd"]
    for number, folder in enumerate(folders):
        name.unlink(missing_ok=True)
        name.symlink_to(folder)
        kept.keep(f"run-{number}", [str(name)], str(good))
    config.write_text(f"# ours\nmodel: /var/lib/sparkthor/models/{new}\nserved-model-name: x@home\n")
    # what served long ago may go; going back to it needs the former variables and a run
    assert kept.revisions_needed(str(tmp_path / "vllm*.yaml"), str(good)) == sorted([new, folders[3], folders[2]])
    assert kept.revisions_needed(str(tmp_path / "absent.yaml"), str(tmp_path / "absent")) == []
    # of a group beside the host's own one
    beside = tmp_path / "beside/embed/vllm.yaml"
    beside.parent.mkdir(parents=True)
    beside.write_text(f"model: /var/lib/sparkthor/models/{folders[0]}\n")
    pattern = str(tmp_path / "beside/*/vllm.yaml")
    assert kept.revisions_needed(str(tmp_path / "none"), str(tmp_path / "none"), pattern) == [folders[0]]
    # the link was of another model, and the head's arguments tell
    kept.keep("last", [str(config)], str(good))
    config.write_text("model: owner/name\n")
    assert kept.revisions_needed(str(tmp_path / "vllm*.yaml"), str(good)) == sorted([new, folders[3]])
