import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { NotUnderstood, asKnown, asPage, asShown, taskRefOf } from '../src/guards.js';
import { aRow, aShown } from './fixtures.js';

test('an output may only name ids', () => {
  assert.deepEqual(taskRefOf({ session_id: 'kx2m', task_id: 'kx2m.1', title: 'forged' }), { session_id: 'kx2m', task_id: 'kx2m.1' });
  for (const bad of [null, [], 'kx2m', {}, { session_id: 'a/../b', task_id: '' }, { session_id: 'a', task_id: 3 }, { session_id: '', task_id: '' }]) {
    assert.equal(taskRefOf(bad), null);
  }
});

test('a picture that lacks a field is refused by name', () => {
  assert.equal(asShown(aShown()).card.done, 126);
  const broken = structuredClone(aShown()) as unknown as { card: Record<string, unknown> };
  broken.card['done'] = '126';
  assert.throws(() => asShown(broken), (error: unknown) => error instanceof NotUnderstood && error.message.includes('card.done'));
  assert.throws(() => asShown('<html>log in</html>'), NotUnderstood);
});

test('fields of a newer server are kept, not refused', () => {
  const page = { rows: [{ ...aRow(), later: 1 }], next: null, matched: 1, counts: { total: 1, needs_you: 0, states: {} }, revision: 1, filling: false };
  assert.equal(asPage(page).rows.length, 1);
});

test('the types of this page are those of docs/server-api.md', () => {
  const root = new URL('../../../', import.meta.url); // from lib/tests/tests
  const documented = /```ts\n([\s\S]*?)\n```/.exec(readFileSync(new URL('../docs/server-api.md', root), 'utf8'))?.[1];
  const ours = readFileSync(new URL('src/wire.ts', root), 'utf8').split('\n').slice(2).join('\n').trim();
  assert.equal(ours, documented?.trim(), 'copy the block of docs/server-api.md into src/wire.ts');
});

test('where each task of a session ended is taken from its lines', () => {
  const known = asKnown({
    shown: aShown(),
    title: 'Audit',
    header: { notebook: 'a.ipynb', parent: { session: 'p', seq: 7 } },
    tasks: [{ task_id: 't.1', last_seq: 9 }, { task_id: 't.2' }, 'x'],
    children: ['c', 3],
    cell: null,
    definition: '__main__'
  });
  assert.deepEqual([...known.ends], [['t.1', 9]]);
  assert.deepEqual([known.parent, known.forkedAt, known.children, known.cell, known.definition], ['p', 7, ['c'], null, '__main__']);
});
