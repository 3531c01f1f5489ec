"""What has to happen in a process of its own: `python child.py WHAT ARGUMENTS...` prints its measurement as JSON.

Everything that the measured code imports is imported before the clock starts.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import resource
import sys
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path


def crash(folder: str, count: str) -> None:
    """Run `count` activities in mode sync and die by SIGKILL."""
    os.environ["IPYAGENT_BENCH_DIE"] = "1"
    from workloads import interrupted

    from ipyagent_sessions import Store, run_workflow

    run_workflow(Store(folder), interrupted, (int(count),)).result()


def resume(folder: str) -> dict[str, float]:
    """Milliseconds from opening the store that a crash left until the next activity's function is entered, and the CPU time of
    all threads meanwhile."""
    import_all()
    from workloads import interrupted

    from ipyagent_sessions import Store, resume_task

    begun, used = time.perf_counter(), time.process_time()
    store = Store(folder)
    session = store.session(store.session_ids()[0])
    handle = resume_task(session, interrupted)
    at, spent = handle.result()
    return {"ms": (at - begun) * 1000, "cpu_ms": (spent - used) * 1000}


def appends(folder: str, count: str) -> dict[str, float]:
    """p99 of an append in the first and the last tenth of `count` events, in µs, and how memory grew in each half, in MiB."""
    import_all()
    import psutil

    from ipyagent_sessions import Store
    from ipyagent_sessions.log.lease import this_process
    from ipyagent_sessions.payloads import ActivityProgressed

    process = psutil.Process()
    events, tenth = int(count), int(count) // 10
    appender = Store(folder).create().append(this_process(by="benchmark"))
    appender.durability = "async"
    took: list[float] = []
    rss: list[int] = []
    for number in range(events):
        body = ActivityProgressed(number, events, "a line of progress")
        begun = time.perf_counter()
        appender.emit("ActivityProgressed", body)
        appender.acknowledge()
        took.append(time.perf_counter() - begun)
        if number in (0, events // 2, events - 1):
            rss.append(process.memory_info().rss)
    appender.close()
    p99 = [sorted(part)[len(part) * 99 // 100] * 1e6 for part in (took[:tenth], took[-tenth:])]
    halves = [(after - before) / 2**20 for before, after in pairwise(rss)]
    return {
        "first_us": p99[0],
        "last_us": p99[1],
        "ratio": p99[1] / p99[0],
        "first_half_mib": halves[0],
        "second_half_mib": halves[1],
    }


def asked(folder: str, sql: str) -> dict[str, float]:
    """Seconds of a query, with what has to be imported for it, and of copying into the query cache after it; memory in MB."""
    begun = time.perf_counter()
    from ipyagent_sessions import Store

    Store(folder).sql(sql)
    first = time.perf_counter()
    for thread in threading.enumerate():
        if thread is not threading.main_thread():
            thread.join()
    return {"first_s": first - begun, "copied_s": time.perf_counter() - first, "peak_mb": peak_mb()}


def large(folder: str, count: str) -> None:
    """Run `count` activities with large results in mode async and die by SIGKILL."""
    os.environ["IPYAGENT_BENCH_DIE"] = "1"
    from workloads import reading

    from ipyagent_sessions import Store, run_workflow
    from ipyagent_sessions.run.task import RunOptions

    run_workflow(Store(folder), reading, (int(count),), options=RunOptions(durability="async")).result()


def looks(folder: str, what: str) -> dict[str, float]:
    """Peak memory (MB) and seconds of one thing done to what `large` left: resume, state (at its middle), log, verify."""
    begun = time.perf_counter()
    from workloads import reading

    from ipyagent_sessions import Store, resume_task
    from ipyagent_sessions.verify import whole

    store = Store(folder)
    session = store.session(store.session_ids()[0])
    if what == "resume":
        resume_task(session, reading).result()
    elif what == "state":
        session.state(session.last_seq() // 2)
    elif what == "log":
        for _ in session.events():
            pass
    else:
        whole.store(store)
    return {"s": time.perf_counter() - begun, "mb": peak_mb()}


def peak_mb() -> float:
    """The most memory that this process has held at once, in MB.

    Linux counts in `ru_maxrss` also what its parent held when it started it (getrusage(2) is kept over execve); VmHWM of
    proc_pid_status(5) does not.
    """
    if sys.platform == "linux":
        lines = Path("/proc/self/status").read_text("utf-8").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024 / 1e6
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def imports(module: str) -> dict[str, float]:
    """Milliseconds that importing `module` takes in this fresh process."""
    begun = time.perf_counter()
    importlib.import_module(module)
    return {"ms": (time.perf_counter() - begun) * 1000}


def import_all() -> None:
    """What the engine imports on first use, and what a kernel has compiled after its first cell (the tokenizer's patterns)."""
    inspect.getsource(import_all)
    for module in ("filelock", "ipyagent_sessions.run.launch", "psutil", "pyarrow.parquet", "zstandard"):
        importlib.import_module(module)


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parent))
    chosen = (crash, resume, appends, asked, large, looks, imports)
    kinds: dict[str, Callable[..., object]] = {function.__name__: function for function in chosen}
    print(json.dumps(kinds[sys.argv[1]](*sys.argv[2:])))


if __name__ == "__main__":
    main()
