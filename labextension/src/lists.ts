/** Messages about the list of sessions: read, and put together. Pure. */
import { asCounts, asRow } from './guards.js';
import type { ListMessage } from './wire.js';

export function asList(message: Record<string, unknown>): ListMessage {
  const { changed, removed, revision, filling } = message;
  return {
    type: 'list',
    changed: Array.isArray(changed) ? changed.map(asRow) : [],
    removed: Array.isArray(removed) ? removed.filter(id => typeof id === 'string') : [],
    counts: asCounts(message['counts']),
    revision: Number(revision),
    filling: filling === true
  };
}

/** Two list messages as one: the later row of a session counts, and what is removed later is not changed. */
export function merged(old: ListMessage, fresh: ListMessage): ListMessage {
  const gone = new Set(fresh.removed);
  const rows = new Map(old.changed.filter(row => !gone.has(row.session_id)).map(row => [row.session_id, row]));
  for (const row of fresh.changed) {
    rows.set(row.session_id, row);
  }
  const removed = new Set([...old.removed.filter(id => !rows.has(id)), ...fresh.removed]);
  return { ...fresh, changed: [...rows.values()], removed: [...removed] };
}
