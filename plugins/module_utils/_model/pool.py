# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pool of blocks that the engine makes of a model's caches, and what one request takes of it.

The engine gives every cache pages of equal size, puts caches of one kind into groups that share a block table, and
hands out blocks: one block is a page of each cache of a group, and as large as the largest group. So padding counts, a
window holds more than its tokens, and a state takes whole blocks. This file follows get_kv_cache_groups and
_max_memory_usage_bytes_from_groups of vLLM 0.32; tools/judge holds it against them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import lcm

FULL, WINDOW, CHUNK, STATE, RING = "full", "window", "chunk", "state", "ring"


@dataclass(frozen=True)
class Cache:
    """What one layer of one rank caches; layers may have several."""

    kind: str
    bytes: int  # of one stored entry, or of the whole state
    per_entry: int = 1  # tokens that one entry stands for
    window: int = 0
    block: int = 0  # tokens of a block, where it is not the common size
    align: int = 1  # pages are padded to a multiple
    page_bytes: int = 0  # after padding to the page of other caches; 0: its own
    spare: int = 0  # further blocks of state that prefix caching keeps (Mamba 2: a checkpoint)
    form: tuple[int, ...] = ()  # what else keeps two caches from one group: heads, widths
    stage: int = 0  # pipeline stage
    row: int = 0  # bytes of an entry before it is packed, where pages of states follow that
    stride: int = 1  # blocks are padded to a multiple

    @property
    def page(self) -> int:
        if self.page_bytes or self.kind == STATE:
            return self.page_bytes or self.bytes
        return _up(max(1, self.block // self.per_entry) * self.bytes, self.align)

    def like(self) -> Cache:
        """The same for every cache that may share this one's group."""
        return replace(self, stage=0)


@dataclass(frozen=True)
class Request:
    """What decides how many blocks a request holds, beside its length."""

    in_flight: int  # tokens that are scheduled and not yet settled
    drafted: int = 0  # speculative tokens
    aligned_states: bool = True  # prefix caching keeps a copy of each state

    def blocks(self, cache: Cache, length: int) -> int:
        if cache.kind == STATE:
            return (2 + cache.spare if self.aligned_states else 1) + self.drafted
        if cache.kind == RING:
            return 1
        if cache.kind == WINDOW:
            return -(-min(cache.window - 1 + self.in_flight, length) // cache.block) + 1
        tokens = length if cache.kind == FULL else min(cache.window + self.in_flight, length)
        return -(-tokens // cache.block)


@dataclass(frozen=True)
class Pool:
    """Groups of caches over all pipeline stages."""

    groups: tuple[tuple[Cache, ...], ...]
    request: Request

    @cached_property
    def _kinds(self) -> list[list[Cache]]:
        """Of each group, one cache of each kind that decides how many blocks it needs."""
        return [
            list({(cache.kind, cache.window, cache.block, cache.spare): cache for cache in group}.values())
            for group in self.groups
        ]

    def blocks(self, length: int) -> int:
        """Blocks that one request of `length` tokens holds, of all groups together."""
        return sum(max(self.request.blocks(cache, length) for cache in kinds) for kinds in self._kinds)

    def block_bytes(self, stage: int) -> int:
        widest = max((sum(cache.page for cache in group if cache.stage == stage) for group in self.groups), default=0)
        return _up(widest, lcm(*(cache.stride for group in self.groups for cache in group if cache.stage == stage)))

    def bytes(self, stage: int, length: int) -> int:
        return self.block_bytes(stage) * self.blocks(length)

    def longest(self, stage: int, free: int, limit: int) -> int:
        """Tokens of the longest request that `free` bytes of a stage hold, at most `limit`; one block stays empty."""
        block = self.block_bytes(stage)
        if not block:
            return limit
        blocks = free // block - 1
        low, high = 0, limit
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.blocks(middle) <= blocks else (low, middle - 1)
        return low


def make_pool(caches: Sequence[Cache], common: int, request: Request, packed: bool = False) -> Pool:
    """Groups as the engine makes them, from the caches of all stages in the order of layers."""
    given = [replace(cache, block=cache.block or common) for cache in caches]
    if not given:
        return Pool((), request)
    if _same_type(given):
        return Pool((tuple(given),), request)
    if packed and len({cache.page for cache in given}) > 1:
        # a state takes as much as a page of attention
        page = max((cache.row * cache.block or cache.page for cache in given if cache.kind == FULL), default=0)
        given = [replace(cache, page_bytes=page) if cache.kind == STATE else cache for cache in given]
        return Pool(_packed(given), request)
    return Pool(_split(_one_page(given)), request)


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _same_type(caches: Sequence[Cache]) -> bool:
    """Whether all need the same number of slots for any request."""
    first = caches[0]
    return all(
        (cache.kind, cache.block, cache.window) == (first.kind, first.block, first.window)
        and (cache.kind != STATE or (cache.page, cache.form) == (first.page, first.form))
        for cache in caches
    )


def _one_page(caches: Sequence[Cache]) -> list[Cache]:
    """Pages of one size: larger blocks where that divides, else padding."""
    largest = max(cache.page for cache in caches)
    pages = []
    for cache in caches:
        if cache.page == largest or cache.kind == STATE or largest % cache.page:
            pages.append(replace(cache, page_bytes=largest))
        else:
            pages.append(replace(cache, block=cache.block * (largest // cache.page)))
    return pages


def _split(caches: Sequence[Cache]) -> tuple[tuple[Cache, ...], ...]:
    """Groups of as many caches as the rarest kind has, or as the most frequent one if that is hardly more."""
    kinds: dict[Cache, list[Cache]] = {}
    for cache in caches:
        kinds.setdefault(cache.like(), []).append(cache)
    counts = [len(members) for members in kinds.values()]
    size = max(counts) if max(counts) < 1.5 * min(counts) else min(counts)
    groups: list[tuple[Cache, ...]] = []
    for members in kinds.values():
        number = -(-len(members) // size)
        groups.extend(tuple(members[first::number]) for first in range(number))
    return tuple(groups)


def _packed(caches: Sequence[Cache]) -> tuple[tuple[Cache, ...], ...]:
    """Pages of different size side by side in one block (DeepSeek V4)."""
    buckets: list[list[Cache]] = []
    for cache in caches:
        for bucket in buckets:
            if _same_type([bucket[0], cache]):
                bucket.append(cache)
                break
        else:
            buckets.append([cache])
    pages = [
        {page: [c for c in bucket if c.page == page] for page in {c.page: 0 for c in bucket}} for bucket in buckets
    ]
    # a bucket with as many layers of each page size repeats a pattern, and may be cut between its repeats
    repeats = [max(len(layers) for layers in sizes.values()) for sizes in pages]
    even = [len({len(layers) for layers in sizes.values()}) == 1 for sizes in pages]
    least = max((n for n, sizes, fair in zip(repeats, pages, even, strict=True) if fair and len(sizes) > 1), default=0)
    each = _least_padding([n for n, fair in zip(repeats, even, strict=True) if fair], least) if least else 0
    cuts = [-(-n // each) if each and fair else 1 for n, fair in zip(repeats, even, strict=True)]
    states = [bucket[0].kind in (STATE, RING) or (not each and bucket[0].kind == WINDOW) for bucket in buckets]
    anchor = max(
        sum(-(-len(layers) // (len(bucket) if state else cut)) * page for page, layers in sizes.items())
        for bucket, sizes, cut, state in zip(buckets, pages, cuts, states, strict=True)
    )
    groups: list[tuple[Cache, ...]] = []
    for bucket, sizes, cut, state in zip(buckets, pages, cuts, states, strict=True):
        if state:
            cut = max(cut, -(-len(bucket) // max(anchor // bucket[0].page, 1)))
        pattern = list(zip(*sizes.values(), strict=False)) if cut > 1 else [tuple(bucket)]
        groups.extend(tuple(cache for repeat in pattern[first::cut] for cache in repeat) for first in range(cut))
    return tuple(groups)


def _least_padding(counts: Sequence[int], least: int) -> int:
    """The size of at least `least` by which counts are rounded up with the least padding; the largest of equals."""
    return min(
        range(max(1, least), max(counts) + 1),
        key=lambda size: (sum(-count % size for count in counts), -size),
        default=max(1, least),
    )
