# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""All roles' argument specs: every variable checked before the first host is contacted, and read by its declared type.

Ansible checks a role's arguments when the role starts, which for the last role is after the first ones changed the
hosts, and then gives the role the values as they were written.  Here what was checked is what is used: from the
command line and from INI inventories every value comes as text, and YAML reads an unquoted off as false.
Runs on the controller only.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.printable import printable
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.inventory import closest

_ROLES = Path(__file__).resolve().parents[3] / "roles"
#: the loader in C takes a tenth of the time
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
#: keys of an argument spec that documentation needs and the validator does not know
_DOCUMENTATION_KEYS = ("description", "version_added", "short_description")
#: variables of the cluster as a whole, which fabric_values reads and checks in one
_READ_ELSEWHERE = "fabric_"
#: results of tasks that are not private to their role
_REGISTERED = re.compile(r"^ +register: ([a-z]\w*)$", re.MULTILINE)
#: first words of roles' names that mean nothing else, where a person leaves out the second one
_FAMILIES = ("vllm_", "ray_", "nccl_", "roce_")


class ValueRefused(ValueError):
    """A value is not what its variable takes; the message names the variable and never shows a secret."""


def _validator_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Role options as an argument_spec for the validator: no documentation, nothing required, no defaults."""
    spec = {}
    for name, option in options.items():
        entry = {key: value for key, value in option.items() if key not in _DOCUMENTATION_KEYS}
        entry.pop("required", None)
        entry.pop("default", None)
        if "options" in entry:
            entry["options"] = {
                inner: {key: value for key, value in described.items() if key not in _DOCUMENTATION_KEYS}
                for inner, described in entry["options"].items()
            }
        entry.pop("no_log", None)
        spec[name] = entry
    return spec


def shortened(text: str) -> str:
    """A value as a message shows it."""
    return text if len(text) <= 300 else f"{text[:200]}… ({len(text)} characters)"


class RoleSpecs:
    """``specs``: role → its ``argument_specs`` mapping (entry point → ``{options: …}``).

    ``results`` are names that the roles register: they are variables too when a run has the roles twice.
    """

    def __init__(self, specs: Mapping[str, Mapping[str, Any]], results: Iterable[str] = ()) -> None:
        self._options: dict[str, dict[str, Any]] = {}
        self._role: dict[str, str] = {}
        #: those that have a default, which a null takes away
        self._given: set[str] = set()
        self._secret: set[str] = set()
        self._elsewhere: set[str] = set()
        self._results = set(results)
        families = tuple(name for name in _FAMILIES if any(role.startswith(name) for role in specs))
        self._prefixes = (*(f"{role}_" for role in specs), _READ_ELSEWHERE, *families)
        for role, entry_points in specs.items():
            for entry_point in entry_points.values():
                described = entry_point.get("options") or {}
                self._elsewhere.update(name for name in described if name.startswith(_READ_ELSEWHERE))
                options = {name: option for name, option in described.items() if not name.startswith(_READ_ELSEWHERE)}
                self._options.update(_validator_options(options))
                self._role.update(dict.fromkeys(options, role))
                self._given.update(name for name, option in options.items() if "default" in option)
                self._secret.update(name for name, option in options.items() if option.get("no_log"))

    @property
    def names(self) -> list[str]:
        return sorted(self._options)

    def names_of(self, role: str) -> list[str]:
        """The variables that this role declares."""
        return sorted(name for name, owner in self._role.items() if owner == role)

    def value(self, name: str, value: Any) -> Any:
        """A variable's value by its declared type; as it is, if no role declares the variable.

        Raises ValueRefused.
        """
        option = self._options.get(name)
        if option is None:
            return value
        if value is None:
            if name in self._given:
                raise ValueRefused(f"{name}: it is empty (null); remove the line, or give a value")
            return None
        problem = _misshapen(name, option, value)
        if not problem:
            outcome = ArgumentSpecValidator({name: option}).validate({name: value})
            read = outcome.validated_parameters.get(name)
            problem = _told(name, option, read, outcome.error_messages) or _lossy(name, option, value, read)
            if not problem:
                return _as_given(read, value)
        raise ValueRefused(f"{name}: its value (not shown) is of another type" if name in self._secret else problem)

    def problems(self, hostvars: Mapping[str, Mapping[str, Any]]) -> list[Finding]:
        """Unknown names and wrong values among the variables that begin with a role's name."""
        found: dict[Finding, list[str]] = {}
        for host, variables in hostvars.items():
            for finding in self._host_problems(variables):
                found.setdefault(finding, []).append(host)
        return [replace(finding, source=f"on {', '.join(hosts)}") for finding, hosts in found.items()]

    def _host_problems(self, variables: Mapping[str, Any]) -> Iterator[Finding]:
        for name in variables:
            if name in self._options:
                try:
                    self.value(name, variables[name])
                except ValueRefused as error:
                    where = f"role {self._role[name]}"
                    yield Finding(
                        "argument", shortened(printable(str(error))), "correct it in the inventory", where=where
                    )
            elif name.startswith(self._prefixes) and name not in self._elsewhere and name not in self._results:
                what = f"no role has a variable of this name{self._meant(name)}"
                fix = "correct or remove it (a variable of your own begins with another word)"
                if (arguments := f"{self._role_of(name)}_args") in self._options:
                    fix += f"; an option of the engine itself goes into {arguments}"
                yield Finding("unknown", what, fix, where=name)

    def _role_of(self, name: str) -> str:
        """The role with whose name a variable's begins, whether or not there is such a variable."""
        return next((role for role in set(self._role.values()) if name.startswith(f"{role}_")), "")

    def _meant(self, name: str) -> str:
        """``closest``, or the one variable that is this name with the second word of its role.

        What follows a role's name is compared alone: a long prefix makes any two variables of a role alike.
        """
        known = [*self.names, *sorted(self._elsewhere)]
        if role := self._role_of(name):
            prefix = f"{role}_"
            rests = {one.removeprefix(prefix): one for one in known if one.startswith(prefix)}
            near = difflib.get_close_matches(name.removeprefix(prefix), rests, n=1, cutoff=0.6)
            return f" (did you mean '{rests[near[0]]}'?)" if near else ""
        family, _sep, rest = name.partition("_")
        own = [one for one in known if one.startswith(f"{family}_") and one.endswith(f"_{rest}")]
        return closest(name, own if len(own) == 1 else known)


def _as_given(read: Any, given: Any) -> Any:
    """Without the keys that the validator adds to a mapping, None, for options that were not given."""
    if isinstance(read, dict):
        kept = given if isinstance(given, Mapping) else {key: item for key, item in read.items() if item is not None}
        return {key: _as_given(item, kept.get(key)) for key, item in read.items() if key in kept}
    if isinstance(read, list) and isinstance(given, list) and len(read) == len(given):
        return [_as_given(*pair) for pair in zip(read, given, strict=True)]
    return read


def _misshapen(name: str, option: Mapping[str, Any], value: Any) -> str:
    """What the validator cannot read, or lets pass, in a variable that has options; empty if there is nothing."""
    inner = option.get("options")
    if not inner:
        return ""
    if isinstance(value, (bool, int, float)):
        return f"{name}: {value!r} is no {option['type']}; give one"
    for number, item in enumerate(value if isinstance(value, list) else [value]):
        where = f"{name}[{number}]" if isinstance(value, list) else name
        if isinstance(value, list) and not isinstance(item, (Mapping, str)):
            return f"{where}: it is no mapping; give one"
        for key, given in item.items() if isinstance(item, Mapping) else ():
            if given is None:
                return f"{where}.{key}: it is empty (null); remove the line, or give a value"
            if isinstance(given, bool) and inner.get(key, {}).get("type") in ("int", "float"):
                return f"{where}.{key}: {given!r} is not a number; give one"
    return ""


def _told(name: str, option: Mapping[str, Any], read: Any, messages: Sequence[str]) -> str:
    """What the validator says, unless it is that a text is no mapping. Of the text at most a name is shown."""
    if not messages or option.get("type") != "dict" or not isinstance(read, str):
        return "; ".join(messages)
    found = re.match(r"\s*--([a-z][a-z0-9-]*)(?:[ =](\d{1,6}))?(?!\S)", read)
    key, given = (found[1], found[2] or "value") if found else ("key", "value")
    return f"{name}: it is text; write a mapping, as `{name}: {{{key}: {given}}}`"


def _lossy(name: str, option: Mapping[str, Any], value: Any, read: Any) -> str:
    """Why a value that the validator converts is not what its variable takes; empty if it is."""
    kind = option.get("type", "str")
    if kind in ("int", "float") and isinstance(value, bool):
        return f"{name}: {value!r} is not a number; give one"
    if kind in ("str", "path") and isinstance(value, (Mapping, list, tuple)):
        return f"{name}: {value!r} is a {'mapping' if isinstance(value, Mapping) else 'list'}; give a text"
    if kind in ("str", "path") and isinstance(value, (bool, float)) and read == str(value):
        # 0.20 would become 0.2, and off False
        return f"{name}: YAML reads it as {value!r}; put it in quotes"
    if kind == "list" and isinstance(read, Sequence):
        inner = {"type": option.get("elements", "raw")}
        given = value if isinstance(value, list) else []
        return next((problem for item in given if (problem := _lossy(name, inner, item, str(item)))), "")
    return ""


@cache
def of_collection() -> RoleSpecs:
    """Those of this collection's roles."""
    specs = {}
    for path in sorted(_ROLES.glob("*/meta/argument_specs.yml")):
        specs[path.parents[1].name] = yaml.load(path.read_text(encoding="utf-8"), Loader=_LOADER)["argument_specs"]
    tasks = (path.read_text(encoding="utf-8") for path in sorted(_ROLES.glob("*/tasks/*.yml")))
    return RoleSpecs(specs, [name for text in tasks for name in _REGISTERED.findall(text)])


@cache
def defaults() -> dict[str, Any]:
    """The default of each role's variable by name, as the role's defaults/main.yml has it; a template is text still."""
    found: dict[str, Any] = {}
    for path in sorted(_ROLES.glob("*/defaults/main.yml")):
        found.update(yaml.load(path.read_text(encoding="utf-8"), Loader=_LOADER) or {})
    return found


class Declared(Mapping[str, Any]):
    """Variables of which those of roles are read by their declared types.

    Raises ValueRefused for one that cannot be, or leaves it as it is for those who only look (``strict`` is false).
    """

    def __init__(self, variables: Mapping[str, Any], strict: bool = True) -> None:
        self._variables = variables
        self._strict = strict

    def __getitem__(self, name: str) -> Any:
        value = self._variables[name]
        try:
            return of_collection().value(name, value)
        except ValueRefused:
            if self._strict:
                raise
            return value

    def __contains__(self, name: object) -> bool:
        return name in self._variables

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)


class Templated(Mapping[str, Any]):
    """A host's variables, templated when they are asked for."""

    #: what preflight planned and what hosts said holds no templates, and is large
    DATA = frozenset(("sparkthor_cluster", "sparkthor_fabric", "ansible_facts"))

    def __init__(self, raw: Mapping[str, Any], templar: Any) -> None:
        self.raw = raw
        self._templar = templar

    def __getitem__(self, name: str) -> Any:
        value = self.raw[name]
        return value if name in self.DATA and isinstance(value, Mapping) else self._templar.template(value)

    def __contains__(self, name: object) -> bool:
        return name in self.raw

    def __iter__(self) -> Iterator[str]:
        return iter(self.raw)

    def __len__(self) -> int:
        return len(self.raw)
