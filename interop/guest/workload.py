"""Workloads on a mounted directory, verified: workload.py NAME DIRECTORY [ARGUMENT...]

The same program runs on the host, on the directory that the server exports: what one side made, the other side checks. A
file's content follows from its name and its length, so that no list of checksums has to travel. Whatever is wrong raises.
"""

import errno
import fcntl
import mmap
import os
import random
import stat
import sys
import time
import zlib

SIZES = (0, 1, 3, 4095, 4096, 4097, 65536, 1 << 20, (1 << 20) + 1)
LARGE = 64 << 20
WORKLOADS = {}


def workload(function):
    WORKLOADS[function.__name__.replace("_", "-")] = function
    return function


def content(name, length):
    """What a file of this name and length holds: no two aligned blocks of it are alike for a long way."""
    seed = zlib.crc32(("%s %d" % (os.path.basename(name), length)).encode("utf-8", "surrogateescape"))
    block = random.Random(seed).randbytes(65521)
    return (block * (length // len(block) + 1))[:length]


def expect(condition, *what):
    if not condition:
        raise AssertionError(" ".join(str(word) for word in what))


def expect_error(wanted, function, *arguments):
    try:
        function(*arguments)
    except OSError as error:
        expect(
            error.errno in (wanted if isinstance(wanted, tuple) else (wanted,)),
            function.__name__, arguments, "gave", errno.errorcode.get(error.errno, error.errno),
        )
    else:
        raise AssertionError("%s %r should have failed" % (function.__name__, arguments))


def write_file(path, data, flags=0):
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o644)
    try:
        write_all(descriptor, data)
    finally:
        os.close(descriptor)


def write_all(descriptor, data):
    view = memoryview(data)
    while len(view):
        view = view[os.write(descriptor, view):]


def read_file(path):
    with open(path, "rb") as file:
        return file.read()


def check_file(path, data):
    found = read_file(path)
    if found == data:
        return
    at = next((i for i in range(min(len(found), len(data))) if found[i] != data[i]), min(len(found), len(data)))
    raise AssertionError("%s: %d bytes, wanted %d; first difference at %d" % (path, len(found), len(data), at))


def drop_caches(how="3"):
    """Forgets pages, names and attributes of the client (and writes what is dirty before)."""
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w") as file:
        file.write(how)


def blank(length):
    """Page-aligned memory, as O_DIRECT wants it."""
    return mmap.mmap(-1, length)


# ---- contents


def sizes(arguments):
    return [int(number) for number in arguments] or SIZES


@workload
def write_sizes(root, *arguments):
    for size in sizes(arguments):
        path = "%s/size-%d" % (root, size)
        write_file(path, content(path, size))
        expect(os.stat(path).st_size == size, path, "has the wrong size")


@workload
def check_sizes(root, *arguments):
    for size in sizes(arguments):
        path = "%s/size-%d" % (root, size)
        check_file(path, content(path, size))


@workload
def read_sizes(root, *arguments):
    drop_caches()
    check_sizes(root, *arguments)


@workload
def write_read_sizes(root, *arguments):
    write_sizes(root, *arguments)
    read_sizes(root, *arguments)


@workload
def remove_all(root):
    for name in os.listdir(root):
        os.unlink(root + "/" + name)


@workload
def direct(root):
    """Direct I/O, page-aligned; odd offsets only for small reads, which Linux gets right."""
    for size in (4096, 8192, 65536, 1 << 20, 4 << 20):
        path = "%s/direct-%d" % (root, size)
        data = content(path, size)
        memory = blank(size)
        memory[:] = data
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o644)
        expect(os.pwritev(descriptor, [memory], 0) == size, "short direct write of", size)
        memory[:] = bytes(size)
        expect(os.preadv(descriptor, [memory], 0) == size, "short direct read of", size)
        expect(memory[:] == data, "wrong data by direct read of", size)
        # The second half again, in pages of its own.
        half = size // 2 // 4096 * 4096
        if half:
            part = blank(size - half)
            expect(os.preadv(descriptor, [part], half) == size - half, "short direct read at", half)
            expect(part[:] == data[half:], "wrong data by direct read at", half)
        # Beyond the end, and across it.
        expect(os.preadv(descriptor, [blank(4096)], size) == 0, "data beyond the end")
        across = blank(8192)
        expect(os.preadv(descriptor, [across], size - 4096) == 4096, "a read across the end")
        expect(across[:4096] == data[-4096:], "wrong data across the end")
        os.close(descriptor)
    path = "%s/direct-%d" % (root, 1 << 20)
    data = content(path, 1 << 20)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    for offset, length in ((0, 1), (1, 2), (5, 4095), (4093, 5123), (17, 65537), ((1 << 20) - 10, 100)):
        memory = memoryview(blank(1 << 17))[:length]
        count = os.preadv(descriptor, [memory], offset)
        expect(bytes(memory[:count]) == data[offset:offset + length], "direct read of", length, "at", offset)
    os.close(descriptor)


@workload
def check_direct(root):
    for size in (4096, 8192, 65536, 1 << 20, 4 << 20):
        path = "%s/direct-%d" % (root, size)
        check_file(path, content(path, size))


@workload
def synchronous(root, go):
    """Writes with O_SYNC and O_DSYNC and keeps the files open until the host has seen the data."""
    descriptors = []
    for flag in (os.O_SYNC, os.O_DSYNC):
        for size in (1, 4097, 65536, (1 << 20) + 1):
            path = "%s/size-%d" % (root, size + (flag == os.O_DSYNC))
            descriptors.append(os.open(path, os.O_WRONLY | os.O_CREAT | flag, 0o644))
            write_all(descriptors[-1], content(path, size + (flag == os.O_DSYNC)))
    print("written", flush=True)
    while not os.path.exists(go):
        time.sleep(0.02)
    for descriptor in descriptors:
        os.close(descriptor)


@workload
def append(root):
    path = root + "/append"
    data = content(path, 300000)
    position = 0
    for length in (1, 3, 4096, 5000, 100000, 65536, 100, 125264):
        write_file(path, data[position:position + length], os.O_APPEND)
        position += length
    # Two descriptors in turn, without closing.
    first, second = (os.open(path, os.O_WRONLY | os.O_APPEND) for _ in range(2))
    for number in range(50):
        write_all(first if number % 2 else second, b"%04d" % number)
    os.close(first)
    os.close(second)
    drop_caches()
    check_append(root)


@workload
def check_append(root):
    path = root + "/append"
    check_file(path, content(path, 300000) + b"".join(b"%04d" % number for number in range(50)))


@workload
def truncate(root):
    path = root + "/truncate"
    data = content(path, 200000)
    write_file(path, data)
    descriptor = os.open(path, os.O_RDWR)
    for size in (150001, 150000, 65537, 65536, 4097, 4096, 4095, 1):
        os.ftruncate(descriptor, size)
        drop_caches("1")
        expect(os.fstat(descriptor).st_size == size, "size after truncation to", size)
        check_file(path, data[:size])
    # Longer: zeros come, the old content does not.
    for size in (2, 4096, 100000):
        os.ftruncate(descriptor, size)
        drop_caches("1")
        check_file(path, data[:1] + bytes(size - 1))
    os.close(descriptor)
    # Dirty pages beyond the new end are gone.
    with open(path, "r+b") as file:
        file.write(data)
        file.flush()
        file.truncate(77777)
    check_file(path, data[:77777])
    os.close(os.open(path, os.O_WRONLY | os.O_TRUNC))
    expect(os.stat(path).st_size == 0, "O_TRUNC left something")
    write_file(path, data[:777])
    os.truncate(path, 5)
    drop_caches("1")
    check_truncate(root)


@workload
def check_truncate(root):
    check_file(root + "/truncate", content(root + "/truncate", 200000)[:5])


HOLES = ((0, 10), (4096 * 3 + 1, 4096), (1 << 20, 65536), ((5 << 30) + 123, 77))


@workload
def holes(root):
    path = root + "/holes"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    for offset, length in HOLES:
        os.pwrite(descriptor, content("%d" % offset, length), offset)
    os.close(descriptor)
    drop_caches()
    check_holes(root)


@workload
def check_holes(root):
    path = root + "/holes"
    status = os.stat(path)
    expect(status.st_size == HOLES[-1][0] + HOLES[-1][1], "size", status.st_size)
    expect(status.st_blocks * 512 < 4 << 20, "holes take", status.st_blocks * 512, "bytes")
    descriptor = os.open(path, os.O_RDONLY)
    end = 0
    for offset, length in HOLES:
        gap = min(offset - end, 100000)
        expect(os.pread(descriptor, gap, offset - gap) == bytes(gap), "no zeros before", offset)
        expect(os.pread(descriptor, length, offset) == content("%d" % offset, length), "data at", offset)
        end = offset + length
    os.close(descriptor)


@workload
def mapped(root):
    path = root + "/mapped"
    size = (1 << 20) + 5000
    data = bytearray(content(path, size))
    with open(path, "w+b") as file:
        file.truncate(size)
        with mmap.mmap(file.fileno(), size) as memory:
            memory[:] = bytes(data)
            memory.flush()
    drop_caches()
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), size) as memory:
        expect(memory[:] == data, "a mapping reads something else")
        for offset in (0, 4095, 4096, 65535, 1 << 20, size - 1):
            memory[offset:offset + 1] = b"!"
            data[offset] = ord("!")
    drop_caches()
    check_file(path, bytes(data))


@workload
def check_mapped(root):
    path = root + "/mapped"
    size = (1 << 20) + 5000
    data = bytearray(content(path, size))
    for offset in (0, 4095, 4096, 65535, 1 << 20, size - 1):
        data[offset] = ord("!")
    check_file(path, bytes(data))


# ---- names


@workload
def operations(root):
    """Every operation on files and directories, each judged by what the client then sees."""
    os.mkdir(root + "/directory", 0o750)
    expect(stat.S_IMODE(os.stat(root + "/directory").st_mode) == 0o750, "mode of a directory")
    expect_error(errno.EEXIST, os.mkdir, root + "/directory")
    file = root + "/directory/file"
    os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640))
    expect(stat.S_IMODE(os.stat(file).st_mode) == 0o640, "mode of a file")
    expect_error(errno.EEXIST, os.open, file, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    expect_error(errno.ENOENT, os.open, root + "/none", os.O_RDONLY)
    expect_error(errno.ENOTDIR, os.listdir, file)
    expect_error(errno.ENOTDIR, os.stat, file + "/below")
    expect_error(errno.ENOTEMPTY, os.rmdir, root + "/directory")
    expect_error(errno.EISDIR, os.unlink, root + "/directory")
    write_file(file, b"12345")
    os.chmod(file, 0o4711)
    os.chown(file, 1234, 4321)
    os.chmod(file, 0o604)
    os.utime(file, ns=(1_000_000_001, 2_000_000_000_123_456_789))
    drop_caches()
    status = os.stat(file)
    expect((status.st_uid, status.st_gid) == (1234, 4321), "owner", status)
    expect(stat.S_IMODE(status.st_mode) == 0o604, "mode", oct(status.st_mode))
    expect(status.st_atime_ns == 1_000_000_001, "atime", status.st_atime_ns)
    expect(status.st_mtime_ns == 2_000_000_000_123_456_789, "mtime", status.st_mtime_ns)
    os.utime(file)
    expect(abs(os.stat(file).st_mtime - time.time()) < 3600, "time of the server")
    expect(os.access(file, os.R_OK), "access")
    os.link(file, root + "/link")
    expect(os.stat(file).st_nlink == 2 and os.path.samefile(file, root + "/link"), "hard link")
    os.symlink("directory/file", root + "/symlink")
    expect(os.readlink(root + "/symlink") == "directory/file", "target")
    expect(read_file(root + "/symlink") == b"12345", "through a symbolic link")
    os.lchown(root + "/symlink", 7, 8)
    expect(os.lstat(root + "/symlink").st_uid == 7, "owner of a symbolic link")
    os.rename(root + "/link", root + "/renamed")
    os.rename(root + "/renamed", root + "/directory/moved")
    expect_error(errno.ENOENT, os.stat, root + "/renamed")
    os.mkdir(root + "/other")
    os.rename(root + "/directory", root + "/other/directory")
    expect_error((errno.EINVAL,), os.rename, root + "/other", root + "/other/directory/below")
    expect(read_file(root + "/other/directory/moved") == b"12345", "after renaming the directory above")
    os.rename(root + "/other/directory", root + "/directory")
    for name, kind in (("fifo", stat.S_IFIFO), ("socket", stat.S_IFSOCK)):
        os.mknod(root + "/" + name, kind | 0o600)
        expect(stat.S_IFMT(os.stat(root + "/" + name).st_mode) == kind, name)
    os.mknod(root + "/device", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    expect(os.stat(root + "/device").st_rdev == os.makedev(1, 3), "device number")
    space = os.statvfs(root)
    expect(space.f_blocks > 0 and space.f_files > 0 and space.f_namemax == 255, "statfs", space)
    expect(
        sorted(os.listdir(root)) == ["device", "directory", "fifo", "other", "socket", "symlink"],
        os.listdir(root),
    )
    os.unlink(root + "/directory/file")
    expect(os.stat(root + "/directory/moved").st_nlink == 1, "links after an unlink")
    os.unlink(root + "/fifo")
    os.rmdir(root + "/other")
    expect_error(errno.ENOENT, os.rmdir, root + "/other")
    with open(root + "/directory/moved", "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # local: the mount has nolock


@workload
def check_operations(root):
    expect(sorted(os.listdir(root)) == ["device", "directory", "socket", "symlink"], os.listdir(root))
    check_file(root + "/directory/moved", b"12345")
    status = os.stat(root + "/directory/moved")
    expect((status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (1234, 4321, 0o604), status)


UNICODE = ("ä", "a\u0308", "日本語", "😀 with spaces", "line\nbreak", "back\\slash", "-dash", "perc%41ent", "quote'\"", "~", ".hidden")


TARGETS = (1, 59, 60, 255, 1000, 1023, 1024, 2000, 4000, 4095)


def make_symlinks(root):
    for length in TARGETS:
        os.symlink("t" * length, "%s/symlink-%d" % (root, length))


def check_symlinks(root):
    for length in TARGETS:
        expect(os.readlink("%s/symlink-%d" % (root, length)) == "t" * length, "symbolic link of", length)


@workload
def symlinks(root):
    make_symlinks(root)
    drop_caches()
    check_symlinks(root)


@workload
def names(root):
    longest = "n" * 255
    write_file(root + "/" + longest, b"long")
    expect_error(errno.ENAMETOOLONG, os.open, root + "/" + "n" * 256, os.O_WRONLY | os.O_CREAT)
    deep = root
    for _ in range(12):
        deep += "/" + "d" * 250
        os.mkdir(deep)
    write_file(deep + "/file", b"deep")
    for name in UNICODE:
        write_file(root + "/" + name, name.encode())
    # Bytes that are no UTF-8 are names as well.
    write_file(os.fsencode(root) + b"/\xff\xfe", b"raw")
    make_symlinks(root)
    write_file(root + "/linked", b"linked")
    for number in range(100):
        os.link(root + "/linked", "%s/hard-%d" % (root, number))
    drop_caches()
    check_names(root)


@workload
def check_names(root):
    expect(read_file(root + "/" + "n" * 255) == b"long", "the longest name")
    expect(read_file(root + ("/" + "d" * 250) * 12 + "/file") == b"deep", "a deep path")
    for name in UNICODE:
        expect(read_file(root + "/" + name) == name.encode(), "the file", repr(name))
        expect(name in os.listdir(root), "the name", repr(name))
    expect(b"\xff\xfe" in os.listdir(os.fsencode(root)), "a name that is no UTF-8")
    check_symlinks(root)
    expect(os.stat(root + "/linked").st_nlink == 101, "links", os.stat(root + "/linked").st_nlink)
    expect(os.path.samefile(root + "/linked", root + "/hard-99"), "a hard link is another file")


def entry(number):
    return "entry-%d-%s" % (number, "x" * (number % 97))


@workload
def make_directory(root, count):
    os.mkdir(root + "/many")
    for number in range(int(count)):
        os.close(os.open("%s/many/%s" % (root, entry(number)), os.O_WRONLY | os.O_CREAT, 0o644))


@workload
def list_directory(root, count):
    drop_caches()
    wanted = {entry(number) for number in range(int(count))}
    found = os.listdir(root + "/many")
    expect(len(found) == len(wanted) and set(found) == wanted, len(found), "entries, wanted", len(wanted))
    drop_caches()
    with os.scandir(root + "/many") as entries:
        sizes = [item.stat().st_size for item in entries]
    expect(sizes == [0] * len(wanted), "attributes")
    # While it is read, the entries that were given go: none may be skipped, none come twice.
    with os.scandir(root + "/many") as entries:
        seen = []
        for item in entries:
            seen.append(item.name)
            if len(seen) % 4 == 0:
                os.unlink(item.path)
    expect(sorted(seen) == sorted(wanted), "entries while others are removed:", len(seen))
    expect(len(os.listdir(root + "/many")) == len(wanted) - len(wanted) // 4, "entries after removing a quarter")


@workload
def silly(root):
    """Files that are removed, or replaced, while somebody has them open."""
    one, two = root + "/one", root + "/two"
    write_file(one, b"one" * 50000)
    write_file(two, b"two" * 50000)
    held, other = open(one, "r+b"), open(two, "r+b")
    os.rename(two, one)
    drop_caches("1")
    expect(other.read() == b"two" * 50000, "the renamed file through its descriptor")
    expect(held.read() == b"one" * 50000, "the replaced file through its descriptor")
    expect(read_file(one) == b"two" * 50000, "the name after the rename")
    os.unlink(one)
    expect_error(errno.ENOENT, os.stat, one)
    other.seek(0)
    other.write(b"TWO")
    other.flush()
    os.fsync(other.fileno())
    drop_caches("1")
    other.seek(0)
    expect(other.read(6) == b"TWOtwo", "a removed file that is written")
    hidden = [name for name in os.listdir(root) if name.startswith(".nfs")]
    expect(hidden, "the client renames what is removed while open")
    held.close()
    other.close()
    # The client removes what it hid without waiting for the reply (nfs_async_unlink).
    end = time.monotonic() + 10
    while os.listdir(root) and time.monotonic() < end:
        time.sleep(0.02)
    left = os.listdir(root)
    expect(left == [], "left behind:", left)


# ---- many at once


def child(number, root, rounds):
    own = "%s/process-%d" % (root, number)
    os.mkdir(own)
    chance = random.Random(number)
    for turn in range(rounds):
        path = "%s/file-%d" % (own, turn)
        data = content(path, chance.choice((1, 500, 4097, 20000, 131073)))
        write_file(path + ".new", data)
        os.rename(path + ".new", path)
        shared = "%s/shared/%d-%d" % (root, number, turn)
        os.link(path, shared)
        expect(read_file(path) == data, path)
        if turn % 3 == 0:
            os.unlink(path)
            expect(read_file(shared) == data, shared)
        os.listdir(root + "/shared")


@workload
def processes(root, count, rounds):
    os.mkdir(root + "/shared")
    pids = []
    for number in range(int(count)):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                child(number, root, int(rounds))
                status = 0
            except BaseException as error:
                print("process %d: %r" % (number, error), flush=True)
            os._exit(status)
        pids.append(pid)
    failed = [pid for pid in pids if os.waitpid(pid, 0)[1] != 0]
    expect(not failed, len(failed), "processes failed")
    check_processes(root, count, rounds)


@workload
def check_processes(root, count, rounds):
    count, rounds = int(count), int(rounds)
    expect(len(os.listdir(root + "/shared")) == count * rounds, "entries of the shared directory")
    for number in range(count):
        chance = random.Random(number)
        for turn in range(rounds):
            name = "file-%d" % turn
            data = content(name, chance.choice((1, 500, 4097, 20000, 131073)))
            check_file("%s/shared/%d-%d" % (root, number, turn), data)
            expect(os.path.exists("%s/process-%d/%s" % (root, number, name)) == (turn % 3 != 0), number, name)


# ---- random operations


class Model:
    """A file and what it has to hold."""

    LIMIT = 180000

    def __init__(self, path, chance):
        self.path, self.chance, self.data = path, chance, bytearray()
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)

    def range(self):
        offset = self.chance.randrange(self.LIMIT)
        return offset, self.chance.choice((1, 7, 512, 4096, 5000, self.chance.randrange(1, 40000)))

    def write(self):
        offset, length = self.range()
        length = min(length, self.LIMIT - offset)
        data = self.chance.randbytes(length)
        expect(os.pwrite(self.descriptor, data, offset) == length, "short write")
        self.place(offset, data)

    def place(self, offset, data):
        if offset > len(self.data):
            self.data.extend(bytes(offset - len(self.data)))
        self.data[offset:offset + len(data)] = data

    def read(self):
        offset, length = self.range()
        expect(os.pread(self.descriptor, length, offset) == self.data[offset:offset + length], "read", offset, length)

    def truncate(self):
        size = self.chance.randrange(self.LIMIT)
        os.ftruncate(self.descriptor, size)
        if size < len(self.data):
            del self.data[size:]
        else:
            self.data.extend(bytes(size - len(self.data)))

    def append(self):
        if len(self.data) < self.LIMIT:
            data = self.chance.randbytes(self.chance.randrange(1, 9000))
            write_file(self.path, data, os.O_APPEND)
            self.data.extend(data)

    def map_write(self):
        if self.data:
            offset = self.chance.randrange(len(self.data))
            data = self.chance.randbytes(min(len(self.data) - offset, 3000))
            with mmap.mmap(self.descriptor, len(self.data)) as memory:
                memory[offset:offset + len(data)] = data
            self.place(offset, data)

    def map_read(self):
        if self.data:
            offset, length = self.range()
            with mmap.mmap(self.descriptor, len(self.data), prot=mmap.PROT_READ) as memory:
                expect(memory[offset:offset + length] == self.data[offset:offset + length], "mapped read", offset)

    def sync(self):
        os.fsync(self.descriptor)

    def forget(self):
        """Makes the client read from the server again."""
        os.fsync(self.descriptor)
        os.posix_fadvise(self.descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def reopen(self):
        os.close(self.descriptor)
        self.descriptor = os.open(self.path, os.O_RDWR)
        expect(os.fstat(self.descriptor).st_size == len(self.data), "size after opening again")

    def direct_write(self):
        offset = self.chance.randrange(self.LIMIT // 4096) * 4096
        memory = blank(4096 * self.chance.randrange(1, 20))
        memory[:] = self.chance.randbytes(len(memory))
        descriptor = os.open(self.path, os.O_WRONLY | os.O_DIRECT)
        expect(os.pwritev(descriptor, [memory], offset) == len(memory), "short direct write")
        os.close(descriptor)
        self.place(offset, memory[:])

    def direct_read(self):
        offset = self.chance.randrange(self.LIMIT // 4096) * 4096
        memory = blank(4096 * self.chance.randrange(1, 20))
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECT)
        count = os.preadv(descriptor, [memory], offset)
        os.close(descriptor)
        expect(memory[:count] == self.data[offset:offset + len(memory)], "direct read at", offset)

    def whole(self):
        check_file(self.path, bytes(self.data))


@workload
def random_operations(root, count, seed):
    """What fsx does: operations in random order on a few files, each read compared with a model in memory."""
    chance = random.Random(int(seed))
    models = [Model("%s/model-%d" % (root, number), chance) for number in range(3)]
    weights = {
        Model.write: 30, Model.read: 30, Model.truncate: 6, Model.append: 6, Model.map_write: 6, Model.map_read: 6,
        Model.sync: 2, Model.forget: 5, Model.reopen: 4, Model.direct_write: 2, Model.direct_read: 2, Model.whole: 1,
    }
    steps = chance.choices(list(weights), list(weights.values()), k=int(count))
    for number, step in enumerate(steps):
        model = chance.choice(models)
        try:
            step(model)
        except Exception as error:
            raise AssertionError("operation %d, %s on %s: %s" % (number, step.__name__, model.path, error)) from error
    for model in models:
        model.forget()
        model.whole()
        write_file(model.path + ".model", bytes(model.data))
    print(len(steps), "operations")


@workload
def check_random_operations(root):
    for number in range(3):
        check_file("%s/model-%d" % (root, number), read_file("%s/model-%d.model" % (root, number)))


# ---- two mounts of one export


@workload
def two_mounts(first, second):
    """What one client closes, another one sees when it opens."""
    write_file(first + "/file", b"first")
    check_file(second + "/file", b"first")
    for turn in range(20):
        writer, reader = (first, second) if turn % 2 else (second, first)
        data = content("turn-%d" % turn, 1000 + 7919 * turn)
        write_file(writer + "/file", data, os.O_TRUNC)
        check_file(reader + "/file", data)
    # Same size, other content: only the times tell.
    for turn in range(20):
        writer, reader = (first, second) if turn % 2 else (second, first)
        data = content("same-%d" % turn, 5000)
        time.sleep(0.02)  # file systems count time in ticks
        write_file(writer + "/same", data)
        check_file(reader + "/same", data)
    # Half a file each.
    with open(first + "/halves", "w+b") as one:
        one.write(b"1" * 100000)
    with open(second + "/halves", "r+b") as two:
        two.seek(50000)
        two.write(b"2" * 50000)
    check_file(first + "/halves", b"1" * 50000 + b"2" * 50000)
    os.mkdir(first + "/directory")
    write_file(second + "/directory/file", b"below")
    check_file(first + "/directory/file", b"below")
    os.rename(second + "/directory/file", second + "/directory/new")
    check_file(first + "/directory/new", b"below")
    os.unlink(first + "/directory/new")
    expect_error((errno.ENOENT, errno.ESTALE), os.open, second + "/directory/new", os.O_RDONLY)
    # A name that now means another file.
    write_file(first + "/name", b"old")
    check_file(second + "/name", b"old")
    write_file(first + "/name.new", b"new file")
    os.rename(first + "/name.new", first + "/name")
    check_file(second + "/name", b"new file")


# ---- users


def as_user(uid, groups, function):
    """Runs a function as another user, in a process of its own."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.setgroups(groups)
            os.setgid(uid)
            os.setuid(uid)
            function()
            status = 0
        except BaseException as error:
            print("user %d: %r" % (uid, error), flush=True)
        os._exit(status)
    expect(os.waitpid(pid, 0)[1] == 0, "user", uid, "failed")


@workload
def users(root):
    """What the server lets other users do; the mount is of root without squashing."""
    os.chmod(root, 0o755)
    os.mkdir(root + "/theirs")
    os.chown(root + "/theirs", 1000, 1000)
    write_file(root + "/secret", b"secret")
    os.chmod(root + "/secret", 0o600)
    write_file(root + "/group", b"group")
    os.chown(root + "/group", 0, 2000)
    os.chmod(root + "/group", 0o640)
    def other():
        expect_error(errno.EACCES, os.open, root + "/secret", os.O_RDONLY)
        expect_error(errno.EACCES, os.open, root + "/new", os.O_WRONLY | os.O_CREAT)
        expect_error(errno.EPERM, os.chmod, root + "/secret", 0o644)
        expect_error(errno.EACCES, os.unlink, root + "/secret")
        check_file(root + "/group", b"group")
        expect_error(errno.EACCES, os.open, root + "/group", os.O_WRONLY)
        write_file(root + "/theirs/file", b"mine")
        expect(os.stat(root + "/theirs/file").st_uid == 1000, "owner of a new file")
        expect_error(errno.EPERM, os.chown, root + "/theirs/file", 0, 0)
        # Who has it open may go on when the right is gone.
        with open(root + "/theirs/file", "r+b") as file:
            os.chmod(root + "/theirs/file", 0o400)
            file.write(b"MINE")
            file.flush()
            os.fsync(file.fileno())

    as_user(1000, [2000], other)
    check_file(root + "/theirs/file", b"MINE")


@workload
def two_users(root):
    """What one user does with files of another that he may write, read, or neither."""
    os.chmod(root, 0o755)

    def shared(name, mode, data=b"of another user"):
        path = "%s/%s" % (root, name)
        write_file(path, data)
        os.chown(path, 1001, 2000)
        os.chmod(path, mode)
        os.utime(path, (1_000_000_000, 1_000_000_000))
        return path

    writable = shared("writable", 0o666)
    grouped = shared("grouped", 0o664)
    readable = shared("readable", 0o644)
    program = shared("program", 0o6777)
    cut = shared("cut", 0o6777)
    old = os.stat(readable)

    def other():
        # The kernel sends SETATTR with size and the server's time for this.
        for path in (writable, grouped):
            for data in (b"longer than what was there before", b"x", b""):
                write_file(path, data, os.O_TRUNC)
                check_file(path, data)
            before = os.stat(path).st_mtime
            expect(before > 1_500_000_000, "the time of the change is now")
            # "Now" is for all who may write, other times are for the owner.
            os.utime(path, None)
            expect_error(errno.EPERM, os.utime, path, (1, 1))
            write_file(path, b"0123456789", os.O_TRUNC)
            descriptor = os.open(path, os.O_RDWR)
            os.ftruncate(descriptor, 4)
            os.close(descriptor)
            check_file(path, b"0123")
        expect_error(errno.EACCES, os.open, readable, os.O_WRONLY | os.O_TRUNC)
        expect_error(errno.EACCES, os.truncate, readable, 3)
        expect_error(errno.EACCES, os.utime, readable, None)
        expect_error(errno.EPERM, os.utime, readable, (1, 1))
        expect_error(errno.EPERM, os.chmod, writable, 0o600)
        check_file(readable, b"of another user")
        # Who changes a program of another takes its set-id bits away.
        with open(program, "r+b") as file:
            file.write(b"changed")
        os.truncate(cut, 2)

    as_user(1000, [2000], other)
    drop_caches()
    new = os.stat(readable)
    expect((new.st_mtime, new.st_mode, new.st_size) == (old.st_mtime, old.st_mode, old.st_size), "refused, yet changed")
    check_file(program, b"changedher user")
    check_file(cut, b"of")
    for path in (program, cut):
        expect(not os.stat(path).st_mode & 0o6000, path, "still has set-id bits")
    # An owner without the right to write may still cut what he has open.
    def owner():
        path = root + "/own/file"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o444)
        os.write(descriptor, b"0123456789")
        os.ftruncate(descriptor, 5)
        os.close(descriptor)
        check_file(path, b"01234")
        expect_error(errno.EACCES, os.open, path, os.O_WRONLY | os.O_TRUNC)
        check_file(path, b"01234")

    os.mkdir(root + "/own")
    os.chown(root + "/own", 1000, 1000)
    as_user(1000, [], owner)


@workload
def read_only(root):
    check_file(root + "/size-4097", content("size-4097", 4097))
    for function, arguments in (
        (os.open, (root + "/new", os.O_WRONLY | os.O_CREAT)),
        (os.open, (root + "/size-4097", os.O_WRONLY)),
        (os.mkdir, (root + "/new",)),
        (os.unlink, (root + "/size-4097",)),
        (os.rename, (root + "/size-4097", root + "/new")),
        (os.symlink, ("x", root + "/new")),
        (os.chmod, (root + "/size-4097", 0o600)),
    ):
        expect_error((errno.EROFS, errno.EACCES), function, *arguments)


# ---- speed


@workload
def speed(root, served, creates, entries):
    """Prints seconds: to write and read 64 MiB, to create files, to list a directory with attributes."""
    path = "%s/size-%d" % (root, LARGE)
    data = content(path, LARGE)
    os.mkdir(root + "/created")
    make_directory(served, entries)
    drop_caches()

    def timed(name, function):
        started = time.monotonic()
        function()
        print(name, "%.2f" % (time.monotonic() - started), flush=True)

    def write():
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        write_all(descriptor, data)
        os.fsync(descriptor)
        os.close(descriptor)

    def read():
        expect(read_file(path) == data, "what was read")

    def create():
        for number in range(int(creates)):
            os.close(os.open("%s/created/%d" % (root, number), os.O_WRONLY | os.O_CREAT, 0o644))

    def listing():
        expect(os.system("ls -l %s/many >/dev/null" % root) == 0, "ls")

    timed("write", write)
    drop_caches()
    timed("read", read)
    timed("create", create)
    drop_caches()
    timed("list", listing)


if __name__ == "__main__":
    os.umask(0o022)
    WORKLOADS[sys.argv[1]](*sys.argv[2:])
