"""Writes files on a mount until the host says stop, and prints what it has written.

    write_until.py DIRECTORY STOP SEED

Each round makes a file under a temporary name (exclusively), writes it in pieces, renames it, and removes or renames older ones;
every third file is left to the kernel's write-back, the others are brought to stable storage. One line for each file that must
be there at the end: its SHA-256 and its name. A line `note: OPERATION ERROR` says that an operation reported an error which
a server that was restarted in between is allowed to give for a repetition; any other error ends the program.
"""

import errno
import hashlib
import os
import random
import sys

directory, stop, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
chance = random.Random(seed)
contents = {}
# What a repetition may report after a restart: the first execution was not remembered.
REPEATED = {"remove": errno.ENOENT, "rename": errno.ENOENT, "mkdir": errno.EEXIST, "rmdir": errno.ENOENT}


def path(name):
    return os.path.join(directory, name)


def change(operation, done, function, *arguments):
    try:
        function(*arguments)
    except OSError as error:
        # It is only a repetition if what was asked for has happened.
        if error.errno != REPEATED[operation] or not done():
            raise
        print("note:", operation, errno.errorcode[error.errno], flush=True)


def main():
    number = 0
    while not os.path.exists(stop) or number < 10:
        number += 1
        name, temporary = "file-%d" % number, ".new-%d" % number
        digest = hashlib.sha256()
        descriptor = os.open(path(temporary), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o640)
        for _ in range(chance.randrange(1, 6)):
            piece = chance.randbytes(chance.choice([1, 4095, 65536, 300_000, 1 << 20]))
            view = memoryview(piece)
            while view:
                view = view[os.write(descriptor, view):]
            digest.update(piece)
        if number % 3:
            os.fsync(descriptor)
        os.close(descriptor)
        change(
            "rename",
            lambda: os.path.exists(path(name)) and not os.path.exists(path(temporary)),
            os.rename, path(temporary), path(name),
        )
        contents[name] = digest.hexdigest()
        folder = path("folder-%d" % number)
        change("mkdir", lambda: os.path.isdir(folder), os.mkdir, folder)
        change("rmdir", lambda: not os.path.exists(folder), os.rmdir, folder)
        if len(contents) > 20:
            victim = chance.choice(sorted(contents))
            change("remove", lambda: not os.path.exists(path(victim)), os.remove, path(victim))
            del contents[victim]
    os.sync()
    for name, digest in sorted(contents.items()):
        with open(path(name), "rb") as file:
            seen = hashlib.file_digest(file, "sha256") if hasattr(hashlib, "file_digest") else hashlib.sha256(file.read())
        assert seen.hexdigest() == digest, name
        print(digest, name)
    print("rounds:", number)


main()
