"""Data that the storage loses is never taken for safe: failing_device.py HOST PORT DEVICE-COMMAND

Speaks NFS version 3 and MOUNT over TCP by itself, so that each call is made when the test wants it. Writes files UNSTABLE,
lets the device fail while the kernel writes them back, heals it, drops the kernel's memory of it, and then commits. Each
COMMIT has to fail, or its write verifier has to differ from that of the WRITE (RFC 1813 section 3.3.21). Otherwise the data
has to be there, because the server made it stable before the device failed. DEVICE-COMMAND is called with `fail` or `heal`.
Prints what came of the commits.
"""

import os
import socket
import struct
import subprocess
import sys
import time

NFS, MOUNT = (100003, 3), (100005, 3)
MNT, READ, WRITE, CREATE, COMMIT = 1, 6, 7, 8, 21
UNSTABLE = 0
JUKEBOX = 10008
FILES = 300
LENGTH = 65536


class Connection:
    def __init__(self, host, port):
        self.socket = socket.create_connection((host, port))
        self.xid = 0x10000000

    def exactly(self, length):
        data = b""
        while len(data) < length:
            part = self.socket.recv(length - len(data))
            if not part:
                raise EOFError("the server closed the connection")
            data += part
        return data

    def call(self, program, procedure, arguments):
        self.xid += 1
        user = struct.pack(">II4sIIII", 0, 4, b"test", 0, 0, 1, 0)
        header = struct.pack(">IIIIII", self.xid, 0, 2, *program, procedure)
        record = header + struct.pack(">II", 1, len(user)) + user + struct.pack(">II", 0, 0) + arguments
        self.socket.sendall(struct.pack(">I", 0x80000000 | len(record)) + record)
        (mark,) = struct.unpack(">I", self.exactly(4))
        reply = self.exactly(mark & 0x7FFFFFFF)
        xid, kind, state, _, length = struct.unpack(">IIIII", reply[:20])
        assert (xid, kind, state, length) == (self.xid, 1, 0, 0), reply[:24]
        (accepted,) = struct.unpack(">I", reply[20:24])
        assert accepted == 0, accepted
        return Decoder(reply[24:])


def nfs(connection, procedure, arguments):
    """Calls NFS, again if the server wants it so; gives status and results."""
    for _ in range(100):
        results = connection.call(NFS, procedure, arguments)
        status = results.number()
        if status != JUKEBOX:
            return status, results
        time.sleep(0.1)
    raise TimeoutError("procedure %d was told to come later a hundred times" % procedure)


class Decoder:
    def __init__(self, data):
        self.data = data

    def take(self, length):
        part, self.data = self.data[:length], self.data[length:]
        assert len(part) == length
        return part

    def number(self):
        return struct.unpack(">I", self.take(4))[0]

    def opaque(self):
        length = self.number()
        data = self.take(length)
        self.take(-length % 4)
        return data

    def skip_wcc(self):
        if self.number():
            self.take(24)
        if self.number():
            self.take(84)


def opaque(data):
    return struct.pack(">I", len(data)) + data + bytes(-len(data) % 4)


def read(connection, handle):
    """Reads a file, which the kernel has to fetch from the device."""
    status, result = nfs(connection, READ, opaque(handle) + struct.pack(">QI", 0, LENGTH))
    assert status == 0, "READ: %d" % status
    if result.number():
        result.take(84)
    result.take(8)
    return result.opaque()


def device(command, state):
    subprocess.run([command, state], check=True)


def main(host, port, command):
    connection = Connection(host, int(port))
    mounted = connection.call(MOUNT, MNT, opaque(b"/"))
    assert mounted.number() == 0
    root = mounted.opaque()
    data = os.urandom(LENGTH)
    written = []
    for number in range(FILES):
        name = b"file-%d" % number
        status, made = nfs(
            connection, CREATE, opaque(root) + opaque(name) + struct.pack(">IIIIIIII", 0, 1, 0o644, 0, 0, 0, 0, 0)
        )
        assert status == 0, "CREATE of file %d: %d" % (number, status)
        assert made.number() == 1
        handle = made.opaque()
        status, result = nfs(
            connection, WRITE, opaque(handle) + struct.pack(">QII", 0, LENGTH, UNSTABLE) + opaque(data)
        )
        assert status == 0, "WRITE to file %d: %d" % (number, status)
        result.skip_wcc()
        assert result.number() == LENGTH
        # A server may do more than it was asked for: then the data was safe before the device failed.
        if result.number() == UNSTABLE:
            written.append((handle, result.take(8)))
    assert written, "every WRITE was made stable at once"
    device(command, "fail")
    os.sync()
    device(command, "heal")
    for _ in range(2):
        with open("/proc/sys/vm/drop_caches", "w") as file:
            file.write("3\n")
    errors = changed = safe = gone = lost = 0
    for handle, before in written:
        status, result = nfs(connection, COMMIT, opaque(handle) + struct.pack(">QI", 0, 0))
        failed = status != 0
        if not failed:
            result.skip_wcc()
        same = not failed and result.take(8) == before
        equal = read(connection, handle) == data
        errors += failed
        changed += not failed and not same
        safe += same and equal
        gone += not same and not equal
        lost += same and not equal
    print(
        "%d files, %d UNSTABLE: %d COMMITs failed, %d with a new verifier, %d safe before, %d taken for safe and lost"
        % (FILES, len(written), errors, changed, safe, lost)
    )
    assert gone, "the device lost nothing that the server admits"
    return lost


sys.exit(1 if main(*sys.argv[1:]) else 0)
