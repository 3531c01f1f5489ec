import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Coalescer } from '../src/coalesce.js';
import { merged } from '../src/lists.js';
import { LiveFeed, type Link, type Socket } from '../src/live.js';
import type { ListMessage, Shown } from '../src/wire.js';
import { aRow, aShown } from './fixtures.js';

/** Time that passes when a test says so. */
class Clock {
  private waiting: { run: () => void; at: number }[] = [];
  now = 0;
  readonly later = (run: () => void, ms: number): (() => void) => {
    const entry = { run, at: this.now + ms };
    this.waiting.push(entry);
    return () => (this.waiting = this.waiting.filter(each => each !== entry));
  };
  pass(ms: number): void {
    const end = this.now + ms;
    for (;;) {
      const next = this.waiting.filter(each => each.at <= end).sort((a, b) => a.at - b.at)[0];
      if (next === undefined) {
        break;
      }
      this.waiting = this.waiting.filter(each => each !== next);
      this.now = next.at;
      next.run();
    }
    this.now = end;
  }
}

class FakeSocket implements Socket {
  onopen: Socket['onopen'] = null;
  onclose: Socket['onclose'] = null;
  onmessage: Socket['onmessage'] = null;
  readonly sent: { subscribe?: string[]; list?: boolean }[] = [];
  closed = false;
  send(text: string): void {
    this.sent.push(JSON.parse(text) as { subscribe?: string[] });
  }
  close(): void {
    this.closed = true;
  }
  tell(message: object): void {
    this.onmessage?.({ data: JSON.stringify(message) } as MessageEvent);
  }
  open(): void {
    this.onopen?.({} as Event);
    this.tell({ type: 'hello', api: 1, version: '0' });
  }
  break(): void {
    this.onclose?.({} as CloseEvent);
  }
}

function feedOf(exists = true): { feed: LiveFeed; clock: Clock; sockets: FakeSocket[]; links: Link[] } {
  const clock = new Clock();
  const sockets: FakeSocket[] = [];
  const feed = new LiveFeed({
    connect: () => {
      const socket = new FakeSocket();
      sockets.push(socket);
      return socket;
    },
    exists: () => Promise.resolve(exists),
    later: clock.later,
    random: () => 0.5
  });
  const links: Link[] = [];
  feed.onLink(link => links.push(link));
  return { feed, clock, sockets, links };
}

const soon = (): Promise<void> => new Promise(resolve => setImmediate(resolve));
const ignore = { shown: () => undefined, problem: () => undefined };
const list = (more: Partial<ListMessage>): ListMessage => ({
  type: 'list',
  changed: [],
  removed: [],
  counts: { total: 0, needs_you: 0, states: {} },
  revision: 1,
  filling: false,
  ...more
});

test('the first value goes out at once, the rest together and only the newest of each', () => {
  const clock = new Clock();
  const got: string[] = [];
  const coalescer = new Coalescer<string, number>((key, value) => got.push(`${key}${value}`), 100, clock.later);
  for (let value = 1; value <= 50; value++) {
    coalescer.put('a', value);
    coalescer.put('b', value);
  }
  assert.deepEqual(got, ['a1']);
  clock.pass(100);
  assert.deepEqual(got, ['a1', 'b50', 'a50']);
  clock.pass(1000);
  coalescer.put('a', 51);
  assert.deepEqual(got.slice(3), ['a51']);
});

test('a thousand pictures in a second become at most eleven', () => {
  const clock = new Clock();
  let count = 0;
  const coalescer = new Coalescer<string, number>(() => count++, 100, clock.later);
  for (let at = 0; at < 1000; at++) {
    coalescer.put('a', at);
    clock.pass(1);
  }
  assert.ok(count <= 11, String(count));
});

test('no socket before somebody watches, and none after the last has gone', async () => {
  const { feed, sockets, links } = feedOf();
  assert.equal(sockets.length, 0);
  const one = feed.watch('aaaa', ignore);
  const two = feed.watch('bbbb', ignore);
  sockets[0]?.open();
  await soon();
  assert.deepEqual(sockets[0]?.sent, [{ subscribe: ['aaaa', 'bbbb'] }]);
  one();
  await soon();
  assert.deepEqual(sockets[0]?.sent[1], { subscribe: ['bbbb'] });
  two();
  assert.equal(sockets[0]?.closed, true);
  assert.equal(links.at(-1), 'idle');
  assert.equal(sockets.length, 1);
});

test('cards, panel and status bar share one socket', async () => {
  const { feed, sockets } = feedOf();
  feed.watch('aaaa', ignore);
  feed.watch('aaaa', ignore);
  feed.watchList(() => undefined);
  feed.watchList(() => undefined);
  sockets[0]?.open();
  await soon();
  assert.equal(sockets.length, 1);
  assert.deepEqual(sockets[0]?.sent, [{ subscribe: ['aaaa'], list: true }]);
});

test('after a break it comes back later and later, and says again what it watches', async () => {
  const { feed, clock, sockets, links } = feedOf();
  feed.watch('aaaa', ignore);
  sockets[0]?.open();
  await soon();
  sockets[0]?.break();
  await soon();
  assert.equal(links.at(-1), 'waiting');
  clock.pass(499);
  assert.equal(sockets.length, 1);
  clock.pass(1);
  assert.equal(sockets.length, 2);
  sockets[1]?.break();
  await soon();
  clock.pass(999);
  assert.equal(sockets.length, 2);
  clock.pass(1);
  sockets[2]?.open();
  await soon();
  assert.deepEqual(sockets[2]?.sent, [{ subscribe: ['aaaa'] }]);
  assert.equal(links.at(-1), 'open');
});

test('a server without our part is told apart from one that is away', async () => {
  const { feed, sockets, links } = feedOf(false);
  feed.watch('aaaa', ignore);
  sockets[0]?.break();
  await soon();
  assert.equal(links.at(-1), 'missing');
});

test('a newcomer gets the newest picture at once, and a broken message harms nobody', async () => {
  const { feed, sockets } = feedOf();
  feed.watch('kx2m9qv4tz', ignore);
  sockets[0]?.open();
  await soon();
  sockets[0]?.onmessage?.({ data: '{{{' } as MessageEvent);
  sockets[0]?.tell({ type: 'card', shown: { session_id: 'kx2m9qv4tz', card: {} } });
  sockets[0]?.tell({ type: 'card', shown: aShown() });
  const got: Shown[] = [];
  feed.watch('kx2m9qv4tz', { shown: shown => got.push(shown), problem: () => undefined });
  assert.equal(got.length, 1);
});

test('two list messages as one: what is gone stays gone, what came back stays', () => {
  const old = list({ changed: [aRow({ session_id: 'a' }), aRow({ session_id: 'b' })], removed: ['c'] });
  const one = merged(old, list({ changed: [aRow({ session_id: 'c' })], removed: ['a'] }));
  assert.deepEqual(one.changed.map(row => row.session_id).sort(), ['b', 'c']);
  assert.deepEqual(one.removed, ['a']);
});
