"""The tables that a query sees, as SQL over `base`."""

from __future__ import annotations

from typing import Final

from ipyagent_sessions.history.base import View

_MEASURES: Final = "execution_time_ms, cpu_s, rss_bytes, input_tokens, output_tokens, cost_usd"

VIEWS: Final = (
    View(
        "events",
        "Each physical event once, in the record of the log.",
        f"""
        SELECT session_id || ':' || seq AS event_id, session_id, seq, event_type, timestamp, recorded_at, task_id,
            task_id AS workflow_id, activity_id, attempt, actor, payload, parent_event, triggered_events,
            schema_version, ignorable, agent_version, {_MEASURES}
        FROM base.told""",
        {
            "event_id": "session and seq, unique in the store",
            "recorded_at": "when it was written, if later than when it happened; otherwise the same",
            "workflow_id": "the same as task_id",
            "parent_event": "seq of the event that caused this one",
            "triggered_events": "event_ids of the events whose parent_event is this one",
            "payload": "JSON; see the payloads below",
        },
    ),
    View(
        "sessions",
        "One row a session. Counts, tokens and cost are of its own events: sums count shared history once.",
        """
        WITH own AS (
            SELECT session_id, arg_max(timestamp, seq) AS updated, max(seq) AS last_seq, count(*) AS events,
                count(*) FILTER (event_type = 'TaskQueued') AS tasks,
                count(*) FILTER (event_type = 'ActivityFailed') AS failures,
                count(*) FILTER (event_type = 'ActivityRetried') AS retries, sum(input_tokens)::BIGINT AS input_tokens,
                sum(output_tokens)::BIGINT AS output_tokens, sum(cost_usd) AS cost_usd
            FROM base.events GROUP BY session_id),
        heads AS (
            SELECT session_id, arg_max(state, seq) AS state, arg_max(task_id, seq) FILTER (state IS NOT NULL) AS task_id,
                coalesce(arg_max(payload->>'$.args.title', seq) FILTER (event_type = 'ControlRequested'
                        AND payload->>'$.action' = 'rename' AND coalesce(payload->>'$.outcome', 'accepted') = 'accepted'),
                    nullif(arg_max(payload->>'$.title', seq)
                        FILTER (event_type IN ('SessionCreated', 'SessionForked')), ''),
                    arg_max(coalesce(nullif(payload->>'$.title', ''), payload->>'$.target'), seq)
                        FILTER (event_type = 'TaskQueued')) AS title
            FROM base.moves GROUP BY session_id),
        known AS (
            SELECT s.*, h.title, h.task_id, h.state FROM base.sessions s LEFT JOIN heads h USING (session_id))
        SELECT k.session_id, k.title, k.notebook, k.created, o.updated, k.state,
            CASE WHEN k.state IS NULL THEN 'empty' WHEN k.state = 'running' AND NOT k.held THEN 'lost' ELSE k.state END
                AS effective_state,
            k.task_id, k.parent, k.parent_seq, o.last_seq, coalesce(o.events, 0) AS events, coalesce(o.tasks, 0) AS tasks,
            coalesce(o.failures, 0) AS failures, coalesce(o.retries, 0) AS retries, o.input_tokens, o.output_tokens, o.cost_usd
        FROM known k LEFT JOIN own o USING (session_id)""",
        {
            "state": "as the log has it; NULL before the first task",
            "effective_state": "the same with a look at the lease: running and held by nobody is lost; without a task empty",
            "task_id": "the newest task",
            "parent": "session it was forked from",
            "parent_seq": "last inherited event",
            "failures": "failed activities",
        },
    ),
    View(
        "tasks",
        "One row a task. A fork goes on with the unfinished task it inherits as a task of its own.",
        """
        WITH steps AS (
            SELECT *, lead(timestamp) OVER onward AS next, lead(seq) OVER onward AS next_seq,
                lead(event_type = 'SessionForked' OR (event_type = 'TaskSuspended'
                    AND payload->>'$.reason' = 'worker_lost')) OVER onward AS found_later
            FROM base.moves WHERE state IS NOT NULL
            WINDOW onward AS (PARTITION BY session_id ORDER BY seq)),
        halts AS (
            SELECT s.session_id, s.seq, e.timestamp AS stopped
            FROM (SELECT session_id, seq, next_seq - 1 AS last FROM steps WHERE state = 'running' AND found_later) s
            JOIN base.lineage l ON l.session_id = s.session_id AND s.last BETWEEN l.first AND l.last
            JOIN base.events e ON e.session_id = l.origin AND e.seq = s.last),
        ends AS (SELECT session_id, arg_max(timestamp, seq) AS newest FROM base.events GROUP BY session_id),
        grouped AS (
            SELECT session_id, arg_max(task_id, seq) AS task_id, arg_max(state, seq) AS state, arg_max(payload, seq) AS last,
                arg_min(payload, seq) FILTER (event_type = 'TaskQueued') AS queue,
                min(timestamp) FILTER (event_type = 'TaskQueued') AS queued,
                min(timestamp) FILTER (state = 'running') AS started,
                max(timestamp) FILTER (state IN ('completed', 'failed', 'cancelled')) AS ended,
                max(CASE WHEN state = 'running' THEN coalesce((payload->>'$.attempt')::INTEGER, 1) ELSE 0 END) AS attempts,
                coalesce(sum(greatest(0, date_diff('ms', timestamp, coalesce(stopped, next, newest))))
                    FILTER (state = 'running'), 0) / 1000 AS ran_s,
                bool_or(depth = 0) AS own
            FROM steps LEFT JOIN halts USING (session_id, seq) LEFT JOIN ends USING (session_id)
            GROUP BY session_id, episode)
        SELECT g.session_id, g.task_id, coalesce(nullif(queue->>'$.title', ''), queue->>'$.target') AS title,
            queue->>'$.target' AS target, coalesce(queue->>'$.kind', 'workflow') AS kind, g.state,
            CASE WHEN g.state = 'running' AND NOT b.held THEN 'lost' ELSE g.state END AS effective_state,
            CASE g.state WHEN 'suspended' THEN coalesce(last->>'$.reason', 'forked')
                WHEN 'failed' THEN coalesce(last->>'$.cause', 'error')
                WHEN 'interrupted' THEN 'paused' WHEN 'cancelled' THEN 'cancelled' END AS reason,
            CASE g.state WHEN 'suspended' THEN coalesce(last->>'$.detail',
                    'forked from ' || (last->>'$.parent_session') || ' at ' || (last->>'$.parent_seq'))
                WHEN 'interrupted' THEN last->>'$.partial'
                WHEN 'cancelled' THEN last->>'$.reason'
                WHEN 'failed' THEN (last->>'$.error_type') || ': ' || (last->>'$.error') END AS detail,
            queued, started, ended, attempts, ran_s, queue->>'$.retry_of' AS retry_of, queue->>'$.rerun_of' AS rerun_of,
            coalesce(queue->>'$.durability', 'sync') AS durability
        FROM grouped g JOIN base.sessions b USING (session_id) WHERE own""",
        {
            "reason": "why it is suspended, interrupted, failed or cancelled",
            "attempts": "how often it was started or resumed",
            "ran_s": "seconds in state running, up to the newest event; where a loss or a fork ended that, to the one before",
            "retry_of": "the ended task it repeats",
            "rerun_of": "the task it does again for real",
        },
    ),
    View(
        "activities",
        "One row an activity of a task, with its last outcome. Kinds: step, stage, sleep, value, model, tool.",
        """
        WITH said AS (
            SELECT session_id, task_id, approval_id, (request->'$.about')::VARCHAR[] AS asked, answer_seq,
                unnest(said, recursive := true)
            FROM base.asked WHERE own AND request->>'$.kind' = 'outcome'),
        choices AS (
            SELECT *, body->>'$.choice' AS choice, coalesce((body->'$.about')::VARCHAR[], []) AS about,
                coalesce(flatten(list(about) OVER (PARTITION BY session_id, approval_id ORDER BY seq
                    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)), []) AS before
            FROM said WHERE answer_seq IS NULL OR seq <= answer_seq),
        settled AS (
            SELECT session_id, task_id, seq, timestamp,
                unnest(if(len(about) > 0, about, list_filter(asked, lambda x: NOT list_contains(before, x)))) AS activity_id
            FROM choices WHERE choice = 'happened'),
        steps AS (
            SELECT session_id, task_id, activity_id, seq, timestamp, event_type, attempt, payload, execution_time_ms,
                input_tokens, output_tokens, cost_usd
            FROM base.events WHERE activity_id IS NOT NULL
            UNION ALL BY NAME SELECT *, 'ActivityCompleted' AS event_type, '{}' AS payload FROM settled),
        grouped AS (
            SELECT session_id, task_id, activity_id,
                arg_min(payload, seq) FILTER (event_type = 'ActivityStarted') AS start,
                arg_max(payload, seq) FILTER (event_type IN ('ActivityCompleted', 'ActivityFailed', 'ActivityRetried')
                    AND payload <> '{}') AS outcome,
                arg_max(CASE WHEN event_type = 'ActivityCompleted' THEN 'completed' WHEN event_type = 'ActivityFailed'
                    AND payload->>'$.aborted' IS DISTINCT FROM 'true' THEN 'failed' ELSE 'open' END, seq)
                    FILTER (event_type IN ('ActivityStarted', 'ActivityCompleted', 'ActivityFailed', 'ActivityRetried'))
                    AS state,
                greatest(coalesce(max(attempt), 1), max(attempt) FILTER (event_type = 'ActivityRetried') + 1) AS attempts,
                min(timestamp) FILTER (event_type = 'ActivityStarted') AS started,
                max(timestamp) FILTER (event_type IN ('ActivityCompleted', 'ActivityFailed')) AS ended,
                min(seq) FILTER (event_type = 'ActivityStarted') AS started_seq,
                max(seq) FILTER (event_type IN ('ActivityCompleted', 'ActivityFailed')) AS ended_seq,
                arg_max(execution_time_ms, seq) FILTER (event_type IN ('ActivityCompleted', 'ActivityFailed'))
                    AS execution_time_ms,
                sum(input_tokens)::BIGINT AS input_tokens, sum(output_tokens)::BIGINT AS output_tokens,
                sum(cost_usd) AS cost_usd, coalesce(bool_or(payload->>'$.ok' IS DISTINCT FROM 'false')
                    FILTER (event_type = 'ActivityCompensated'), false) AS compensated
            FROM steps GROUP BY session_id, task_id, activity_id)
        SELECT session_id, task_id, activity_id, coalesce(start->>'$.name', outcome->>'$.name') AS name,
            coalesce(start->>'$.kind', outcome->>'$.kind', 'step') AS kind, coalesce(start->>'$.stage', '') AS stage,
            start->>'$.key' AS key, coalesce(start->>'$.effect', 'none') AS effect, state, attempts, started,
            CASE WHEN state <> 'open' THEN ended END AS ended, execution_time_ms, input_tokens, output_tokens, cost_usd,
            coalesce(start->>'$.digest', outcome->>'$.digest') AS digest,
            CASE WHEN state <> 'completed' THEN outcome->>'$.error_type' END AS error_type,
            CASE WHEN state <> 'completed' THEN outcome->>'$.error' END AS error, compensated, started_seq,
            CASE WHEN state <> 'open' THEN ended_seq END AS ended_seq
        FROM grouped WHERE state IS NOT NULL""",
        {
            "stage": "number of the stage it ran in",
            "effect": "none, idempotent or irreversible",
            "state": "completed, failed, or open: no result yet, or its outcome is unknown",
            "attempts": "tries so far",
            "execution_time_ms": "of the last try",
            "cost_usd": "of all events of the activity, tokens likewise",
            "digest": "of its arguments",
            "error": "of the last try, unless it completed",
            "compensated": "whether its effect was undone",
        },
    ),
    View(
        "messages",
        "What was said: one row a message of a conversation.",
        f"""
        SELECT session_id || ':' || seq AS event_id, session_id, seq, timestamp, task_id, activity_id, actor,
            payload->>'$.role' AS role, coalesce(payload->>'$.text', payload->>'$.content') AS text, payload::JSON AS payload,
            {_MEASURES}
        FROM base.events WHERE event_type = 'MessageAdded'""",
        {"text": "the message's `text` or `content`; NULL when it has neither"},
    ),
    View(
        "tool_calls",
        "One row a call of a tool by an agent, with arguments and result.",
        """
        SELECT a.session_id, a.task_id, a.activity_id, a.name AS tool, a.effect, a.state, a.attempts, a.started, a.ended,
            a.execution_time_ms, s.payload->'$.args' AS args, d.payload->'$.result' AS result, a.error_type, a.error
        FROM (SELECT * FROM activities WHERE kind = 'tool') a
        LEFT JOIN base.events s ON s.session_id = a.session_id AND s.seq = a.started_seq
        LEFT JOIN base.events d ON d.session_id = a.session_id AND d.seq = a.ended_seq AND a.state = 'completed'""",
        {
            "args": "JSON; NULL when they were kept as a blob",
            "result": "JSON in the tagged form of `codec`; NULL when it was kept as a blob",
        },
    ),
    View(
        "approvals",
        "One row a request to a person, with the first answer.",
        """
        SELECT session_id, approval_id, task_id, activity_id, request->>'$.question' AS question,
            coalesce(request->>'$.kind', 'approval') AS kind,
            CASE WHEN answer_seq IS NULL THEN 'pending' ELSE 'answered' END AS state,
            answer->>'$.answer' AS answer, answer->>'$.choice' AS choice, answer->>'$.reason' AS reason,
            nullif(answer->>'$.by', '') AS answered_by, asked, answered, date_diff('ms', asked, answered) / 1000 AS waited_s,
            (request->>'$.expires_at')::TIMESTAMPTZ AS expires, request->'$.details' AS details, seq, answer_seq
        FROM base.asked WHERE own""",
        {
            "state": "pending or answered",
            "waited_s": "seconds from request to answer",
            "details": "what the answer is bound to, JSON; NULL when it was kept as a blob",
        },
    ),
    View(
        "checkpoints",
        "One row a checkpoint. That it is listed does not mean that its snapshot was kept.",
        """
        SELECT session_id, seq, timestamp, task_id, payload->>'$.trigger' AS trigger,
            coalesce(payload->>'$.label', '') AS label, actor
        FROM base.events WHERE event_type = 'CheckpointCreated'""",
        {"trigger": "why it was taken", "label": "number of a stage, a label of a person, or empty"},
    ),
    View(
        "artifacts",
        "One row a file that was written, each time it was.",
        """
        SELECT session_id, seq, timestamp, task_id, activity_id, file->>'$.path' AS path, file->>'$.checksum' AS checksum,
            (file->>'$.size')::BIGINT AS size, (file->>'$.lines')::BIGINT AS lines, event_type AS source
        FROM (
            SELECT *, payload::JSON AS file FROM base.events WHERE event_type = 'FileWritten'
            UNION ALL SELECT *, unnest((payload->'$.files_generated')::JSON[]) AS file
            FROM base.events WHERE event_type = 'CodeGenerated')""",
        {"size": "bytes", "source": "FileWritten or CodeGenerated"},
    ),
    View(
        "effects",
        "One row a thing that was done to the world, or may have been: a file, a command, a call, a request, an activity.",
        """
        WITH undone AS (
            SELECT session_id, unnest((payload->'$.undoes')::BIGINT[]) AS seq
            FROM base.events WHERE event_type = 'FileRolledBack'),
        calls AS (
            SELECT session_id, started_seq AS seq, started AS timestamp, task_id, activity_id,
                CASE kind WHEN 'model' THEN 'request' WHEN 'tool' THEN 'call' ELSE 'activity' END AS what,
                activity_id AS name, effect,
                CASE WHEN compensated THEN 'compensated' WHEN state = 'completed' THEN 'done' WHEN state = 'failed'
                    THEN 'failed' ELSE 'unknown' END AS state, if(kind = 'tool', name, NULL) AS tool
            FROM activities
            WHERE effect <> 'none' AND kind <> 'stage' AND started_seq IS NOT NULL
                AND NOT (state = 'open' AND error_type IS NOT DISTINCT FROM 'NotRun')),
        files AS (
            SELECT e.session_id, e.seq, e.timestamp, e.task_id, coalesce(e.activity_id, c.activity_id) AS activity_id,
                'file' AS what, e.payload->>'$.path' AS name, 'idempotent' AS effect,
                CASE WHEN u.seq IS NOT NULL THEN 'rolled back' WHEN c.state IS NULL OR c.state = 'compensated' THEN 'done'
                    ELSE c.state END AS state, nullif(e.payload->>'$.tool', '') AS tool
            FROM base.events e
            LEFT JOIN base.events s ON s.session_id = e.session_id AND s.seq = e.parent_event
                AND s.event_type = 'ActivityStarted' AND e.payload->>'$.tool' IS NOT NULL
            LEFT JOIN calls c ON c.session_id = s.session_id AND c.task_id = s.task_id AND c.activity_id = s.activity_id
            LEFT JOIN (SELECT DISTINCT * FROM undone) u ON u.session_id = e.session_id AND u.seq = e.seq
            WHERE e.event_type = 'FileWritten'),
        commands AS (
            SELECT e.session_id, e.seq, e.timestamp, e.task_id, c.activity_id, 'command' AS what,
                e.payload->>'$.command' AS name, 'irreversible' AS effect,
                CASE WHEN d.seq IS NOT NULL OR c.state = 'compensated' THEN 'done' ELSE coalesce(c.state, 'unknown') END
                    AS state, c.tool
            FROM base.events e
            LEFT JOIN base.events s ON s.session_id = e.session_id AND s.seq = e.parent_event
                AND s.event_type = 'ActivityStarted'
            LEFT JOIN calls c ON c.session_id = s.session_id AND c.task_id = s.task_id AND c.activity_id = s.activity_id
            LEFT JOIN (SELECT session_id, min(seq) AS seq, payload->>'$.pid' AS pid, payload->>'$.started' AS started
                FROM base.events WHERE event_type = 'ProcessEnded' GROUP BY ALL) d ON d.session_id = e.session_id
                AND d.pid = e.payload->>'$.pid' AND d.started = e.payload->>'$.started'
            WHERE e.event_type = 'ProcessStarted'),
        declared AS (
            SELECT e.session_id, min(e.seq) AS seq, min(e.timestamp) AS timestamp, e.task_id, c.activity_id,
                e.payload->>'$.what' AS what, e.payload->>'$.name' AS name,
                coalesce(any_value(c.effect), 'irreversible') AS effect, coalesce(any_value(c.state), 'unknown') AS state,
                any_value(c.tool) AS tool
            FROM base.events e
            LEFT JOIN base.events s ON s.session_id = e.session_id AND s.seq = e.parent_event
                AND s.event_type = 'ActivityStarted'
            LEFT JOIN calls c ON c.session_id = s.session_id AND c.task_id = s.task_id AND c.activity_id = s.activity_id
            WHERE e.event_type = 'EffectDeclared' GROUP BY e.session_id, e.task_id, c.activity_id, 6, 7)
        SELECT * FROM calls UNION ALL SELECT * FROM files UNION ALL SELECT * FROM commands UNION ALL SELECT * FROM declared""",
        {
            "what": "file, command, call (of a tool), request (to a model), activity, or what an activity declared (row)",
            "name": "path, command line, activity, or the name declared",
            "effect": "idempotent or irreversible",
            "state": "done, failed, unknown (no result yet, or its outcome is not known), compensated or rolled back",
            "activity_id": "the activity that a file or command belongs to",
        },
    ),
    View(
        "usage",
        "One row for each event that reports tokens or cost.",
        f"""
        SELECT session_id, seq, timestamp, task_id, activity_id, event_type,
            coalesce(payload->>'$.name', if(event_type = 'MessageAdded', 'model', NULL)) AS name,
            coalesce(payload->>'$.kind', if(event_type = 'MessageAdded', 'model', 'step')) AS kind,
            payload->>'$.model' AS model, {_MEASURES}
        FROM base.events WHERE input_tokens IS NOT NULL OR output_tokens IS NOT NULL OR cost_usd IS NOT NULL""",
        {"name": "of the activity that reports"},
    ),
    View(
        "failures",
        "One row a failure: of an activity, of a task, of a check, or an error that was reported.",
        """
        SELECT session_id, seq, timestamp, task_id, activity_id, attempt,
            CASE event_type WHEN 'ActivityFailed' THEN 'activity' WHEN 'TaskFailed' THEN 'task' WHEN 'CheckFailed' THEN 'check'
                ELSE 'error' END AS what,
            payload->>'$.name' AS name, payload->>'$.error_type' AS error_type,
            coalesce(payload->>'$.error', payload->>'$.why', payload->>'$.message') AS error,
            CASE event_type WHEN 'TaskFailed' THEN coalesce(payload->>'$.cause', 'error') WHEN 'CheckFailed' THEN 'logic'
                WHEN 'ActivityFailed' THEN CASE WHEN payload->>'$.aborted' = 'true' THEN 'aborted'
                    WHEN payload->>'$.timed_out' = 'true' THEN 'timeout' ELSE 'error' END END AS cause,
            nullif(payload->>'$.traceback', '') AS traceback
        FROM base.events WHERE event_type IN ('ActivityFailed', 'TaskFailed', 'CheckFailed', 'ErrorOccurred')""",
        {
            "what": "activity, task, check (of a checked section) or error",
            "cause": "class of the failure: error, timeout, aborted, logic (a check), or the cause of a task's end",
        },
    ),
    View(
        "retries",
        "One row a failed try that another one followed.",
        """
        SELECT session_id, seq, timestamp, task_id, activity_id, attempt, payload->>'$.name' AS name,
            payload->>'$.error_type' AS error_type, payload->>'$.error' AS error,
            coalesce((payload->>'$.wait_s')::DOUBLE, 0) AS wait_s, execution_time_ms
        FROM base.events WHERE event_type = 'ActivityRetried'""",
        {"attempt": "number of the try that failed", "wait_s": "seconds until the next try"},
    ),
    View(
        "recoveries",
        "One row a recovery after a loss, with what was lost and what is done again, or a roll back after a failed check.",
        """
        SELECT session_id, seq, timestamp, task_id, payload->>'$.cause' AS cause, (payload->>'$.from_seq')::BIGINT AS from_seq,
            (payload->>'$.checkpoint_seq')::BIGINT AS checkpoint_seq,
            coalesce((payload->>'$.duration_ms')::DOUBLE, 0) AS duration_ms,
            coalesce((payload->>'$.lost_events')::BIGINT, 0) AS lost_events,
            coalesce(json_array_length(payload->'$.repeated'), 0)::BIGINT AS repeated,
            (coalesce(json_array_length(payload->'$.unknown'), 0)
                + coalesce(json_array_length(payload->'$.to_verify'), 0))::BIGINT AS unknown,
            payload->>'$.sentence' AS sentence, payload->'$.steps' AS steps,
            coalesce((payload->>'$.lost_work_s')::DOUBLE, 0) AS lost_work_s
        FROM base.events WHERE event_type = 'RecoveryCompleted'
        UNION ALL
        SELECT session_id, seq, timestamp, task_id, 'logic', (payload->>'$.checkpoint')::BIGINT,
            (payload->>'$.checkpoint')::BIGINT, NULL, 0, 0, 0, payload->>'$.sentence', NULL, NULL
        FROM base.events WHERE event_type = 'CheckFailed'""",
        {
            "cause": "worker_lost; resources: memory ran short; or logic: a check failed",
            "duration_ms": "NULL for a roll back",
            "from_seq": "the event that the task went on from",
            "checkpoint_seq": "the checkpoint that the state was read from, NULL when it was folded from the first event",
            "lost_events": "appended by the lost holder and never on disk; none of them was acknowledged in mode sync",
            "repeated": "open calls that run again",
            "unknown": "open calls of which a verify function or a person says whether they happened",
            "lost_work_s": "seconds that the repeated calls had taken, as far as is known; NULL for a roll back",
            "steps": "what detect, assess, prepare, restore, continue and verify came to, JSON",
        },
    ),
    View(
        "audit",
        "One row for each thing that somebody decided or that was spent: who, when, what and why.",
        """
        SELECT session_id, seq, timestamp, task_id, coalesce(nullif(payload->>'$.by', ''), actor) AS who,
            CASE event_type WHEN 'ControlRequested' THEN payload->>'$.action' WHEN 'ApprovalResolved' THEN 'answer'
                WHEN 'SessionCreated' THEN 'create' WHEN 'SessionForked' THEN 'fork' WHEN 'TaskQueued' THEN 'run'
                WHEN 'TaskResumed' THEN 'resume' WHEN 'TaskInterrupted' THEN 'pause' WHEN 'TaskCancelled' THEN 'cancel'
                WHEN 'TaskSuspended' THEN 'suspend' WHEN 'ActivityRetried' THEN 'retry' WHEN 'ConfigChanged' THEN 'configure'
                WHEN 'BudgetExceeded' THEN 'budget' WHEN 'CheckpointCreated' THEN 'checkpoint' ELSE 'spend' END AS action,
            CASE event_type
                WHEN 'ControlRequested' THEN concat_ws(': ', coalesce(payload->>'$.outcome', 'accepted'),
                    nullif(coalesce(nullif(payload->>'$.reason', ''), payload->>'$.args.reason'), ''))
                WHEN 'ApprovalResolved' THEN concat_ws(': ', payload->>'$.approval_id', payload->>'$.answer',
                    payload->>'$.choice', nullif(payload->>'$.reason', ''))
                WHEN 'SessionCreated' THEN payload->>'$.title'
                WHEN 'SessionForked' THEN concat_ws(' ', payload->>'$.parent_session', 'at', payload->>'$.parent_seq',
                    nullif(payload->>'$.direction', ''))
                WHEN 'TaskQueued' THEN concat_ws(' ', payload->>'$.target', 'retry of ' || (payload->>'$.retry_of'),
                    'rerun of ' || (payload->>'$.rerun_of'))
                WHEN 'TaskResumed' THEN concat_ws(': ', payload->>'$.cause', nullif(payload->>'$.instruction', ''))
                WHEN 'TaskCancelled' THEN payload->>'$.reason'
                WHEN 'TaskSuspended' THEN concat_ws(': ', payload->>'$.reason', nullif(payload->>'$.detail', ''))
                WHEN 'ActivityRetried' THEN concat_ws(' ', activity_id, payload->>'$.error_type', payload->>'$.error')
                WHEN 'CheckpointCreated' THEN payload->>'$.label'
                WHEN 'MessageAdded' THEN payload->>'$.model'
                WHEN 'TaskInterrupted' THEN payload->>'$.partial'
                WHEN 'ActivityCompleted' THEN activity_id
                ELSE payload END AS why, cost_usd
        FROM base.events
        WHERE event_type IN ('ControlRequested', 'ApprovalResolved', 'SessionCreated', 'SessionForked', 'TaskQueued',
                'TaskResumed', 'TaskInterrupted', 'TaskCancelled', 'TaskSuspended', 'ActivityRetried', 'ConfigChanged',
                'BudgetExceeded')
            OR cost_usd IS NOT NULL OR (event_type = 'CheckpointCreated' AND payload->>'$.trigger' = 'manual')""",
        {
            "who": "a person (user:...), engine, or whoever else acted",
            "action": "create, run, resume, pause, suspend, cancel, fork, retry, answer, configure, budget, checkpoint, "
            "spend, or what was asked of a task",
            "why": "reason, cause, answer, or what was paid for",
        },
    ),
    View(
        "provenance",
        "One row a file that was written, or a result of a task, with the prompt that caused it.",
        """
        WITH made AS (
            SELECT session_id, seq, timestamp, task_id, 'file' AS what, path, checksum FROM artifacts
            UNION ALL SELECT session_id, seq, timestamp, task_id, 'result', NULL, NULL
            FROM base.events WHERE event_type = 'TaskCompleted'),
        asked AS (
            SELECT session_id, origin, seq, timestamp, actor, event_type,
                CASE event_type WHEN 'MessageAdded' THEN payload->>'$.text'
                    ELSE concat_ws(' ', payload->>'$.target', payload->>'$.args') END AS prompt
            FROM base.story WHERE event_type = 'TaskQueued' OR (event_type = 'MessageAdded' AND payload->>'$.role' = 'user')),
        answered AS (
            SELECT session_id, seq, payload->>'$.model' AS model, payload->>'$.text' AS said
            FROM base.story WHERE event_type = 'MessageAdded' AND payload->>'$.role' = 'assistant')
        SELECT m.session_id, m.seq, m.timestamp, m.task_id, what, path, checksum, f.payload->>'$.tool' AS tool,
            a.prompt, a.origin || ':' || a.seq AS prompt_event, a.timestamp AS asked,
            CASE WHEN r.seq > a.seq THEN r.model END AS model, CASE WHEN r.seq > a.seq THEN r.said END AS said
        FROM made m
        JOIN base.events f ON f.session_id = m.session_id AND f.seq = m.seq
        ASOF LEFT JOIN asked a ON a.session_id = m.session_id AND m.seq > a.seq
        ASOF LEFT JOIN answered r ON r.session_id = m.session_id AND m.seq > r.seq""",
        {
            "what": "file or result",
            "tool": "of an agent, that wrote the file",
            "prompt": "what a person said last before it; of a workflow its target and arguments",
            "prompt_event": "event_id of the prompt, which an ancestor may hold",
            "model": "that answered the prompt last before it; NULL for a workflow",
            "said": "what it said then",
        },
    ),
)

LINEAGE: Final = View(
    "lineage(id)",
    "A session's events with those it inherited, in order; `id` may be shortened to any unique prefix.",
    f"""
        WITH chosen AS (
            SELECT CASE WHEN count(*) = 1 THEN min(session_id)
                WHEN bool_or(session_id = id) THEN id
                WHEN count(*) = 0 THEN error('there is no session ' || id)
                ELSE error(id || ' fits ' || count(*) || ' sessions; write more of the id') END AS session_id
            FROM base.sessions WHERE starts_with(session_id, id)),
        story AS MATERIALIZED (SELECT s.* FROM base.story s JOIN chosen USING (session_id)),
        caused AS (
            SELECT parent_event AS seq, list(origin || ':' || seq ORDER BY seq) AS triggered_events
            FROM story WHERE parent_event IS NOT NULL GROUP BY parent_event)
        SELECT origin || ':' || s.seq AS event_id, origin AS session_id, s.seq, event_type, timestamp, recorded_at, task_id,
            task_id AS workflow_id, activity_id, attempt, actor, payload::JSON AS payload, parent_event,
            coalesce(c.triggered_events, []) AS triggered_events, schema_version, ignorable, agent_version, {_MEASURES},
            depth > 0 AS inherited
        FROM story s LEFT JOIN caused c ON c.seq = s.seq ORDER BY s.seq""",
    {"session_id": "the session that holds the event", "inherited": "whether it is an ancestor's"},
)
