"""What has to happen in a process of its own: `python child.py WHAT ARGUMENTS...` prints its measurement as JSON.

Everything that the measured code imports is imported before the clock starts.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def crash(folder: str, count: str) -> None:
    """Run `count` activities in mode sync and die by SIGKILL."""
    os.environ["IPYAGENT_BENCH_DIE"] = "1"
    from ipyagent_sessions import Store, run_workflow
    from workloads import interrupted

    run_workflow(Store(folder), interrupted, (int(count),)).result()


def resume(folder: str) -> dict[str, Any]:
    """Milliseconds from opening the store that a crash left until the next activity's function is entered."""
    import_all()
    from ipyagent_sessions import Store, resume_task
    from workloads import interrupted

    begun = time.perf_counter()
    store = Store(folder)
    session = store.session(store.session_ids()[0])
    handle = resume_task(session, interrupted)
    opened = time.perf_counter()
    at = handle.result()
    return {"ms": (at - begun) * 1000, "open_ms": (opened - begun) * 1000}


def appends(folder: str, count: str) -> dict[str, float]:
    """p99 of an append in the first and the last tenth of `count` events, in µs, and how memory grew in between, in MiB."""
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
        if number in (tenth, events - 1):
            rss.append(process.memory_info().rss)
    appender.close()
    p99 = [sorted(part)[len(part) * 99 // 100] * 1e6 for part in (took[:tenth], took[-tenth:])]
    return {"first_us": p99[0], "last_us": p99[1], "ratio": p99[1] / p99[0], "rss_mib": (rss[1] - rss[0]) / 2**20}


def imports(module: str) -> dict[str, float]:
    """Milliseconds that importing `module` takes in this fresh process."""
    begun = time.perf_counter()
    __import__(module)
    return {"ms": (time.perf_counter() - begun) * 1000}


def import_all() -> None:
    """What the engine imports on first use."""
    import filelock  # noqa: F401
    import ipyagent_sessions.run.launch
    import psutil  # noqa: F401
    import pyarrow.parquet
    import zstandard  # noqa: F401


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parent))
    kinds: dict[str, Callable[..., object]] = {"crash": crash, "resume": resume, "appends": appends, "imports": imports}
    print(json.dumps(kinds[sys.argv[1]](*sys.argv[2:])))


if __name__ == "__main__":
    main()
