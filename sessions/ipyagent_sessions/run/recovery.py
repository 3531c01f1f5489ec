"""Recovery after a loss: what it found, in six steps, and whether what was restored can be (R126-R150)."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from typing import Any, Final, NamedTuple

import msgspec

from ipyagent_sessions import events as ev
from ipyagent_sessions import payloads as p
from ipyagent_sessions.log import sealing
from ipyagent_sessions.log.lease import Holder, boot, host, is_alive
from ipyagent_sessions.log.live import Live
from ipyagent_sessions.log.reader import Reader, seqs
from ipyagent_sessions.run import control, resources
from ipyagent_sessions.run.task import TaskRun
from ipyagent_sessions.state import Active, State

_WORTH_TELLING_S: Final = 0.1


def not_restored(run: TaskRun, *, lost: bool) -> list[str]:
    """What of the last execution a resume cannot give back (R112): nothing in the process that it stopped in."""
    if lost:
        return list(control.NOT_RESTORED)
    last, now = run.state.system_state.holder, run.appender.lease.holder.as_dict()
    if all(last.get(key) == now[key] for key in ("pid", "started", "host", "boot")):
        return []
    return [what for what in control.NOT_RESTORED if what != control.CALLS]  # it had stopped: none was running


def completed(
    run: TaskRun,
    opened: dict[str, Active],
    from_seq: int,
    took_s: float,
    loss: Loss,
    differences: list[str],
    wrong: list[str],
) -> p.RecoveryCompleted:
    """What a recovery found and did: one sentence for the person, and one for each of its six steps (R133-R149)."""
    repeat = sorted(i for i, a in opened.items() if a.effect != "irreversible" and a.kind != "sleep")
    unknown = sorted(i for i, a in opened.items() if a.effect == "irreversible")
    verify = [i for i in unknown if opened[i].verifiable]
    ask = [i for i in unknown if not opened[i].verifiable]
    execution, loaded = run.state.execution_state, run.appender.loaded
    lost_s = sum(max(0.0, loss.at - ev.seconds_of(opened[i].since)) for i in repeat)
    begun = [
        i for i in loss.now if i not in opened and i not in run.state.business_state.results
    ]  # their start was not on disk
    lost_s += len(begun) * max(0.0, loss.at - loss.durable)
    repeat += sorted(begun)
    told = [_done(execution.done, execution.total)]
    if repeat:
        again = _counted(len(repeat), "open activity runs again", "open activities run again")
        told.append(f"{again} ({lost_s:.1f} s of work)" if lost_s >= _WORTH_TELLING_S else again)
    if verify:
        told.append(_counted(len(verify), "is verified first", "are verified first"))
    if ask:
        told.append(_counted(len(ask), "needs an answer", "need an answer"))
    return p.RecoveryCompleted(
        from_seq,
        loss.cause,
        f"recovered at event {from_seq}: {', '.join(told)}",
        loaded.checkpoint,
        loaded.refused,
        round(took_s * 1000, 3),
        _lost_events(run),
        repeat,
        ask,
        list(control.NOT_RESTORED),
        verify,
        _steps(run, loss.told, differences, told, wrong),
        round(lost_s, 3),
    )


def _steps(run: TaskRun, loss: str, differences: list[str], told: list[str], wrong: list[str]) -> dict[str, str]:
    """The six steps of the source documents, each with what it came to."""
    loaded, business = run.appender.loaded, run.state.business_state
    found = "no checkpoint" if loaded.checkpoint is None else f"checkpoint at event {loaded.checkpoint}, verified"
    refused = f"; refused as damaged: {', '.join(map(str, loaded.refused))}" if loaded.refused else ""
    goal = f"goal: {business.current_goal}; " if business.current_goal else ""
    return {
        "detect": loss,
        "assess": f"{found}{refused}; {_counted(loaded.replayed, 'event', 'events')} after it",
        "prepare": f"epoch {run.appender.epoch}; " + ("; ".join(differences) or "environment and files are as they were"),
        "restore": f"{goal}{_counted(len(business.completed_subtasks), 'stage is', 'stages are')} done, "
        f"{_counted(len(business.results), 'result', 'results')}, {_counted(len(business.files), 'file', 'files')}",
        "continue": f"attempt {run.state.system_state.attempt}: {', '.join(told)}",
        "verify": "; ".join(wrong) or "the state is consistent",
    }


class Loss(NamedTuple):
    """How a lost holder was lost: `cause` is worker_lost, or resources where the system ended it for lack of memory; `at` is
    when it was last heard of, `durable` when the last event that reached the disk was made, `now` what ran at last."""

    cause: str
    told: str
    at: float
    durable: float = 0.0
    now: tuple[str, ...] = ()


def loss_of(run: TaskRun, durable: float) -> Loss:
    """How the loss of the last holder shows; asked before the next one is logged.  `live.json` is its last sign of life,
    `durable` the time of its last event, in seconds since the epoch."""
    holder, known = run.state.system_state.holder, run.session.live()
    told = [_how_it_is(holder)]
    if known is None or known.task_id != run.task_id:
        return Loss("worker_lost", told[0], 0.0)
    told.append(f"its last sign of life was {max(0.0, run.clock.now() - known.heartbeat):.0f} s before")
    room = resources.Room(known.memory_used or 0, known.memory_total or 1, known.disk_free or 0, known.disk_total or 0)
    if room.memory_short:
        told.append(f"{room.memory_used / room.memory_total:.0%} of the memory was in use then")
    killed = _killed_since(known, holder)
    if killed:
        told.append(
            f"since then the system has killed {_counted(killed, 'process', 'processes')} for lack of memory, perhaps this one"
        )
    if known.disk_total and room.disk_short:
        told.append("the disk was nearly full")
    short = room.memory_short or (killed > 0 and room.memory_used >= room.memory_total / 2)
    return Loss("resources" if short else "worker_lost", "; ".join(told), known.heartbeat, durable, tuple(known.now))


def _how_it_is(holder: dict[str, Any]) -> str:
    """What can be seen of the process that held the lease: one that was taken over from is stopped, not gone."""
    pid = holder.get("pid", "?")
    with contextlib.suppress(msgspec.ValidationError):
        known = msgspec.convert(holder, Holder)
        here = is_alive(known, heartbeat_age=None)
        if here and known.pid == os.getpid():
            return f"process {pid} is this one, and had let go: its disk refused the log, or another holder took over"
        if here:
            return f"process {pid} gave no sign of life and was taken over from: it is stopped, not gone, and appends no more"
    return f"process {pid} is gone and left the lease"


def unseen_damage(run: TaskRun) -> list[str]:
    """What is damaged or missing in the journals before the checkpoint that the state was read from, in words: a resume reads
    nothing of it, and segments are read by `verify`."""
    appender = run.appender
    if appender.loaded.checkpoint is None:
        return []
    reader = Reader(appender.layout, appender.first)
    after = max(sealing.sealed_until(appender.layout), appender.first - 1)
    deque(reader.events(after=after, until=appender.loaded.checkpoint), maxlen=0)
    where = f"; {'; '.join(map(str, reader.damage))}" if reader.damage else ""
    covered = f"damaged or missing, and the checkpoint at event {appender.loaded.checkpoint} covers it{where}"
    return [f"{seqs(low, high)} {covered}" for low, high in reader.missing]


def _killed_since(known: Live, holder: dict[str, Any]) -> int:
    """How many processes the killer of this machine has ended since `known` was written, 0 when that is not known."""
    now = resources.kills()
    if known.kills is None or now is None or (holder.get("host"), holder.get("boot")) != (host(), boot()):
        return 0
    return max(0, now - known.kills)


def violations(state: State) -> list[str]:
    """What in a restored state cannot be, one line each; nothing in a sound one (R148)."""
    system, execution, results = state.system_state, state.execution_state, state.business_state.results
    out = [f"{i} is open and has a result" for i in execution.active_activities if i in results]
    out += [f"{i} began at event {a.seq}, after the end" for i, a in execution.active_activities.items() if a.seq > state.seq]
    out += [f"{i} has its result at event {r.seq}, after the end" for i, r in results.items() if r.seq > state.seq]
    if system.task_id not in state.tasks:
        out.append(f"task {system.task_id} is not among those of the session")
    if state.checkpoint is not None and state.checkpoint.seq > state.seq:
        out.append(f"the newest checkpoint is at event {state.checkpoint.seq}, after the end")
    return out


def check(run: TaskRun, wrong: list[str]) -> None:
    """Suspend the task when what was restored cannot be (`violations`): nothing is done on such a ground."""
    if wrong:
        told = f"what was restored is not consistent: {'; '.join(wrong[:5])}"
        run.emit("AlarmRaised", p.AlarmRaised("inconsistent", told))
        run.stop("suspend", reason="persistence", detail=told)


def _done(done: int, total: int | None) -> str:
    if total is None:
        return _counted(done, "activity is done", "activities are done")
    one = f"of {total} {'activity' if total == 1 else 'activities'}"
    return _counted(done, f"{one} is done", f"{one} are done")


def _counted(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"


def _lost_events(run: TaskRun) -> int:
    """How many events the lost holder had appended, by its last sign of life, that never reached the disk.

    In mode sync none of them was acknowledged: they are starts of activities that rode with a result to come.
    """
    known = run.session.live()
    if known is None or known.task_id != run.task_id or known.epoch >= run.appender.epoch:
        return 0
    return max(0, known.last_seq - run.appender.found_seq)
