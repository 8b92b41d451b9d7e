# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fields out of the documents of status, verify, doctor and ray_info, picked with JMESPath.  Runs on the controller."""

from __future__ import annotations

import json
from typing import Any


class QueryError(ValueError):
    """The query cannot be run; the message names it and the fix."""


def pick(document: Any, query: str, variable: str = "query") -> Any:
    """What the JMESPath expression ``query`` finds in a document; None where it finds nothing.

    Raises :class:`QueryError`, which names the ``variable`` that the query came from.
    """
    try:
        import jmespath
    except ImportError as error:
        raise QueryError(
            f"{variable}: {query!r}: the controller's Python has no jmespath; "
            "pip install -r requirements/controller.txt"
        ) from error
    # jmespath knows the types of JSON only, and Ansible's are subclasses that it does not take for them
    plain = json.loads(json.dumps(document))
    try:
        return jmespath.search(query, plain)
    except jmespath.exceptions.JMESPathError as error:
        reason = " ".join(str(error).split())
        raise QueryError(f"{variable}: {query!r}: {reason}; the syntax is that of https://jmespath.org") from error
