# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible, in sparkthor-keep-good.service:
# pylint: disable=ansible-bad-function
"""On a worker without Ray: keep copies of the configuration that serves, for playbooks/rollback.yml.

A rank runs as the serving user, who must not decide what root writes later. So root makes the copies, of its own files;
the rank only says which of them it was started with, and where they are others by now nothing is kept.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from .._lib import files
from . import serving
from .rank_link import CONFIG, KEEP_REQUEST


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="sparkthor_host keep-good", description="Keep the files that serve.")
    parser.add_argument("--config", default=CONFIG)
    parser.add_argument("--request", default=KEEP_REQUEST)
    parser.add_argument("--folder", default=serving.GOOD)
    options = parser.parse_args(argv)
    kept = files.read_json(options.config).get("kept")
    if not isinstance(kept, list) or not kept:
        print(f"{options.config} is missing or incomplete; run the playbook again", file=sys.stderr, flush=True)
        return 78
    started_with = files.read_json(options.request)
    # a rank may not read all of them
    if any(started_with.get(path) not in ("", digest) for path, digest in serving.fingerprint(kept).items()):
        print("the configuration was declared anew since this rank started: nothing is kept", flush=True)
        return 0
    try:
        serving.keep_good(kept, options.folder)
    except (OSError, UnicodeDecodeError) as error:
        print(f"{options.folder} cannot be written: {error}", file=sys.stderr, flush=True)
        return 1
    return 0
