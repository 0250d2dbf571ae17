"""Runs a program on one core and says what it and everything that it started took.

CPU time is the kernel's, exact to the microsecond, of every process of the tree: what ends is waited for by its parent or,
orphaned, by this process (a "subreaper"). Memory is what was seen at four looks a second, CPU by program at twenty.
Nothing that was started here outlives `run`.
"""

import ctypes
import os
import select
import signal
import subprocess
import time
from typing import NamedTuple

PR_SET_CHILD_SUBREAPER = 36
CLOCK_TICK = os.sysconf("SC_CLK_TCK")
IS_ROOT = os.geteuid() == 0

CPU_LOOK_S = 0.05
MEMORY_LOOK_S = 0.25


class Finished(NamedTuple):
    """How a program went."""

    started_ns: int  # CLOCK_MONOTONIC
    ended_ns: int
    exit: int
    ended_for_taking_long: bool
    cpu_seconds: float
    cpu_by_program: dict  # as far as it was seen: up to one look less for each process
    peak_pss_bytes: int
    peak_pss_by_program: dict
    peak_processes: int
    other_cores: float  # what everybody else took of this machine, the server apart
    load: float  # load average of the last minute when it ended


def adopt_orphans():
    """From now on, processes that lose their parent come to this one."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def isolate(core, real_time=False):
    """For a child, before it becomes its program: its core, and no queueing behind its neighbours where that can be had.

    Plain nice is not enough: with autogroups it counts only within a session. So the session's group is made nice.
    """

    def prepare():
        os.sched_setaffinity(0, {core})
        if not IS_ROOT:
            return
        try:
            with open("/proc/self/autogroup", "w") as group:
                group.write("-18")
        except OSError:
            os.nice(-18)
        if real_time:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))

    return prepare


def children_of(pid):
    try:
        tasks = os.listdir("/proc/%d/task" % pid)
    except OSError:
        return []
    found = []
    for task in tasks:
        try:
            with open("/proc/%d/task/%s/children" % (pid, task)) as file:
                found += [int(word) for word in file.read().split()]
        except OSError:
            pass
    return found


def tree_of(pid):
    found, waiting = [], [pid]
    while waiting:
        one = waiting.pop()
        found.append(one)
        waiting += children_of(one)
    return found


def cpu_of(pid):
    """Seconds of one process without its children, and its program's name; None when it is gone."""
    try:
        with open("/proc/%d/stat" % pid) as file:
            head, _, rest = file.read().rpartition(")")
    except OSError:
        return None
    fields = rest.split()
    return head.partition("(")[2], (int(fields[11]) + int(fields[12])) / CLOCK_TICK


def pss_of(pid):
    try:
        with open("/proc/%d/smaps_rollup" % pid) as file:
            for line in file:
                if line.startswith("Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def busy_cores():
    """Seconds that all cores have worked, for anybody."""
    with open("/proc/stat") as file:
        user, nice, system, _idle, _wait, irq, soft, steal = map(int, file.readline().split()[1:9])
    return (user + nice + system + irq + soft + steal) / CLOCK_TICK


class Look:
    """What was seen of a tree so far."""

    def __init__(self):
        self.cpu = {}
        self.pss = 0
        self.pss_by_program = {}
        self.processes = 0
        self.next_memory = 0.0

    def at(self, root, now):
        tree = tree_of(root)
        self.processes = max(self.processes, len(tree))
        for pid in tree:
            if (seen := cpu_of(pid)) is not None:
                self.cpu[pid] = seen
        if now >= self.next_memory:
            self.look_at_memory(tree)
            self.next_memory = now + MEMORY_LOOK_S

    def look_at_memory(self, tree):
        now = {}
        for pid in tree:
            name = self.cpu.get(pid, ("?", 0))[0]
            now[name] = now.get(name, 0) + pss_of(pid)
        self.pss = max(self.pss, sum(now.values()))
        for name, size in now.items():
            self.pss_by_program[name] = max(self.pss_by_program.get(name, 0), size)

    def cpu_by_program(self):
        total = {}
        for name, seconds in self.cpu.values():
            total[name] = total.get(name, 0.0) + seconds
        return total


def end_tree(pid):
    for one in tree_of(pid):
        try:
            os.kill(one, signal.SIGKILL)
        except ProcessLookupError:
            pass


def reap_orphans(keep):
    """Ends and waits for whatever has come to this process; their CPU seconds. `keep` are children that stay."""
    seconds = 0.0
    while True:
        left = [pid for pid in children_of(os.getpid()) if pid not in keep]
        if not left:
            return seconds
        for pid in left:
            end_tree(pid)
            try:
                usage = os.wait4(pid, 0)[2]
                seconds += usage.ru_utime + usage.ru_stime
            except ChildProcessError:
                pass


def run(command, core, limit_seconds, log, environment=None, folder=None, keep=(), not_others=lambda: 0.0):
    """Runs `command` to its end, or for `limit_seconds`. `not_others` says what the server has used so far, in seconds."""
    own = time.process_time
    others = busy_cores() - not_others() - own()
    with open(log, "wb") as output:
        started_ns = time.monotonic_ns()
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=folder,
            start_new_session=True,
            preexec_fn=isolate(core),
        )
    look = Look()
    end = os.pidfd_open(child.pid)
    deadline = time.monotonic() + limit_seconds
    timed_out = False
    try:
        while not select.select([end], [], [], CPU_LOOK_S)[0]:
            now = time.monotonic()
            if now > deadline and not timed_out:
                timed_out = True
                end_tree(child.pid)
            look.at(child.pid, now)
        ended_ns = time.monotonic_ns()
    except BaseException:
        end_tree(child.pid)
        raise
    finally:
        os.close(end)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        orphans = reap_orphans(keep)
    cpu = usage.ru_utime + usage.ru_stime + orphans
    wall = (ended_ns - started_ns) / 1e9
    return Finished(
        started_ns=started_ns,
        ended_ns=ended_ns,
        exit=child.returncode,
        ended_for_taking_long=timed_out,
        cpu_seconds=cpu,
        cpu_by_program=look.cpu_by_program(),
        peak_pss_bytes=look.pss,
        peak_pss_by_program=look.pss_by_program,
        peak_processes=look.processes,
        other_cores=max(0.0, (busy_cores() - not_others() - own() - others - cpu) / wall),
        load=os.getloadavg()[0],
    )
