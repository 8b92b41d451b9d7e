# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inventories as people write them, with the sentence that each mistake gets."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import sources

TOP = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists())
SOUND = """---
cluster:
  children:
    ray_head:
      hosts:
        spark-01:
          ansible_host: 192.168.1.11
    ray_workers:
      hosts:
        spark-02:
          ansible_host: 192.168.1.12
"""
#: how the file differs from a sound one, the line, and what is said
MISTAKES = [
    ("      hosts:\n        spark-01", "\thosts:\n        spark-01", 5, "a tab indents it, which YAML does not take"),
    ("          ansible_host: 192.168.1.11", "          \tansible_host: 192.168.1.11", 7, "a tab indents it"),
    (
        "          ansible_host: 192.168.1.11",
        "        ansible_host: 192.168.1.11",
        7,
        "ansible_host stands where group",
    ),
    (
        "        spark-01:\n          ansible_host: 192.168.1.11",
        "      spark-01:\n        ansible_host: 192.168.1.11",
        6,
        "spark-01 stands directly in group ray_head, where only hosts, children, vars can be",
    ),
    ("      hosts:\n        spark-01", "      host:\n        spark-01", 5, "(did you mean 'hosts'?)"),
    (
        "    ray_workers:\n      hosts:\n        spark-02:\n          ansible_host: 192.168.1.12",
        "    ray_workers:\n        spark-02:\n        spark-03:\n          ansible_host: 192.168.1.13",
        9,
        "spark-02, spark-03 stand directly in group ray_workers, where only hosts, children, vars can be; "
        "add `hosts:` above them",
    ),
    (
        "      hosts:\n        spark-02:\n",
        "      hosts:\n      spark-02:\n",
        10,
        "spark-02 stands directly in group ray_workers, where only hosts, children, vars can be; "
        "indent it further, under hosts",
    ),
    ("  children:\n    ray_head", "  childs:\n    ray_head", 3, "childs stands directly in group cluster"),
    ("        spark-01:\n", "        - spark-01:\n", 5, "hosts of group ray_head is no mapping"),
    ("        spark-01:\n          ansible_host", "        spark-01", 6, "with a value instead of variables"),
    ("        spark-02:", "        spark-01:\n        spark-01:", 11, "spark-01 is there already, in line 10"),
    ("    ray_workers:", "   ray_workers:", 8, "it begins with 3 spaces, as no line above it does"),
    ("        spark-02:", "        2:", 10, "the host 2 of group ray_workers is no text"),
    ("  children:\n", "  fabric_topology: ring\n  children:\n", 3, "fabric_topology stands directly in group cluster"),
    ("  children:\n", "  vars:\n    - a: 1\n  children:\n", 3, "vars of group cluster is no mapping"),
    ("cluster:\n", "vllm_serve_recipe: qwen\ncluster:\n", 2, "vllm_serve_recipe stands where a group is expected"),
    ("cluster:\n", "cluster\n", 3, "it is no YAML"),
    ("        spark-01:\n", "        spark-01\n", 7, "it is no YAML"),
    ("ansible_host: 192.168.1.11", "ansible_host: 'x", 12, "it is no YAML"),
    (
        "          ansible_host: 192.168.1.12",
        "          ansible_host:192.168.1.12",
        11,
        "no space follows ansible_host:; write a space after the colon",
    ),
    (
        "ansible_host: 192.168.1.11",
        "ansible_host:192.168.1.11\n          # nvidia's own\n          ansible_user: nvidia",
        7,
        "no space follows ansible_host:",
    ),
    ("cluster:\n", "cluster:\n  vars:\n    fabric_mtu:9000\n", 4, "no space follows fabric_mtu:"),
]


def written(folder: Path, text: str, name: str = "hosts.yml") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", sorted(path.name for path in (TOP / "inventories").iterdir() if path.is_dir()))
def test_the_inventories_of_the_collection_have_none(name: str) -> None:
    assert sources.problems([str(TOP / "inventories" / name)], (".cfg", ".ini")) == []


HOSTS_OF_WORKERS = "{0}  hosts:\n{0}    spark-02:\n{0}      ansible_host: 192.168.1.12\n"


@pytest.mark.parametrize(
    ("name", "name_at", "hosts_at", "said"),
    [
        ("ray_workers", 6, 6, "stands directly in group ray_head, where only hosts, children, vars can be"),
        ("rack_2", 6, 6, "stands directly in group ray_head, where only hosts, children, vars can be"),
        ("ray_workers", 6, 4, "stands directly in group ray_head, where only hosts, children, vars can be"),
        ("rack_2", 6, 4, "stands directly in group ray_head, where only hosts, children, vars can be"),
        ("ray_workers", 8, 8, "stands among the hosts of group ray_head"),
        ("rack_2", 8, 8, "stands among the hosts of group ray_head"),
        ("ray_workers", 8, 4, "stands among the hosts of group ray_head"),
    ],
)
def test_a_group_that_is_indented_too_far_is_told_once(
    tmp_path: Path, name: str, name_at: int, hosts_at: int, said: str
) -> None:
    head, _sep, _rest = SOUND.partition("    ray_workers:")
    path = written(tmp_path, f"{head}{' ' * name_at}{name}:\n{HOSTS_OF_WORKERS.format(' ' * hosts_at)}")
    [finding] = sources.problems([str(tmp_path)])
    words = f"{name} {said}; indent it less, as far as ray_head"
    assert str(finding) in (f"{path}, line 8: {words}", f"{path}, line 8: the group {words}")


def test_a_group_beside_children_or_without_them(tmp_path: Path) -> None:
    written(
        tmp_path,
        SOUND.replace("    ray_workers:", "  ray_workers:").replace(
            "      hosts:\n        spark-02", "    hosts:\n        spark-02"
        ),
    )
    [finding] = sources.problems([str(tmp_path)])
    assert str(finding).endswith("can be; indent it further, under children")
    written(tmp_path, "cluster:\n  ray_head:\n    hosts:\n      spark-01:\n")
    [finding] = sources.problems([str(tmp_path)])
    assert str(finding).endswith("can be; add `children:` above it")


def test_neither_has_what_is_as_ansible_takes_it(tmp_path: Path) -> None:
    written(tmp_path, SOUND + "sparks:\n  children:\n    cluster:\n  vars: {a: !vault abc}\n")
    written(tmp_path, "a: 1\nb: {c: {d: 2}}\n", "group_vars/cluster.yml")
    written(tmp_path, "$ANSIBLE_VAULT;1.1;AES256\n6162\n", "group_vars/all/vault.yml")
    written(tmp_path, "plugin: constructed\nstrict: false\n", "more.yml")
    written(tmp_path, "[ray_head]\nspark-03 ansible_host=192.168.1.13\n", "more")
    written(tmp_path, SOUND, "also")
    written(tmp_path, "\t", "notes.orig")
    assert sources.problems([str(tmp_path), "a,b,"], (".orig",)) == []


@pytest.mark.parametrize(("right", "wrong", "line", "said"), MISTAKES)
def test_a_mistake_is_named_with_its_file_and_line(
    tmp_path: Path, right: str, wrong: str, line: int, said: str
) -> None:
    assert right in SOUND
    path = written(tmp_path, SOUND.replace(right, wrong, 1))
    found = [str(finding) for finding in sources.problems([str(tmp_path)])]
    assert found
    assert found[0].startswith(f"{path}, line {line}: ")
    assert said in found[0]
    # a half of the mistakes is a host without its address, and none shows a value
    assert "192.168" not in " ".join(found)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("fabric_topology: ring\n\tfabric_cage: 1\n", 2, "a tab indents it"),
        ("fabric_topology ring\nfabric_cage: 1\n", 2, "it is no YAML"),
        ("a: 1\nfabric_topology ring\nfabric_cage: 1\n", 2, "write a name, a colon and a space before its value"),
        ("vllm_serve_recipe:qwen3-8b\n", 1, "no space follows vllm_serve_recipe:; write a space after the colon"),
        ("vllm_serve_recipe:qwen3-8b\nfabric_cage: 1\n", 1, "no space follows vllm_serve_recipe:"),
        ("fabric_cage: 1\nvllm_serve_recipe:qwen3-8b\n", 2, "no space follows vllm_serve_recipe:"),
        ("fabric_cage: 1\nvllm_serve_recipe:qwen3-8b\n\n# 2\na: 1\n", 2, "no space follows vllm_serve_recipe:"),
        ("a:\n  b:1\n  c: 2\n", 2, "no space follows b:; write a space"),
        ("a:\n  - name:x\n    source: y\n", 2, "no space follows name:; write a space"),
        ("a: 'http://x\nb: 1\n", 3, "it is no YAML"),
        ("- fabric_topology: ring\n", 1, "it is no mapping of variables"),
        ("fabric_cage: 1\nfabric_cage: 0\n", 2, "fabric_cage is there already, in line 1"),
        ("a: {b: {c: 1, c: 2}}\n", 1, "c is there already"),
    ],
)
@pytest.mark.parametrize("name", ["group_vars/cluster.yml", "host_vars/spark-01/own.yml"])
def test_files_of_variables_are_read_as_well(tmp_path: Path, name: str, text: str, line: int, said: str) -> None:
    hosts = written(tmp_path, SOUND)
    path = written(tmp_path, text, name)
    for source in (tmp_path, hosts):
        [finding] = sources.problems([str(source)])
        assert str(finding).startswith(f"{path}, line {line}: ")
        assert said in str(finding)


@pytest.mark.parametrize(
    ("text", "line"),
    [("[ray_head]\nspark-01 ansible_host 192.168.1.11\n", 2), ("[ray_head:childs]\nspark-01\n", 1), ("[ray_head\n", 1)],
)
def test_an_ini_inventory_is_read_as_ansible_does(tmp_path: Path, text: str, line: int) -> None:
    path = written(tmp_path, text, "hosts.ini")
    [finding] = sources.problems([str(path)])
    assert str(finding).startswith(f"{path}, line {line}: it is no inventory")
    assert "192.168" not in str(finding)


GROUPS = {
    "all": ["spark-01", "spark-02", "nas.lan"],
    "ungrouped": ["nas.lan"],
    "cluster": ["spark-01", "spark-02"],
    "ray_head": ["spark-01"],
    "rack1": ["spark-01"],
}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "group_vars/clusters.yml",
            "it is not read, because no group of the inventory is called clusters (did you mean 'cluster'?); rename it "
            "to cluster.yml",
        ),
        ("group_vars/ray-head/vault.yml", "called ray-head (did you mean 'ray_head'?); rename it to ray_head"),
        ("group_vars/rack01", "called rack01 (did you mean 'rack1'?); rename it to rack1"),
        ("group_vars/al.yml", "(did you mean 'all'?); rename it to all.yml"),
        ("host_vars/spark_01.yaml", "no host of the inventory is called spark_01 (did you mean 'spark-01'?); rename"),
        ("host_vars/cluster.yml", "called cluster; cluster is a group, so move it to "),
        ("group_vars/spark-01.yml", "called spark-01; spark-01 is a host, so move it to "),
    ],
)
def test_variables_that_nobody_reads_under_a_name_that_is_nearly_right(tmp_path: Path, name: str, said: str) -> None:
    hosts = written(tmp_path, SOUND)
    written(tmp_path, "$ANSIBLE_VAULT;1.1;AES256\n6162\n", name)
    for sources_given in ([str(tmp_path)], ["spark-07,", str(hosts), str(tmp_path)]):
        [finding] = sources.unread(GROUPS, sources_given)
        assert str(finding).startswith(f"{tmp_path}/{'/'.join(name.split('/')[:2])}: it is not read, because ")
        assert said in str(finding)
        assert finding.severity == "error"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("host_vars/spark-09.yml", "host"),  # a machine that is away, say
        ("group_vars/rack2.yml", "group"),
        ("group_vars/vault.yml", "group"),
        ("group_vars/thors.yml", "group"),
    ],
)
def test_other_variables_that_nobody_reads_are_a_warning(tmp_path: Path, name: str, kind: str) -> None:
    written(tmp_path, "a: 1\n", name)
    [finding] = sources.unread(GROUPS, [str(tmp_path)])
    _folder, _sep, file = name.partition("/")
    assert finding.severity == "warning"
    rest = ", or remove it; all files of a folder group_vars/GROUP are read as well"
    if kind == "host":
        rest = " (nas.lan, spark-01, spark-02), or remove it"
    assert str(finding) == (
        f"{tmp_path}/{name}: it is not read, because no {kind} of the inventory is called {Path(file).stem}; name it "
        f"after a {kind}{rest}"
    )


def test_of_many_hosts_the_nearest_are_named(tmp_path: Path) -> None:
    written(tmp_path, "a: 1\n", "host_vars/spark-79.yml")
    names = [f"spark-{number:02}" for number in range(1, 10)]
    [finding] = sources.unread({"all": names}, [str(tmp_path)])
    assert finding.fix == "name it after a host (spark-09, spark-07, spark-08), or remove it"
    [finding] = sources.unread({"all": [f"{letter}.lan" for letter in "abcdefghi"]}, [str(tmp_path)])
    assert finding.fix == "name it after a host, or remove it"


def test_variables_that_are_read_or_that_nobody_means_to_be(tmp_path: Path) -> None:
    for name in ("all.yml", "ungrouped", "cluster/own.yml", "cluster/clusters.yml", "ray_head.json", ".clusters.yml"):
        written(tmp_path, "a: 1\n", f"group_vars/{name}")
    for name in ("README.md", "clusters.yml.example", "clusters.yml~", "clusters.bak", "clusters.yml.orig", "README"):
        written(tmp_path, "a: 1\n", f"group_vars/{name}")
    for name in ("nas.lan", "spark-01.yml", "localhost.yml", "nas.lan.yml"):
        written(tmp_path, "a: 1\n", f"host_vars/{name}")
    assert sources.unread(GROUPS, [str(tmp_path), "/none", "a,"], ("~", ".bak", ".orig", ".md")) == []
    # a group may come from another one of several inventories
    written(tmp_path / "other", "a: 1\n", "group_vars/clusters.yml")
    assert sources.unread({**GROUPS, "clusters": []}, [str(tmp_path), str(tmp_path / "other")], ("~",)) == []


@pytest.mark.parametrize(
    "hosts", sorted(path for top in ("inventories", "examples") for path in (TOP / top).glob("*/hosts.yml")), ids=str
)
def test_all_files_of_variables_of_the_collection_are_read(hosts: Path) -> None:
    loader = DataLoader()
    groups = InventoryManager(loader, [str(hosts)]).get_groups_dict()
    assert sources.unread(groups, [str(hosts.parent)], (".cfg", ".ini", ".md")) == []


def test_what_is_not_there_is_named_with_what_may_be_meant(tmp_path: Path) -> None:
    written(tmp_path, SOUND, "3spark/hosts.yml")
    [finding] = sources.problems([str(tmp_path / "3sparks")])
    assert str(finding) == (f"-i {tmp_path}/3sparks: there is no such file or folder; did you mean {tmp_path}/3spark?")
    [finding] = sources.problems([str(tmp_path / "none" / "hosts.yml")])
    assert finding.fix == "name an inventory that is there"
    [finding] = sources.problems(["INVENTORY"])
    assert finding.fix == "the word stands for the folder of your inventory: name that, such as inventories/mine"


def test_a_folder_of_inventories_is_not_one(tmp_path: Path) -> None:
    for name in ("a", "b"):
        written(tmp_path, SOUND, f"{name}/hosts.yml")
        written(tmp_path, "x: 1\n", f"{name}/group_vars/cluster.yml")
    [finding] = sources.problems([str(tmp_path)])
    assert str(finding).endswith("it holds 2 inventories, which would become one; name one of them: a, b")


def test_a_folder_without_a_file_that_ansible_reads(tmp_path: Path) -> None:
    written(tmp_path, "[ray_head]\nspark-01\n", "hosts.ini")
    [finding] = sources.problems([str(tmp_path)], (".ini",))
    assert "no file in it is an inventory (Ansible passes over hosts.ini)" in str(finding)


def test_an_empty_and_an_unreadable_file(tmp_path: Path) -> None:
    path = written(tmp_path, "---\n")
    assert "it is empty" in str(sources.problems([str(path)])[0])
    path.write_bytes(b"cluster:\n  \xff\xfe\n")
    assert "it is no UTF-8 text" in str(sources.problems([str(path)])[0])


@pytest.mark.parametrize(
    ("groups", "given", "said"),
    [
        ({"all": []}, ["/none/hosts"], "no inventory was given, so there is no host to work on; add -i"),
        ({"all": ["a"], "ungrouped": ["a"]}, ["a,"], "no host is in the group cluster; it has no groups"),
        ({"clusters": ["a"]}, ["a,"], "its groups are clusters (is 'clusters' meant?)"),
        ({"cluster": [], "ray_head": ["a"]}, ["a,"], "its groups are cluster, ray_head;"),
    ],
)
def test_no_host_in_the_cluster(groups: dict[str, list[str]], given: list[str], said: str) -> None:
    [finding] = sources.unnamed(groups, given)
    assert said in str(finding)
    assert sources.unnamed({**groups, "cluster": ["a"]}, given) == []
