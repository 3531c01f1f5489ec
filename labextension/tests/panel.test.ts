import assert from 'node:assert/strict';
import { test } from 'node:test';

import { ApiError } from '../src/api-errors.js';
import { EVERYTHING, choicesOf, detailOf, filterText, groupOf, itemsOf, progressOf, summaryOf, type Choice, type Filter } from '../src/panel/groups.js';
import { RowStore } from '../src/panel/rows.js';
import { evenly, itemAt, windowOf } from '../src/view/virtual.js';
import type { ListMessage, Page, Row } from '../src/wire.js';
import { aRow } from './fixtures.js';

const ALL: Choice = { words: '', sort: '-updated', notebook: null, folded: new Set() };
const COUNTS = { total: 0, needs_you: 0, states: {} };

test('every state has its group, and who needs me comes first', () => {
  const group = (state: string, needs_you = 0): string => groupOf(aRow({ state, needs_you }));
  assert.deepEqual(
    ['queued', 'running', 'suspended', 'interrupted', 'lost', 'damaged', 'completed', 'cancelled', 'failed', 'empty'].map(state => group(state)),
    ['running', 'running', 'stopped', 'stopped', 'stopped', 'stopped', 'done', 'done', 'done', 'done']
  );
  assert.equal(group('suspended', 1), 'needs');
  assert.equal(group('running', 1), 'needs');
  assert.equal(group('cancelled', 1), 'done');
});

test('the list is grouped, sorted inside groups, searched in all words, and folds', () => {
  const rows = [
    aRow({ session_id: 'a', title: 'Backfill', updated_at: '2026-01-02' }),
    aRow({ session_id: 'b', title: 'Audit', updated_at: '2026-01-03' }),
    aRow({ session_id: 'c', title: 'Churn', state: 'completed', cost_usd: 4 })
  ];
  const told = (choice: Partial<Choice>): string[] =>
    itemsOf(rows, { ...ALL, ...choice }).map(item => (item.kind === 'group' ? `${item.name} ${item.count}` : item.row.title));
  assert.deepEqual(told({}), ['Running 2', 'Audit', 'Backfill', 'Done 1', 'Churn']);
  assert.deepEqual(told({ sort: 'title', folded: new Set(['done']) }), ['Running 2', 'Audit', 'Backfill', 'Done 1']);
  assert.deepEqual(told({ words: 'CHURN  completed', folded: new Set(['done']) }), ['Done 1', 'Churn']);
  assert.deepEqual(told({ words: 'nothing like it' }), []);
});

test('only this notebook', () => {
  const rows = [aRow({ session_id: 'a' }), aRow({ session_id: 'b', notebook: '/x/other.ipynb' }), aRow({ session_id: 'c', notebook: null })];
  const items = itemsOf(rows, { ...ALL, notebook: 'audit.ipynb' }, recorded => recorded.endsWith('/audit.ipynb'));
  assert.equal(items.filter(item => item.kind === 'row').length, 1);
});

test('ten thousand rows are grouped, sorted and searched in under 100 ms', () => {
  const rows = Array.from({ length: 10_000 }, (_, at) =>
    aRow({ session_id: `s${at}`, title: `Session ${at}`, state: at % 3 ? 'completed' : 'running', updated_at: String(at) })
  );
  const times = [1, 2, 3].map(() => {
    const before = performance.now();
    assert.ok(itemsOf(rows, { ...ALL, words: 'session 99' }).length > 100);
    return performance.now() - before;
  });
  assert.ok(Math.min(...times) < 100, `${times.join(' ')} ms`);
});

test('a row says what counts and nothing twice', () => {
  const now = Date.parse('2026-01-01T10:02:00.000Z');
  assert.equal(progressOf(aRow()), '30 %');
  assert.equal(progressOf(aRow({ total: null })), '3 done');
  assert.equal(progressOf(aRow({ state: 'completed' })), '');
  assert.equal(detailOf(aRow({ cost_usd: 1.94 }), now), 'running · 2 min · $1.94 · audit.ipynb');
  assert.equal(detailOf(aRow({ state: 'suspended', needs_you: 1, detail: 'approve delete_files' }), now), 'approve delete_files · 2 min · audit.ipynb');
  assert.equal(detailOf(aRow({ state: 'failed', detail: '403 from server', notebook: null }), now), 'failed: 403 from server · 2 min');
});

test('the status bar counts what goes on and is silent otherwise', () => {
  assert.equal(summaryOf({ total: 9, needs_you: 1, states: { running: 2, completed: 6 } }), '2 running, 1 needs you');
  assert.equal(summaryOf({ total: 9, needs_you: 2, states: {} }), '2 need you');
  assert.equal(summaryOf({ ...COUNTS }), '');
  assert.equal(summaryOf(null), '');
});

test('only rows in sight are drawn, however many there are', () => {
  const offsets = evenly(10_000, 44);
  const [first, last] = windowOf(offsets, 220_000, 600);
  assert.ok(first <= 5000 && last >= 5013 && last - first < 40);
  assert.deepEqual(windowOf(evenly(0, 44), 0, 600), [0, 0]);
  assert.equal(itemAt([0, 28, 72, 116], 30), 1);
  assert.deepEqual(windowOf([0, 28, 72, 116], 0, 600), [0, 3]);
});

function storeOf(pages: (Page | ApiError)[]): { store: RowStore; tell: (message: Partial<ListMessage>) => void } {
  let told: (message: ListMessage) => void = () => undefined;
  const store = new RowStore(
    {
      sessions: () => {
        const page = pages.shift() ?? new ApiError('offline', 'gone');
        return page instanceof ApiError ? Promise.reject(page) : Promise.resolve(page);
      }
    },
    {
      watchList: listener => {
        told = listener;
        return () => undefined;
      },
      onLink: () => () => undefined
    }
  );
  return { store, tell: message => told({ type: 'list', changed: [], removed: [], counts: COUNTS, revision: 1, filling: false, ...message }) };
}

const page = (rows: Row[], next: string | null = null): Page => ({ rows, next, matched: rows.length, counts: COUNTS, revision: 1, filling: false, left_out: 0 });
const settled = (): Promise<void> => new Promise(resolve => setImmediate(resolve));

test('pages add up, and what changes is taken in', async () => {
  const { store, tell } = storeOf([page([aRow({ session_id: 'a' })], 'next'), page([aRow({ session_id: 'b' })])]);
  store.open();
  await settled();
  assert.deepEqual([...store.rows.keys()], ['a', 'b']);
  tell({ changed: [aRow({ session_id: 'c' }), aRow({ session_id: 'a', done: 9 })], removed: ['b'] });
  assert.deepEqual([...store.rows.keys()], ['a', 'c']);
  assert.equal(store.rows.get('a')?.done, 9);
});

test('a server without our part gives a reason and a way out, and what was known stays', async () => {
  const { store } = storeOf([page([aRow()]), new ApiError('missing', 'not running', 'install it')]);
  store.open();
  await settled();
  await store.load();
  assert.deepEqual([store.trouble, store.hint, store.rows.size], ['missing', 'install it', 1]);
});

test('the list is narrowed by state, notebook, model and cost', () => {
  const rows = [
    aRow({ session_id: 'a', model: 'gpt', cost_usd: 2 }),
    aRow({ session_id: 'b', state: 'failed', notebook: '/x/other.ipynb', cost_usd: 0.05 }),
    aRow({ session_id: 'c', notebook: null, model: 'claude' })
  ];
  const left = (filter: Partial<Filter>): string =>
    itemsOf(rows, { ...ALL, filter: { ...EVERYTHING, ...filter } }).map(item => (item.kind === 'row' ? item.row.session_id : '')).join('');
  assert.equal(left({}), 'acb');
  assert.equal(left({ state: 'failed' }), 'b');
  assert.equal(left({ notebook: '/x/other.ipynb' }), 'b');
  assert.equal(left({ model: 'claude' }), 'c');
  assert.equal(left({ cost: 0.01 }), 'ab');
  assert.equal(left({ cost: 1, model: 'gpt' }), 'a');
  assert.deepEqual(choicesOf(rows), { states: ['failed', 'running'], notebooks: ['/home/a/audit.ipynb', '/x/other.ipynb'], models: ['claude', 'gpt'] });
  assert.equal(filterText({ state: 'failed', notebook: '/x/other.ipynb', model: '', cost: 1 }), 'failed · other.ipynb · from $1.00');
  assert.equal(filterText(EVERYTHING), '');
});
