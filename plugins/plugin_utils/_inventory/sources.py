# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the files of an inventory say what their author meant.

Ansible warns of a file that it cannot read, or of a key that it does not know, and goes on with the rest: with no host
at all, or with a host without its address.  Here each of them is a finding with file and line.  Values are never shown,
because passwords are among them.
"""

from __future__ import annotations

import difflib
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import yaml
from ansible.errors import AnsibleError
from ansible.inventory.data import InventoryData
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import inventory_loader
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import WARNING, Finding
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.groups import STRUCTURE

#: what a group of a YAML inventory may have
PARTS = ("hosts", "children", "vars")
#: folders beside an inventory's files, in which Ansible looks for variables
VARIABLES = ("group_vars", "host_vars")
#: names that Ansible passes over in a folder; more come from its setting INVENTORY_IGNORE_EXTS
_PASSED_OVER = re.compile(r"^\.|^(group_vars|host_vars|vars_plugins)$")
#: where Ansible looks if no inventory is named
_ANSIBLES = Path("/etc/ansible/hosts")
_NULL = "tag:yaml.org,2002:null"
_YAML = (".yml", ".yaml", ".json")
#: a name whose colon is not followed by a space, which makes name and value one text
_NO_SPACE = re.compile(r"\s*(?:-\s+)?([A-Za-z_][\w.-]*):(?=[^\s/:])")
_SPACES = "indent with spaces, two for each level, as in the inventories of the collection"
#: so many names are told in a sentence
_FEW = 8
#: how the fix of a group begins that stands inside another one
_LESS = "indent it less"


def _at(path: str, line: int, what: str, fix: str) -> Finding:
    return Finding("inventory", what, fix, where=f"{path}, line {line}")


def _spaces(line: str) -> int:
    return len(line) - len(line.lstrip())


def _silent(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


def _no_space(line: str, number: int, path: str) -> list[Finding]:
    found = _NO_SPACE.match(line)
    return [_at(path, number, f"no space follows {found[1]}:", "write a space after the colon")] if found else []


def _text_instead(node: yaml.Node, path: str, after: int = 0) -> list[Finding]:
    """Of a text below line ``after``, where a mapping is expected: the space that it lacks to be one."""
    line = node.start_mark.line + 1
    plain = isinstance(node, yaml.ScalarNode) and not node.style and line > after
    return _no_space(str(node.value), line, path) if plain else []


def composed(text: str, path: str) -> tuple[yaml.Node | None, list[Finding]]:
    """The nodes of a YAML file, or why it is none.  Tags such as !vault are left as they are."""
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader), []
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        number = mark.line if mark else 0
        lines = text.splitlines()
        # the parser stops where it notices, which may be after the tab
        for near in range(max(0, number - 1), min(number + 1, len(lines))):
            if "\t" in lines[near][: len(lines[near]) - len(lines[near].lstrip())]:
                return None, [_at(path, near + 1, "a tab indents it, which YAML does not take", _SPACES)]
        begun = error.context_mark if error.context == "while scanning a simple key" else None
        # the text goes on where it has no end of its own, so it may be the line above that the parser stops at
        last = next((near for near in range(min(number, len(lines)) - 1, -1, -1) if not _silent(lines[near])), 0)
        for near in (begun.line if begun else number, last):
            if near < len(lines) and (found := _no_space(lines[near], near + 1, path)):
                return None, found
        if begun:
            what = f"it is no YAML ({error.problem})"
            return None, [_at(path, begun.line + 1, what, "write a name, a colon and a space before its value")]
        above = [_spaces(line) for line in lines[:number] if not _silent(line)]
        spaces = _spaces(lines[number]) if number < len(lines) else 0
        if number < len(lines) and above and above[-1] > spaces and spaces not in above:
            what = f"it begins with {spaces} spaces, as no line above it does"
            return None, [
                _at(path, number + 1, what, f"give it as many spaces as the line of the same level above it; {_SPACES}")
            ]
        return None, [_at(path, number + 1, f"it is no YAML ({error.problem})", f"correct it; {_SPACES}")]
    except yaml.YAMLError as error:
        return None, [Finding("inventory", f"it is no text ({error})", "write it anew as text", where=path)]


def _twice(node: yaml.MappingNode, path: str) -> Iterator[Finding]:
    """Keys that a mapping has twice: YAML keeps the last one only."""
    seen: dict[str, int] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if isinstance(key, yaml.ScalarNode):
            if key.value in seen and key.value != "<<":
                what = f"{key.value} is there already, in line {seen[key.value]}, and only the last one counts"
                yield _at(path, line, what, "keep one of them")
            seen.setdefault(key.value, line)
        if isinstance(value, yaml.MappingNode):
            yield from _twice(value, path)


def _is_group(name: str, node: yaml.Node) -> bool:
    """Whether this is a group, wherever it stands."""
    parts = [str(key.value) for key, _value in node.value] if isinstance(node, yaml.MappingNode) else []
    return name in STRUCTURE or (bool(parts) and set(parts) <= set(PARTS))


def _hosts(group: str, node: yaml.MappingNode, path: str) -> Iterator[Finding]:
    for key, value in node.value:
        line = key.start_mark.line + 1
        if _is_group(str(key.value), value):
            what = f"the group {key.value} stands among the hosts of group {group}"
            yield _at(path, line, what, f"{_LESS}, as far as {group}")
        elif key.tag != "tag:yaml.org,2002:str":
            yield _at(path, line, f"the host {key.value} of group {group} is no text", "put its name in quotes")
        elif found := _text_instead(value, path, line):
            yield from found
        elif not isinstance(value, yaml.MappingNode) and value.tag != _NULL:
            what = f"{key.value} stands where group {group} has its hosts, with a value instead of variables"
            fix = "if it is a variable, indent it under its host; if it is a host, write its address as ansible_host"
            yield _at(path, line, what, fix)


def _strays(group: str, node: yaml.MappingNode, path: str) -> Iterator[Finding]:
    """What stands directly in a group and is none of its parts; its hosts are told as one."""
    hosts: list[yaml.Node] = []
    keys = [str(key.value) for key, _value in node.value]
    for number, (key, value) in enumerate(node.value):
        part = keys[number]
        near = difflib.get_close_matches(part, PARTS, n=1, cutoff=0.6)
        if part in PARTS:
            continue
        fix = "indent it further, under the one that it belongs to"
        # where `hosts:` comes again, it is of a group that is indented like it
        if _is_group(part, value) or (value.tag == _NULL and "hosts" in keys[:number] and "hosts" in keys[number:]):
            if "children" in keys:
                fix = "indent it further, under children"
            elif "hosts" in keys:
                fix = f"{_LESS}, as far as {group}"
            else:
                fix = "add `children:` above it"
        elif not near and "_" not in part and (value.tag == _NULL or isinstance(value, yaml.MappingNode)):
            hosts.append(key)
            continue
        meant = f" (did you mean '{near[0]}'?)" if near else ""
        what = f"{part} stands directly in group {group}, where only {', '.join(PARTS)} can be{meant}"
        yield _at(path, key.start_mark.line + 1, what, fix)
    if hosts:
        verb, them = ("stands", "it") if len(hosts) == 1 else ("stand", "them")
        names = ", ".join(str(key.value) for key in hosts)
        what = f"{names} {verb} directly in group {group}, where only {', '.join(PARTS)} can be"
        fix = f"indent {them} further, under hosts" if "hosts" in keys else f"add `hosts:` above {them}"
        yield _at(path, hosts[0].start_mark.line + 1, what, fix)


def _group(name: str, node: yaml.Node, path: str) -> Iterator[Finding]:
    line = node.start_mark.line + 1
    if node.tag == _NULL:
        return
    if not isinstance(node, yaml.MappingNode):
        what = f"{name} stands where a group is expected, and has a value or a list instead of {', '.join(PARTS)}"
        yield _at(path, line, what, f"correct its indentation, or put it under vars; {_SPACES}")
        return
    yield from _strays(name, node, path)
    for key, value in node.value:
        part = str(key.value)
        line = key.start_mark.line + 1
        if part not in PARTS:
            continue
        if isinstance(value, yaml.MappingNode):
            if part == "children":
                for child, inner in value.value:
                    yield from _group(str(child.value), inner, path)
            elif part == "hosts":
                yield from _hosts(name, value, path)
        elif found := _text_instead(value, path, line):
            yield from found
        elif isinstance(value, yaml.SequenceNode) or (part == "vars" and value.tag != _NULL):
            yield _at(path, line, f"{part} of group {name} is no mapping", "write each as `name:`, without a dash")


def source_problems(text: str, path: str) -> list[Finding]:
    """What is wrong with a YAML inventory."""
    node, findings = composed(text, path)
    if findings:
        return findings
    if node is None or node.tag == _NULL:
        return [Finding("inventory", "it is empty", "copy hosts.yml of the nearest example", where=path)]
    if not isinstance(node, yaml.MappingNode):
        return [_at(path, node.start_mark.line + 1, "it is no mapping of groups", "begin it with `cluster:`")]
    if any(key.value == "plugin" for key, _value in node.value):
        return []  # the configuration of a program that finds hosts
    twice, findings = list(_twice(node, path)), list[Finding]()
    for key, value in node.value:
        findings += _group(str(key.value), value, path)
    if any(one.fix.startswith(_LESS) for one in findings):
        # the hosts of a group that stands inside another one seem to be the other's
        twice = [one for one in twice if not one.what.startswith(tuple(f"{part} is there" for part in PARTS))]
    return [*twice, *findings]


def variable_problems(text: str, path: str) -> list[Finding]:
    """What is wrong with a file in group_vars or host_vars."""
    if text.startswith("$ANSIBLE_VAULT"):
        return []
    node, found = composed(text, path)
    if found or node is None or node.tag == _NULL:
        return found
    if not isinstance(node, yaml.MappingNode):
        what, fix = "it is no mapping of variables", "write one `name: value` in each line"
        return _text_instead(node, path) or [_at(path, node.start_mark.line + 1, what, fix)]
    return list(_twice(node, path))


def _read(path: Path) -> tuple[str, list[Finding]]:
    try:
        return path.read_text(encoding="utf-8"), []
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        return "", [Finding("inventory", f"it cannot be read ({why})", "correct it or its mode", where=str(path))]


def _ini_refused(text: str) -> str:
    """What Ansible says of an inventory in the form of INI; empty if it reads it."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".ini") as copy:
        copy.write(text)
        copy.flush()
        try:
            inventory_loader.get("ini").parse(InventoryData(), DataLoader(), copy.name)
        except AnsibleError as error:
            # the message goes on with what is in the line, and that may be a password
            return str(error.message).rpartition("inventory: ")[2].partition(", got")[0]
    return ""


def ini_problems(text: str, path: str) -> list[Finding]:
    """Why Ansible cannot read an inventory in the form of INI."""
    why = _ini_refused(text)
    if not why:
        return []
    lines = text.splitlines()
    # its message has no line: the first one without which it reads the file
    number = next(number for number in range(1, len(lines) + 1) if _ini_refused("\n".join(lines[:number])))
    fix = "correct it: [GROUP], and below it a host with name=value for each of its variables"
    return [_at(path, number, f"it is no inventory ({why})", fix)]


def _file_problems(text: str, path: Path) -> list[Finding]:
    """What is wrong with one file that Ansible reads as an inventory; without an ending it may have either form."""
    if path.suffix in _YAML or (not path.suffix and isinstance(composed(text, "")[0], yaml.MappingNode)):
        return source_problems(text, str(path))
    return ini_problems(text, str(path))


def _inventories(folder: Path, ignored: Sequence[str]) -> Iterator[Path]:
    """The files of a folder that Ansible reads as inventories."""
    for entry in sorted(folder.iterdir()):
        if _PASSED_OVER.search(entry.name) or entry.name.endswith(tuple(ignored)):
            continue
        if entry.is_dir():
            yield from _inventories(entry, ignored)
        else:
            yield entry


def _missing(source: str) -> Finding:
    if Path(source).name == "INVENTORY":
        fix = "the word stands for the folder of your inventory: name that, such as inventories/mine"
        return Finding("inventory", "there is no such file or folder", fix, where=f"-i {source}")
    folder = Path(source).parent
    beside = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
    near = difflib.get_close_matches(Path(source).name, beside, n=1, cutoff=0.5)
    fix = f"did you mean {folder / near[0]}?" if near else "name an inventory that is there"
    return Finding("inventory", "there is no such file or folder", fix, where=f"-i {source}")


def _folder(source: Path, ignored: Sequence[str]) -> tuple[list[Path], list[Finding]]:
    several = [entry.name for entry in sorted(source.iterdir()) if (entry / "group_vars").is_dir()]
    where = f"-i {source}"
    if len(several) > 1:
        what = f"it holds {len(several)} inventories, which would become one"
        fix = f"name one of them: {', '.join(several)}"
        return [], [Finding("inventory", what, fix, where=where)]
    found = list(_inventories(source, ignored))
    if not found:
        unread = [entry.name for entry in sorted(source.iterdir()) if entry.is_file()]
        what = "no file in it is an inventory" + (f" (Ansible passes over {', '.join(unread)})" if unread else "")
        return [], [Finding("inventory", what, "put hosts.yml into it", where=where)]
    return found, []


def _variables(folder: Path) -> Iterator[Path]:
    for name in VARIABLES:
        if (folder / name).is_dir():
            for entry in sorted((folder / name).rglob("*")):
                if entry.is_file() and not entry.name.startswith(".") and entry.suffix in (*_YAML, ""):
                    yield entry


def problems(sources: Iterable[str], ignored: Sequence[str] = ()) -> list[Finding]:
    """What is wrong with the files of these inventories (the values of ``-i``), in the order in which they are read.

    ``ignored`` are endings of files that Ansible passes over in a folder.
    """
    findings: list[Finding] = []
    for source in sources:
        if "," in source:
            continue  # a list of hosts
        place = Path(source)
        if not place.exists() and place == _ANSIBLES:
            continue  # none was given
        if not place.exists():
            findings.append(_missing(source))
            continue
        files, wrong = _folder(place, ignored) if place.is_dir() else ([place], [])
        findings += wrong
        for path in files:
            if not os.access(path, os.X_OK) and path.suffix != ".toml":
                text, wrong = _read(path)
                findings += wrong or _file_problems(text, path)
        for path in _variables(place if place.is_dir() else place.parent) if not wrong else ():
            text, wrong = _read(path)
            findings += wrong or variable_problems(text, str(path))
    return findings


def _alike(name: str, names: Iterable[str]) -> str:
    """The one of the names that is nearly this one. Another number is another name: of a machine that is away, say."""

    def numbers(text: str) -> list[int]:
        return [int(one) for one in re.findall(r"\d+", text)]

    same = [one for one in sorted(names) if numbers(one) == numbers(name)]
    return next(iter(difflib.get_close_matches(name, same, n=1, cutoff=0.75)), "")


def _not_read(entry: Path, folder: str, known: Mapping[str, set[str]]) -> Finding:
    """Of a file or a folder of variables whose name nobody has: an error where only one thing can be meant."""
    name, ending = (entry.stem, entry.suffix) if entry.suffix in _YAML and entry.is_file() else (entry.name, "")
    [other] = [one for one in VARIABLES if one != folder]
    kind, others = ("group", "host") if folder == "group_vars" else ("host", "group")
    what = f"it is not read, because no {kind} of the inventory is called {name}"
    fix = f"name it after a {kind}, or remove it; all files of a folder {folder}/{kind.upper()} are read as well"
    if kind == "host":
        hosts = sorted(known[folder] - {"localhost"})
        near_by = hosts if len(hosts) <= _FEW else difflib.get_close_matches(name, hosts, n=3)
        names = f" ({', '.join(near_by)})" if near_by else ""
        fix = f"name it after a host{names}, or remove it"
    if name in known[other]:
        fix = f"{name} is a {others}, so move it to {entry.parent.parent / other}"
        return Finding("unread", what, fix, where=str(entry))
    near = _alike(name, known[folder]) if name not in STRUCTURE else ""
    if near:
        what += f" (did you mean '{near}'?)"
        return Finding("unread", what, f"rename it to {near}{ending}", where=str(entry))
    return Finding("unread", what, fix, where=str(entry), severity=WARNING)


def unread(groups: Mapping[str, Sequence[str]], sources: Iterable[str], ignored: Sequence[str] = ()) -> list[Finding]:
    """Files and folders of variables beside the inventories that Ansible reads for no group and for no host."""
    places = [Path(source) for source in sources if "," not in source and os.path.exists(source)]
    known = {
        "group_vars": {*groups, "all", "ungrouped"},
        "host_vars": {"localhost", *(host for hosts in groups.values() for host in hosts)},
    }
    findings = []
    for place in dict.fromkeys(place if place.is_dir() else place.parent for place in places):
        for folder in VARIABLES:
            for entry in sorted((place / folder).iterdir()) if (place / folder).is_dir() else ():
                if entry.name.startswith((".", "README")) or entry.name.endswith((*ignored, ".example")):
                    continue
                # Ansible reads a host's file without an ending too, and a dot may be part of the host's name
                names = {entry.name, *([entry.stem] if entry.suffix in _YAML else ())}
                ours = entry.is_dir() or entry.suffix in (*_YAML, "")
                if ours and not names & known[folder]:
                    findings.append(_not_read(entry, folder, known))
    return findings


def nobody_left(limit: str | None, hosts: Sequence[str], played: Sequence[str]) -> list[Finding]:
    """Of a --limit that names none of the cluster's hosts, though others: all plays would be skipped without a word."""
    if not limit or set(hosts) & set(played):
        return []
    fix = f"name one of {', '.join(hosts)}, or leave --limit out"
    return [Finding("limit", "no host of the cluster is left, so nothing would be done", fix, where=f"--limit {limit}")]


def unnamed(groups: Mapping[str, Sequence[str]], sources: Sequence[str]) -> list[Finding]:
    """No host is in the group cluster: what the inventory has instead."""
    if groups.get("cluster"):
        return []
    given = [source for source in sources if "," in source or os.path.exists(source)]
    if not given:
        fix = "add -i and the folder of your inventory, for example -i inventories/3spark"
        return [Finding("inventory", "no inventory was given, so there is no host to work on", fix)]
    names = sorted(name for name in groups if name not in ("all", "ungrouped"))
    near = difflib.get_close_matches("cluster", names, n=1, cutoff=0.6)
    meant = f" (is '{near[0]}' meant?)" if near and near[0] != "cluster" else ""
    has = f"its groups are {', '.join(names)}" if names else "it has no groups"
    what = f"no host is in the group cluster; {has}{meant}"
    fix = "make cluster the parent of the groups ray_head and ray_workers, and put your hosts into these two"
    return [Finding("inventory", what, fix, where=f"-i {' -i '.join(given)}")]
