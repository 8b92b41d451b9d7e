# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The form that a text of a role's variable must have.

Texts become words of units, of configurations and of commands. So each variable has a form here, by which its value can
be one word there and nothing else, or a reason why it needs none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Form:
    pattern: re.Pattern[str]
    #: the rest of a sentence that begins with the value
    what: str
    fix: str


def _form(pattern: str, what: str, fix: str) -> Form:
    return Form(re.compile(pattern), what, fix)


#: characters of one text: with more it is no value that a person wrote, and no line that every reader takes whole
LONGEST = 4096
#: control characters, and what else some reader takes for the end of a line
NOT_ONE_LINE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")

_PACKAGE = _form(r"[a-z0-9][a-z0-9+.:-]*", "it is not the name of a package", "name one package of the distribution")
_LISTEN = r"(?:(?:\d{1,3}\.){3}\d{1,3}|\[[0-9a-fA-F:]+\]):\d{1,5}"
_LISTEN_WORDS = ("it is not an address with a port", "write it like 127.0.0.1:9090 or [::1]:9090")
_TIME = _form(
    r"(?:\d+(?:ms|[smhdwy]))+",
    "it is not a duration of Prometheus",
    "write a number with s, m, h, d, w or y, such as 15s",
)
_SIZE = _form(r"\d+[KMGT]?|infinity", "it is not a size", "write a number with K, M, G or T, such as 1G, or infinity")
_FOLDER = _form(
    r"/[\w./@+=-]*",
    "it is not the path of a folder, or holds a blank or a sign that means something to systemd, Docker or a shell",
    "name it from / on, with letters, digits and _ . - / @ + =",
)
_UNIT = _form(r"[A-Za-z0-9_][A-Za-z0-9:_.@\\-]*", "it is not the name of a unit", "write it like chrony.service")
_PROCESS = _form(
    r"[A-Za-z0-9_ .:@+*?()|\[\]/-]+",
    "it is not the name of a process",
    "write it as in /proc/PID/comm, without quotes, backslashes and $",
)
_IMAGE = _form(
    r"[a-z0-9][A-Za-z0-9._:/@-]*", "it is not the name of an image", "write it like registry.example.org/engine:1.0"
)
_VERSION = _form(r"(?:\d[0-9A-Za-z.+!_-]*)?", "it is not a version", "write it like 0.33.0")
_INTERFACE = _form(r"(?:[A-Za-z0-9_.:@-]{1,15})?", "it is not the name of a network interface", "write it like enP7s7")
_WORD = _form(r"[\w.:/@+-]*", "it is not a word that an engine knows", "use letters, digits and _ . : / @ + -")
_MODEL = _form(
    r"[\w./@:+=~ -]*",
    "it holds a sign that names of models and folders cannot have",
    "use letters, digits and _ . - / @ : + = ~",
)
_SECONDS = _form(r"auto|\d+(?:\.\d+)?|", "it is not a number of seconds", "give one, or auto")

#: variables of one text
TEXTS: Mapping[str, Form] = {
    **dict.fromkeys(("vllm_serve_front_package", "vllm_serve_door_package", "vllm_serve_virtual_package"), _PACKAGE),
    "monitoring_prometheus_package": _PACKAGE,
    **dict.fromkeys(("monitoring_scrape_interval", "monitoring_prometheus_retention"), _TIME),
    "monitoring_prometheus_listen": _form(_LISTEN, *_LISTEN_WORDS),
    "vllm_serve_metrics_listen": _form(f"(?:{_LISTEN})?", *_LISTEN_WORDS),
    "monitoring_grafana_provisioning": _form(
        r"(?:/[A-Za-z0-9_./-]+)?", "it is not a folder", "write it like /etc/grafana/provisioning"
    ),
    "roce_network_netplan_path": _form(
        r"/etc/netplan/[A-Za-z0-9_.-]+\.yaml",
        "it is not a file that netplan reads",
        "name a file /etc/netplan/<name>.yaml",
    ),
    **dict.fromkeys(("os_hardening_core_dumps_max", "os_hardening_core_dumps_total"), _SIZE),
    "os_hardening_tmp_age": _form(
        r"(?:\d+(?:us|ms|min|[smhdwy])?)*",
        "it is not a time span of systemd",
        "write a number with min, h, d or w, such as 10d",
    ),
    "engine_python": _form(
        r"/?[A-Za-z0-9_][\w./+-]*", "it is not the path of a program", "write it like /usr/bin/python3"
    ),
    **dict.fromkeys(("engine_ray_version", "engine_vllm_version"), _VERSION),
    "engine_image": _form(f"(?:{_IMAGE.pattern.pattern})?", _IMAGE.what, _IMAGE.fix),
    "engine_image_digest": _form(
        r"(?:sha256:[0-9a-f]{64})?", "it is not a digest", "write sha256: and 64 hexadecimal digits"
    ),
    **dict.fromkeys(("fabric_lan_nic", "vllm_serve_virtual_interface"), _INTERFACE),
    **dict.fromkeys(("vllm_serve_reasoning_parser", "vllm_serve_tool_call_parser", "vllm_serve_kv_cache_dtype"), _WORD),
    "vllm_serve_virtual_address": _form(
        r"(?:[0-9A-Fa-f.:]+(?:/\d{1,3})?)?", "it is not an address", "give a free address of the LAN of the heads"
    ),
    "serving_engine": _form(r"[A-Za-z0-9._-]*", "it is not the name of an engine", "name one that is known"),
    "vllm_serve_model": _MODEL,
    "vllm_serve_fallback": _MODEL,
    **dict.fromkeys(("vllm_serve_watchdog_step_patience", "vllm_serve_watchdog_wedge_bound"), _SECONDS),
}
#: variables that are lists of texts
ITEMS: Mapping[str, Form] = {
    "engine_build_packages": _PACKAGE,
    "engine_container_mounts": _FOLDER,
    "nccl_conf_images": _IMAGE,
    **dict.fromkeys(("os_hardening_updates_masked_units", "os_hardening_time_sync_units"), _UNIT),
    "os_hardening_updates_excluded": _form(
        r'[^"]+', "it holds a quote", "write the beginning of a package's name, or an expression for it"
    ),
    "os_hardening_hold_packages": _form(
        r"[^\s#]+", "it is not a pattern for packages", "write one name or pattern, such as linux-image-*"
    ),
    **dict.fromkeys(("os_hardening_earlyoom_avoid", "os_hardening_earlyoom_prefer"), _PROCESS),
}
#: texts of several lines, which are no words of anything
LONG = ("vllm_serve_tls_certificate", "vllm_serve_tls_key")
#: those of which others check every word, with more to say
ELSEWHERE = ("vllm_serve_env", "engine_extra_env", "ray_node_env", "nccl_conf_settings", "ray_node_labels")


def texts(value: Any) -> Iterator[str]:
    """Every text in a value, those of keys as well."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from texts(key)
            yield from texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from texts(item)


def problem(name: str, value: Any) -> tuple[str | None, str, str] | None:
    """What is shown of a value that has not the form of its variable, what is wrong with it, and the fix."""
    if name not in (*LONG, *ELSEWHERE):
        for text in texts(value):
            if NOT_ONE_LINE.search(text):
                what = "it" if isinstance(value, str) else "an item" if isinstance(value, list) else "a text in it"
                shown = value if isinstance(value, str) else None
                return shown, f"{what} holds a line break or another control character", "write it in one line"
            if len(text) > LONGEST:
                return None, f"a text of {len(text)} characters is longer than {LONGEST}", "write what is meant"
    form = TEXTS.get(name)
    if form and isinstance(value, str) and not form.pattern.fullmatch(value):
        return value, form.what, form.fix
    form = ITEMS.get(name)
    for item in value if form and isinstance(value, list) else ():
        # an empty one is told of by itself
        if form and isinstance(item, str) and item.strip() and not form.pattern.fullmatch(item):
            return item, form.what, form.fix
    return None
