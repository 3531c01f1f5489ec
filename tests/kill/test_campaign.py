"""Nothing promised is lost and nothing done is done again, however often the process is killed (R041, R103, R151).

One campaign, started by the first of these tests: more than a hundred SIGKILLs at every named seam and at random times, of
forked children, of real ipykernels and of processes that only ask.  Its table stands at the end of pytest's output, and in
`kill-campaign.txt` in the folder that IPYAGENT_KILL_REPORT names (or pytest's own temporary folder).
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from pathlib import Path

import psutil
import pytest
from tests.kill import campaign
from tests.kill.child import EFFECT, INTENT, TORN
from tests.kill.conftest import TABLE

from ipyagent_sessions.log.files import SEAMS

KILLS, KERNELS = 110, 10
SEED = int(os.environ.get("IPYAGENT_KILL_SEED", "1"))

pytestmark = pytest.mark.timeout(600)


def own() -> set[str]:
    """The processes, threads and open files of this process."""
    me = psutil.Process()
    files = {f"file {f.path}" for f in me.open_files()} | {f"socket {s.laddr}" for s in me.net_connections()}
    return (
        {f"process {p.pid}" for p in me.children(recursive=True)} | {f"thread {t.name}" for t in threading.enumerate()} | files
    )


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> campaign.Report:
    before = own()
    done = campaign.run(tmp_path_factory.mktemp("campaign"), kills=KILLS, seed=SEED, kernels=KERNELS)
    done.wrong += [f"left behind: {x}" for x in own() - before]
    text = campaign.table(done)
    request.config.stash[TABLE] = text
    folder = Path(os.environ.get("IPYAGENT_KILL_REPORT") or tmp_path_factory.getbasetemp())
    (folder / "kill-campaign.txt").write_text(text + "\n", encoding="utf-8")
    return done


def test_no_completed_activity_is_executed_again(report: campaign.Report) -> None:
    assert report.of("was executed again", "is recorded", "is both recorded") == []


def test_no_acknowledged_event_is_lost(report: campaign.Report) -> None:
    assert report.of("acknowledged event lost", "which is not on disk", "is not in the log", "never given") == []


def test_no_irreversible_effect_is_had_twice(report: campaign.Report) -> None:
    assert report.of("irreversible effect") == []
    assert report.counts["irreversible effects"] > 100


def test_every_run_ends_completed_with_the_result_of_one_that_nobody_killed(report: campaign.Report) -> None:
    assert (
        report.of(
            "it ended", "does not end", "does not get on", "hung", "its result differs", "has become", "other activities"
        )
        == []
    )


def test_each_log_is_contiguous_and_without_doubles_also_for_plain_pyarrow(report: campaign.Report) -> None:
    assert report.of("contiguous", "damage", "pyarrow", "logged", "answers to approval", "answered") == []


def test_no_process_thread_or_open_file_is_left_behind(report: campaign.Report) -> None:
    assert report.of("left behind", "left lying about") == []


def test_nothing_else_is_wrong(report: campaign.Report) -> None:
    assert report.wrong == []


def test_every_seam_was_killed_at_and_work_of_every_kind_was_in_flight(report: campaign.Report) -> None:
    by = Counter(d.row for d in report.deaths)
    assert report.kills >= 100
    assert {seam: by[seam] for seam in (*SEAMS, TORN, INTENT, EFFECT) if by[seam] < 3} == {}
    assert sum(d.host == "kernel" for d in report.deaths) >= 8
    assert sum(d.activities > 1 for d in report.deaths) >= 5, "parallel activities"
    assert sum(d.irreversible > 0 for d in report.deaths) >= 3, "irreversible activities"
    assert sum(d.questions > 0 for d in report.deaths) >= 3, "open questions"
    assert sum("seal" in d.row or "checkpoint" in d.row for d in report.deaths) >= 12, "sealing and snapshots"
    assert report.counts["  settled by verify"] > 0
    assert report.counts["  settled by a person"] > 0
