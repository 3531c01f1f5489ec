import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Api } from '../src/api.js';
import { ApiError } from '../src/api-errors.js';
import { coloured } from '../src/comm/colours.js';
import { isWeb } from '../src/comm/rebuilt.js';
import { Line, type Model } from '../src/comm/wire.js';
import { LiveFeed, type Link } from '../src/live.js';
import type { Shown } from '../src/wire.js';
import { aShown } from './fixtures.js';

type Heard = (content: unknown, buffers: readonly DataView[]) => void;

interface Sent {
  type: string;
  nr: string;
  method: string;
  path: string;
  body: string;
  subscribe?: string[];
}

/** A widget's model whose kernel is the test, with time that passes when the test says so. */
class Fake implements Model {
  readonly sent: Sent[] = [];
  private readonly heard = new Set<Heard>();
  private timers: { run: () => void; at: number }[] = [];
  private now = 0;
  readonly later = (run: () => void, ms: number): (() => void) => {
    const timer = { run, at: this.now + ms };
    this.timers.push(timer);
    return () => (this.timers = this.timers.filter(each => each !== timer));
  };
  pass(ms: number): void {
    this.now += ms;
    const due = this.timers.filter(each => each.at <= this.now);
    this.timers = this.timers.filter(each => each.at > this.now);
    due.forEach(each => each.run());
  }
  get(): unknown {
    return '';
  }
  send(content: object): void {
    this.sent.push(content as Sent);
  }
  on(_: string, heard: Heard): void {
    this.heard.add(heard);
  }
  off(_: string, heard: Heard): void {
    this.heard.delete(heard);
  }
  say(content: object, body = ''): void {
    // as front ends do: a view into a larger buffer
    const bytes = new TextEncoder().encode(`xx${body}yy`);
    this.heard.forEach(heard => heard(content, [new DataView(bytes.buffer, 2, bytes.length - 4)]));
  }
  answer(nr: string, status: number, body: unknown): void {
    this.say({ type: 'answer', nr, status }, JSON.stringify(body));
  }
  get last(): Sent {
    return this.sent.at(-1) as Sent;
  }
}

function lineOf(page = 'p'): { model: Fake; line: Line; api: Api } {
  const model = new Fake();
  const line = new Line(model, page, model.later);
  return { model, line, api: new Api(line.carrier) };
}

const settled = (): Promise<void> => new Promise(resolve => setImmediate(resolve));

test('a request over the comm is the one that a server gets, and its answer is checked alike', async () => {
  const { model, api } = lineOf();
  const events = api.events('kx2m9qv4tz', 3, 10, 64);
  assert.deepEqual(
    { ...model.last, nr: '' },
    { type: 'ask', nr: '', method: 'GET', path: 'sessions/kx2m9qv4tz/events?after=3&limit=10&max_payload=64', body: '' }
  );
  model.answer(model.last.nr, 200, { events: [], next: null, inherited_until: 0, until: 3 });
  assert.equal((await events).until, 3);
  const outcome = api.control('kx2m9qv4tz', { action: 'pause', task_id: 'kx2m9qv4tz.1', expects: ['running'], args: {} });
  assert.equal(model.last.method, 'POST');
  assert.deepEqual(JSON.parse(model.last.body), { action: 'pause', task_id: 'kx2m9qv4tz.1', expects: ['running'], args: {} });
  model.answer(model.last.nr, 202, { outcome: 'pending', action: 'pause', control_id: null });
  assert.equal((await outcome).outcome, 'pending');
  const bad = api.aftermath('kx2m9qv4tz', 1);
  model.answer(model.last.nr, 200, { at: 'one' });
  await assert.rejects(bad, /does not understand/);
});

test('answers find their requests whatever their order, and those of another page are not taken', async () => {
  const { model, api } = lineOf();
  const [first, second] = [api.blob('kx2m9qv4tz', 'a'), api.blob('kx2m9qv4tz', 'b')];
  const [one, two] = model.sent.map(each => each.nr) as [string, string];
  model.say({ type: 'answer', nr: two.replace('p-', 'other-'), status: 200 }, 'foreign');
  model.say({ type: 'answer', nr: two, status: 200 }, 'second');
  model.say({ type: 'answer', nr: one, status: 200 }, 'first ü');
  assert.deepEqual(await Promise.all([first, second]), ['first ü', 'second']);
});

test('a refusal of the kernel is told with its reason, and silence as what it is', async () => {
  const { model, api } = lineOf();
  const refused = api.control('kx2m9qv4tz', { action: 'pause' });
  model.answer(model.last.nr, 409, { error: 'ControlRefused', message: 'the task is interrupted now', hint: 'look again', status: 409 });
  await assert.rejects(refused, (error: ApiError) => error.trouble === 'refused' && error.message === 'the task is interrupted now');
  const unheard = api.control('kx2m9qv4tz', { action: 'pause' });
  model.pass(30_000);
  await assert.rejects(unheard, (error: ApiError) => error.trouble === 'offline' && /a cell may keep it busy/.test(error.hint));
  model.answer(model.last.nr, 200, { outcome: 'accepted', action: 'pause' }); // too late, and nobody minds
});

test('the live stream opens with the first word of the kernel, breaks when it is silent, and is tried again', async () => {
  const { model, line } = lineOf();
  const links: Link[] = [];
  const seen: Shown[] = [];
  const feed = new LiveFeed({ connect: () => line.connect(), exists: () => Promise.resolve(true), later: model.later, random: () => 0.5 });
  feed.onLink(link => links.push(link));
  feed.watch('kx2m9qv4tz', { shown: shown => seen.push(shown), problem: () => undefined });
  assert.equal(feed.link, 'connecting');
  model.say({ type: 'live', message: { type: 'hello', api: 1, version: '0' } });
  await settled();
  assert.deepEqual(model.last.subscribe, ['kx2m9qv4tz']);
  model.say({ type: 'live', message: { type: 'card', shown: aShown({ done: 7 }) } });
  assert.equal(seen.at(-1)?.card.done, 7);
  for (let at = 0; at < 5; at++) {
    model.pass(5000);
    model.say({ type: 'live', message: { type: 'pulse' } });
  }
  assert.equal(feed.link, 'open');
  model.pass(16_000);
  await settled();
  assert.equal(feed.link, 'waiting');
  const before = model.sent.length;
  model.pass(1000);
  assert.deepEqual(model.sent.slice(before), [{ type: 'wanted' }]);
  model.say({ type: 'live', message: { type: 'card', shown: aShown({ done: 8 }) } });
  await settled();
  assert.deepEqual([feed.link, seen.at(-1)?.card.done], ['open', 8]);
  assert.deepEqual(links, ['connecting', 'open', 'waiting', 'connecting', 'open']);
});

test('of the addresses in an answer only those of the web may be followed', () => {
  assert.ok(isWeb('https://example.org/a?b=c#d') && isWeb('HTTP://example.org'));
  for (const bad of ['javascript:alert(1)', ' javascript:alert(1)', 'data:text/html,x', 'file:///etc/passwd', '//example.org', '/lab?reset', 'https:', 'https://a b', '']) {
    assert.ok(!isWeb(bad), bad);
  }
});

test('code keeps its text in colours, and a language that is not known stays plain', () => {
  const code = 'def f(x):\n    return "</code><script>" # why\n';
  const pieces = coloured(code, 'Python');
  assert.equal(pieces.map(piece => piece.text).join(''), code);
  const classesOf = (text: string): string | undefined => pieces.find(piece => piece.text === text)?.classes;
  assert.deepEqual([classesOf('def'), classesOf('"</code><script>"'), classesOf('# why')], ['tok-keyword', 'tok-string', 'tok-comment']);
  assert.equal(coloured('{"a": 1}', 'json').find(piece => piece.text === '1')?.classes, 'tok-number');
  assert.deepEqual(coloured(code, 'klingon'), [{ text: code, classes: '' }]);
});
