"""Reads a file from many processes at once, past the page cache.

    many_reads.py FILE PROCESSES READS SIZE

Each process reads SIZE bytes at random multiples of SIZE, READS times, and compares them with what `pattern` says the file has.
"""

import mmap
import os
import random
import sys

name, processes, reads, size = sys.argv[1], *map(int, sys.argv[2:5])


def pattern(offset, length):
    return b"".join(number.to_bytes(8, "big") for number in range(offset // 8, (offset + length) // 8))


def read(seed):
    chance = random.Random(seed)
    descriptor = os.open(name, os.O_RDONLY | os.O_DIRECT)
    blocks = os.fstat(descriptor).st_size // size
    memory = mmap.mmap(-1, size)
    for _ in range(reads):
        offset = chance.randrange(blocks) * size
        count = os.preadv(descriptor, [memory], offset)
        assert count == size and memory[:] == pattern(offset, size), (offset, count)


children = []
for seed in range(processes):
    child = os.fork()
    if not child:
        try:
            read(seed)
        except BaseException as error:
            print("process %d: %r" % (seed, error), flush=True)
            os._exit(1)
        os._exit(0)
    children.append(child)
failed = [child for child in children if os.waitpid(child, 0)[1]]
sys.exit(1 if failed else 0)
