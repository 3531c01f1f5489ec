"""The card: every field of the monitoring panel, and what may be done now."""

from __future__ import annotations

import pytest
from tests.views.build import TASK, Story

from ipyagent_sessions import payloads as p
from ipyagent_sessions.events import as_raw
from ipyagent_sessions.log.live import Live
from ipyagent_sessions.views import html, text
from ipyagent_sessions.views.card import Card, as_json, card
from ipyagent_sessions.views.shown import Shown, Table


def shown(story: Story, effective: str | None = None, live: Live | None = None, later: float = 0.0) -> Card:
    status = story.state.system_state.status
    assert status is not None
    return card("abcdefghij", story.state, live, effective or status.value, story.now + later)


def running() -> Story:
    story = Story().started(total=10)
    story.add("ActivityStarted", p.ActivityStarted("collections", "stage"), activity="1")
    for key in ("a", "b", "c", "d"):
        story.step(key)
    story.add("CheckpointCreated", p.CheckpointCreated("stage", "1"))
    return story.step("email", finish=False, attempt=2)


def test_a_running_task_shows_every_field_of_the_panel() -> None:
    live = Live(
        TASK,
        2,
        0.0,
        cpu=45.0,
        rss=1_200_000_000,
        memory_total=6_800_000_000,
        disk_free=72,
        disk_total=100,
        next_checkpoint=240.0,
    )
    found = shown(running(), live=live, later=10.0)
    told, drawn = text.card(found), html.card(found)
    for field in (
        "Audit of the standard library",
        TASK,
        "running",
        "checkpoint 1",
        "next in 4 min 0 s",
        "CPU 45 %",
        "memory 1.2 GB of 6.8 GB",
        "disk 28 %",
        "4 activities in",
        "analyse:email (attempt 2)",
        "every result is on disk",
    ):
        assert field in told, field
        assert field in drawn, field
    assert "[###########.................] 4 of 10, 40 %" in told
    assert "<b>4 of 10</b>" in drawn


def test_the_rest_is_unknown_rather_than_wrong() -> None:
    nobody_said = shown(Story().started().step("a").step("b").step("c").step("d"))
    assert (nobody_said.remaining_s, nobody_said.remaining_basis) == (None, "nobody has said how many activities there are")
    too_early = shown(Story().started(total=10).step("a"))
    assert too_early.remaining_s is None
    assert "remaining unknown" in text.card(too_early)


def test_the_estimate_is_the_pace_of_the_activities_that_are_done() -> None:
    story = Story().started(total=8)
    for key in ("a", "b", "c", "d"):
        story.step(key)
    found = shown(story)
    assert found.remaining_s == pytest.approx(found.elapsed_s / 4 * 4)


def test_the_estimate_counts_down_while_nothing_ends_and_gives_up_when_it_is_over() -> None:
    story = Story().started(total=8)
    for key in ("a", "b", "c", "d"):
        story.step(key)
    for key in ("e", "f", "g", "h"):
        story.step(key, finish=False)
    first, later, over = (shown(story, later=later) for later in (0.0, 5.0, 60.0))
    assert first.remaining_s is not None
    assert later.remaining_s == pytest.approx(first.remaining_s - 5)
    assert later.remaining_basis == first.remaining_basis
    assert (over.remaining_s, over.remaining_basis) == (None, f"longer than expected of {first.remaining_basis}")


def test_running_without_a_holder_is_shown_as_lost_with_what_is_gone() -> None:
    found = shown(running(), effective="lost")
    assert found.headline == "stopped at activity 4 of 10: the process that ran it is gone"
    assert found.now == []
    assert found.actions["resume"] == ""
    assert found.actions["pause"] == "it is lost, not running"


@pytest.mark.parametrize(
    ("event_type", "payload", "actor", "headline", "allowed"),
    [
        (
            "TaskSuspended",
            p.TaskSuspended("approval", "Delete the originals?"),
            "engine",
            "suspended: Delete the originals?",
            {"resume", "cancel", "log"},
        ),
        (
            "TaskSuspended",
            p.TaskSuspended("persistence", "No space left"),
            "engine",
            "suspended: No space left",
            {"resume", "cancel", "log"},
        ),
        (
            "TaskSuspended",
            p.TaskSuspended("worker_lost", "stopped at activity 4 of 10"),
            "engine",
            "suspended: stopped at activity 4 of 10",
            {"resume", "cancel", "log"},
        ),
        ("TaskInterrupted", p.TaskInterrupted(["x"]), "user", "interrupted by a person", {"resume", "cancel", "log"}),
        ("TaskCancelled", p.TaskCancelled("enough"), "user", "cancelled: enough", {"log"}),
        ("TaskCompleted", p.TaskCompleted(), "engine", "completed", {"log"}),
        (
            "TaskFailed",
            p.TaskFailed("ValueError", "three is broken"),
            "engine",
            "failed: ValueError: three is broken",
            {"log"},
        ),
    ],
)
def test_each_transition_says_what_happened_and_what_may_be_done(
    event_type: str, payload: p.Payload, actor: str, headline: str, allowed: set[str]
) -> None:
    story = running()
    story.add(event_type, payload, actor=actor)
    found = shown(story)
    assert found.headline == headline
    assert {action for action, reason in found.actions.items() if not reason} == allowed
    for action in set(found.actions) - allowed:
        assert found.actions[action]


def test_a_drain_is_told() -> None:
    story = running()
    story.add("ControlRequested", p.ControlRequested("c1", "pause"), actor="user")
    assert shown(story).headline == "running, pausing: waiting for 1 open activities"


def test_what_waits_for_a_person_shows_question_details_and_how_to_answer() -> None:
    story = running()
    story.add(
        "ApprovalRequested", p.ApprovalRequested("a1", "Delete?", as_raw(["build/"]), "d1", if_ignored="denied at 18:40")
    )
    told = text.card(shown(story), prefix="ipyagent")
    assert 'needs you: Delete? ["build/"]' in told
    assert "ipyagent approve abcdefghij --approval a1" in told
    assert "denied at 18:40" in told
    assert "needs you" in html.card(shown(story))


def test_elapsed_time_counts_running_time_only() -> None:
    story = running()
    story.add("TaskSuspended", p.TaskSuspended("approval", "?"))
    before = shown(story).elapsed_s
    assert shown(story, later=3600.0).elapsed_s == before


def test_equal_states_give_equal_pictures_on_every_run() -> None:
    one, two = shown(running(), later=5.0), shown(running(), later=5.0)
    assert as_json(one) == as_json(two)
    assert html.card(one) == html.card(two)


HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)> javascript:alert(1) \x1b[2J \u202eevil " + "x" * 1_000_000


def test_hostile_text_is_harmless_in_every_field_of_text_and_html() -> None:
    story = Story(HOSTILE).started(total=3)
    story.add("ActivityStarted", p.ActivityStarted(HOSTILE, "stage"), activity="1")
    story.step(HOSTILE[:200], finish=False)
    story.add("AlarmRaised", p.AlarmRaised("x", HOSTILE))
    story.add("ApprovalRequested", p.ApprovalRequested("a1", HOSTILE, as_raw(["build/"]), "d1", if_ignored=HOSTILE))
    for effective in ("running", "lost"):
        found = shown(story, effective=effective)
        drawn, told = html.card(found), text.card(found)
        assert "<script" not in drawn
        assert "<img" not in drawn
        for bad in ("\x1b", "\u202e"):
            assert bad not in drawn
            assert bad not in told
        assert len(drawn) < 20_000
        assert len(told) < 20_000


def test_the_html_has_no_script_and_no_address_from_outside() -> None:
    drawn = html.card(shown(running()))
    for word in ("<script", "http:", "https:", "src=", "href=", "onclick"):
        assert word not in drawn


def test_of_an_unknown_outcome_only_what_happened_can_be_chosen() -> None:
    story = running()
    choices = [p.HAPPENED, p.RUN_AGAIN]
    story.add(
        "ApprovalRequested", p.ApprovalRequested("a1", "Was it paid?", as_raw(None), "d1", kind="outcome", choices=choices)
    )
    for drawn in (text.card(shown(story), prefix="ipyagent"), html.card(shown(story), prefix="ipyagent")):
        approve = "ipyagent approve abcdefghij --approval a1 --choice"
        assert f"{approve} happened [--result JSON]   or   {approve} run_again" in drawn
        assert "deny" not in drawn


def test_a_question_with_choices_can_be_denied() -> None:
    story = running()
    story.add("ApprovalRequested", p.ApprovalRequested("a1", "Which?", as_raw(None), "d1", choices=["x", "y"]))
    told = text.card(shown(story), prefix="ipyagent")
    assert "--choice x|y   or   ipyagent deny abcdefghij --approval a1" in told


EVIL = "a\x1b]0;x\x07\x9b2J\u202eb\u2028c"


def test_no_field_of_a_card_carries_what_moves_a_cursor() -> None:
    story = Story(EVIL).started(total=3)
    story.add("ActivityStarted", p.ActivityStarted(EVIL, "stage"), activity=EVIL)
    story.add("ActivityStarted", p.ActivityStarted(EVIL, key=EVIL, stage=EVIL, digest="d"), activity=f"1/{EVIL}:{EVIL}")
    story.add("CheckpointCreated", p.CheckpointCreated("stage", EVIL))
    story.add("AlarmRaised", p.AlarmRaised(EVIL, EVIL))
    story.add(
        "ApprovalRequested",
        p.ApprovalRequested(EVIL, EVIL, as_raw(EVIL), "d1", choices=[EVIL], if_ignored=EVIL),
        activity=EVIL,
    )
    found = shown(story)
    for drawn in (text.card(found), html.card(found)):
        assert not set(drawn.replace("\n", "")) & set("\x1b\x07\x9b\u202e\u2028")


def test_whatever_text_a_command_returns_leaves_it_harmless() -> None:
    for made in (Shown(f"one\n{EVIL}"), Table(["a"], [[EVIL]], note=EVIL), Table(["a"], [], empty=EVIL)):
        for drawn in (made.text, str(made), repr(made), made.html):
            assert not set(drawn.replace("\n", "")) & set("\x1b\x07\x9b\u202e\u2028")
    assert Shown("one\ntwo").text == "one\ntwo"
    assert "\x1b" not in html.tree({"a": EVIL})


def test_tokens_and_cost_are_those_of_the_task_as_its_requests_are() -> None:
    story, cards = Story(), list[Card]()
    for _ in range(2):
        story.started()
        said = p.MessageAdded("assistant", "hello")
        story.add("MessageAdded", said, activity="main/model:1", cost=0.25)
        cards.append(shown(story))
        story.add("TaskCompleted", p.TaskCompleted())
        story.add("TaskQueued", p.TaskQueued("agent", "agent"))
    assert [(found.requests, found.cost_usd) for found in cards] == [(1, 0.25), (1, 0.25)]
    assert story.state.cost_usd == 0.5, "the session knows the whole"
