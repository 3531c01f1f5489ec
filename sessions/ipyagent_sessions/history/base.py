"""What the views stand on, as SQL in the schema `base`.

    base.loose     physical events from segments and tails, where there are such or nothing is cached; payload as text
    base.events    each physical event once, of those and of the query cache; payload as text
    base.told      the same with what they triggered; payload as JSON
    base.sessions  one row a session: what its header says, and whether its lease is held
    base.lineage   session_id, origin, first, last, depth: which seqs of which session its history goes through

These are made by `tables` for each query; the views below build on them.  A session's events are all loose, or all in the
cache, so what an event triggered is known in either.  Payloads leave out what is a default, so each
default of `payloads` that matters is written as a coalesce, here and in `views`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from ipyagent_sessions.lifecycle import MOVES


class View(NamedTuple):
    """A view, one line of documentation, and a line for each column whose name does not say it all."""

    name: str
    doc: str
    sql: str
    columns: Mapping[str, str] = MappingProxyType({})


TOLD: Final = """
        SELECT e.*, coalesce(c.triggered_events, []) AS triggered_events
        FROM base.loose e LEFT JOIN (
            SELECT session_id, parent_event, list(session_id || ':' || seq ORDER BY seq) AS triggered_events
            FROM base.loose WHERE parent_event IS NOT NULL GROUP BY session_id, parent_event
        ) c ON c.session_id = e.session_id AND c.parent_event = e.seq"""
"""The loose events with the ids of those that they caused."""

UNTOLD: Final = "SELECT *, error('triggered_events of event ' || seq)::VARCHAR[] AS triggered_events FROM base.loose"
"""The same for a query that does not use those ids: finding them takes most of its time."""

_STATE_AFTER: Final = " ".join(f"WHEN '{event_type}' THEN '{state}'" for event_type, state in MOVES.items())
_MOVING: Final = ", ".join(f"'{event_type}'" for event_type in MOVES)

BASE: Final = (
    View(
        "base.story",
        "each session with the events it inherited",
        """
        SELECT l.session_id, l.depth, e.session_id AS origin, e.* EXCLUDE (session_id)
        FROM base.lineage l JOIN base.events e ON e.session_id = l.origin AND e.seq BETWEEN l.first AND l.last""",
    ),
    View(
        "base.moves",
        "what changes the state of a session or of its tasks; `episode` counts the tasks of a session",
        f"""
        WITH named AS (
            SELECT session_id, depth, seq, timestamp, task_id, event_type, payload, CASE event_type {_STATE_AFTER} END AS state
            FROM base.story
            WHERE event_type IN ({_MOVING}, 'SessionCreated', 'SessionForked', 'ControlRequested'))
        SELECT * REPLACE (
                CASE WHEN event_type <> 'SessionForked' THEN state
                    WHEN last_value(state IGNORE NULLS) OVER before NOT IN ('completed', 'failed', 'cancelled')
                    THEN 'suspended'
                    END AS state),
            count(*) FILTER (event_type = 'TaskQueued') OVER before + (event_type = 'TaskQueued')::INTEGER AS episode
        FROM named
        WINDOW before AS (PARTITION BY session_id ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)""",
    ),
    View(
        "base.asked",
        "approvals: requests, first answers and all that was said (also of a part of what was asked), inherited ones too",
        """
        SELECT session_id, payload->>'$.approval_id' AS approval_id,
            max(task_id) AS task_id, arg_min(activity_id, seq) FILTER (asks) AS activity_id, min(seq) FILTER (asks) AS seq,
            min(timestamp) FILTER (asks) AS asked, arg_min(payload, seq) FILTER (asks) AS request,
            min(seq) FILTER (answers) AS answer_seq, arg_min(timestamp, seq) FILTER (answers) AS answered,
            arg_min(payload, seq) FILTER (answers) AS answer, bool_or(depth = 0) AS own,
            list({'seq': seq, 'timestamp': timestamp, 'body': payload} ORDER BY seq) FILTER (NOT asks) AS said
        FROM (SELECT *, event_type = 'ApprovalRequested' AS asks,
                NOT asks AND payload->>'$.partial' IS DISTINCT FROM 'true' AS answers
              FROM base.story WHERE event_type IN ('ApprovalRequested', 'ApprovalResolved'))
        GROUP BY session_id, approval_id""",
    ),
)
