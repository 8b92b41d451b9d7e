# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs on a host of the lab: opens connections, sends the same bytes on each, and counts what comes back.

A request that is whole is sent again after each answer.
"""

import asyncio
import collections
import contextlib
import json
import resource
import sys


async def connect(plan, counts):
    try:
        found = await asyncio.open_connection(plan["address"], 8000)
        # at once: the front proxy closes what says nothing for too long, and thousands take their time to open
        found[1].write(plan["request"].encode())
    except OSError as error:
        counts[type(error).__name__] += 1
        return None
    counts["opened"] += 1
    return found


async def hold(plan, counts, answers, until, reader, writer):
    whole = plan["request"].endswith("\r\n\r\n")
    try:
        while asyncio.get_running_loop().time() < until:
            line = await asyncio.wait_for(reader.readline(), until - asyncio.get_running_loop().time())
            if not line:
                counts["closed"] += 1
                return
            answers[line.split()[1].decode()] += 1
            if not whole:
                await asyncio.sleep(until - asyncio.get_running_loop().time())
                return
            length = 0
            while (line := await reader.readline()) not in (b"\r\n", b""):
                name, _colon, value = line.decode().partition(":")
                length = int(value) if name.lower() == "content-length" else length
            await reader.readexactly(length)
            writer.write(plan["request"].encode())
    except TimeoutError:
        counts["held"] += 1
    except (OSError, asyncio.IncompleteReadError):
        counts["closed"] += 1
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def main(plan):
    counts, answers = collections.Counter(opened=0, closed=0, held=0), collections.Counter()
    opened = await asyncio.gather(*(connect(plan, counts) for _number in range(plan["connections"])))
    until = asyncio.get_running_loop().time() + plan["seconds"]
    await asyncio.gather(*(hold(plan, counts, answers, until, *streams) for streams in opened if streams))
    print(json.dumps({**counts, "answers": answers}))


hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
asyncio.run(main(json.load(sys.stdin)))
