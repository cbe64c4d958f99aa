"""Runs the host's jobs in the guest, until it is told to stop.

Host and guest share one directory by 9p, /job here. In /job/queue the host leaves, for a job N,

    N.script    what bash is to run
    N.request   its arguments, each followed by a zero byte; it appears by a rename, and starts the job
    N.cancel    kills the job with all processes that it started

and the agent answers with

    N.output    standard output and error, while they are written
    N.status    the exit status (128 + signal, as shells say it); appears by a rename when the job is over

The file `up` says that the agent runs, `stop` that it shall power the guest off. Jobs run side by side.
"""

import os
import signal
import subprocess
import time

QUEUE = "/job/queue"
INTERVAL = 0.02


def path(name):
    return os.path.join(QUEUE, name)


def start(job):
    with open(path(job + ".request"), "rb") as request:
        arguments = request.read().split(b"\0")[:-1]
    os.unlink(path(job + ".request"))
    with open(path(job + ".output"), "wb") as output:
        return subprocess.Popen(
            ["bash", path(job + ".script"), *arguments],
            cwd="/job",
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def finish(job, status):
    with open(path(job + ".part"), "w") as file:
        file.write("%d\n" % (status if status >= 0 else 128 - status))
    os.rename(path(job + ".part"), path(job + ".status"))


def main():
    running = {}
    with open(path("up"), "w") as file:
        file.write("%s\n" % time.clock_gettime(time.CLOCK_BOOTTIME))
    while True:
        names = os.listdir(QUEUE)
        if "stop" in names:
            return
        for name in names:
            job, _, kind = name.partition(".")
            if kind == "request":
                running[job] = start(job)
            elif kind == "cancel":
                os.unlink(path(name))
                if job in running:
                    try:
                        os.killpg(running[job].pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
        for job in [job for job, process in running.items() if process.poll() is not None]:
            finish(job, running.pop(job).returncode)
        time.sleep(INTERVAL)


main()
