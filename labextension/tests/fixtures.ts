/** Pictures and events for tests. */
import type { Ask, Card, EventLine, Row, Shown } from '../src/wire.js';

export function aCard(more: Partial<Card> = {}): Card {
  return {
    session_id: 'kx2m9qv4tz',
    task_id: 'kx2m9qv4tz.1',
    title: 'Audit of the standard library',
    target: 'audit',
    state: 'running',
    headline: 'running',
    reason: '',
    detail: '',
    elapsed_s: 512.4,
    done: 126,
    total: 194,
    failed: 0,
    retried: 0,
    stage: '2.3',
    stage_name: 'asyncio, email, json',
    now: ['analyse:email (attempt 2)'],
    text: '',
    remaining_s: 250,
    remaining_basis: '126 activities took 4.1 s each',
    checkpoint_age_s: 40,
    checkpoint_label: '2.2',
    checkpoint_seq: 310,
    checkpoint_next_s: 240,
    durability: 'sync',
    risk: 'every result is on disk before the next step sees it',
    cpu_percent: 45,
    memory: 1.2e9,
    memory_total: 6.8e9,
    disk_used_percent: 28,
    tokens: 18_200,
    cost_usd: 0.31,
    asks: [],
    alarms: [],
    actions: { pause: '', resume: 'it is running', cancel: '', log: '' },
    seq: 400,
    goal: null,
    attempt: 1,
    recoveries: 0,
    recovery: '',
    pausing: false,
    kind: 'workflow',
    model: '',
    requests: 0,
    partial: '',
    unpriced: 0,
    ...more
  };
}

export function anAsk(more: Partial<Ask> = {}): Ask {
  return {
    approval_id: 'a1',
    question: 'Delete the build folders?',
    details: '{"paths":["build/","dist/"]}',
    digest: 'd1',
    kind: 'approval',
    choices: [],
    if_ignored: 'denied at 18:40',
    since_s: 12,
    expires_at: null,
    details_blob: null,
    ...more
  };
}

export function aShown(more: Partial<Card> = {}, partial = ''): Shown {
  const card = aCard(more);
  return { session_id: card.session_id, card, partial, silent_since: null, holder: null };
}

export function aRow(more: Partial<Row> = {}): Row {
  return {
    session_id: 'kx2m9qv4tz',
    state: 'running',
    title: 'Audit',
    task_id: 'kx2m9qv4tz.1',
    target: 'audit',
    notebook: '/home/a/audit.ipynb',
    reason: '',
    detail: '',
    done: 3,
    total: 10,
    failed: 0,
    needs_you: 0,
    tasks: 1,
    cost_usd: 0,
    input_tokens: 0,
    output_tokens: 0,
    created_at: '2026-01-01T10:00:00.000Z',
    updated_at: '2026-01-01T10:00:00.000Z',
    parent: null,
    model: '',
    silent_since: null,
    problem: '',
    ...more
  };
}

/** An event at second `at`. */
export function anEvent(seq: number, event_type: string, at: number, more: Partial<EventLine> = {}): EventLine {
  return { seq, event_type, timestamp: new Date(Date.UTC(2026, 0, 1) + at * 1000).toISOString(), ...more };
}

export const HOSTILE = '<script>alert(1)</script><img src=x onerror="alert(2)">\u202egnp.exe\u001b[31m javascript:alert(3)';
