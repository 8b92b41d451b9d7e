# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible:
# pylint: disable=ansible-bad-function
"""The gate in front of the engine: is the Ray cluster whole?"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence

from .._lib import files
from . import ray_config, ray_health


def main(argv: Sequence[str] | None = None) -> int:
    """0: the cluster is whole; 1: it is not, and one line says why; 2: the question could not be asked."""
    parser = argparse.ArgumentParser(
        prog="sparkthor_host ray-gate",
        description="Is the Ray cluster whole: every expected node alive on its control address, with all its GPUs?",
    )
    parser.add_argument("--config", default=ray_config.CONFIG_PATH, help="expected cluster (default: %(default)s)")
    parser.add_argument("--wait", type=float, default=0, metavar="SECONDS", help="ask again until then")
    parser.add_argument("--timeout", type=float, default=5, metavar="SECONDS", help="limit of one question")
    parser.add_argument("--source", choices=("auto", "dashboard", "engine"), default="auto")
    parser.add_argument("--json", action="store_true", help="print the whole answer instead of one line")
    parser.add_argument(
        "--without", metavar="FILE", help="JSON of the watchdog: hosts that the group is started without, if it exists"
    )
    options = parser.parse_args(argv)
    try:
        config = without(ray_config.load_config(options.config), options.without or "")
    except ray_config.RayConfigError as error:
        print(json.dumps({"healthy": False, "reason": str(error)}) if options.json else str(error), flush=True)
        return 2
    result = ray_health.wait_healthy(config, options.wait, options.timeout, options.source)
    print(json.dumps(result, indent=2) if options.json else result["reason"], flush=True)
    return 0 if result["healthy"] else 1


def without(config: ray_config.Config, path: str) -> ray_config.Config:
    """The cluster that is expected when the watchdog serves without some hosts (degraded mode)."""
    left_out = files.read_json(path).get("without")
    if not isinstance(left_out, (dict, list)):
        return config
    nodes = tuple(node for node in config.nodes if node.address not in left_out or node.role == "head")
    return dataclasses.replace(config, nodes=nodes)
