/**
 * Which notices are told: each once in this browser, whatever connections break and however many tabs are open. Pure, but for the
 * storage that it is given.
 */
import { isFields } from './guards.js';
import type { Notice } from './wire.js';

/** Where ids are kept: the browser's storage, which all tabs share. */
export interface Shelf {
  getItem(key: string): string | null;
  setItem(key: string, value: string): void;
}

export type Wish = 'all' | 'needs' | 'none';

const KEY = 'ipyagent:told';
const KEPT = 400;
const KINDS: ReadonlySet<string> = new Set(['needs_you', 'completed', 'failed', 'lost']);

export function asNotices(message: Record<string, unknown>): Notice[] {
  const list: unknown[] = Array.isArray(message['notices']) ? message['notices'] : [];
  return list.filter((each): each is Notice => {
    const texts = isFields(each) ? ['id', 'kind', 'session_id', 'title', 'text'].map(name => each[name]) : [undefined];
    return texts.every(text => typeof text === 'string') && KINDS.has(String(texts[1]));
  });
}

/**
 * Take the notices that nobody has told yet in this browser, and note that they are told now. In a browser that is here for the
 * first time nothing from before `since` (milliseconds since the epoch) is news.
 */
export function claimed(shelf: Shelf, notices: readonly Notice[], since: number): Notice[] {
  const known = readIds(shelf);
  const told = new Set(known ?? []);
  const fresh = notices.filter(each => !told.has(each.id));
  if (fresh.length > 0 || known === null) {
    try {
      shelf.setItem(KEY, JSON.stringify([...told, ...fresh.map(each => each.id)].slice(-KEPT)));
    } catch {
      // a full or forbidden storage: this tab tells, others may tell again
    }
  }
  return known === null ? fresh.filter(each => !(Date.parse(each.at) < since)) : fresh;
}

function readIds(shelf: Shelf): string[] | null {
  try {
    const ids: unknown = JSON.parse(shelf.getItem(KEY) ?? 'null');
    return Array.isArray(ids) ? ids.filter(id => typeof id === 'string') : null;
  } catch {
    return null;
  }
}

/** Whether a person wants to hear of it. */
export function isWanted(notice: Notice, wish: Wish): boolean {
  return wish === 'all' || (wish === 'needs' && notice.kind !== 'completed');
}

/** How it is shown: what needs somebody stays until it is seen to. */
export function lookOf(notice: Notice): { type: 'info' | 'success' | 'error' | 'warning'; stays: boolean } {
  return {
    type: ({ needs_you: 'warning', completed: 'success', failed: 'error', lost: 'warning' } as const)[notice.kind as 'lost'] ?? 'info',
    stays: notice.kind === 'needs_you'
  };
}
