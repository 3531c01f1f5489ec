import assert from 'node:assert/strict';
import { test } from 'node:test';

import { asNotices, claimed, isWanted, lookOf, type Shelf } from '../src/notices.js';
import type { Notice } from '../src/wire.js';

const NOW = Date.UTC(2026, 0, 1, 12);

const notice = (id: string, kind = 'completed', at = '2026-01-01T13:00:00.000Z'): Notice => ({ id, kind, session_id: 's', title: 'T', text: 'x', at, notebook: null });

class Memory implements Shelf {
  readonly kept = new Map<string, string>();
  full = false;
  getItem(key: string): string | null {
    return this.kept.get(key) ?? null;
  }
  setItem(key: string, value: string): void {
    if (this.full) {
      throw new Error('QuotaExceededError');
    }
    this.kept.set(key, value);
  }
}

const ids = (notices: readonly Notice[]): string => notices.map(each => each.id).join(' ');

test('a transition is told once, after a reconnect and in other tabs too', () => {
  const shelf = new Memory();
  assert.equal(ids(claimed(shelf, [notice('a:1')], NOW)), 'a:1');
  assert.equal(ids(claimed(shelf, [notice('a:1'), notice('a:7')], NOW)), 'a:7');
  assert.equal(ids(claimed(shelf, [notice('a:1'), notice('a:7')], NOW)), '');
});

test('in a browser that is here for the first time the past is no news, afterwards it is', () => {
  const shelf = new Memory();
  const past = notice('a:1', 'completed', '2026-01-01T11:00:00.000Z');
  assert.equal(ids(claimed(shelf, [past, notice('c:3')], NOW)), 'c:3');
  const closed = notice('b:2', 'failed', '2026-01-01T11:30:00.000Z');
  assert.equal(ids(claimed(shelf, [past, closed], NOW)), 'b:2', 'it ended while the page was closed');
});

test('a storage that is full or holds something else costs no notice', () => {
  const full = new Memory();
  full.full = true;
  assert.equal(ids(claimed(full, [notice('a:1')], NOW)), 'a:1');
  const odd = new Memory();
  odd.kept.set('ipyagent:told', '{"a":1');
  assert.equal(ids(claimed(odd, [notice('a:1')], NOW)), 'a:1');
});

test('ids are kept within a bound', () => {
  const shelf = new Memory();
  for (let at = 0; at < 1000; at++) {
    claimed(shelf, [notice(`a:${at}`)], NOW);
  }
  assert.equal((JSON.parse(shelf.kept.get('ipyagent:told') ?? '[]') as string[]).length, 400);
});

test('what a person does not want to hear of is not shown, and a question stays', () => {
  assert.ok(isWanted(notice('a:1'), 'all') && !isWanted(notice('a:1'), 'needs') && isWanted(notice('a:1', 'failed'), 'needs'));
  assert.ok(!isWanted(notice('a:1', 'needs_you'), 'none'));
  assert.deepEqual(lookOf(notice('a:1', 'needs_you')), { type: 'warning', stays: true });
  assert.deepEqual(lookOf(notice('a:1')), { type: 'success', stays: false });
});

test('a notice that is none is left out', () => {
  assert.deepEqual(asNotices({ notices: [notice('a:1'), null, { id: 3 }, notice('a:2', 'party')] }).map(each => each.id), ['a:1']);
  assert.deepEqual(asNotices({}), []);
});
