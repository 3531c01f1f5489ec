import assert from 'node:assert/strict';
import { test } from 'node:test';
import { render } from 'preact-render-to-string';

import { TalkFeed } from '../src/talk/feed.js';
import { Marked, PieceView, TEXT_SHOWN } from '../src/talk/pieces.js';
import { withoutRemote } from '../src/talk/remote.js';
import { Talk, outcomeOf } from '../src/talk/talk.js';
import { MOST_ROWS, callText, costText, gridOf, piecesOf, plainOf } from '../src/talk/values.js';
import { TalkView } from '../src/talk/view.js';
import type { EventLine } from '../src/wire.js';
import { HOSTILE, anEvent } from './fixtures.js';

const inTask = (event: EventLine): EventLine => ({ ...event, task_id: 't.1' });
const started = (seq: number, id: string, kind: string, more = {}): EventLine =>
  inTask(anEvent(seq, 'ActivityStarted', seq, { activity_id: id, payload: { name: id.slice(1), kind, ...more } }));
const message = (seq: number, role: string, text: string, more = {}): EventLine =>
  inTask(anEvent(seq, 'MessageAdded', seq, { payload: { role, text, ...more } }));

const STORY: EventLine[] = [
  message(1, 'user', 'how many?'),
  started(2, '/gpt', 'model'),
  {
    ...message(3, 'assistant', 'let me **count**', { index: 1, model: 'gpt', message: { parts: [{ part_kind: 'thinking', content: 'hm' }, { part_kind: 'text', content: 'x' }] } }),
    ...{ activity_id: '/gpt', input_tokens: 1200, output_tokens: 30, cost_usd: 0.02 }
  },
  inTask(anEvent(4, 'ActivityCompleted', 4, { activity_id: '/gpt', payload: { name: 'gpt', kind: 'model', result: {} }, execution_time_ms: 2300 })),
  started(5, '/grep', 'tool', { args: [[], { pattern: 'TODO' }], effect: 'none' }),
  inTask(anEvent(6, 'ActivityRetried', 6, { activity_id: '/grep', attempt: 1, payload: { name: 'grep', error_type: 'OSError', error: 'busy' } })),
  inTask(anEvent(7, 'ActivityCompleted', 7, { activity_id: '/grep', attempt: 2, payload: { name: 'grep', kind: 'tool', result: { return: [1, 2] } } })),
  started(8, '/rm', 'tool', { args: {}, effect: 'irreversible' })
];

function talkOf(events: readonly EventLine[]): Talk {
  const talk = new Talk();
  events.forEach(event => talk.take(event));
  return talk;
}

test('a conversation is what was said and called, in order, and a request is told with its answer', () => {
  const items = talkOf(STORY).of('');
  assert.deepEqual(
    items.map(item => (item.kind === 'said' ? `${item.role}: ${item.text}` : `${item.name} ${item.fate} ${item.attempt}`)),
    ['user: how many?', 'assistant: let me **count**', 'grep ok 2', 'rm open 1']
  );
  const answer = items[1];
  assert.ok(answer?.kind === 'said');
  assert.equal(answer.thinking, 'hm');
  assert.equal(costText(answer.cost), '2.3 s · 1.2 k in, 30 out · $0.02');
});

test('a message at a place that was taken replaces what was said from there on', () => {
  const talk = talkOf([
    ...STORY,
    message(30, 'assistant', 'half an ans', { partial: true, index: 2 }),
    message(31, 'tool', 'grep: 1', { index: 2 }),
    message(32, 'assistant', 'once more', { index: 1 })
  ]);
  const said = talk.of('').flatMap(item => (item.kind === 'said' ? [`${item.text}${item.partial ? ' …' : ''}`] : []));
  assert.deepEqual(said, ['how many?', 'half an ans …', 'once more']);
});

test('what a tool told in place of a value is a failure, and its pictures belong to it', () => {
  const talk = talkOf([
    started(1, '/plot', 'tool', { args: [[], {}] }),
    inTask(anEvent(2, 'PictureMade', 2, { parent_event: 1, payload: { blob: 'b'.repeat(64), media_type: 'image/png' } })),
    inTask(anEvent(3, 'PictureMade', 3, { parent_event: 1, payload: { blob: 'c'.repeat(64), media_type: 'image/svg+xml' } })),
    inTask(anEvent(4, 'ActivityCompleted', 4, { activity_id: '/plot', payload: { kind: 'tool', result: { failed: 'no such column' } } }))
  ]);
  const [call] = talk.of('');
  assert.ok(call?.kind === 'called');
  assert.deepEqual([call.fate, call.error, call.result, call.args], ['failed', 'no such column', undefined, {}]);
  assert.deepEqual(call.pictures, [{ blob: 'b'.repeat(64), mime: 'image/png' }]);
  assert.deepEqual(outcomeOf({ return: 3, other: 1 }), { value: { return: 3, other: 1 }, told: '' });
});

test('what was open when the process died has no known outcome', () => {
  const talk = talkOf([...STORY, inTask(anEvent(9, 'TaskSuspended', 9, { payload: { reason: 'worker_lost' } }))]);
  const last = talk.items.at(-1);
  assert.equal(last?.kind === 'called' ? last.fate : '', 'lost');
  const waiting = talkOf([...STORY, inTask(anEvent(9, 'TaskSuspended', 9, { payload: { reason: 'approval' } }))]).items.at(-1);
  assert.equal(waiting?.kind === 'called' ? waiting.fate : '', 'open');
});

test('a card shows its own task only, and a failed request is a line of its own', () => {
  const other = anEvent(20, 'MessageAdded', 20, { task_id: 't.2', payload: { role: 'user', text: 'next' } });
  const failed = [started(21, '/gpt', 'model'), inTask(anEvent(22, 'ActivityFailed', 22, { activity_id: '/gpt', payload: { error_type: 'HTTP', error: '429' } }))];
  const talk = talkOf([...STORY, other, ...failed]);
  assert.equal(talk.of('t.2').length, 1);
  assert.deepEqual(
    talk.of('t.1').slice(-1).map(item => (item.kind === 'called' ? [item.model, item.fate, item.error] : [])),
    [[true, 'failed', 'HTTP: 429']]
  );
});

test('what is large stays on the server until somebody asks for it', () => {
  const talk = talkOf([
    message(1, 'assistant', '', { text_blob: 'f'.repeat(64) }),
    started(2, '/sql', 'tool', { args_blob: 'a'.repeat(64) }),
    inTask(anEvent(3, 'ActivityCompleted', 3, { activity_id: '/sql', payload: null, payload_bytes: 99_000 }))
  ]);
  const [said, call] = talk.of('');
  assert.ok(said?.kind === 'said' && said.blob === 'f'.repeat(64));
  assert.ok(call?.kind === 'called');
  assert.deepEqual([call.argsFrom?.blob, call.resultFrom], ['a'.repeat(64), { seq: 3, blob: null, bytes: 99_000 }]);
});

test('pictures, tables and text of a tool become pieces', () => {
  assert.deepEqual(piecesOf({ outputs: [{ output_type: 'stream', text: ['a\n', 'b'] }, { data: { 'image/png': 'iVBO', 'text/plain': '<Figure>' } }] }), [
    { kind: 'text', text: 'a\nb' },
    { kind: 'figure', figure: { mime: 'image/png', data: 'iVBO' } }
  ]);
  assert.deepEqual(piecesOf({ data: { 'text/html': '<b>x</b>', 'image/svg+xml': '<svg/>' } }), [{ kind: 'figure', figure: { mime: 'text/html', data: '<b>x</b>' } }]);
  assert.deepEqual(piecesOf([{ a: 1, b: 'x' }, { a: 2, c: null }]), [
    { kind: 'table', grid: { columns: ['a', 'b', 'c'], rows: [['1', 'x', ''], ['2', '', '']], count: 2 } }
  ]);
  assert.equal(gridOf({ columns: ['a'], rows: Array.from({ length: 90 }, (_, at) => [at]) })?.rows.length, MOST_ROWS);
  assert.deepEqual(piecesOf(null), []);
  assert.deepEqual(piecesOf('plain'), [{ kind: 'text', text: 'plain' }]);
  assert.equal(gridOf([{ a: {} }]), null);
});

test('recorded values lose the tags of their Python types', () => {
  assert.deepEqual(plainOf({ a: { $: 'tuple', v: [1, { $: 'int', v: '123' }] } }), { a: [1, '<int> 123'] });
  assert.deepEqual(plainOf({ $: 'dict', v: [[1, 'x']] }), { '1': 'x' });
  assert.equal(callText('grep', { pattern: 'TODO', deep: true }), 'grep(pattern="TODO", deep=true)');
  assert.equal(callText('now', null), 'now()');
  assert.equal(callText('f', { x: 'y'.repeat(500) }).length, 120);
});

test('nothing is fetched from elsewhere by looking at an answer, and nothing in it works as a button of the page', () => {
  const cleaned = withoutRemote(
    '<p>a <img src="https://evil.example/x.png?key=1" alt="b" /> <img src="data:image/png;base64,iVBO" /> <video src="//evil.example/v"></video>' +
      '<img srcset="https://evil.example/y 2x" src="data:image/png;base64,iVBO"><button data-commandlinker-command="filebrowser:delete">ok</button>' +
      '<span style="background:url(https://evil.example)">x</span><img src="data:image/svg+xml;base64,AAAA"></p>'
  );
  assert.ok(!/https:|\/\/evil|commandlinker|style=|srcset|svg/.test(cleaned), cleaned);
  assert.match(cleaned, /not loaded from evil\.example/);
  assert.match(cleaned, /<img src="data:image\/png;base64,iVBO" \/>/);
});

test('events are asked for from where the last answer looked, not from the last event it had', async () => {
  const asked: number[] = [];
  const feed = new TalkFeed(
    {
      talk: (_id, after) => {
        asked.push(after);
        const events = STORY.filter(event => event.seq > after);
        return Promise.resolve({ events, next: null, inherited_until: 0, until: 500 });
      }
    },
    'aaaa',
    () => undefined
  );
  await feed.upTo(500);
  await feed.upTo(500);
  await feed.upTo(501);
  assert.deepEqual(asked, [0, 500]);
  assert.equal(feed.talk.items.length, 4 + 1);
});

test('hostile text in a stream is text', () => {
  const api = { talk: () => new Promise<never>(() => undefined), blob: () => new Promise<never>(() => undefined), picture: () => new Promise<never>(() => undefined) };
  const markup = render(
    <TalkView api={api} draw={null} sessionId="kx2m" task="" seq={1} partial={HOSTILE} running tall={false} />
  );
  assert.ok(!/<script|<img/i.test(markup), markup);
  assert.ok(!markup.includes('\u202e') && !markup.includes('\u001b'));
});

test('a line of a megabyte is cut wherever a conversation shows it', () => {
  const api = { talk: () => new Promise<never>(() => undefined), blob: () => new Promise<never>(() => undefined), picture: () => new Promise<never>(() => undefined) };
  const long = 'x'.repeat(1_000_000);
  const shown = [
    <TalkView api={api} draw={null} sessionId="kx2m" task="" seq={1} partial={long} running tall={false} />,
    <Marked text={long} draw={null} />,
    <PieceView piece={{ kind: 'text', text: long }} draw={null} />,
    <PieceView piece={{ kind: 'table', grid: { columns: [long], rows: [[long]], count: 1 } }} draw={null} />
  ].map(part => render(part));
  shown.forEach(markup => assert.ok(markup.includes('xxx') && markup.length < TEXT_SHOWN + 1000, String(markup.length)));
});
