import assert from 'node:assert/strict';
import { test } from 'node:test';
import { render } from 'preact-render-to-string';

import { partedText, sideText } from '../src/branch/compare.js';
import { beginsAt, commandOf, directionOf, lossText, staysOf, titleOf, told } from '../src/branch/words.js';
import { ForkView } from '../src/branch/fork.js';
import { paceOf, stepped } from '../src/timeline/replay.js';
import type { Aftermath } from '../src/wire.js';
import { HOSTILE, aCard } from './fixtures.js';

const after = (more: Partial<Aftermath> = {}): Aftermath => ({ at: 9, nearest: 9, open: [], ended: false, effects: [], more: 0, ...more });

test('a fork inside an open activity begins before it, and says so', () => {
  assert.equal(beginsAt(after()), 9);
  const inside = after({ open: ['/b'], nearest: 8 });
  assert.equal(beginsAt(inside), 8);
  assert.deepEqual(told('fork', inside), [
    'A new session shares events 1 to 8; this one stays as it is.',
    'Event 9 lies inside b, which had no result yet: it begins at event 8.'
  ]);
  const nowhere = after({ open: ['/b'], nearest: null });
  assert.equal(beginsAt(nowhere), null);
  assert.match(told('fork', nowhere)[0] ?? '', /nothing before it can be forked/);
});

test('running again says that it costs and may differ, and no fork alone says so', () => {
  assert.match(told('rerun', after()).join(' '), /for real\. It costs again, and results may differ/);
  assert.doesNotMatch(told('fork', after()).join(' '), /costs/);
  assert.match(told('fork', after({ ended: true })).join(' '), /has ended there/);
});

test('what stays in the world is counted, also what is not listed', () => {
  assert.equal(staysOf(after()), 'Nothing outside was changed after that.');
  assert.equal(staysOf(after({ effects: ['file a'], more: 4 })), 'Still there from after that, and not undone (5):');
});

test('who can go on with a workflow depends on where it is defined', () => {
  const cell = { definition: '__main__', notebook: '/home/a/audit.ipynb', cell: 'c3' };
  assert.deepEqual(commandOf('resume', 'kx2m', cell), {
    where: 'in audit.ipynb, after the cells up to the one that started it (c3)',
    command: '%agent resume kx2m'
  });
  assert.equal(commandOf('rerun', 'kx2m', { ...cell, definition: 'flows.audit' }).command, 'ipyagent rerun kx2m --yes');
  assert.match(commandOf('rerun', 'kx2m', { definition: '', notebook: null, cell: null }).where, /the notebook that defines it/);
});

test('a direction that the server would refuse is not sent', () => {
  assert.equal(directionOf('  leave ctypes \n'), 'leave ctypes');
  assert.equal(directionOf('x'.repeat(2001)), null);
  assert.equal(titleOf('leave ctypes\nand the rest'), 'leave ctypes');
});

test('a short log is replayed event by event, a long one in about twelve seconds', () => {
  assert.deepEqual(paceOf(10), { by: 1, ms: 400 });
  const long = paceOf(10_000);
  const seconds = (10_000 / long.by) * (long.ms / 1000);
  assert.ok(seconds > 10 && seconds < 14, `${seconds}`);
  assert.equal(stepped(null, 1, 3), 0);
  assert.equal(stepped(1, 1, 3), 2);
  assert.equal(stepped(2, 1, 3), null);
});

test('two sessions are told in one sentence each', () => {
  assert.equal(sideText(aCard({ state: 'completed', headline: 'completed', total: 4, done: 4, elapsed_s: 63 })), 'completed, 1 min 3 s · 4 of 4 · 18.2 k tokens · $0.31');
  const found = { parted_in: 'p', parted_at: 30, differences: [], same: 1, more: 0 };
  assert.equal(partedText(found), 'They share events 1 to 30 and part there. Nothing differs, 1 result is the same.');
  assert.match(partedText({ ...found, parted_at: null, more: 1 }), /no history; activities are met by their names\. 1 differs/);
});

test('before a session is deleted a person reads what is lost and what depends on it', () => {
  const loss = { session_id: 'kx2m', title: 'Audit', state: 'completed', events: 20, tasks: 1, needs_you: 1, cost_usd: 0.31, bytes: 12_000, forks: ['b7w3'], workspace: '', workspace_bytes: 0, unclear: [], problem: '' };
  assert.deepEqual(lossText(loss), [
    'Audit (completed): 20 events, 1 task, 12.0 KB, the record of $0.31. This cannot be undone.',
    '1 request of it waits for an answer.',
    'Forked from it: b7w3. They get a copy of what they share with it first.'
  ]);
  assert.ok(!lossText({ ...loss, title: HOSTILE, state: HOSTILE, forks: [HOSTILE] }).join('').includes('\u202e'));
});

test('a form shows hostile names as text', () => {
  const yard = { api: { aftermath: () => new Promise<never>(() => undefined), fork: () => new Promise<never>(() => undefined) }, open: () => undefined, door: { why: HOSTILE, hint: '' }, resume: () => Promise.resolve() };
  const home = { definition: HOSTILE, notebook: HOSTILE, cell: HOSTILE };
  const markup = render(<ForkView yard={yard} sessionId="kx2m" at={3} way="rerun" home={home} made={() => undefined} close={() => undefined} />);
  assert.ok(!/<script|<img/i.test(markup), markup);
  assert.ok(!told('fork', after({ open: [HOSTILE], nearest: 2 })).join('').includes('\u202e'));
  assert.ok(!commandOf('resume', 'kx2m', home).where.includes('\u202e'));
});
