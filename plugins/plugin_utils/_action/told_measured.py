# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The form of what hosts measured for verify, by stage (``module_utils/_measure``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import shape, told
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.shape import Form


def a_list_that_is_not_empty(value: Any) -> bool:
    return isinstance(value, list) and bool(value)


_REASON = re.compile(r"(?s).+")
_MAYBE: Form = (told.a_time, None)
_TEST: Form = {"id": str, "how": re.compile("tcp|rdma"), "mtu?": told.a_count}
_STREAMS: Form = dict.fromkeys(
    ("tokens_per_second", "decode_tokens_per_second", "ttft_seconds", "ttft_max_seconds"), told.a_time
)
#: what there is only where something was measured
_PARTS = frozenset(("tests", "rows", "gpus", "completion", "started"))
#: what a stage measured has all of these forms
MEASURED: Mapping[str, tuple[Form, ...]] = {
    "agent": ({"started": bool, "errors": {str: str}},),
    "links": ({"tests": [({**_TEST, "gbits": told.a_time}, {**_TEST, "error": _REASON})]},),
    "collective": (
        {
            "backend": re.compile("nccl|gloo"),
            "right": bool,
            "rows": [{"bytes": told.a_count, "seconds": told.a_time, "busbw_gbytes": told.a_time}],
            "log": {
                **dict.fromkeys(("network", "bootstrap"), str),
                **{"ports": [str], "netdevs": [str], "ib_disabled": bool},
            },
            "sent?": {str: told.a_count},
            "nccl?": (re.compile(r"[\w.+-]{0,64}"), None),
            "nccl_libraries?": {str: [str]},
        },
        {"rows": a_list_that_is_not_empty},
    ),
    "burn": (
        {
            "device": re.compile("cuda|cpu"),
            "gpus": [
                {
                    **{"name": str, "tflops": told.a_time, "slowed": [str]},
                    **dict.fromkeys(("sm_mhz", "watts", "celsius"), _MAYBE),
                }
            ],
        },
    ),
    "serving": (
        {
            "completion": {"tokens": told.a_count, "seconds": told.a_time},
            "streams": {str: _STREAMS},
            "answers?": {**dict.fromkeys(("asked", "right"), told.a_count), "wrong": str},
            "error?": str,
        },
    ),
}


def check_measured(stage: str, found: Mapping[str, Any]) -> None:
    """Raise Misshapen unless it is what the stage measures, or says why it did not measure."""
    error = found.get("error")
    if isinstance(error, str) and error and not _PARTS & set(found):
        return
    for form in MEASURED[stage]:
        shape.check(found, form, "found")
