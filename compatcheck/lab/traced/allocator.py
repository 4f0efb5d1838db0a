"""PyTorch's caching allocator for CUDA in plain Python: what it reserves for a sequence of allocations and frees.

Written from ``c10/cuda/CUDACachingAllocator.cpp`` and ``c10/core/AllocatorConfig.{h,cpp}`` of pytorch as of torch 2.13 (the
constants are those of the headers in its wheel); every method names the function it follows. Not modelled: CUDA graphs' private
pools, memory pools of `torch.cuda.MemPool`, blocks held back by ``record_stream`` (a free is done when it is asked for), the
``cudaMallocAsync`` back end, and addresses that cudaMalloc reuses, which only break ties between blocks of one size.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from compatcheck.core.named_tuple import NamedTuple

MIN_BLOCK_BYTES = 512
"""``kMinBlockSize``: sizes are multiples of it."""
SMALL_BYTES = 2**20
"""``kSmallSize``: the largest request that the small pool serves."""
SMALL_SEGMENT_BYTES = 2 * 2**20
"""``kSmallBuffer``: segments of the small pool."""
LARGE_SEGMENT_BYTES = 20 * 2**20
"""``large_segment_size``: what requests below `MIN_LARGE_BYTES` are cut from (``kLargeBuffer`` before torch 2.10)."""
MIN_LARGE_BYTES = 10 * 2**20
"""``kMinLargeAlloc``: requests from this size on get a segment of their own …"""
ROUND_LARGE_BYTES = 2 * 2**20
"""``kRoundLarge``: … that is a multiple of this."""
_INTERVALS = 16
_MEBIBYTE_LOG = 20
_ADDRESS_SPACE = 2**46
"""Room of an expandable segment where the device's memory is not known: nothing fills it."""


class Settings(NamedTuple):
    """What ``PYTORCH_ALLOC_CONF`` can change."""

    expandable_segments: bool = False
    max_split_size_bytes: int | None = None
    """``max_split_size_mb``; None splits every block."""
    max_non_split_rounding_bytes: int = LARGE_SEGMENT_BYTES
    garbage_collection_threshold: float = 0.0
    """Acts only where a limit was set with ``set_per_process_memory_fraction``."""
    roundup_power2_divisions: tuple[int, ...] = (0,) * _INTERVALS
    """Divisions between powers of two for sizes from 1 MiB, 2 MiB, … to 64 GiB; 0 leaves multiples of 512 bytes."""
    large_segment_bytes: int = LARGE_SEGMENT_BYTES

    def round(self, size: int) -> int:
        """Return the size of the block a request needs (``round_size``, ``roundup_power2_next_division``)."""
        if size < MIN_BLOCK_BYTES:
            return MIN_BLOCK_BYTES
        log = size.bit_length() - 1
        divisions = self.roundup_power2_divisions[min(max(log - _MEBIBYTE_LOG, 0), _INTERVALS - 1)]
        if divisions > 1 and size > MIN_BLOCK_BYTES * divisions:
            power = 1 << log
            step = power >> (divisions.bit_length() - 1)
            return size if size == power else -(-size // step) * step
        return -(-size // MIN_BLOCK_BYTES) * MIN_BLOCK_BYTES

    def segment(self, size: int) -> int:
        """Return what is asked of the driver for a block of this size (``get_allocation_size``)."""
        if size <= SMALL_BYTES:
            return SMALL_SEGMENT_BYTES
        if size < MIN_LARGE_BYTES:
            return self.large_segment_bytes
        return -(-size // ROUND_LARGE_BYTES) * ROUND_LARGE_BYTES


DEFAULT = Settings()


class NoMemoryError(Exception):
    """The allocator has nothing left to give, after emptying its cache."""

    def __init__(self, requested: int, allocated: int, reserved: int) -> None:
        """Keep what was asked for and what the allocator held, in bytes."""
        super().__init__(f"{requested} bytes asked for, {allocated} allocated, {reserved} reserved")
        self.requested, self.allocated, self.reserved = requested, allocated, reserved


class _Segment(NamedTuple):
    """An expandable range of addresses, backed page by page."""

    base: int
    page: int
    size: int


class Block:
    """A range of addresses: in use, free, or (of an expandable segment) without memory behind it."""

    __slots__ = (
        *("address", "size", "requested", "stream", "pool", "segment"),
        *("allocated", "mapped", "previous", "next", "age_base"),
    )

    def __init__(self, pool: _Pool, stream: int, address: int, size: int, segment: _Segment | None = None) -> None:
        """Make a free block that has memory behind it and no neighbours."""
        self.pool = pool
        self.stream = stream
        self.address = address
        self.size = size
        self.segment = segment
        self.requested = 0
        self.allocated = False
        self.mapped = True
        self.previous: Block | None = None
        self.next: Block | None = None
        self.age_base = 0

    @property
    def is_split(self) -> bool:
        """Whether it shares its segment with other blocks."""
        return self.previous is not None or self.next is not None

    def splice(self, before: Block | None, after: Block | None) -> None:
        """Link it in between two neighbours."""
        self.previous, self.next = before, after
        if before is not None:
            before.next = self
        if after is not None:
            after.previous = self


class _Pool:
    """Free blocks of small or of large requests, by stream, the smallest first, then the lowest address."""

    def __init__(self, *, small: bool) -> None:
        self.small = small
        self.free: dict[int, list[tuple[int, int]]] = {}
        self.unmapped: dict[int, list[int]] = {}
        self.blocks: dict[int, Block] = {}
        """Address → block, free and unmapped ones."""
        self.calls = 0

    def insert(self, block: Block) -> None:
        block.age_base = self.calls
        insort(self.free.setdefault(block.stream, []), (block.size, block.address))
        self.blocks[block.address] = block

    def remove(self, block: Block) -> None:
        order = self.free[block.stream]
        del order[bisect_left(order, (block.size, block.address))]
        del self.blocks[block.address]

    def insert_unmapped(self, block: Block) -> None:
        insort(self.unmapped.setdefault(block.stream, []), block.address)
        self.blocks[block.address] = block

    def remove_unmapped(self, block: Block) -> None:
        order = self.unmapped[block.stream]
        del order[bisect_left(order, block.address)]
        del self.blocks[block.address]

    def ordered(self) -> list[Block]:
        """Return the free blocks by stream, size and address."""
        return [self.blocks[address] for stream in sorted(self.free) for _, address in self.free[stream]]


class CachingAllocator:
    """The allocator of one device."""

    def __init__(
        self, settings: Settings = DEFAULT, *, device_bytes: int | None = None, allowed_bytes: int | None = None
    ) -> None:
        """Start with nothing reserved.

        Args:
            settings: as of ``PYTORCH_ALLOC_CONF``.
            device_bytes: what the driver can give this process; None never ends.
            allowed_bytes: what ``set_per_process_memory_fraction`` allows; None where it was not called.
        """
        self.settings = settings
        self.device_bytes = device_bytes
        self.allowed_bytes = allowed_bytes
        self.requested = 0
        self.allocated = 0
        """``allocated_bytes``: sizes of the blocks in use."""
        self.reserved = 0
        """``reserved_bytes``: memory taken from the driver."""
        self.peak_requested = 0
        self.peak_allocated = 0
        self.peak_reserved = 0
        self.segments = 0
        """Segments that cudaMalloc gave; expandable ones are not counted, as in ``memory_stats``."""
        self.retries = 0
        """``num_alloc_retries``."""
        self._small = _Pool(small=True)
        self._large = _Pool(small=False)
        self._next_address = 2**30
        self._max_split = settings.max_split_size_bytes
        self._collects = allowed_bytes is not None and settings.garbage_collection_threshold > 0

    def reset_peaks(self) -> None:
        """Begin anew: peaks are what is held now (``resetPeakStats``)."""
        self.peak_requested, self.peak_allocated, self.peak_reserved = self.requested, self.allocated, self.reserved

    def allocate(self, requested: int, stream: int = 0) -> Block:
        """Return a block for a request (``malloc``, ``alloc_found_block``).

        Raises:
            NoMemoryError: the driver has no more, or no more is allowed.
        """
        size = self.settings.round(requested)
        pool = self._small if size <= SMALL_BYTES else self._large
        block = self._find_free(pool, stream, size)
        if block is None:
            if self._collects:
                self._collect()
            block = self._take(pool, stream, size)
        if block is None and self._release_available(pool, stream, size):
            block = self._take(pool, stream, size)
        if block is None:
            self.empty_cache()
            self.retries += 1
            block = self._take(pool, stream, size)
        if block is None:
            raise NoMemoryError(requested, self.allocated, self.reserved)
        if self._should_split(block, size):
            rest = block
            block = Block(pool, stream, rest.address, size, rest.segment)
            block.splice(rest.previous, rest)
            rest.address += size
            rest.size -= size
            pool.insert(rest)
        block.allocated = True
        block.requested = requested
        self.requested += requested
        self.allocated += block.size
        self.peak_requested = max(self.peak_requested, self.requested)
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        return block

    def free(self, block: Block) -> None:
        """Put a block back into its pool, joined with free neighbours (``free``, ``free_block``)."""
        block.allocated = False
        self.allocated -= block.size
        self.requested -= block.requested
        self._merge(block, block.previous)
        self._merge(block, block.next)
        block.pool.insert(block)

    def empty_cache(self) -> None:
        """Give back what no block in use lies in (``release_cached_blocks``, ``release_blocks``)."""
        for pool in (self._large, self._small):
            for block in pool.ordered():
                if block.segment is not None:
                    self._unmap(block)
                elif not block.is_split:
                    self._release(block)

    def _find_free(self, pool: _Pool, stream: int, size: int) -> Block | None:
        """Return the best block of the cache, taken out of it (``get_free_block``)."""
        if self._collects:
            pool.calls += 1
        order = pool.free.get(stream)
        if not order:
            return None
        index = bisect_left(order, (size, -1))
        if index == len(order):
            return None
        block = pool.blocks[order[index][1]]
        if block.segment is not None:
            # The block at the growing end counts with all it can grow to, so others go first.
            while index + 1 < len(order):
                follower = pool.blocks[order[index + 1][1]]
                if _room(follower) >= _room(block):
                    break
                block, index = follower, index + 1
        if self._max_split is not None:
            if size < self._max_split <= block.size:
                return None
            if size >= self._max_split and block.size >= size + self.settings.max_non_split_rounding_bytes:
                return None
        del order[index]
        del pool.blocks[block.address]
        return block

    def _should_split(self, block: Block, size: int) -> bool:
        """Tell whether what is left of a block becomes one of its own (``should_split``)."""
        rest = block.size - size
        if block.pool.small or self.settings.expandable_segments:
            return rest >= MIN_BLOCK_BYTES
        return (self._max_split is None or size < self._max_split) and rest > SMALL_BYTES

    def _take(self, pool: _Pool, stream: int, size: int) -> Block | None:
        """Return a block of new memory, or None when there is none (``alloc_block``)."""
        wanted = self.settings.segment(size)
        if self.allowed_bytes is not None and self.reserved + wanted > self.allowed_bytes:
            return None
        if self.settings.expandable_segments:
            return self._expand(pool, stream, size)
        if self.device_bytes is not None and self.reserved + wanted > self.device_bytes:
            return None
        self.segments += 1
        self._reserve(wanted)
        return Block(pool, stream, self._addresses(wanted), wanted)

    def _reserve(self, size: int) -> None:
        self.reserved += size
        self.peak_reserved = max(self.peak_reserved, self.reserved)

    def _addresses(self, size: int) -> int:
        address = self._next_address
        self._next_address += size
        return address

    def _merge(self, block: Block, other: Block | None) -> None:
        """Take a free neighbour in (``try_merge_blocks``)."""
        if other is None or other.allocated or other.mapped != block.mapped:
            return
        if other.mapped:
            other.pool.remove(other)
        else:
            other.pool.remove_unmapped(other)
        if block.previous is other:
            block.address = other.address
            block.splice(other.previous, block.next)
        else:
            block.splice(block.previous, other.next)
        block.size += other.size

    def _release(self, block: Block) -> None:
        """Give a segment back to the driver (``release_block``)."""
        block.pool.remove(block)
        self.segments -= 1
        self.reserved -= block.size

    def _release_available(self, pool: _Pool, stream: int, size: int) -> bool:
        """Give back oversize blocks, only as many as the request needs (``release_available_cached_blocks``)."""
        if self._max_split is None:
            return False
        wanted = max(size, self._max_split)
        order = pool.free.get(stream, [])
        index = bisect_left(order, (wanted, -1))
        if index < len(order):
            self._release(pool.blocks[order[index][1]])
            return True
        released = 0
        while order and released < wanted and order[-1][0] >= self._max_split:
            block = pool.blocks[order[-1][1]]
            released += block.size
            self._release(block)
        return released >= wanted

    def _collect(self) -> None:
        """Give back the oldest unused segments once so much is reserved (``garbage_collect_cached_blocks``)."""
        assert self.allowed_bytes is not None  # noqa: S101 (checked where it is called)
        threshold = int(self.settings.garbage_collection_threshold * self.allowed_bytes)
        if self.reserved <= threshold:
            return
        target, reclaimed, freed = self.reserved - threshold, 0, True
        calls = self._large.calls
        candidates = [block for block in self._large.ordered() if not block.is_split and block.segment is None]
        total_age = sum(calls - block.age_base for block in candidates)
        while reclaimed < target and freed and candidates:
            freed = False
            threshold_age = total_age / len(candidates)
            kept = []
            for block in candidates:
                age = calls - block.age_base
                if age >= threshold_age:
                    freed = True
                    reclaimed += block.size
                    total_age -= age
                    self._release(block)
                else:
                    kept.append(block)
            candidates = kept

    def _expand(self, pool: _Pool, stream: int, size: int) -> Block | None:
        """Return a block at the lowest address that can be backed (``try_allocate_expandable_block``)."""
        block = self._find_expandable(pool, stream, size)
        if not block.mapped and not self._map(block, min(block.size, size)):
            return None
        while block.size < size:
            following = block.next
            assert following is not None  # noqa: S101 (the room was counted)
            if not self._map(following, min(size - block.size, following.size)):
                return None
            block = following  # mapping has joined the two
        pool.remove(block)
        return block

    def _find_expandable(self, pool: _Pool, stream: int, size: int) -> Block:
        """Return the first of some free or unmapped neighbours with enough room (``find_expandable_block``)."""
        for address in pool.unmapped.get(stream, ()):
            block = pool.blocks[address]
            if block.previous is not None and not block.previous.allocated:
                block = block.previous
            room, following = 0, block
            while following is not None and not following.allocated and room < size:
                room += following.size
                following = following.next  # type: ignore[assignment]
            if room >= size:
                return block
        page = SMALL_SEGMENT_BYTES if pool.small else self.settings.large_segment_bytes
        device = _ADDRESS_SPACE if self.device_bytes is None else self.device_bytes
        total = -(-(device + device // 8) // page) * page
        segment = _Segment(self._addresses(total), page, total)
        block = Block(pool, stream, segment.base, total, segment)
        block.mapped = False
        pool.insert_unmapped(block)
        return block

    def _map(self, block: Block, size: int) -> bool:
        """Put whole pages behind the beginning of an unmapped block (``map_block``)."""
        assert block.segment is not None  # noqa: S101 (only expandable segments have unmapped blocks)
        size = -(-size // block.segment.page) * block.segment.page
        if self.device_bytes is not None and self.reserved + size > self.device_bytes:
            return False
        pool = block.pool
        pool.remove_unmapped(block)
        block.mapped = True
        if size < block.size:
            rest = Block(pool, block.stream, block.address + size, block.size - size, block.segment)
            rest.mapped = False
            rest.splice(block, block.next)
            pool.insert_unmapped(rest)
            block.size = size
        self._merge(block, block.previous)
        self._merge(block, block.next)
        pool.insert(block)
        self._reserve(size)
        return True

    def _unmap(self, block: Block) -> None:
        """Take the whole pages from behind a free block (``unmap_block``, ``release_expandable_segment``)."""
        assert block.segment is not None  # noqa: S101 (only expandable segments can be unmapped)
        page, base = block.segment.page, block.segment.base
        first = -(-(block.address - base) // page) * page + base
        last = (block.address + block.size - base) // page * page + base
        if last <= first:
            return
        pool = block.pool
        pool.remove(block)
        for start, end, before in ((block.address, first, True), (last, block.address + block.size, False)):
            if end > start:
                rest = Block(pool, block.stream, start, end - start, block.segment)
                rest.splice(*((block.previous, block) if before else (block, block.next)))
                pool.insert(rest)
        block.address, block.size, block.mapped = first, last - first, False
        self.reserved -= block.size
        self._merge(block, block.previous)
        self._merge(block, block.next)
        if block.is_split:
            pool.insert_unmapped(block)


def _room(block: Block) -> int:
    """Return what a block can grow to."""
    following = block.next
    return block.size + (following.size if following is not None and not following.mapped else 0)
