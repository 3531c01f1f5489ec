"""Fakes for tests of this package and of what is built on it: they are shipped, so that nobody has to mock.

    clock = FakeClock()                        # time moves when the test says so
    ids = FakeIds()                            # a1, a2, a3, ...
    disk = FaultyDisk()                        # a real disk that counts, and fails where it is told to
    disk.fail("before journal sync", at=3)     # the third passing raises OSError(ENOSPC)
    disk.kill("after seal rename")             # the first passing kills this process with SIGKILL
    store = Store(folder, clock=clock, ids=ids, disk=disk)
    with Child(code, str(folder)) as child:    # a process to stop, wake and kill
        child.expect("holding")
    wait_until(lambda: ..., what="...")        # a condition with a deadline, never a blind sleep
    for item in islice(History(rng), 50):      # a plausible history of events
        emit(appender, item)

The names of the seams are `ipyagent_sessions.log.files.SEAMS`.  Nothing here is imported by the package itself.
"""

from ipyagent_sessions.testing.child import Child
from ipyagent_sessions.testing.clock import FakeClock
from ipyagent_sessions.testing.disk import FaultyDisk
from ipyagent_sessions.testing.histories import Emission, History, activities, emit, events
from ipyagent_sessions.testing.ids import FakeIds
from ipyagent_sessions.testing.waiting import wait_until

__all__ = ["Child", "Emission", "FakeClock", "FakeIds", "FaultyDisk", "History", "activities", "emit", "events", "wait_until"]
