# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Arguments of `vllm serve` that make it run code, read files of the host or ask other hosts.

Each is an error unless the inventory acknowledges it by name; a recipe cannot. The rules need no option table, so that
they hold for a version that nobody here knows. They go by names: of options, and of fields at any depth of their
dictionaries, however these are written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding

#: the way to an argument, the option's full name first and then fields of it, and its value
Place = tuple[list[str], Any]
_CODE = "runs code that the argument names, as the serving user"
_FILES = "lets whoever sends a request read files of the host"
_HOSTS = "makes the engine talk to the host that the argument names"
_SECRETS_OF = "leads to files of the system, among which are the engine's own secrets"
_REQUESTS = "lets whoever sends a request bring what the engine was made to read from its owner alone"
#: options and fields, with underscores -> what they do
_NAMED: Mapping[str, str] = {
    "trust_remote_code": "runs code from the model's repository as the serving user",
    **dict.fromkeys(("middleware", "logits_processors", "inductor_passes", "model_class_overrides"), _CODE),
    # both are given to logging.config, which makes objects of any class
    **dict.fromkeys(("log_config_file", "pylogging_config_file"), _CODE),
    # compiled code is read from there and run, such as a folder of the model's own
    **dict.fromkeys(("cache_dir", "local_cache_dir"), _CODE),
    "allowed_local_media_path": _FILES,
    "tool_server": _HOSTS,
    # tensors are unpacked, templates and the processor's settings are run or obeyed
    **dict.fromkeys(("enable_prompt_embeds", "enable_mm_embeds"), _REQUESTS),
    **dict.fromkeys(("trust_request_chat_template", "trust_request_mm_kwargs"), _REQUESTS),
    "grpc": "opens a port that asks nobody for a key",
}
#: of fields that choose how, the words by which another field names a class
_CHOSEN: Mapping[str, str] = {"method": "custom_class"}
#: the like of other versions, by how Python and vLLM name what is imported
_LIKE = re.compile(
    r"(?:\w+_)?(?:cls|class|plugins?|module|module_path|qualname|callable|entry_?point|executor_class|config_file)"
)
_TO_HOST = re.compile(
    r"(?:\w+_)?(?:endpoints?|urls?|uris?|ips?|addrs?|address(?:es)?|hosts?|hostnames?|servers?|peers?)"
)
#: a place elsewhere, and one of the system's or beside its own folder
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
_SYSTEM = re.compile(r"/+(?:var/+)?(?:run|proc|sys|dev(?!/+shm/))(?:/.*)?|~.*|(?:.*/)?\.\.(?:/.*)?")
#: what is text and no place, whatever it looks like
_TEXTS = ("allowed_origins", "chat_template", "root_path")
#: the role's own, which it alone sets
_OWN = ("uds",)
#: PyTorch's own settings; texts among them name compilers and functions
_SETTINGS = "inductor_compile_config"
#: fields that hold a secret; what the roles have a variable for is refused by its option
_SECRET = re.compile(
    r"(?:\w+_)?(?:hf_token|api_key|secret_key|access_key(?:_id)?|private_key|(?:auth|access|session)_token|secret|password"
    r"|passwd|passphrase|credentials?)"
)
#: fields are written into the model's config.json, where such a name means nothing
_DATA = ("hf-overrides",)
#: of fields whose value is a plain word, or else a class or function to import
_IMPORTED = ("backend", "publisher", "kv_connector", "ec_connector")
#: in a text that is no JSON, what looks like the name of a field
_KEY = re.compile(r"([\w-]+)[\"']?\s*[:=]")


def findings(places: Iterable[Place], acknowledged: Collection[Any]) -> list[Finding]:
    """An error for each argument that the inventory has to acknowledge, and has not, and for each secret."""
    known = {str(name).strip().lstrip("-").replace("-", "_") for name in acknowledged}
    places = list(places)
    what = "is a secret, and the file of vLLM's arguments is open to every user of the host"
    fix = "give it where the program that uses it reads a file of the serving user's"
    findings = [Finding("removed", what, fix, where=where, value="(hidden)") for where in _secrets(places)]
    for where, (what, value) in needing(places).items():
        if where.replace("-", "_") in known:
            continue
        reason = "built-in models need none" if where == "trust-remote-code" else "it is not needed to serve a model"
        fix = f"leave it out ({reason}), or write vllm_serve_acknowledged: [{where}]"
        findings.append(Finding("dangerous", what, fix, where=where, value=value))
    return findings


def _secrets(places: Iterable[Place]) -> list[str]:
    leaves = (leaf for path, value in places for leaf in _leaves(path, value))
    found = [
        ".".join(place)
        for place, value in leaves
        if isinstance(value, str) and value and _SECRET.fullmatch(place[-1].replace("-", "_"))
    ]
    return list(dict.fromkeys(found))


def needing(places: Iterable[Place]) -> dict[str, tuple[str, Any]]:
    """Option, or option.field.field -> (what it does, its value); a value that switches it off does not count."""
    needs: dict[str, tuple[str, Any]] = {}
    for path, value in places:
        for place, inner in _leaves(path, value):
            what = _does(place, inner)
            if what:
                needs.setdefault(".".join(place), (what, inner))
    return needs


def _leaves(path: list[str], value: Any) -> Iterator[tuple[list[str], Any]]:
    """Every name on the way down, with what it holds; JSON in a text counts as what it says."""
    yield path, value
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            # whoever reads it may be more lenient
            value = dict.fromkeys(_KEY.findall(value), True)
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves([*path, *str(key).replace("-", "_").split(".")], inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            if isinstance(inner, (Mapping, list, tuple)) or (isinstance(inner, str) and inner.lstrip()[:1] in "{["):
                yield from ((place, held) for place, held in _leaves(path, inner) if place != path)


def _leads(where: re.Pattern[str], name: str, value: Any) -> bool:
    """Whether a text, or one of a list, is such a place; of ``name=place`` the latter."""
    texts = value if isinstance(value, (list, tuple)) else [value]
    if name in (_TEXTS if where is _URL else _OWN):
        return False
    return any(
        where.fullmatch(part.strip())
        for text in texts
        if isinstance(text, str)
        for part in (text, text.partition("=")[2])
    )


def _does(place: list[str], value: Any) -> str:
    name = place[-1].replace("-", "_")
    # vLLM's own class is chosen by "auto", or by nothing
    if value in (None, False, "", "auto") or (isinstance(value, (Mapping, list, tuple)) and not value):
        return ""
    if name in _NAMED:
        return _NAMED[name]
    if place[0] in _DATA:
        return ""
    if _CHOSEN.get(name) == value:
        return _CODE
    if _LIKE.fullmatch(name) or (_SETTINGS in place[:-1] and isinstance(value, (str, list))):
        return _CODE
    if _TO_HOST.fullmatch(name) or _leads(_URL, name, value):
        return _HOSTS
    if _leads(_SYSTEM, name, value):
        return _SECRETS_OF
    return _CODE if name in _IMPORTED and len(place) > 1 and re.search(r"[.:/]", str(value)) else ""
