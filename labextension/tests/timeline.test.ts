import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Axis, View, gapsOf, since, ticks } from '../src/timeline/axis.js';
import { EventFeed } from '../src/timeline/feed.js';
import { Lanes } from '../src/timeline/lanes.js';
import { storyOf, wordsOf } from '../src/timeline/story.js';
import type { EventLine } from '../src/wire.js';
import { HOSTILE, anEvent } from './fixtures.js';

function lanesOf(events: EventLine[]): Lanes {
  const lanes = new Lanes();
  events.forEach(event => lanes.take(event));
  return lanes;
}

const started = (seq: number, at: number, id: string, more: Partial<EventLine> = {}): EventLine =>
  anEvent(seq, 'ActivityStarted', at, { activity_id: id, payload: { name: 'look' }, ...more });
const completed = (seq: number, at: number, id: string): EventLine =>
  anEvent(seq, 'ActivityCompleted', at, { activity_id: id, payload: { name: 'look' } });

test('parallel activities get rows of their own, and rows are used again', () => {
  const lanes = lanesOf([started(1, 0, 'a'), started(2, 0.1, 'b'), completed(3, 1, 'a'), started(4, 1.5, 'c')]);
  assert.deepEqual(
    lanes.bars.map(bar => [bar.id, bar.row, bar.fate]),
    [
      ['a', 0, 'ok'],
      ['b', 1, 'open'],
      ['c', 0, 'open']
    ]
  );
  assert.equal(lanes.rows.activities, 2);
});

test('each attempt is a bar', () => {
  const lanes = lanesOf([
    started(1, 0, 'a'),
    anEvent(2, 'ActivityRetried', 60, { activity_id: 'a', attempt: 1, payload: { name: 'look', error_type: 'TimeoutError', error: '60 s', wait_s: 5 } }),
    completed(3, 70, 'a')
  ]);
  assert.deepEqual(
    lanes.bars.map(bar => [bar.attempt, bar.fate, (bar.end ?? 0) - bar.start]),
    [
      [1, 'failed', 60_000],
      [2, 'ok', 5_000]
    ]
  );
});

test('a lost process leaves outcomes unknown', () => {
  const lanes = lanesOf([started(1, 0, 'a'), anEvent(2, 'TaskSuspended', 5, { payload: { reason: 'worker_lost' } })]);
  assert.equal(lanes.bars[0]?.fate, 'lost');
  assert.equal(lanes.marks[0]?.bad, true);
});

test('an approval is a bar as long as it waits', () => {
  const lanes = lanesOf([
    anEvent(1, 'ApprovalRequested', 0, { payload: { approval_id: 'x', question: 'Delete?' } }),
    anEvent(2, 'ApprovalResolved', 90, { payload: { approval_id: 'x', answer: 'approved', by: 'user:a' } })
  ]);
  assert.deepEqual([lanes.bars[0]?.lane, lanes.bars[0]?.fate, lanes.bars[0]?.note], ['approvals', 'ok', 'approved']);
});

test('a clock that runs backwards does not turn time around', () => {
  const lanes = lanesOf([anEvent(1, 'TaskQueued', 10), anEvent(2, 'TaskStarted', 4), anEvent(3, 'TaskCompleted', 12)]);
  assert.deepEqual(lanes.times.map(time => time - lanes.begin), [0, 0, 2000]);
  assert.equal(lanes.indexAt(lanes.begin + 1000), 1);
  assert.equal(lanes.indexAt(lanes.begin - 1), -1);
});

test('three days of waiting are folded, and places and times stay one to one', () => {
  const day = 86_400_000;
  const times = [0, 60_000, 3 * day, 3 * day + 60_000];
  const gaps = gapsOf(times, [[0, 60_000], [3 * day, 3 * day + 60_000]]);
  assert.deepEqual(gaps, [{ from: 60_000, to: 3 * day }]);
  const axis = new Axis(0, 3 * day + 60_000, gaps);
  assert.ok(axis.length < 130_000);
  for (const time of [0, 1000, 60_000, day, 3 * day, 3 * day + 59_000]) {
    assert.ok(Math.abs(axis.time(axis.place(time)) - time) < 1, String(time));
  }
});

test('time in which something runs is never folded', () => {
  assert.deepEqual(gapsOf([0, 3_600_000, 3_601_000], [[0, 3_600_000]]), []);
});

test('zoom keeps what is under the pointer, and stays within the whole', () => {
  const axis = new Axis(0, 100_000, []);
  const view = new View(axis, 0, axis.length, 0, 1000);
  const [from, to] = view.zoomed(2, 250);
  assert.equal(new View(axis, from, to, 0, 1000).time(250), view.time(250));
  assert.deepEqual(view.zoomed(0.5, 300), [0, 100_000]);
  assert.deepEqual(new View(axis, 0, 50_000, 0, 1000).panned(-5000), [50_000, 100_000]);
});

test('ticks are round, apart, and few even across a folded week', () => {
  const week = 604_800_000;
  const axis = new Axis(0, week, [{ from: 60_000, to: week - 60_000 }]);
  const view = new View(axis, 0, axis.length, 0, 800);
  const labels = ticks(view);
  assert.ok(labels.length >= 3 && labels.length < 20, String(labels.length));
  assert.deepEqual([0, 0.5, 90, 120, 3600, 5400].map(since), ['0', '500 ms', '1:30 min', '2 min', '1 h', '1 h 30']);
});

test('10,000 events become lanes in well under 200 ms', () => {
  const events = Array.from({ length: 10_000 }, (_, at) =>
    at % 2 === 0 ? started(at + 1, at / 20, `s/look:${at >> 1}`) : completed(at + 1, at / 20, `s/look:${at >> 1}`)
  );
  const times = [1, 2, 3].map(() => {
    const before = performance.now();
    const lanes = lanesOf(events);
    gapsOf(lanes.times, lanes.bars.map(bar => [bar.start, bar.end ?? 0] as const));
    assert.equal(lanes.bars.length, 5000);
    return performance.now() - before;
  });
  assert.ok(Math.min(...times) < 150, `${times.join(' ')} ms`);
});

test('events are fetched once, in order, page after page', async () => {
  const all = Array.from({ length: 25 }, (_, at) => anEvent(at + 1, 'ActivityProgressed', at));
  const asked: number[] = [];
  const feed = new EventFeed(
    {
      detail: () => Promise.reject(new Error('not asked for')),
      events: (_id, after) => {
        asked.push(after);
        const events = all.slice(after, after + 10);
        return Promise.resolve({ events, next: after + 10 < all.length ? after + 10 : null, inherited_until: 0, until: after + events.length });
      }
    },
    'aaaa',
    () => undefined
  );
  await feed.upTo(25);
  assert.deepEqual(asked, [0, 10, 20]);
  assert.equal(feed.events.length, 25);
  all.push(anEvent(26, 'TaskCompleted', 30));
  await Promise.all([feed.upTo(26), feed.upTo(26)]);
  assert.deepEqual([feed.events.length, feed.lanes.lastSeq, asked.length], [26, 26, 4]);
});

test('the end of a cancelled task and a resume say what is left', () => {
  const cancelled = { reason: 'enough', compensated: ['a'], needs_person: ['b'], still_running: ['c'] };
  assert.equal(
    storyOf(anEvent(1, 'TaskCancelled', 0, { payload: cancelled })),
    'enough; undone: a; undoing failed, a person is needed: b; still running: c'
  );
  assert.equal(storyOf(anEvent(1, 'TaskCancelled', 0, { payload: {} })), '');
  assert.equal(
    storyOf(anEvent(1, 'TaskResumed', 0, { payload: { cause: 'approval', not_restored: ['kernel variables', 'open connections'] } })),
    'after approval; not restored: kernel variables, open connections'
  );
});

test('an unknown type is told with its payload, a hostile one as text', () => {
  assert.equal(storyOf(anEvent(1, 'Weird', 0, { payload: { a: 1 } })), '{"a":1}');
  assert.equal(storyOf(anEvent(1, 'FileWritten', 0, { payload: { path: 'a.py', checksum: null } })), 'a.py removed');
  assert.equal(storyOf(anEvent(1, 'FileRolledBack', 0, { payload: { path: 'a.py', undoes: [7], checksum: 'sha256:0' } })), 'a.py is back');
  assert.equal(storyOf(anEvent(1, 'FileRolledBack', 0, { payload: { path: 'b.py', undoes: [8], checksum: null } })), 'b.py is removed: it was not there before');
  assert.equal(storyOf(anEvent(1, 'EffectDeclared', 0, { payload: { what: 'row', name: 'orders/17', note: 'price 3 -> 4' } })), 'row orders/17: price 3 -> 4');
  assert.equal(wordsOf('ActivityStarted'), 'activity started');
  assert.ok(!storyOf(anEvent(1, 'AlarmRaised', 0, { payload: { kind: 'x', text: HOSTILE } })).includes('\u202e'));
  assert.equal(storyOf(anEvent(1, 'TaskFailed', 0, { payload: null, payload_bytes: 5000 })), '(5.0 KB)');
});
